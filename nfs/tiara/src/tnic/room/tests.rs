//! The ledger's random histories over a T-NIC: real sessions, queues and engines; resets, kills, lost completions, one entry, one operation a second.

#[path = "../../../../offload/tests/histories/memory.rs"]
mod memory;
#[path = "../../../../offload/tests/histories/model.rs"]
mod model;
mod nic;
#[path = "../../../../offload/tests/histories/world.rs"]
#[allow(dead_code)]
mod world;

use model::Model;
use nf_offload::{CounterId, Direction, Driver, Event, Request, RuleId};
use nic::TestNic;
use world::{cases, flow, play_all, target};

/// Each history opens about ten sessions, with sockets and memory of their own.
const EVERYDAY: u32 = 100;

#[test]
fn an_entry_never_contradicts_a_record_and_every_packet_is_counted_once() {
    play_all::<TestNic<4, 2, false>>(cases(EVERYDAY));
}

#[test]
fn a_table_with_one_entry_refuses_or_evicts_all_other_flows() {
    play_all::<TestNic<1, 1, false>>(cases(EVERYDAY));
}

#[test]
fn engines_with_one_operation_a_second_leave_packets_to_the_load_balancer() {
    play_all::<TestNic<4, 2, true>>(cases(EVERYDAY / 2));
}

#[test]
fn rules_without_signals_are_told_as_idle_and_signals_beyond_the_budget_wait() {
    let nic = TestNic::<64, 2, false>::default();
    let mut driver = nic.writer(1, 1);
    while driver.list().is_none() {
        nic.settle();
    }
    let (id, to) = target(0);
    let counter = CounterId(0);
    let install = |number: u16| {
        let rule = RuleId(number.into());
        Request::Install(rule, flow(number), id, counter, Direction::ToBackend)
    };
    let requests: Vec<Request> = std::iter::once(Request::PutTarget(id, to))
        .chain((0..40).map(install))
        .collect();
    let mut taken = 0;
    let mut exchange = |driver: &mut nic::Handle| {
        taken += driver.submit(&requests[taken..]);
        nic.work(None);
        let mut events = Vec::new();
        driver.poll(&mut events).unwrap();
        events
    };
    let mut installed = 0;
    while installed < 40 {
        let events = exchange(&mut driver);
        installed += events
            .iter()
            .filter(|event| matches!(event, Event::Installed(_)))
            .count();
    }
    // All flows are active. The budget is a signal each 50 ms, and two at once.
    let carry = || {
        (0..40).for_each(|number| {
            nic.carry(flow(number), false);
        })
    };
    carry();
    let mut idle: Vec<RuleId> = Vec::new();
    let mut note = |events: Vec<Event>| {
        idle.extend(events.iter().filter_map(|event| match event {
            Event::Idle(rule) => Some(*rule),
            _ => None,
        }));
    };
    note(exchange(&mut driver));
    assert_eq!(nic.signals(), [2, 38]);
    // A flow that has not signalled tries again with its next packet.
    (0..50).for_each(|_| note(exchange(&mut driver)));
    carry();
    note(exchange(&mut driver));
    assert_eq!(nic.signals()[0], 3);
    // Nobody sends any more.
    (0..100).for_each(|_| note(exchange(&mut driver)));
    idle.sort_unstable();
    assert_eq!(idle, (0..40).map(RuleId).collect::<Vec<_>>(), "each once");
}
