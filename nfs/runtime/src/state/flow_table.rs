//! A flow table: a value per key, for network functions that keep data about each flow.
//!
//! It is simple rather than fast: the key's hash selects a *part* of 64 slots with one lock, and a byte of the hash per slot (its tag)
//! finds the key. The hash has a secret, stored before the parts, so senders of packets cannot fill a chosen part. Lookups for every packet of millions of flows belong in a table of `nf-tables`.

use std::{marker::PhantomData, sync::atomic::Ordering};

use bytemuck::Pod;
use nf_arena::{Memory, Region};

use super::{
    keyed_hash::HashKey,
    spin::{self, Lock},
    words::{read_words, write_words},
};

/// The number of slots under one lock, and the farthest that a key may be from its place.
const PART: usize = 64;
/// The average load of parts when the table holds its capacity. A part that is full by bad luck refuses a flow, which at 5/8 happens to
/// about 1 of 5,800 parts.
const FILL: (usize, usize) = (5, 8);
/// The words before the first part: the hash's secret, on its own cache line.
const HEADER: usize = 8;
/// The words before a part's slots: the lock on its own cache line, and the tags of the slots (0: empty).
const TAGS: usize = 8;
const PART_HEADER: usize = TAGS + PART / 8;
/// The words before a slot's key: its end.
const SLOT_HEADER: usize = 1;

/// A table in the arena with a time to live per entry.
pub struct FlowTable<K, V> {
    region: Region,
    parts: usize,
    of: PhantomData<fn() -> (K, V)>,
}

impl<K: Pod, V: Pod> FlowTable<K, V> {
    pub(super) fn layout() -> String {
        format!(
            "flows v2, key {} bytes, value {} bytes",
            size_of::<K>(),
            size_of::<V>()
        )
    }

    /// Returns the size in words, saturated: the arena refuses sizes that no memory has.
    pub(super) fn words(capacity: usize) -> usize {
        Self::parts_for(capacity)
            .saturating_mul(Self::part_words())
            .saturating_add(HEADER)
    }

    fn parts_for(capacity: usize) -> usize {
        (capacity.max(1).saturating_mul(FILL.1) / FILL.0)
            .div_ceil(PART)
            .next_power_of_two()
    }

    const fn key_words() -> usize {
        size_of::<K>().div_ceil(8)
    }

    const fn slot_words() -> usize {
        SLOT_HEADER + Self::key_words() + size_of::<V>().div_ceil(8)
    }

    const fn part_words() -> usize {
        PART_HEADER + PART * Self::slot_words()
    }

    pub(super) fn open(region: Region) -> Self {
        let parts = (region.words().len() - HEADER) / Self::part_words();
        Self {
            region,
            parts,
            of: PhantomData,
        }
    }

    /// Chooses the key of a new table's hash.
    pub(super) fn choose_key(&self) {
        write_words(&self.region, 0, bytemuck::bytes_of(&HashKey::random().0));
    }

    /// Frees the locks, for [`super::Repairs`]. A half-inserted entry is absent or complete; a half-changed one may be partly old.
    pub(super) fn free_locks(&self) {
        self.all_parts()
            .for_each(|part| spin::free(&self.region, part));
    }

    /// Returns the value of an unexpired key, and renews its end.
    #[must_use]
    pub fn get(&self, key: &K, now: u64, ttl: u64) -> Option<V> {
        self.update(key, now, ttl, |value| *value)
    }

    /// Changes the value of an unexpired key, and sets its end to `now + ttl`, nanoseconds. None: the key does not exist.
    pub fn update<R>(
        &self,
        key: &K,
        now: u64,
        ttl: u64,
        change: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let (part, tag) = self.place(key);
        let _lock = Lock::take(&self.region, part);
        let slot = self.find(part, tag, key, now)?;
        let mut value = self.value(part, slot);
        let result = change(&mut value);
        self.put_value(part, slot, &value);
        self.put_end(part, slot, now.saturating_add(ttl));
        Some(result)
    }

    /// Changes the value of an unexpired key, and keeps its end. None: the key does not exist.
    pub fn amend<R>(&self, key: &K, now: u64, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let (part, tag) = self.place(key);
        let _lock = Lock::take(&self.region, part);
        let slot = self.find(part, tag, key, now)?;
        let mut value = self.value(part, slot);
        let result = change(&mut value);
        self.put_value(part, slot, &value);
        Some(result)
    }

    /// Like [`update`](Self::update), but first inserts `fresh` if the key does not exist. None: its part is full.
    pub fn update_or_insert<R>(
        &self,
        key: &K,
        now: u64,
        ttl: u64,
        fresh: impl FnOnce() -> V,
        change: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let (part, tag) = self.place(key);
        let _lock = Lock::take(&self.region, part);
        let (slot, mut value) = match self.find(part, tag, key, now) {
            Some(slot) => (slot, self.value(part, slot)),
            None => (self.free(part, now)?, fresh()),
        };
        let result = change(&mut value);
        self.put_value(part, slot, &value);
        self.put_key(part, slot, key);
        self.put_end(part, slot, now.saturating_add(ttl));
        // Last: if this process dies earlier, the table's next owner finds the slot empty, else complete.
        self.put_tag(part, slot, tag);
        Some(result)
    }

    /// Puts a value for a key, whether it existed or not. If the key's part is full, it evicts the entry that ends first. True: it evicted one.
    pub fn replace(&self, key: &K, now: u64, ttl: u64, value: V) -> bool {
        let (part, tag) = self.place(key);
        let _lock = Lock::take(&self.region, part);
        let free = self
            .find(part, tag, key, now)
            .or_else(|| self.free(part, now));
        let slot = free.unwrap_or_else(|| self.soonest(part));
        self.fill(part, slot, key, now.saturating_add(ttl), &value, tag);
        free.is_none()
    }

    /// Inserts a value for a key that does not exist. Err: the existing value, which stays and keeps its end; None: its part is full.
    ///
    /// # Errors
    /// As described above.
    pub fn insert(&self, key: &K, now: u64, ttl: u64, value: V) -> Result<(), Option<V>> {
        let (part, tag) = self.place(key);
        let _lock = Lock::take(&self.region, part);
        if let Some(slot) = self.find(part, tag, key, now) {
            return Err(Some(self.value(part, slot)));
        }
        let slot = self.free(part, now).ok_or(None)?;
        self.fill(part, slot, key, now.saturating_add(ttl), &value, tag);
        Ok(())
    }

    /// Returns the value of an unexpired key, and keeps its end.
    #[must_use]
    pub fn look(&self, key: &K, now: u64) -> Option<V> {
        self.amend(key, now, |value| *value)
    }

    /// Removes a key; returns its value if it existed.
    pub fn remove(&self, key: &K, now: u64) -> Option<V> {
        let (part, tag) = self.place(key);
        let _lock = Lock::take(&self.region, part);
        let slot = self.find(part, tag, key, now)?;
        let value = self.value(part, slot);
        self.put_tag(part, slot, 0);
        Some(value)
    }

    /// Calls `look` with each unexpired entry. Entries inserted or removed meanwhile may be missed.
    pub fn for_each(&self, now: u64, mut look: impl FnMut(&K, &V)) {
        for part in self.all_parts() {
            let _lock = Lock::take(&self.region, part);
            for slot in (0..PART).filter(|slot| self.is_live(part, *slot, now)) {
                look(&self.key(part, slot), &self.value(part, slot));
            }
        }
    }

    /// Counts unexpired entries. Scans the whole table.
    #[must_use]
    pub fn len(&self, now: u64) -> usize {
        self.all_parts()
            .map(|part| {
                (0..PART)
                    .filter(|slot| self.is_live(part, *slot, now))
                    .count()
            })
            .sum()
    }

    /// Tells whether every entry has expired.
    #[must_use]
    pub fn is_empty(&self, now: u64) -> bool {
        self.len(now) == 0
    }

    fn all_parts(&self) -> impl Iterator<Item = usize> {
        (0..self.parts).map(|part| HEADER + part * Self::part_words())
    }

    /// Returns the start of a key's part, and the key's tag: 1 to 255.
    fn place(&self, key: &K) -> (usize, u8) {
        // Read on each call: where the state is a copy, the secret arrives with it.
        let mut secret = [0; 2];
        read_words(&self.region, 0, bytemuck::bytes_of_mut(&mut secret));
        let hash = HashKey(secret).hash(bytemuck::bytes_of(key));
        let tag = ((hash >> 56) as u8).max(1);
        let part = hash as usize & (self.parts - 1);
        (HEADER + part * Self::part_words(), tag)
    }

    /// Returns the slot of this key, if it has not expired.
    fn find(&self, part: usize, tag: u8, key: &K, now: u64) -> Option<usize> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        for group in 0..PART / 8 {
            let tags = self.region.words()[part + TAGS + group].load(Ordering::Relaxed);
            // A byte of `different` is 0 where the tags are equal. The usual test for zero bytes may also mark the
            // byte after one; comparing the key decides.
            let different = tags ^ (ONES * u64::from(tag));
            let mut same = different.wrapping_sub(ONES) & !different & (ONES << 7);
            while same != 0 {
                let slot = group * 8 + same.trailing_zeros() as usize / 8;
                same &= same - 1;
                let is_it = bytemuck::bytes_of(&self.key(part, slot)) == bytemuck::bytes_of(key);
                if is_it && self.is_live(part, slot, now) {
                    return Some(slot);
                }
            }
        }
        None
    }

    /// Returns a slot whose entry is empty or has expired.
    fn free(&self, part: usize, now: u64) -> Option<usize> {
        (0..PART).find(|slot| !self.is_live(part, *slot, now))
    }

    /// Returns the slot of a full part whose entry ends first.
    fn soonest(&self, part: usize) -> usize {
        (0..PART)
            .min_by_key(|slot| self.end(part, *slot))
            .unwrap_or(0)
    }

    fn end(&self, part: usize, slot: usize) -> u64 {
        self.region.words()[Self::start(part, slot)].load(Ordering::Relaxed)
    }

    fn is_live(&self, part: usize, slot: usize, now: u64) -> bool {
        self.tag(part, slot) != 0 && self.end(part, slot) > now
    }

    /// Fills a slot with an entry. If this process dies meanwhile, the next owner finds the old entry, none, or the new one.
    fn fill(&self, part: usize, slot: usize, key: &K, end: u64, value: &V, tag: u8) {
        self.put_tag(part, slot, 0);
        self.put_value(part, slot, value);
        self.put_key(part, slot, key);
        self.put_end(part, slot, end);
        self.put_tag(part, slot, tag);
    }

    fn start(part: usize, slot: usize) -> usize {
        part + PART_HEADER + slot * Self::slot_words()
    }

    fn tag(&self, part: usize, slot: usize) -> u8 {
        self.region.words()[part + TAGS + slot / 8]
            .load(Ordering::Relaxed)
            .to_le_bytes()[slot % 8]
    }

    fn put_tag(&self, part: usize, slot: usize, tag: u8) {
        let index = part + TAGS + slot / 8;
        let word = &self.region.words()[index];
        let mut tags = word.load(Ordering::Relaxed).to_le_bytes();
        tags[slot % 8] = tag;
        word.store(u64::from_le_bytes(tags), Ordering::Release);
        self.region.touch(index);
    }

    fn put_end(&self, part: usize, slot: usize, end: u64) {
        self.region.words()[Self::start(part, slot)].store(end, Ordering::Relaxed);
        self.region.touch(Self::start(part, slot));
    }

    fn key(&self, part: usize, slot: usize) -> K {
        let mut key = K::zeroed();
        read_words(
            &self.region,
            Self::start(part, slot) + SLOT_HEADER,
            bytemuck::bytes_of_mut(&mut key),
        );
        key
    }

    fn put_key(&self, part: usize, slot: usize, key: &K) {
        write_words(
            &self.region,
            Self::start(part, slot) + SLOT_HEADER,
            bytemuck::bytes_of(key),
        );
    }

    fn value(&self, part: usize, slot: usize) -> V {
        let mut value = V::zeroed();
        let start = Self::start(part, slot) + SLOT_HEADER + Self::key_words();
        read_words(&self.region, start, bytemuck::bytes_of_mut(&mut value));
        value
    }

    fn put_value(&self, part: usize, slot: usize, value: &V) {
        let start = Self::start(part, slot) + SLOT_HEADER + Self::key_words();
        write_words(&self.region, start, bytemuck::bytes_of(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier and later instances must have the same layout.
    #[test]
    fn sizes_match_the_layout() {
        // A header; then parts, each with its lock's line, 8 words of tags, and 64 slots of an end, a key and a value.
        let words = |part: usize, parts: usize| 8 + parts * (8 + 8 + 64 * part);
        for (capacity, parts) in [(0, 1), (1, 1), (40, 1), (41, 2), (80, 2), (81, 4), (161, 8)] {
            assert_eq!(FlowTable::<u64, u64>::words(capacity), words(3, parts));
            assert_eq!(
                FlowTable::<[u8; 13], [u8; 17]>::words(capacity),
                words(6, parts)
            );
        }
        assert!(FlowTable::<u64, u64>::words(usize::MAX) > 1 << 60);
        let layout = FlowTable::<[u8; 13], u64>::layout();
        assert_eq!(layout, "flows v2, key 13 bytes, value 8 bytes");
    }
}
