//! A queue of records in words: one producer, one consumer, no locks. The two may be processes that share the memory.
//!
//! `produced` and `consumed` count records for ever, each in a cache line of its own; the records follow. A record is published by the new value of
//! `produced`, and its place is free again by that of `consumed`.

use std::sync::atomic::Ordering;

use nf_arena::Memory;

use super::corrupt::Corrupt;

const PRODUCED: usize = 0;
const CONSUMED: usize = 8;
const RECORDS: usize = 16;

/// The place of a ring in a memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub start: usize,
    /// Records, a power of two.
    pub capacity: usize,
    /// Words of a record.
    pub record: usize,
}

impl Place {
    pub fn words(capacity: usize, record: usize) -> usize {
        RECORDS + capacity * record
    }

    pub fn end(&self) -> usize {
        self.start + Self::words(self.capacity, self.record)
    }

    /// Returns the number of records until now.
    #[cfg(test)]
    pub fn produced(&self, memory: &impl Memory) -> u64 {
        memory.words()[self.start + PRODUCED].load(Ordering::Acquire)
    }

    /// Makes nonsense of a record.
    #[cfg(test)]
    pub fn damage(&self, memory: &impl Memory, number: u64) {
        memory.words()[self.record_at(number)].store(u64::MAX, Ordering::Release);
    }

    #[inline]
    fn record_at(&self, number: u64) -> usize {
        let index = number as usize & (self.capacity - 1);
        self.start + RECORDS + index * self.record
    }
}

/// The writing end.
pub(crate) struct Producer<M> {
    memory: M,
    place: Place,
    produced: u64,
    /// The consumer's count as last read.
    consumed: u64,
}

impl<M: Memory> Producer<M> {
    pub fn open(memory: M, place: Place) -> Self {
        let count = |index: usize| memory.words()[place.start + index].load(Ordering::Acquire);
        let (produced, consumed) = (count(PRODUCED), count(CONSUMED));
        Self {
            memory,
            place,
            produced,
            consumed,
        }
    }

    /// Returns the number of records that the ring has room for.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> Result<usize, Corrupt> {
        let known = self.known_room()?;
        if known >= wanted {
            return Ok(known);
        }
        let count = &self.memory.words()[self.place.start + CONSUMED];
        self.consumed = count.load(Ordering::Acquire);
        self.known_room()
    }

    #[inline]
    fn known_room(&self) -> Result<usize, Corrupt> {
        let waiting = self.produced.wrapping_sub(self.consumed);
        let room = (self.place.capacity as u64).checked_sub(waiting);
        room.map(|room| room as usize).ok_or(Corrupt {
            produced: self.produced,
            consumed: self.consumed,
            capacity: self.place.capacity,
        })
    }

    /// Adds a record. The caller has checked that there is room.
    #[inline]
    pub fn push(&mut self, record: &[u64]) {
        let at = self.place.record_at(self.produced);
        let words = &self.memory.words()[at..at + self.place.record];
        for (index, (word, value)) in words.iter().zip(record).enumerate() {
            word.store(*value, Ordering::Relaxed);
            self.memory.touch(at + index);
        }
        self.produced = self.produced.wrapping_add(1);
        let at = self.place.start + PRODUCED;
        self.memory.words()[at].store(self.produced, Ordering::Release);
        self.memory.touch(at);
    }
}

/// The reading end.
pub(crate) struct Consumer<M> {
    memory: M,
    place: Place,
    consumed: u64,
    /// The producer's count as last read.
    produced: u64,
}

impl<M: Memory> Consumer<M> {
    pub fn open(memory: M, place: Place) -> Self {
        let count = |index: usize| memory.words()[place.start + index].load(Ordering::Acquire);
        let (produced, consumed) = (count(PRODUCED), count(CONSUMED));
        Self {
            memory,
            place,
            consumed,
            produced,
        }
    }

    /// Returns the number of records that wait.
    #[inline]
    pub fn waiting(&mut self) -> Result<usize, Corrupt> {
        if self.produced == self.consumed {
            let count = &self.memory.words()[self.place.start + PRODUCED];
            self.produced = count.load(Ordering::Acquire);
        }
        let waiting = self.produced.wrapping_sub(self.consumed);
        if waiting > self.place.capacity as u64 {
            return Err(Corrupt {
                produced: self.produced,
                consumed: self.consumed,
                capacity: self.place.capacity,
            });
        }
        Ok(waiting as usize)
    }

    /// Copies the record that waits behind `ahead` others.
    #[inline]
    pub fn peek(&self, ahead: usize, record: &mut [u64]) {
        let at = self
            .place
            .record_at(self.consumed.wrapping_add(ahead as u64));
        let words = &self.memory.words()[at..at + self.place.record];
        for (word, value) in words.iter().zip(record) {
            *value = word.load(Ordering::Relaxed);
        }
    }

    /// Gives the places of the next records back.
    #[inline]
    pub fn consume(&mut self, records: usize) {
        self.consumed = self.consumed.wrapping_add(records as u64);
        let at = self.place.start + CONSUMED;
        self.memory.words()[at].store(self.consumed, Ordering::Release);
        self.memory.touch(at);
    }
}
