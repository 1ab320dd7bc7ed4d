//! Operations in progress at the engines.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use nf_arena::Region;
use nf_offload::{FlowKey, Refused};
use nf_tables::{Ipv4Flow, Ipv6Flow};

use crate::{
    engine::{Completed, Corrupt, Offloader, Operation, Outcome, QueuePair},
    flow::{AnyFlow, Flow},
    session::{Queues, Terms},
    table::{Decision, Shape, TableError},
};

/// The time without any completion after which those that are missing are lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// An entry that was not hit in the newest period may give its place to a new one.
const IDLE: u8 = 1 << 7;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Inserts a flow, with its row and port.
    Insert(FlowKey, u16, u16),
    Delete(FlowKey),
}

/// What became of an operation, or of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Inserted(FlowKey),
    Refused(FlowKey, Refused),
    Deleted(FlowKey),
    Evicted(FlowKey),
    /// Its completion is lost: it was done or not.
    Lost(Work),
}

/// The operations of a session.
pub struct Operations {
    ipv4: Offloader<Ipv4Flow, Region, Work>,
    ipv6: Offloader<Ipv6Flow, Region, Work>,
    /// Operations to be done before all that are submitted from now on.
    again: VecDeque<Work>,
    refused: Vec<Done>,
    progressed: Option<Instant>,
}

impl Operations {
    /// # Errors
    /// If the queues do not fit.
    pub fn new(shape: Shape, terms: &Terms, queues: &Queues) -> Result<Self, TableError> {
        let ipv4 = queues
            .ipv4
            .iter()
            .map(|region| QueuePair::smux_end(region.clone(), terms.credits));
        let ipv6 = queues
            .ipv6
            .iter()
            .map(|region| QueuePair::smux_end(region.clone(), terms.credits));
        Ok(Self {
            ipv4: Offloader::new(shape, ipv4.collect::<Result<_, _>>()?),
            ipv6: Offloader::new(shape, ipv6.collect::<Result<_, _>>()?),
            again: VecDeque::new(),
            refused: Vec::new(),
            progressed: None,
        })
    }

    /// Submits an operation. False: submit it again later.
    pub fn submit(&mut self, terms: &Terms, work: &Work) -> bool {
        self.again.is_empty() && self.give(terms, work)
    }

    /// Submits an operation as soon as there is room, before all others.
    pub fn repeat(&mut self, work: Work) {
        self.again.push_back(work);
    }

    fn give(&mut self, terms: &Terms, work: &Work) -> bool {
        let (Work::Insert(key, ..) | Work::Delete(key)) = work;
        match AnyFlow::of_key(key) {
            Some(AnyFlow::V4(flow)) => self
                .ipv4
                .submit(operation(flow, work, terms), *work)
                .is_ok(),
            Some(AnyFlow::V6(flow)) => self
                .ipv6
                .submit(operation(flow, work, terms), *work)
                .is_ok(),
            None => {
                self.refused.push(Done::Refused(*key, Refused::Unsupported));
                true
            }
        }
    }

    /// Passes what was done since the last call.
    ///
    /// # Errors
    /// If the queues are damaged.
    pub fn poll(
        &mut self,
        terms: &Terms,
        now: Instant,
        all: &mut Vec<Done>,
    ) -> Result<(), Corrupt> {
        all.append(&mut self.refused);
        while let Some(work) = self.again.front().copied() {
            if !self.give(terms, &work) {
                break;
            }
            self.again.pop_front();
        }
        let mut taken = self
            .ipv4
            .poll(&mut |completed| all.extend(done(&completed)))?;
        taken += self
            .ipv6
            .poll(&mut |completed| all.extend(done(&completed)))?;
        let waits = (0..terms.engines)
            .any(|engine| self.ipv4.in_progress(engine) + self.ipv6.in_progress(engine) > 0);
        if taken > 0 || !waits {
            self.progressed = None;
        }
        let since = *self.progressed.get_or_insert(now);
        if waits && now.duration_since(since) >= PATIENCE {
            self.progressed = None;
            for engine in 0..terms.engines {
                self.ipv4
                    .abandon(engine, &mut |work| all.push(Done::Lost(work)));
                self.ipv6
                    .abandon(engine, &mut |work| all.push(Done::Lost(work)));
            }
        }
        Ok(())
    }
}

fn operation<K: Flow>(key: K, work: &Work, terms: &Terms) -> Operation<K> {
    match *work {
        Work::Insert(_, row, rs_port) => Operation::Insert {
            key,
            decision: Decision {
                rs_index: u32::from(terms.prefix) << 16 | u32::from(row),
                rs_port,
            },
            evict: terms.evicts.then_some(IDLE),
        },
        Work::Delete(_) => Operation::Delete { key },
    }
}

fn done<K: Flow>(completed: &Completed<K, Work>) -> Option<Done> {
    Some(match (completed.outcome, completed.tag) {
        (Outcome::Evicted(flow), _) => Done::Evicted(flow.key()),
        (_, None) => return None,
        (Outcome::Lost, Some(work)) => Done::Lost(work),
        (Outcome::Inserted, Some(Work::Insert(flow, ..))) => Done::Inserted(flow),
        (Outcome::Full, Some(Work::Insert(flow, ..))) => Done::Refused(flow, Refused::Collision),
        (_, Some(Work::Insert(flow, ..))) => Done::Refused(flow, Refused::Unsupported),
        (_, Some(Work::Delete(flow))) => Done::Deleted(flow),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use nf_arena::{ArenaBuilder, Heap, Memory};

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
        // The first record of the completions: made one of an operation that never was.
        let words = nic.queues.ipv4[0].words();
        let completions = QueuePair::words::<Ipv4Flow>(CREDITS) - 2 * CREDITS * 4;
        words[completions].store(u64::MAX, std::sync::atomic::Ordering::Release);
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
}
