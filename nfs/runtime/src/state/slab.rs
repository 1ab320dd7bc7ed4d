//! A slab: records of one size in numbered slots.
//!
//! Locks are apart from the records, so that looking at a record marks none of its blocks for copies, and neighbours never share a lock's cache
//! line. A lock's word names the slot, and tells whether its record is being written: a kill at that moment costs that record alone.

use std::{cell::Cell, marker::PhantomData};

use bytemuck::{Pod, Zeroable};
use nf_arena::{Memory, Region};

use super::{
    slots::{self, Slots},
    spin::{self, Lock},
    words::{get, read_words, write_changes, write_words, LINE},
};

#[cfg(test)]
mod tests;

/// The most locks of a slab. Threads that change different records rarely need the same one.
const MAX_LOCKS: usize = 1024;
/// The bit of a lock's word that tells that its record is being written; the others are the slot plus 1.
const WRITING: u64 = 1;

/// The number of a record, which no other record ever gets. Zero is the number of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct SlabId(u64);

impl SlabId {
    /// Returns the record's slot, below the slab's capacity. The next record of the slot gets it, too.
    #[must_use]
    pub fn slot(self) -> u32 {
        slots::slot_of(self.0) as u32
    }

    /// Tells whether it is the number of no record.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Returns the word of a lock held for a slot.
#[inline]
const fn holder(slot: usize) -> u64 {
    (slot as u64 + 1) << 1
}

/// A record's lock. In debug builds it finds closures that would wait for their own lock, which in others happens only where two records share one.
struct Guard<'a, M: Memory> {
    lock: Lock<'a, M>,
    outer: usize,
}

thread_local! {
    /// The address of the memory in which this thread holds a lock.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

impl<'a, M: Memory> Guard<'a, M> {
    #[inline]
    fn take(memory: &'a M, index: usize, slot: usize) -> Self {
        let mut outer = 0;
        if cfg!(debug_assertions) {
            let this = memory.words().as_ptr() as usize;
            outer = HELD.replace(this);
            assert_ne!(outer, this, "a closure of a slab called the slab");
        }
        Self {
            lock: Lock::take_as(memory, index, holder(slot)),
            outer,
        }
    }
}

impl<M: Memory> Drop for Guard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            HELD.set(self.outer);
        }
    }
}

/// Records in the arena.
///
/// Closures run under their record's lock: they must not call the slab, and must not wait.
pub struct Slab<V, M = Region> {
    memory: M,
    slots: Slots,
    locks: usize,
    of: PhantomData<fn() -> V>,
}

impl<V: Pod, M: Memory> Slab<V, M> {
    pub(super) fn layout(capacity: usize) -> String {
        format!("slab v1, {capacity} of {} bytes", size_of::<V>())
    }

    /// Returns the size in words, saturated.
    pub(super) fn words(capacity: usize) -> usize {
        let records = capacity.saturating_mul(Self::stride());
        Self::first(capacity).saturating_add(records)
    }

    fn locks(capacity: usize) -> usize {
        capacity.clamp(1, MAX_LOCKS).next_power_of_two()
    }

    fn first(capacity: usize) -> usize {
        slots::WORDS + Self::locks(capacity) * LINE
    }

    /// Returns the words of a slot: whole cache lines, since neighbours may belong to different workers.
    const fn stride() -> usize {
        (slots::HEADER + size_of::<V>().div_ceil(8)).next_multiple_of(LINE)
    }

    pub(super) fn open(memory: M, capacity: usize) -> Self {
        Self {
            memory,
            slots: Slots::new(capacity, Self::first(capacity), Self::stride()),
            locks: Self::locks(capacity),
            of: PhantomData,
        }
    }

    /// Repairs the slab after a kill: removes the records that were being written, and frees the locks.
    pub(super) fn repair(&self) {
        for lock in (0..self.locks).map(|lock| slots::WORDS + lock * LINE) {
            let holder = get(&self.memory, lock);
            let slot = (holder >> 1).wrapping_sub(1) as usize;
            let torn = (holder & WRITING != 0).then(|| self.slots.number(&self.memory, slot));
            if let Some(Some(number)) = torn {
                self.slots.retire(&self.memory, number);
            }
            if holder != 0 {
                spin::free(&self.memory, lock);
            }
        }
        self.slots.repair(&self.memory);
    }

    /// Returns the most records that it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns the number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.used(&self.memory)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts a record. None: the slab is full.
    #[inline]
    pub fn insert(&self, value: V) -> Option<SlabId> {
        let slot = self.slots.reserve(&self.memory)?;
        write_words(&self.memory, self.start(slot), bytemuck::bytes_of(&value));
        Some(SlabId(self.slots.publish(&self.memory, slot)))
    }

    /// Changes a record: writes the words that `change` changes. None: the record does not exist.
    #[inline]
    pub fn update<R>(&self, id: SlabId, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let (guard, before) = self.lock(id)?;
        let mut value = before;
        let result = change(&mut value);
        let (before, after) = (bytemuck::bytes_of(&before), bytemuck::bytes_of(&value));
        if before != after {
            let slot = id.slot() as usize;
            guard.lock.mark(holder(slot) | WRITING);
            write_changes(&self.memory, self.start(slot), before, after);
        }
        Some(result)
    }

    /// Returns a record. None: it does not exist.
    #[inline]
    #[must_use]
    pub fn look(&self, id: SlabId) -> Option<V> {
        self.lock(id).map(|(_guard, value)| value)
    }

    /// Removes a record and returns it. None: it does not exist.
    #[inline]
    pub fn remove(&self, id: SlabId) -> Option<V> {
        self.remove_if(id, |_| true)
    }

    /// Removes a record if `condition` holds, and returns it. None: it stays, or does not exist.
    #[inline]
    pub fn remove_if(&self, id: SlabId, condition: impl FnOnce(&V) -> bool) -> Option<V> {
        let (_guard, value) = self.lock(id)?;
        (condition(&value) && self.slots.release(&self.memory, id.0)).then_some(value)
    }

    /// Returns the number of the record in a slot.
    #[inline]
    #[must_use]
    pub fn id(&self, slot: u32) -> Option<SlabId> {
        self.slots.number(&self.memory, slot as usize).map(SlabId)
    }

    /// Calls `look` with each record, and holds no lock meanwhile. It may miss records that are inserted or removed meanwhile.
    pub fn for_each(&self, mut look: impl FnMut(SlabId, &V)) {
        for id in self.slots.numbers(&self.memory).map(SlabId) {
            if let Some(value) = self.look(id) {
                look(id, &value);
            }
        }
    }

    /// Locks a record and reads it.
    #[inline]
    fn lock(&self, id: SlabId) -> Option<(Guard<'_, M>, V)> {
        let slot = id.slot() as usize;
        let lock = slots::WORDS + slot % self.locks * LINE;
        let guard = Guard::take(&self.memory, lock, slot);
        if !self.slots.is_used(&self.memory, id.0) {
            return None;
        }
        let mut value = V::zeroed();
        read_words(
            &self.memory,
            self.start(slot),
            bytemuck::bytes_of_mut(&mut value),
        );
        Some((guard, value))
    }

    /// Returns the first word of a slot's record.
    #[inline]
    fn start(&self, slot: usize) -> usize {
        self.slots.header(slot) + slots::HEADER
    }
}
