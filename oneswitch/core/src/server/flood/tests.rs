use super::*;
use crate::server::ports::{Executor, PortMap};

fn map(ports: &[(u32, SwitchIndex)]) -> PortMap {
    let mut map = PortMap::default();
    for (number, switch) in ports {
        let home = Location {
            switch: *switch,
            interface: format!("if{number}"),
        };
        map.insert(
            Some(*number),
            format!("p{number}"),
            home,
            "s",
            Executor::Home,
        )
        .unwrap();
    }
    map
}

#[test]
fn a_change_reaches_the_receivers_before_the_senders() {
    let mut flood = Flood::new(&map(&[(1, 0)]));
    let first = flood.current().number;
    flood.refresh(&map(&[(1, 0)]));
    assert_eq!(flood.current().number, first, "nothing changed");
    flood.refresh(&map(&[(1, 0), (2, 1)]));
    let second = flood.current().number;
    assert!(!flood.is_in_force(second));
    assert_eq!(flood.of_senders().number, first);
    assert_eq!(flood.next_step(|_| true), Some(Step::PointSenders));
    flood.sent(5);
    assert_eq!(flood.next_step(|batch| batch < 5), None);
    assert_eq!(
        flood.next_step(|batch| batch <= 5),
        Some(Step::PointSenders)
    );
    flood.senders_pointed(6);
    assert_eq!(flood.of_senders().number, second);
    assert_eq!(flood.next_step(|batch| batch <= 5), None);
    assert_eq!(flood.next_step(|batch| batch <= 6), Some(Step::InForce));
    flood.in_force();
    assert!(flood.is_in_force(second));
    assert_eq!(flood.of_senders().number, second);
    assert_eq!(flood.next_step(|_| true), None);
}

#[test]
fn changes_that_no_sender_knows_are_one_change() {
    let mut flood = Flood::new(&map(&[(1, 0)]));
    let first = flood.current().number;
    for last in 2..50 {
        let ports: Vec<(u32, SwitchIndex)> = (1..last).map(|n| (n, 0)).collect();
        flood.refresh(&map(&ports));
    }
    assert_eq!(flood.current().number, first + 1);
    assert_eq!(flood.current().members.len(), 48);
}

#[test]
fn ids_of_lists_that_packets_can_be_under_way_for_differ() {
    let mut flood = Flood::new(&map(&[]));
    for last in 2..40u32 {
        let ports: Vec<(u32, SwitchIndex)> = (1..last).map(|n| (n, 1)).collect();
        flood.refresh(&map(&ports));
        flood.sent(last.into());
        flood.senders_pointed(last.into());
        if last % 3 == 0 {
            flood.in_force();
        }
        let mut ids: Vec<FlowId> = flood.generations().map(Generation::flow_id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), flood.generations().count());
        assert!(ids
            .iter()
            .all(|id| *id > crate::server::flow_ids::MAX_TAGGED));
    }
}

#[test]
fn no_two_lists_have_the_same_flow_id_after_a_restart() {
    for number in 1..=3 * MULTICASTS {
        let mut flood = Flood::new(&map(&[(1, 0)]));
        flood.resume(number);
        assert_eq!(flood.current().number, number);
        // Before the restored list is in force, too.
        for last in 2..4 {
            let mut ids: Vec<FlowId> = flood.generations().map(Generation::flow_id).collect();
            let count = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), count);
            let ports: Vec<(u32, SwitchIndex)> = (1..=last).map(|n| (n, 0)).collect();
            flood.refresh(&map(&ports));
        }
    }
}
