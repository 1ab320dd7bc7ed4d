use super::*;
use crate::server::flow_ids::MAX_TAGGED;

fn insert(
    map: &mut PortMap,
    number: Option<u32>,
    name: &str,
    interface: &str,
) -> Result<u32, &'static str> {
    let home = Location {
        switch: 1,
        interface: interface.into(),
    };
    map.insert(number, name.into(), home, "snic0", Executor::Home)
        .map_err(|e| e.code())
}

#[test]
fn what_contradicts_another_port_is_refused() {
    let mut map = PortMap::default();
    assert_eq!(insert(&mut map, Some(2), "a", "i"), Ok(2));
    assert_eq!(
        insert(&mut map, Some(2), "b", "j"),
        Err("port-number-taken")
    );
    assert_eq!(
        insert(&mut map, Some(0), "b", "j"),
        Err("number-out-of-range")
    );
    assert_eq!(
        insert(&mut map, Some(MAX_NUMBER + 1), "b", "j"),
        Err("number-out-of-range")
    );
    assert_eq!(insert(&mut map, None, "a", "j"), Err("name-taken"));
    assert_eq!(
        insert(&mut map, None, "sixteen-letters-", "j"),
        Err("name-too-long")
    );
    assert_eq!(insert(&mut map, Some(4), "fifteen-letters", "l"), Ok(4));
    map.remove(4);
    map.revision = 1;
    assert_eq!(insert(&mut map, None, "b", "i"), Err("interface-taken"));
    assert_eq!(map.revision, 1);
    assert_eq!(insert(&mut map, None, "b", "j"), Ok(1));
    assert_eq!(insert(&mut map, None, "c", "k"), Ok(3));
    assert_eq!(map.get(3).unwrap().flow_id, 3);
    map.remove(1);
    assert_eq!(insert(&mut map, Some(9), "d", "j"), Ok(9));
    assert_eq!(
        map.get(9).unwrap().flow_id,
        2,
        "a flow-id that is free again"
    );
}

#[test]
fn an_interface_that_a_port_moves_to_is_taken() {
    let mut map = PortMap::default();
    insert(&mut map, Some(1), "a", "i").unwrap();
    let to = Location {
        switch: 1,
        interface: "j".into(),
    };
    let moving = Move::new(to, Executor::Home, MoveUntil::Done);
    map.get_mut(1).unwrap().moving = Some(moving);
    assert_eq!(insert(&mut map, None, "b", "j"), Err("interface-taken"));
}

#[test]
fn flow_ids_run_out_before_numbers_do() {
    let mut map = PortMap {
        id_space: IdSpace::Tagged,
        ..PortMap::default()
    };
    // Others may still be in packets in flight.
    map.quarantine.restore(6..=MAX_TAGGED);
    for name in ["a", "b", "c", "d"] {
        insert(&mut map, None, name, name).unwrap();
    }
    let exhausted = Err("flow-ids-exhausted");
    let home = Location {
        switch: 1,
        interface: "e".into(),
    };
    // Executed elsewhere, a port needs two.
    let inserted = map.insert(None, "e".into(), home, "snic0", Executor::At(0));
    assert_eq!(inserted.map_err(|e| e.code()), exhausted);
    assert_eq!(insert(&mut map, None, "e", "e"), Ok(5));
    assert_eq!(map.get(5).unwrap().flow_id, 5);
    assert_eq!(insert(&mut map, None, "f", "f"), exhausted);
    assert_eq!(MAX_TAGGED, 4080);
    map.id_space = IdSpace::Wide;
    assert_eq!(insert(&mut map, None, "f", "f"), Ok(6));
    assert_eq!(map.get(6).unwrap().flow_id, 4096);
}
