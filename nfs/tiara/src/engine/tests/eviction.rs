//! Tests of full chains: refusals, evictions, and their notices.

use super::*;

#[test]
fn an_insertion_into_a_full_chain_does_not_touch_the_table() {
    let mut system = System::new(shape(1, 2, Hashing::Chained), 1, 1, 1);
    assert_eq!(
        [1, 2].map(|number| system.run(0, insert(number, 1))),
        [Outcome::Inserted; 2]
    );
    // The engine would take these places if it looked at them.
    for slot in [0, 1] {
        system.table.clear(Slot(slot));
    }
    assert_eq!(system.run(0, insert(3, 1)), Outcome::Full);
    assert_eq!(system.engines[0].counts().full, 1);
}

#[test]
fn the_least_used_flow_is_evicted_and_its_load_balancer_told() {
    let mut system = System::new(shape(1, 3, Hashing::Chained), 1, 0, 1);
    system.engines = vec![
        Engine::new(system.table.clone(), system.table.shape(), 0, 1)
            .unwrap()
            .with_eviction(),
    ];
    system.add_smux(4);
    system.add_smux(4);
    for number in 1..=3 {
        assert_eq!(system.run(0, insert(number, 1)), Outcome::Inserted);
    }
    let hit = |system: &System<Ipv4Flow>, numbers: &[u64]| {
        for number in numbers {
            let found = system.table.lookup(&flow(*number)).unwrap();
            system.table.mark(found.slot);
        }
    };
    for hits in [&[1, 2, 3][..], &[1, 3], &[1, 2, 3], &[1, 3]] {
        hit(&system, hits);
        system.engines[0].end_period(0);
    }
    let evicting = |number, usage| Operation::Insert {
        key: flow(number),
        decision: decision(1),
        evict: Some(usage),
    };
    let held = |system: &System<Ipv4Flow>| -> Vec<u64> {
        (1..=6)
            .filter(|&number| system.table.lookup(&flow(number)).is_some())
            .collect()
    };
    // Flow 2 is idle: a new flow takes its place, and the first load balancer hears of it.
    assert_eq!(system.run(1, insert(4, 1)), Outcome::Full);
    assert_eq!(system.run(1, evicting(4, 1 << 7)), Outcome::Inserted);
    assert_eq!(held(&system), [1, 3, 4]);
    let told = system.settle(0);
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].tag, told[0].outcome),
        (None, Outcome::Evicted(flow(2)))
    );
    // All are used. Flow 4 is the least used, but as much as another new flow.
    assert_eq!(system.run(0, evicting(5, 1 << 7)), Outcome::Full);
    assert_eq!(system.run(0, evicting(5, 0b1100_0000)), Outcome::Inserted);
    assert_eq!(held(&system), [1, 3, 5]);
    assert_eq!(system.engines[0].counts().evicted, 2);
}

#[test]
fn evictions_wait_for_room_for_their_notices() {
    let mut system = System::new(shape(1, 1, Hashing::Chained), 1, 0, 1);
    system.engines = vec![
        Engine::new(system.table.clone(), system.table.shape(), 0, 1)
            .unwrap()
            .with_eviction(),
    ];
    system.add_smux(2);
    system.add_smux(2);
    assert_eq!(system.run(0, insert(0, 1)), Outcome::Inserted);
    let evicting = |system: &mut System<Ipv4Flow>, smux: usize, number: u64| {
        system.engines[0].end_period(0);
        let operation = Operation::Insert {
            key: flow(number),
            decision: decision(1),
            evict: Some(0xff),
        };
        system.smuxes[smux]
            .submit(operation, number as u32)
            .unwrap();
        while system.engines[0].poll() > 0 {}
    };
    // The first load balancer takes no completions: a second notice could cost the room for those of its two credits.
    evicting(&mut system, 0, 1);
    evicting(&mut system, 1, 2);
    let outcomes = |system: &mut System<Ipv4Flow>, smux| -> Vec<_> {
        let completed = system.settle(smux);
        completed
            .iter()
            .map(|completed| completed.outcome)
            .collect()
    };
    assert_eq!(outcomes(&mut system, 1), [Outcome::Full]);
    let told = [Outcome::Evicted(flow(0)), Outcome::Inserted];
    assert_eq!(outcomes(&mut system, 0), told);
    evicting(&mut system, 1, 2);
    assert_eq!(outcomes(&mut system, 1), [Outcome::Inserted]);
    assert_eq!(outcomes(&mut system, 0), [Outcome::Evicted(flow(1))]);
    // Nobody hears of an eviction from a load balancer that has gone.
    system.engines[0].detach(1);
    evicting(&mut system, 0, 3);
    assert_eq!(outcomes(&mut system, 0), [Outcome::Inserted]);
}
