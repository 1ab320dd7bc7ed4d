//! Entries in words. A reader sees a whole entry or none.
//!
//! An entry is `control | value | tail | lanes`, padded to 32 bytes for IPv4 and 64 for IPv6. The control word holds the validity in bit 0, and above it
//! a version that grows with each entry in the slot. A writer invalidates, writes the data, and validates; a reader checks the control word before and
//! after the data. The other order, key and then data, shows a new key with an old value. A reader that meets a writer treats the
//! slot as empty: its packet takes the slow path, which is always right.

use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering},
};

use nf_arena::Memory;
use nf_tables::Key;

use super::shape::Slot;

const VALID: u64 = 1;
const NEXT_VERSION: u64 = 2;
const CONTROL: usize = 0;
const VALUE: usize = 1;
const TAIL: usize = 2;
const LANES: usize = 3;

/// Returns the words of an entry.
#[inline(always)]
pub(crate) const fn entry_words<K: Key>() -> usize {
    (LANES + size_of::<K::Lanes>() / size_of::<u64>()).next_power_of_two()
}

/// Words that threads share: those of a [`Memory`], or of a model.
pub(crate) trait Words: Copy {
    /// Loads with acquire order.
    fn load(self, index: usize) -> u64;
    /// Stores with release order.
    fn store(self, index: usize, value: u64);
}

/// The words of a memory.
pub(crate) struct View<'a, M>(pub &'a M);

impl<M> Clone for View<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for View<'_, M> {}

impl<M: Memory> Words for View<'_, M> {
    #[inline(always)]
    fn load(self, index: usize) -> u64 {
        let words: &[AtomicU64] = self.0.words();
        words[index].load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(self, index: usize, value: u64) {
        self.0.words()[index].store(value, Ordering::Release);
        self.0.touch(index);
    }
}

/// An array of entries.
pub(crate) struct Entries<K, W> {
    words: W,
    keys: PhantomData<K>,
}

impl<K: Key, W: Words> Entries<K, W> {
    #[inline(always)]
    pub fn new(words: W) -> Self {
        Self {
            words,
            keys: PhantomData,
        }
    }

    /// Returns the value at a slot if its entry has this key.
    #[inline(always)]
    pub fn find(&self, slot: Slot, key: &K) -> Option<u64> {
        let start = slot.0 as usize * entry_words::<K>();
        let control = self.words.load(start + CONTROL);
        if control & VALID == 0 || self.words.load(start + TAIL) != key.tail() {
            return None;
        }
        for (index, lane) in key.lanes().as_ref().iter().enumerate() {
            if self.words.load(start + LANES + index) != *lane {
                return None;
            }
        }
        let value = self.words.load(start + VALUE);
        let is_whole = self.words.load(start + CONTROL) == control;
        is_whole.then_some(value)
    }

    /// Returns the entry at a slot.
    #[inline(always)]
    pub fn read(&self, slot: Slot) -> Option<(K, u64)> {
        let start = slot.0 as usize * entry_words::<K>();
        let control = self.words.load(start + CONTROL);
        if control & VALID == 0 {
            return None;
        }
        let tail = self.words.load(start + TAIL);
        let mut lanes = K::Lanes::default();
        for (index, lane) in lanes.as_mut().iter_mut().enumerate() {
            *lane = self.words.load(start + LANES + index);
        }
        let value = self.words.load(start + VALUE);
        let is_whole = self.words.load(start + CONTROL) == control;
        is_whole.then(|| (K::from_words(&lanes, tail), value))
    }

    #[inline(always)]
    pub fn is_empty(&self, slot: Slot) -> bool {
        self.words.load(slot.0 as usize * entry_words::<K>()) & VALID == 0
    }

    /// Writes an entry, over another one or none. One thread writes a slot.
    #[inline(always)]
    pub fn write(&self, slot: Slot, key: &K, value: u64) {
        let start = slot.0 as usize * entry_words::<K>();
        let control = self.clear(slot);
        self.words.store(start + VALUE, value);
        self.words.store(start + TAIL, key.tail());
        for (index, lane) in key.lanes().as_ref().iter().enumerate() {
            self.words.store(start + LANES + index, *lane);
        }
        self.words.store(start + CONTROL, control | VALID);
    }

    /// Empties a slot; returns its control word.
    #[inline(always)]
    pub fn clear(&self, slot: Slot) -> u64 {
        let start = slot.0 as usize * entry_words::<K>();
        let control = (self.words.load(start + CONTROL) & !VALID).wrapping_add(NEXT_VERSION);
        self.words.store(start + CONTROL, control);
        control
    }
}
