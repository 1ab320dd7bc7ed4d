//! Offloading engines (3.3.2): each owns a part of the table, takes operations from a queue of each load balancer in turn, and completes each of them.
//!
//! An engine knows all entries of its part from a copy of its own (the local OCT), so an insertion without room costs the NIC nothing. No two engines have
//! a slot in common, so they need no locks.

use nf_arena::{ArenaError, Memory};
use nf_tables::Key;

use crate::table::{Places, Shape, TableError};

mod corrupt;
mod counts;
mod device;
mod local;
mod offloader;
mod operation;
mod part;
mod queues;
pub(crate) mod ring;
mod room;

#[cfg(test)]
mod tests;

pub use corrupt::Corrupt;
pub use counts::Counts;
pub use device::Device;
pub use offloader::{Completed, NoCredit, Offloader};
pub use operation::{Operation, Outcome};
pub use queues::{EngineEnd, QueuePair, SmuxEnd};

use local::{Copied, Local, Owner, NOBODY};
use operation::{read_operation, sequence_of, write_outcome, Record, MOST_WORDS};
use part::{Insertion, Part};

/// Operations that an engine takes from a queue before the next queue's turn.
const BATCH: usize = 32;
/// Slots that an engine examines for a removed server before it serves its queues again.
const EXAMINED: u32 = 4096;

/// The reason for which an engine cannot start.
#[derive(Debug)]
pub enum Unable {
    Table(TableError),
    Memory(ArenaError),
}

impl std::fmt::Display for Unable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Table(cause) => cause.fmt(f),
            Self::Memory(cause) => write!(f, "an engine's copy of the table: {cause}"),
        }
    }
}

impl std::error::Error for Unable {}

/// An offloading engine.
pub struct Engine<K: Key, M, D> {
    part: Part<K, D>,
    /// By number; None after a detachment.
    queues: Vec<Option<Queue<K, M>>>,
    /// The queue whose turn it is.
    turn: usize,
}

/// The queues of a load balancer.
struct Queue<K, M> {
    end: EngineEnd<K, M>,
    removal: Option<Removal>,
}

impl<K: Key, M: Memory> Queue<K, M> {
    /// Tells whether there is room for an eviction beside the completions of all credits. If not, the load balancer is slow, and keeps its entries.
    fn has_room_for_notice(&mut self) -> bool {
        let wanted = self.end.credits + 1;
        let room = self.end.completions.room(wanted);
        room.is_ok_and(|room| room >= wanted)
    }
}

/// An operation that was taken from a queue.
struct Taken<K> {
    sequence: u64,
    /// None: its record is damaged.
    operation: Option<Operation<K>>,
    /// Prefetched. None: of another engine's flow, or of none.
    places: Option<Places>,
}

/// A removal of a server's entries in progress.
struct Removal {
    rs_index: u32,
    next: u32,
    deleted: u32,
    sequence: u64,
}

impl<K: Key> Taken<K> {
    #[inline]
    fn read<D: Device<K>>(record: &Record, part: &Part<K, D>) -> Self {
        let operation = read_operation(record);
        let places = match &operation {
            Some(Operation::Insert { key, .. } | Operation::Delete { key }) => part.places(key),
            _ => None,
        };
        if let Some(places) = &places {
            part.prefetch(places);
        }
        Self {
            sequence: sequence_of(record),
            operation,
            places,
        }
    }
}

impl<K: Key, M: Memory, D: Device<K>> Engine<K, M, D> {
    /// Starts engine number `engine` of `engines` on a table. The engine takes over the entries that it finds there.
    ///
    /// # Errors
    /// If there is no such engine, or no memory for its copy of the table.
    pub fn new(device: D, shape: Shape, engine: u32, engines: u32) -> Result<Self, Unable> {
        let most = shape.partitions();
        if engine >= engines || engines > most {
            return Err(Unable::Table(TableError::Engines {
                engine,
                engines,
                most,
            }));
        }
        let local = Local::new(shape.slots_of(engine, engines)).map_err(Unable::Memory)?;
        Ok(Self {
            part: Part::new(device, shape, local),
            queues: Vec::new(),
            turn: 0,
        })
    }

    /// Lets the engine evict flows for insertions that ask for it.
    #[must_use]
    pub fn with_eviction(mut self) -> Self {
        self.part.count_usage();
        self
    }

    /// Adds the queues of a load balancer; returns their number, for [`detach`](Self::detach).
    ///
    /// # Errors
    /// Returns the queues if the engine has had 65,535 pairs: start it again.
    pub fn attach(&mut self, end: EngineEnd<K, M>) -> Result<u16, EngineEnd<K, M>> {
        let number = Owner::try_from(self.queues.len()).unwrap_or(NOBODY);
        if number == NOBODY {
            return Err(end);
        }
        self.queues.push(Some(Queue { end, removal: None }));
        Ok(number)
    }

    /// Drops the queues of a load balancer with everything that waits in them. The entries that it inserted stay until somebody deletes them.
    pub fn detach(&mut self, number: u16) {
        if let Some(queue) = self.queues.get_mut(usize::from(number)) {
            *queue = None;
        }
    }

    /// Deletes all entries whose real server is gone: those of a load balancer whose queues were detached, say. It examines all slots at once.
    pub fn delete_where(&mut self, is_gone: impl Fn(u32) -> bool) {
        let deleted = self.part.delete_where(self.part.slots(), is_gone);
        self.part.counts.deleted += u64::from(deleted);
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.part.counts
    }

    /// Returns the engine's slots, whose periods it ends.
    #[must_use]
    pub fn slots(&self) -> std::ops::Range<u32> {
        self.part.slots()
    }

    /// Ends a period of the 64 slots from `64 * group` on; see [`Sweep`](crate::Sweep).
    pub fn end_period(&mut self, group: u32) {
        self.part.end_period(group);
    }

    /// Takes up to 32 operations from each queue; returns the number of records that it took or wrote. A damaged queue is left alone, and `damaged`
    /// gets its number.
    pub fn poll_with(&mut self, damaged: &mut dyn FnMut(u16, Corrupt)) -> usize {
        let mut done = 0;
        for offset in 0..self.queues.len() {
            let number = (self.turn + offset) % self.queues.len();
            let served = self.removal_step(number).and_then(|may_serve| {
                if may_serve {
                    self.serve(number)
                } else {
                    Ok(EXAMINED as usize)
                }
            });
            match served {
                Ok(count) => done += count,
                Err(error) => damaged(number as u16, error),
            }
        }
        self.turn = (self.turn + 1) % self.queues.len().max(1);
        done
    }

    /// Serves each queue; leaves damaged ones alone. Returns 0 if there was nothing to do.
    pub fn poll(&mut self) -> usize {
        self.poll_with(&mut |_, _| {})
    }

    /// Takes operations from a queue and completes them.
    #[inline]
    fn serve(&mut self, number: usize) -> Result<usize, Corrupt> {
        let Some(Some(queue)) = self.queues.get_mut(number) else {
            return Ok(0);
        };
        let waiting = queue.end.operations.waiting()?.min(BATCH);
        let count = waiting.min(queue.end.completions.room(waiting)?);
        let mut batch: [Option<Taken<K>>; BATCH] = [const { None }; BATCH];
        for (ahead, taken) in batch.iter_mut().take(count).enumerate() {
            let mut record: Record = [0; MOST_WORDS];
            queue.end.operations.peek(ahead, &mut record);
            *taken = Some(Taken::read(&record, &self.part));
        }
        let mut taken = 0;
        for operation in batch.iter().flatten() {
            taken += 1;
            if !self.execute(number, operation) {
                break;
            }
        }
        if let (1.., Some(Some(queue))) = (taken, self.queues.get_mut(number)) {
            queue.end.operations.consume(taken);
        }
        Ok(taken)
    }

    /// Executes an operation and completes it. Returns false if it goes on, and the queue waits for it.
    #[inline]
    fn execute(&mut self, number: usize, taken: &Taken<K>) -> bool {
        let sequence = taken.sequence;
        let outcome = match (taken.operation, &taken.places) {
            (
                Some(Operation::Insert {
                    key,
                    decision,
                    evict,
                }),
                Some(places),
            ) => {
                let owner = number as Owner;
                let entry = Copied {
                    key,
                    decision,
                    owner,
                };
                self.insert(&entry, places, evict)
            }
            (Some(Operation::Delete { key }), Some(places)) => {
                // Another load balancer may have taken the flow over: then the entry is its own.
                let queues = &self.queues;
                let may_delete = |owner: Owner| {
                    let owner = usize::from(owner);
                    owner == number || !matches!(queues.get(owner), Some(Some(_)))
                };
                if self.part.delete(&key, places, may_delete) {
                    self.part.counts.deleted += 1;
                    Outcome::Deleted(1)
                } else {
                    self.part.counts.not_found += 1;
                    Outcome::NotFound
                }
            }
            (Some(Operation::DeleteServer { rs_index }), _) => {
                if let Some(Some(queue)) = self.queues.get_mut(number) {
                    queue.removal = Some(Removal {
                        rs_index,
                        next: self.part.slots().start,
                        deleted: 0,
                        sequence,
                    });
                }
                return false;
            }
            _ => {
                self.part.counts.refused += 1;
                Outcome::Refused
            }
        };
        self.complete(number, &outcome, sequence);
        true
    }

    #[inline]
    fn insert(&mut self, entry: &Copied<K>, places: &Places, evict: Option<u8>) -> Outcome<K> {
        let queues = &mut self.queues;
        let mut may_evict = |owner: Owner| match queues.get_mut(usize::from(owner)) {
            Some(Some(queue)) => queue.has_room_for_notice(),
            // Nobody waits for a notice.
            _ => true,
        };
        match self.part.insert(entry, places, evict, &mut may_evict) {
            Insertion::Done => {}
            Insertion::Full => {
                self.part.counts.full += 1;
                return Outcome::Full;
            }
            Insertion::Evicted(evicted) => {
                let owner = usize::from(evicted.owner);
                self.complete(owner, &Outcome::Evicted(evicted.key), 0);
            }
        }
        self.part.counts.inserted += 1;
        Outcome::Inserted
    }

    #[inline]
    fn complete(&mut self, number: usize, outcome: &Outcome<K>, sequence: u64) {
        if let Some(Some(queue)) = self.queues.get_mut(number) {
            queue
                .end
                .completions
                .push(&write_outcome(outcome, sequence));
        }
    }

    /// Examines the next slots for a server's removal. Returns false if the queue must wait for the rest.
    #[inline]
    fn removal_step(&mut self, number: usize) -> Result<bool, Corrupt> {
        let Some(Some(queue)) = self.queues.get_mut(number) else {
            return Ok(true);
        };
        let Some(removal) = &mut queue.removal else {
            return Ok(true);
        };
        let end = self.part.slots().end;
        let until = end.min(removal.next.saturating_add(EXAMINED));
        let rs_index = removal.rs_index;
        let deleted = self
            .part
            .delete_where(removal.next..until, |other| other == rs_index);
        removal.next = until;
        removal.deleted += deleted;
        self.part.counts.deleted += u64::from(deleted);
        if until < end || queue.end.completions.room(1)? == 0 {
            return Ok(false);
        }
        let (outcome, sequence) = (Outcome::Deleted(removal.deleted), removal.sequence);
        queue.removal = None;
        self.complete(number, &outcome, sequence);
        Ok(true)
    }
}
