//! The offloaded connection table (OCT): the flows that the NIC balances by itself.
//!
//! The data path looks up flows on several threads and marks hits; engines write entries, each in slots of its own. The accessing bitmap, one bit for each
//! slot, lies behind the entries, as it lies in memory of its own in hardware (3.3.3).

use std::{marker::PhantomData, sync::atomic::Ordering};

use nf_arena::Memory;
use nf_tables::Key;

mod decision;
mod entries;
mod error;
mod shape;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use decision::Decision;
pub use error::TableError;
pub use shape::{Hashing, Shape, Slot};

pub(crate) use entries::{entry_words, Entries, View};
pub(crate) use shape::Places;

/// A flow's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub decision: Decision,
    pub slot: Slot,
}

/// An offloaded connection table in words. Zeroed words are an empty table.
pub struct ConnectionTable<K, M> {
    memory: M,
    shape: Shape,
    keys: PhantomData<K>,
}

impl<K: Key, M: Memory> ConnectionTable<K, M> {
    /// Returns the words of memory that a table needs: 32 bytes a slot for IPv4, 64 for IPv6, and a bit.
    #[must_use]
    pub fn words(shape: Shape) -> usize {
        shape.slots() * entry_words::<K>() + shape.slots().div_ceil(64)
    }

    /// Opens a table in zeroed memory, or in that of a table of the same shape and key.
    ///
    /// # Errors
    /// If the memory is too small.
    pub fn open(memory: M, shape: Shape) -> Result<Self, TableError> {
        let (words, needed) = (memory.words().len(), Self::words(shape));
        if words < needed {
            return Err(TableError::TooSmall { words, needed });
        }
        Ok(Self {
            memory,
            shape,
            keys: PhantomData,
        })
    }

    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    #[inline(always)]
    fn entries(&self) -> Entries<K, View<'_, M>> {
        Entries::new(View(&self.memory))
    }

    /// Returns the entry of a flow. None also while an engine writes it: the packet takes the slow path.
    #[inline]
    pub fn lookup(&self, key: &K) -> Option<Found> {
        self.look(key, &self.shape.places(key))
    }

    /// Looks up many flows at once, which is faster: `found[i]` is the entry of `keys[i]`. The shorter slice sets the number.
    pub fn lookup_bulk(&self, keys: &[K], found: &mut [Option<Found>]) {
        const BULK: usize = 32;
        for (keys, found) in keys.chunks(BULK).zip(found.chunks_mut(BULK)) {
            let mut places = [None; BULK];
            for (key, places) in keys.iter().zip(&mut places) {
                let of_key = self.shape.places(key);
                self.prefetch_places(&of_key);
                *places = Some(of_key);
            }
            for ((key, found), places) in keys.iter().zip(found).zip(&places) {
                *found = places.as_ref().and_then(|places| self.look(key, places));
            }
        }
    }

    #[inline]
    fn look(&self, key: &K, places: &Places) -> Option<Found> {
        places.slots().iter().find_map(|&slot| {
            let decision = Decision::of_word(self.entries().find(slot, key)?);
            Some(Found { decision, slot })
        })
    }

    #[inline]
    fn prefetch_places(&self, places: &Places) {
        for slot in places.slots() {
            self.memory.prefetch(slot.0 as usize * entry_words::<K>());
        }
    }

    /// Prefetches the memory of a slot for [`write`](Self::write).
    #[inline]
    pub(crate) fn prefetch_slot(&self, slot: Slot) {
        self.memory.prefetch(slot.0 as usize * entry_words::<K>());
        self.memory.prefetch(self.hit_bit(slot).0);
    }

    /// Marks a hit. Returns true for the first one of the slot in this period, which is signalled to the software (3.3.3).
    #[inline]
    pub fn mark(&self, slot: Slot) -> bool {
        let (index, bit) = self.hit_bit(slot);
        let word = &self.memory.words()[index];
        // Most packets find the bit set and write nothing.
        if word.load(Ordering::Relaxed) & bit != 0
            || word.fetch_or(bit, Ordering::Relaxed) & bit != 0
        {
            return false;
        }
        self.memory.touch(index);
        true
    }

    /// Takes a hit's mark back, so that the next packet signals: for a signal that could not be sent.
    #[inline]
    pub fn unmark(&self, slot: Slot) {
        let (index, bit) = self.hit_bit(slot);
        self.memory.words()[index].fetch_and(!bit, Ordering::Relaxed);
        self.memory.touch(index);
    }

    /// Tells whether the slot was hit in this period.
    #[must_use]
    pub fn is_marked(&self, slot: Slot) -> bool {
        let (index, bit) = self.hit_bit(slot);
        self.memory.words()[index].load(Ordering::Relaxed) & bit != 0
    }

    /// Begins a new period for the 64 slots from `64 * group` on; returns which of them were hit in the last one, the first slot in bit 0.
    pub fn take_marks(&self, group: u32) -> u64 {
        let index = self.shape.slots() * entry_words::<K>() + group as usize;
        let word = &self.memory.words()[index];
        if word.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let marks = word.swap(0, Ordering::Relaxed);
        self.memory.touch(index);
        marks
    }

    #[inline]
    fn hit_bit(&self, slot: Slot) -> (usize, u64) {
        let index = self.shape.slots() * entry_words::<K>() + slot.0 as usize / 64;
        (index, 1 << (slot.0 % 64))
    }

    /// Returns the entry at a slot.
    #[must_use]
    pub fn entry(&self, slot: Slot) -> Option<(K, Decision)> {
        let (key, word) = self.entries().read(slot)?;
        Some((key, Decision::of_word(word)))
    }

    /// Writes an entry whose flow has not been seen in this period. Only the slot's engine may.
    pub(crate) fn write(&self, slot: Slot, key: &K, decision: Decision) {
        self.entries().write(slot, key, decision.word());
        if self.is_marked(slot) {
            self.unmark(slot);
        }
    }

    /// Empties a slot. Only the slot's engine may.
    pub(crate) fn clear(&self, slot: Slot) {
        self.entries().clear(slot);
    }
}
