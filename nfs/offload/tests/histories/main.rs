//! The promises of the ledger over random histories: packets, installs, refusals, removals, losses, moves and kills.

#![allow(clippy::unwrap_used)]

mod memory;
mod model;
mod promotion;
mod table;
mod world;

use memory::Memory;
use nf_offload::{CounterId, Direction, Event, Ledger, Listing, Outcome, Rows, RuleId, TargetId};
use table::Table;
use world::{cases, counters_of, flow, play_all, target};

type World = world::World<Table>;

#[test]
fn a_rule_never_contradicts_a_record_and_every_packet_is_counted_once() {
    play_all::<Table>(cases(1000));
}

#[test]
fn a_flow_is_used_when_its_counts_grow_and_free_when_its_removal_is_effective() {
    let mut world = World::new();
    let (flow, rule) = (flow(1), RuleId(1 << 40));
    assert!(world
        .ledger
        .install(flow, 2, TargetId(2), Direction::ToBackend));
    assert!(
        !world
            .ledger
            .install(flow, 2, TargetId(2), Direction::ToBackend),
        "the flow has a rule"
    );
    assert!(
        !world
            .ledger
            .install(self::flow(2), 3, TargetId(3), Direction::ToBackend),
        "the target does not exist"
    );
    let mut handle = |event| world.ledger.handle(event);
    assert_eq!(handle(Event::Installed(rule)), None);
    assert_eq!(handle(Event::Counted(rule, 3)), Some(Outcome::Used(flow)));
    assert_eq!(handle(Event::Counted(rule, 3)), None);
    assert_eq!(handle(Event::Counted(rule, 1)), None);
    assert_eq!(handle(Event::Counted(rule, 2)), Some(Outcome::Used(flow)));
    assert_eq!(handle(Event::Idle(rule)), None);
    assert_eq!(handle(Event::Effective(rule)), Some(Outcome::Free(flow)));
    assert_eq!(handle(Event::Effective(rule)), None);
}

#[test]
fn a_backend_has_a_counter_for_each_direction() {
    assert_eq!(counters_of(0), [CounterId(0), CounterId(1)]);
    assert_eq!(counters_of(0x7fff), [CounterId(0xfffe), CounterId(0xffff)]);
    let mut world = World::new();
    let (id, to) = target(2);
    world.ledger.put_target(id, to);
    let direction = Direction::ToBackend;
    assert_eq!(CounterId::of(0x8000, direction), None);
    assert!(!world.ledger.install(flow(1), 0x8000, id, direction));
}

#[test]
fn what_totals_have_grown_by_is_added_and_totals_that_fall_add_nothing() {
    let mut world = World::new();
    let counter = CounterId(4);
    let mut carried = |packets, bytes| {
        let outcome = world.ledger.handle(Event::Carried(counter, packets, bytes));
        assert_eq!(outcome, None);
        world.memory.tally(counter).carried
    };
    assert_eq!(carried(10, 1000), [10, 1000]);
    assert_eq!(carried(10, 1000), [10, 1000]);
    assert_eq!(carried(13, 1300), [13, 1300]);
    assert_eq!(carried(4, 400), [13, 1300]);
    assert_eq!(carried(6, 600), [15, 1500]);
    assert_eq!(carried(5, 700), [15, 1500], "fewer packets, but more bytes");
    assert_eq!(carried(6, 701), [16, 1501]);
    // The counter of a former instance, with more backends.
    let unknown = Event::Carried(CounterId(u16::MAX), 1, 1);
    assert_eq!(world.ledger.handle(unknown), None);
}

#[test]
fn a_new_instance_counts_from_the_listed_totals_and_a_later_life_from_those_told_last() {
    let memory = Memory::new(1);
    let lists = |carried: &[(CounterId, u64, u64)], epoch| {
        let mut ledger = Ledger::open(memory.clone(), epoch);
        ledger.reconcile(&Listing {
            rules: Vec::new(),
            carried: carried.to_vec(),
        });
        [0, 1].map(|number| memory.tally(CounterId(number)).carried)
    };
    let (zero, one) = (CounterId(0), CounterId(1));
    assert_eq!(lists(&[(zero, 5, 500)], 1), [[0, 0]; 2]);
    let told = [(zero, 7, 700), (one, 1, 100)];
    assert_eq!(lists(&told, 2), [[2, 200], [1, 100]]);
    assert_eq!(lists(&told, 3), [[2, 200], [1, 100]]);
    // The second one is zero.
    assert_eq!(lists(&[(zero, 8, 800)], 4), [[3, 300], [1, 100]]);
    let told = [(zero, 8, 800), (one, 1, 100)];
    assert_eq!(lists(&told, 5), [[3, 300], [2, 200]]);
}
