//! An engine's own copy of its part of the table: the local OCT (3.3.2), with the owner of each entry.

use std::ops::Range;

use nf_arena::{ArenaError, Heap, Memory};
use nf_tables::Key;

use crate::table::{entry_words, Decision, Entries, Slot, View};

/// The load balancer that inserted an entry: the number of its queues.
pub(super) type Owner = u16;
/// The owner of entries that the engine found in the table.
pub(super) const NOBODY: Owner = Owner::MAX;

const OWNER_SHIFT: u32 = 48;

/// A copied entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied<K> {
    pub key: K,
    pub decision: Decision,
    pub owner: Owner,
}

pub(super) struct Local<K> {
    memory: Heap,
    slots: Range<u32>,
    keys: std::marker::PhantomData<K>,
}

impl<K: Key> Local<K> {
    pub fn new(slots: Range<u32>) -> Result<Self, ArenaError> {
        Ok(Self {
            memory: Heap::new(slots.len() * entry_words::<K>())?,
            slots,
            keys: std::marker::PhantomData,
        })
    }

    #[inline(always)]
    pub fn slots(&self) -> Range<u32> {
        self.slots.clone()
    }

    #[inline(always)]
    pub fn owns(&self, slot: Slot) -> bool {
        self.slots.contains(&slot.0)
    }

    #[inline(always)]
    fn entries(&self) -> Entries<K, View<'_, Heap>> {
        Entries::new(View(&self.memory))
    }

    #[inline(always)]
    fn own(&self, slot: Slot) -> Slot {
        Slot(slot.0 - self.slots.start)
    }

    #[inline(always)]
    pub fn has(&self, slot: Slot, key: &K) -> bool {
        self.entries().find(self.own(slot), key).is_some()
    }

    #[inline(always)]
    pub fn is_empty(&self, slot: Slot) -> bool {
        self.entries().is_empty(self.own(slot))
    }

    #[inline(always)]
    pub fn read(&self, slot: Slot) -> Option<Copied<K>> {
        let (key, word) = self.entries().read(self.own(slot))?;
        Some(Copied {
            key,
            decision: Decision::of_word(word),
            owner: (word >> OWNER_SHIFT) as Owner,
        })
    }

    #[inline(always)]
    pub fn write(&self, slot: Slot, entry: &Copied<K>) {
        let word = entry.decision.word() | u64::from(entry.owner) << OWNER_SHIFT;
        self.entries().write(self.own(slot), &entry.key, word);
    }

    #[inline(always)]
    pub fn clear(&self, slot: Slot) {
        self.entries().clear(self.own(slot));
    }

    #[inline(always)]
    pub fn prefetch(&self, slot: Slot) {
        let own = self.own(slot).0 as usize;
        self.memory.prefetch(own * entry_words::<K>());
    }
}
