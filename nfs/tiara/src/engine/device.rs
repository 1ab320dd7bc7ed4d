//! The engine's view of the NIC.

use std::sync::Arc;

use nf_arena::Memory;
use nf_tables::Key;

use crate::table::{ConnectionTable, Decision, Slot};

/// A table that an engine writes: that of the NIC, over its bus.
pub trait Device<K>: Send {
    /// Writes an entry, over another one or none. A reader sees a whole entry or none.
    fn write(&self, slot: Slot, key: &K, decision: Decision);
    fn clear(&self, slot: Slot);
    /// Reads an entry back, when an engine starts.
    fn entry(&self, slot: Slot) -> Option<(K, Decision)>;
    /// Begins a period for 64 slots; returns which were hit in the last one. See [`ConnectionTable::take_marks`].
    fn take_marks(&self, group: u32) -> u64;
    /// Prefetches a slot that will be written.
    fn prefetch(&self, slot: Slot);
}

impl<K: Key, M: Memory> Device<K> for Arc<ConnectionTable<K, M>> {
    #[inline(always)]
    fn write(&self, slot: Slot, key: &K, decision: Decision) {
        ConnectionTable::write(self, slot, key, decision);
    }

    #[inline(always)]
    fn clear(&self, slot: Slot) {
        ConnectionTable::clear(self, slot);
    }

    fn entry(&self, slot: Slot) -> Option<(K, Decision)> {
        ConnectionTable::entry(self, slot)
    }

    fn take_marks(&self, group: u32) -> u64 {
        ConnectionTable::take_marks(self, group)
    }

    #[inline(always)]
    fn prefetch(&self, slot: Slot) {
        self.prefetch_slot(slot);
    }
}
