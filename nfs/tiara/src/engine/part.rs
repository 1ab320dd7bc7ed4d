//! An engine's part of the table: insertions, deletions, evictions and removals of servers, in the device and in the engine's copy.

use std::ops::Range;

use nf_tables::Key;

use crate::{
    eviction::{Usage, FRESH},
    table::{Places, Shape, Slot},
};

use super::{
    counts::Counts,
    device::Device,
    local::{Copied, Local, Owner, NOBODY},
    room,
};

/// The result of an insertion.
pub(super) enum Insertion<K> {
    Done,
    /// It took the place of another flow's entry.
    Evicted(Copied<K>),
    Full,
}

pub(super) struct Part<K, D> {
    device: D,
    shape: Shape,
    local: Local<K>,
    usage: Option<Usage>,
    pub counts: Counts,
}

impl<K: Key, D: Device<K>> Part<K, D> {
    /// Takes over the entries of the device.
    pub fn new(device: D, shape: Shape, local: Local<K>) -> Self {
        let part = Self {
            device,
            shape,
            local,
            usage: None,
            counts: Counts::default(),
        };
        for slot in part.local.slots().map(Slot) {
            part.read_back(slot);
        }
        part
    }

    /// Copies an entry of the device. A flow has two if an earlier engine was killed while it moved one: it keeps the first.
    fn read_back(&self, slot: Slot) {
        let Some((key, decision)) = self.device.entry(slot) else {
            return;
        };
        let places = self.shape.places(&key);
        if places.slots().contains(&slot) && self.find(&key, &places).is_none() {
            let owner = NOBODY;
            self.local.write(
                slot,
                &Copied {
                    key,
                    decision,
                    owner,
                },
            );
        } else {
            self.device.clear(slot);
        }
    }

    pub fn count_usage(&mut self) {
        self.usage = Some(Usage::new(self.local.slots()));
    }

    pub fn slots(&self) -> Range<u32> {
        self.local.slots()
    }

    /// Returns the places of a flow. None: the flow belongs to another engine.
    #[inline]
    pub fn places(&self, key: &K) -> Option<Places> {
        let places = self.shape.places(key);
        let first = places.slots().first()?;
        self.local.owns(*first).then_some(places)
    }

    #[inline]
    pub fn prefetch(&self, places: &Places) {
        for &slot in places.slots() {
            self.local.prefetch(slot);
            self.device.prefetch(slot);
        }
    }

    #[inline]
    fn find(&self, key: &K, places: &Places) -> Option<Slot> {
        let slots = places.slots().iter().copied();
        slots.into_iter().find(|&slot| self.local.has(slot, key))
    }

    #[inline]
    pub fn insert(
        &mut self,
        entry: &Copied<K>,
        places: &Places,
        evict: Option<u8>,
        may_evict: &mut dyn FnMut(Owner) -> bool,
    ) -> Insertion<K> {
        let mut slots = places.slots().iter().copied();
        let place = self
            .find(&entry.key, places)
            .or_else(|| slots.find(|&slot| self.local.is_empty(slot)))
            .or_else(|| self.make_room(places));
        let used = evict.unwrap_or(FRESH);
        if let Some(slot) = place {
            self.write(slot, entry, used);
            return Insertion::Done;
        }
        let Some((slot, evicted)) = self.victim(places, evict, may_evict) else {
            return Insertion::Full;
        };
        self.write(slot, entry, used);
        self.counts.evicted += 1;
        Insertion::Evicted(evicted)
    }

    /// Returns the entry that gives way to a flow with these periods, if its owner may lose it now.
    fn victim(
        &self,
        places: &Places,
        evict: Option<u8>,
        may_evict: &mut dyn FnMut(Owner) -> bool,
    ) -> Option<(Slot, Copied<K>)> {
        let slot = self.usage.as_ref()?.victim(places.slots(), evict?)?;
        let entry = self.local.read(slot)?;
        may_evict(entry.owner).then_some((slot, entry))
    }

    #[inline]
    fn write(&mut self, slot: Slot, entry: &Copied<K>, used: u8) {
        self.device.write(slot, &entry.key, entry.decision);
        self.local.write(slot, entry);
        if let Some(usage) = &mut self.usage {
            usage.set(slot, used);
        }
    }

    #[inline]
    fn clear(&mut self, slot: Slot) {
        self.device.clear(slot);
        self.local.clear(slot);
    }

    /// Moves entries, and returns one of these places, whose entry has moved. An entry stays at its old place until another one overwrites it, so lookups
    /// find it in one of them, or, if they read the new place before the move and the old one later, take the slow path.
    #[cold]
    fn make_room(&mut self, places: &Places) -> Option<Slot> {
        let path = room::search(self.shape, &self.local, places)?;
        for step in path.windows(2) {
            let (to, from) = (step[0], step[1]);
            let entry = self.local.read(from)?;
            let used = self.usage.as_ref().map_or(FRESH, |usage| usage.of(from));
            self.write(to, &entry, used);
            self.counts.moved += 1;
        }
        path.last().copied()
    }

    /// Deletes a flow's entry. Returns false if the flow has none, or its owner keeps it.
    #[inline]
    pub fn delete(
        &mut self,
        key: &K,
        places: &Places,
        may_delete: impl FnOnce(Owner) -> bool,
    ) -> bool {
        let Some(slot) = self.find(key, places) else {
            return false;
        };
        let entry = self.local.read(slot);
        let is_deleted = entry.is_some_and(|entry| may_delete(entry.owner));
        if is_deleted {
            self.clear(slot);
        }
        is_deleted
    }

    /// Deletes the entries among these slots whose real server is gone; returns their number.
    pub fn delete_where(&mut self, slots: Range<u32>, is_gone: impl Fn(u32) -> bool) -> u32 {
        let mut deleted = 0;
        for slot in slots.map(Slot) {
            let entry = self.local.read(slot);
            if entry.is_some_and(|entry| is_gone(entry.decision.rs_index)) {
                self.clear(slot);
                deleted += 1;
            }
        }
        deleted
    }

    /// Ends a period of the 64 slots from `64 * group` on.
    pub fn end_period(&mut self, group: u32) {
        let marks = self.device.take_marks(group);
        if let Some(usage) = &mut self.usage {
            usage.end_period(group, marks);
        }
    }
}
