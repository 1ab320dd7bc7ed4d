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

/// The outcome of an operation, or of an entry.
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
mod tests;
