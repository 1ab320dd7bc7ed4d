//! Operations whose completions are late or lost.

use std::sync::Arc;

use nf_arena::{ArenaBuilder, Heap};

use super::*;
use crate::{engine::Engine, table::ConnectionTable, Hashing};

type Table = Arc<ConnectionTable<Ipv4Flow, Heap>>;

const CREDITS: usize = 8;

/// The queues of one engine, the engine, and its table.
struct Nic {
    queues: Queues,
    engine: Engine<Ipv4Flow, Region, Table>,
    table: Table,
    terms: Terms,
}

fn nic() -> (Nic, Operations) {
    let shape = Shape::new(4, 1, Hashing::Chained).unwrap();
    let memory = Heap::new(ConnectionTable::<Ipv4Flow, Heap>::words(shape)).unwrap();
    let table = Arc::new(ConnectionTable::open(memory, shape).unwrap());
    let mut arena = ArenaBuilder::fresh("test", 1).unwrap();
    let ipv4 = arena.region("ipv4", "queues", QueuePair::words::<Ipv4Flow>(CREDITS));
    let ipv6 = arena.region("ipv6", "queues", QueuePair::words::<Ipv6Flow>(CREDITS));
    let queues = Queues {
        ipv4: vec![ipv4.unwrap()],
        ipv6: vec![ipv6.unwrap()],
    };
    arena.finish().unwrap();
    let mut engine = Engine::new(Arc::clone(&table), shape, 0, 1).unwrap();
    let end = QueuePair::engine_end(queues.ipv4[0].clone(), CREDITS).unwrap();
    assert!(engine.attach(end).is_ok());
    let terms = Terms {
        prefix: 7,
        engines: 1,
        depth: 4,
        width: 1,
        skewed: false,
        credits: CREDITS,
        evicts: false,
        period_ms: 2000,
    };
    let operations = Operations::new(shape, &terms, &queues).unwrap();
    let nic = Nic {
        queues,
        engine,
        table,
        terms,
    };
    (nic, operations)
}

fn flow(number: u8) -> Ipv4Flow {
    Ipv4Flow {
        source: [192, 0, 2, number].into(),
        destination: [198, 51, 100, 1].into(),
        source_port: 4000,
        destination_port: 80,
        protocol: 6,
    }
}

fn poll(nic: &Nic, operations: &mut Operations, now: Instant) -> Vec<Done> {
    let mut all = Vec::new();
    operations.poll(&nic.terms, now, &mut all).unwrap();
    all
}

#[test]
fn a_lost_completion_is_noticed_after_a_while_and_the_operation_can_be_done_again() {
    let (mut nic, mut operations) = nic();
    let (start, key) = (Instant::now(), flow(1).key());
    let work = Work::Insert(key, 5, 8080);
    assert!(operations.submit(&nic.terms, &work));
    assert!(poll(&nic, &mut operations, start).is_empty());
    assert!(poll(&nic, &mut operations, start + PATIENCE / 2).is_empty());
    assert_eq!(
        poll(&nic, &mut operations, start + PATIENCE),
        [Done::Lost(work)]
    );
    // The engine was slow: it does both, and the first completion belongs to nothing any more.
    operations.repeat(work);
    assert!(
        !operations.submit(&nic.terms, &Work::Delete(key)),
        "it must not overtake"
    );
    assert!(poll(&nic, &mut operations, start + PATIENCE).is_empty());
    while nic.engine.poll() > 0 {}
    assert_eq!(
        poll(&nic, &mut operations, start + PATIENCE),
        [Done::Inserted(key)]
    );
    let decision = nic.table.lookup(&flow(1)).unwrap().decision;
    assert_eq!((decision.rs_index, decision.rs_port), (7 << 16 | 5, 8080));
    assert!(operations.submit(&nic.terms, &Work::Delete(key)));
    while nic.engine.poll() > 0 {}
    assert_eq!(
        poll(&nic, &mut operations, start + PATIENCE),
        [Done::Deleted(key)]
    );
    assert_eq!(nic.table.lookup(&flow(1)), None);
}

#[test]
fn a_missing_completion_is_lost_when_a_later_one_comes() {
    let (mut nic, mut operations) = nic();
    let (start, other) = (Instant::now(), Work::Delete(flow(2).key()));
    let work = Work::Insert(flow(1).key(), 5, 8080);
    assert!(operations.submit(&nic.terms, &work) && operations.submit(&nic.terms, &other));
    while nic.engine.poll() > 0 {}
    QueuePair::lose::<Ipv4Flow, _>(&nic.queues.ipv4[0], CREDITS, 0);
    let done = [Done::Lost(work), Done::Deleted(flow(2).key())];
    assert_eq!(poll(&nic, &mut operations, start), done);
}

#[test]
fn operations_beyond_the_credits_wait() {
    let (mut nic, mut operations) = nic();
    let works = (0..=CREDITS as u8).map(|number| Work::Delete(flow(number).key()));
    let taken = works
        .filter(|work| operations.submit(&nic.terms, work))
        .count();
    assert_eq!(taken, CREDITS);
    while nic.engine.poll() > 0 {}
    assert_eq!(poll(&nic, &mut operations, Instant::now()).len(), CREDITS);
    assert!(operations.submit(&nic.terms, &Work::Delete(flow(1).key())));
}

#[test]
fn a_flow_between_ip_versions_is_refused() {
    let (nic, mut operations) = nic();
    let mut key = flow(1).key();
    key.source = [1; 16];
    assert!(operations.submit(&nic.terms, &Work::Insert(key, 5, 8080)));
    let refused = Done::Refused(key, Refused::Unsupported);
    assert_eq!(poll(&nic, &mut operations, Instant::now()), [refused]);
}
