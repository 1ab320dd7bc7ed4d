//! A pair of queues between one load balancer and one engine: operations, and their completions (3.3.2).
//!
//! The load balancer has as many credits as the operation queue has places: it never waits for more completions, so the completion queue, twice as long,
//! always has room for them, and the other half is for evictions.

use std::marker::PhantomData;

use nf_arena::Memory;
use nf_tables::Key;

use crate::table::TableError;

use super::{
    operation::record_words,
    ring::{Consumer, Place, Producer},
};

/// The memory of a pair of queues.
pub struct QueuePair;

/// A load balancer's end.
pub struct SmuxEnd<K, M> {
    pub(super) operations: Producer<M>,
    pub(super) completions: Consumer<M>,
    pub(super) credits: usize,
    pub(super) keys: PhantomData<K>,
}

/// An engine's end.
pub struct EngineEnd<K, M> {
    pub(super) operations: Consumer<M>,
    pub(super) completions: Producer<M>,
    pub(super) credits: usize,
    pub(super) keys: PhantomData<K>,
}

impl QueuePair {
    /// Returns the words for a pair with this many credits, which are rounded up to a power of two.
    #[must_use]
    pub fn words<K: Key>(credits: usize) -> usize {
        Self::places(credits, record_words::<K>()).1.end()
    }

    /// Opens the load balancer's end in zeroed memory. After a failure, open both ends in memory that is zeroed again.
    ///
    /// # Errors
    /// If the memory is too small.
    pub fn smux_end<K: Key, M: Memory + Clone>(
        memory: M,
        credits: usize,
    ) -> Result<SmuxEnd<K, M>, TableError> {
        let (operations, completions) = Self::fitting::<K, M>(&memory, credits)?;
        Ok(SmuxEnd {
            operations: Producer::open(memory.clone(), operations),
            completions: Consumer::open(memory, completions),
            credits: operations.capacity,
            keys: PhantomData,
        })
    }

    /// Opens the engine's end.
    ///
    /// # Errors
    /// If the memory is too small.
    pub fn engine_end<K: Key, M: Memory + Clone>(
        memory: M,
        credits: usize,
    ) -> Result<EngineEnd<K, M>, TableError> {
        let (operations, completions) = Self::fitting::<K, M>(&memory, credits)?;
        Ok(EngineEnd {
            operations: Consumer::open(memory.clone(), operations),
            completions: Producer::open(memory, completions),
            credits: operations.capacity,
            keys: PhantomData,
        })
    }

    /// Returns the number of completions until now.
    #[cfg(test)]
    pub fn completed<K: Key, M: Memory>(memory: &M, credits: usize) -> u64 {
        let completions = Self::places(credits, record_words::<K>()).1;
        completions.produced(memory)
    }

    /// Loses a completion: makes it that of an operation that never was.
    #[cfg(test)]
    pub fn lose<K: Key, M: Memory>(memory: &M, credits: usize, number: u64) {
        let completions = Self::places(credits, record_words::<K>()).1;
        completions.damage(memory, number);
    }

    fn fitting<K: Key, M: Memory>(
        memory: &M,
        credits: usize,
    ) -> Result<(Place, Place), TableError> {
        let places = Self::places(credits, record_words::<K>());
        let (words, needed) = (memory.words().len(), places.1.end());
        if words < needed {
            return Err(TableError::TooSmall { words, needed });
        }
        Ok(places)
    }

    fn places(credits: usize, record: usize) -> (Place, Place) {
        let capacity = credits.max(1).next_power_of_two();
        let operations = Place {
            start: 0,
            capacity,
            record,
        };
        let completions = Place {
            start: operations.end(),
            capacity: 2 * capacity,
            record,
        };
        (operations, completions)
    }
}
