//! Buckets and slots: where their words are, and how to read, claim, fill, empty and lock them.

use std::{marker::PhantomData, sync::atomic::Ordering};

use crate::Key;

use super::{
    header,
    place::{Place, Secrets, Shape, SLOTS},
    record,
    words::Words,
};

/// The table's algorithm over given words.
pub(super) struct Core<K, W> {
    pub(super) words: W,
    pub(super) shape: Shape,
    pub(super) secrets: Secrets,
    keys: PhantomData<K>,
}

/// Returns the words of a bucket. Data words come first, then lanes, so that both start a cache line or share one:
/// IPv4: 4 + 4, one line. IPv6: 4, 4 unused, 4 x 4, three lines.
#[inline(always)]
pub(super) fn bucket_words<K: Key>() -> usize {
    lanes_offset::<K>() + SLOTS * size_of::<K::Lanes>() / 8
}

#[inline(always)]
fn lanes_offset<K: Key>() -> usize {
    if size_of::<K::Lanes>() == 8 {
        SLOTS
    } else {
        8
    }
}

/// A record as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) bucket: u64,
    pub(super) slot: usize,
    /// Its data word.
    pub(super) data: u64,
}

/// The result of looking for a key in one bucket.
pub(super) enum Look {
    Found(Found),
    /// Records were added or removed during the look.
    Changed,
    /// No record is the key's; these are the data words.
    Missing([u64; SLOTS]),
}

impl<K: Key, W: Words> Core<K, W> {
    #[inline]
    pub(super) fn new(words: W, shape: Shape) -> Self {
        Self {
            words,
            shape,
            secrets: header::secrets(words),
            keys: PhantomData,
        }
    }

    /// Returns the index of a bucket's first word, which is the data word of its first slot.
    #[inline(always)]
    pub(super) fn base(&self, bucket: u64) -> usize {
        header::WORDS + bucket as usize * bucket_words::<K>()
    }

    #[inline(always)]
    fn lanes_base(&self, bucket: u64, slot: usize) -> usize {
        self.base(bucket) + lanes_offset::<K>() + slot * size_of::<K::Lanes>() / 8
    }

    #[inline(always)]
    pub(super) fn place(&self, key: &K) -> Place<K::Lanes> {
        self.shape.place(&self.secrets, key)
    }

    #[inline(always)]
    pub(super) fn other(&self, lanes: &K::Lanes, bucket: u64) -> u64 {
        self.shape.other(&self.secrets, lanes, bucket)
    }

    #[inline(always)]
    pub(super) fn prefetch_bucket<const LEVEL: u8>(&self, bucket: u64) {
        let base = self.base(bucket);
        for line in (0..bucket_words::<K>()).step_by(8) {
            self.words.prefetch::<LEVEL>(base + line);
        }
    }

    /// Reads the data words of a bucket. Reads after this one see everything written before those words.
    #[inline(always)]
    pub(super) fn data(&self, bucket: u64) -> [u64; SLOTS] {
        let words = self.words.window(self.base(bucket), SLOTS);
        std::array::from_fn(|slot| words.load(slot, Ordering::Acquire))
    }

    #[inline(always)]
    pub(super) fn lanes(&self, bucket: u64, slot: usize) -> K::Lanes {
        let base = self.lanes_base(bucket, slot);
        let mut lanes = K::Lanes::default();
        for (index, lane) in lanes.as_mut().iter_mut().enumerate() {
            *lane = self.words.load(base + index, Ordering::Acquire);
        }
        lanes
    }

    /// Returns the data word of the slot that may match this pattern and these lanes, and a number that is zero if it matches for certain. Has no branches.
    #[inline(always)]
    pub(super) fn glance(&self, bucket: u64, pattern: u64, lanes: &K::Lanes) -> (u64, u64) {
        let words = self.words.window(self.base(bucket), bucket_words::<K>());
        // If none may match, the last one will do: it is in doubt.
        let slot = (0..SLOTS - 1).rev().fold(SLOTS - 1, |found, slot| {
            let data = words.load(slot, Ordering::Acquire);
            if self.shape.fields.matches(data, pattern) {
                slot
            } else {
                found
            }
        });
        let before = words.load(slot, Ordering::Acquire);
        let mut doubt = self.shape.fields.mismatch(before, pattern);
        let base = lanes_offset::<K>() + slot * size_of::<K::Lanes>() / 8;
        for (index, lane) in lanes.as_ref().iter().enumerate() {
            doubt |= words.load(base + index, Ordering::Acquire) ^ lane;
        }
        let after = words.load(slot, Ordering::Relaxed);
        (after, doubt | record::difference(before, after))
    }

    /// Tells whether a record was added to or removed from a slot between these two states of it.
    #[inline(always)]
    pub(super) fn differs(&self, before: u64, after: u64) -> bool {
        record::difference(before, after) != 0
    }

    /// Returns the slots that may hold a record with this pattern, as bits.
    #[inline(always)]
    pub(super) fn candidates(&self, data: [u64; SLOTS], pattern: u64) -> u32 {
        // No branch per slot: the matching slot is unpredictable.
        // Doubling and adding is a single instruction, which adds the comparison's carry.
        (0..SLOTS).rev().fold(0, |candidates, slot| {
            candidates + candidates + u32::from(self.shape.fields.matches(data[slot], pattern))
        })
    }

    /// Looks for a record with this pattern and these lanes in a bucket. `data`: its data words, just read.
    #[inline(always)]
    pub(super) fn look(
        &self,
        bucket: u64,
        data: [u64; SLOTS],
        pattern: u64,
        lanes: &K::Lanes,
    ) -> Look {
        let mut candidates = self.candidates(data, pattern);
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            let same = self.lanes(bucket, slot) == *lanes;
            // The lanes belong to the data word if it is unchanged, since every writer changes the data word before the lanes.
            let again = self.words.load(self.base(bucket) + slot, Ordering::Relaxed);
            if self.differs(data[slot & (SLOTS - 1)], again) {
                return Look::Changed;
            }
            if same {
                return Look::Found(Found {
                    bucket,
                    slot,
                    data: again,
                });
            }
            candidates &= candidates - 1;
        }
        Look::Missing(data)
    }

    /// Finds a key's record. Exact for the holder of its lock; for others, the result was true at some moment of the call.
    #[inline]
    pub(super) fn find(&self, place: &Place<K::Lanes>) -> Option<Found> {
        let second = place.second();
        loop {
            let before = match self.look(
                place.first(),
                self.data(place.first()),
                place.pattern,
                &place.lanes,
            ) {
                Look::Found(found) => return Some(found),
                Look::Changed => continue,
                Look::Missing(data) => data,
            };
            let pattern = place.pattern | record::SECOND;
            match self.look(second, self.data(second), pattern, &place.lanes) {
                Look::Found(found) => return Some(found),
                Look::Changed => continue,
                Look::Missing(_) => {}
            }
            if !self.has_changed(place.first(), &before) {
                return None;
            }
        }
    }

    /// Tells whether records were added to the bucket since `before` was read.
    #[inline]
    fn has_changed(&self, bucket: u64, before: &[u64; SLOTS]) -> bool {
        let now = self.data(bucket);
        (0..SLOTS).any(|slot| self.differs(before[slot], now[slot]))
    }

    /// Acquires the right to change the records whose first bucket this is.
    #[inline]
    pub(super) fn lock(&self, bucket: u64) -> Lock<'_, K, W> {
        let base = self.base(bucket);
        let mut turn = 0;
        let mut data = self.words.load(base, Ordering::Relaxed);
        loop {
            if data & record::LOCK != 0 {
                self.words.wait(turn);
                turn += 1;
                data = self.words.load(base, Ordering::Relaxed);
            } else if let Err(now) = self.words.exchange(base, data, data | record::LOCK) {
                data = now;
            } else {
                return Lock { core: self, bucket };
            }
        }
    }

    /// Claims an empty slot of the bucket; returns the slot and its previous data word.
    #[inline]
    pub(super) fn claim(&self, bucket: u64) -> Option<(usize, u64)> {
        let base = self.base(bucket);
        loop {
            let data = self.data(bucket);
            // As in `candidates`: the empty slot is unpredictable.
            let empty = (0..SLOTS).fold(0, |empty, slot| {
                empty | u32::from(record::is_empty(data[slot])) << slot
            });
            if empty == 0 {
                return None;
            }
            let slot = empty.trailing_zeros() as usize % SLOTS;
            let claimed = record::claimed(data[slot]);
            if self
                .words
                .exchange(base + slot, data[slot], claimed)
                .is_ok()
            {
                return Some((slot, data[slot]));
            }
        }
    }

    /// Fills a claimed slot with a record. `pattern`: tag and place; `content`: the rest.
    #[inline]
    pub(super) fn fill(
        &self,
        bucket: u64,
        (slot, before): (usize, u64),
        lanes: &K::Lanes,
        pattern: u64,
        content: u64,
    ) -> Found {
        let base = self.lanes_base(bucket, slot);
        for (index, lane) in lanes.as_ref().iter().enumerate() {
            self.words.store(base + index, *lane);
        }
        let data = self.shape.fields.successor(before, pattern, content);
        let index = self.base(bucket) + slot;
        if slot == 0 {
            // Other threads lock and unlock the bucket by this word.
            self.change(index, |now| Some(data | now & record::LOCK));
        } else {
            self.words.store(index, data);
        }
        Found { bucket, slot, data }
    }

    /// Replaces a word by the result of `new`, retrying after interference; None leaves it. Returns the previous word, and whether it was replaced.
    #[inline]
    pub(super) fn change(&self, index: usize, new: impl Fn(u64) -> Option<u64>) -> (u64, bool) {
        let mut data = self.words.load(index, Ordering::Acquire);
        loop {
            let Some(wanted) = new(data) else {
                return (data, false);
            };
            match self.words.exchange(index, data, wanted) {
                Ok(()) => return (data, true),
                Err(now) => data = now,
            }
        }
    }
}

/// A locked bucket, until drop.
pub(super) struct Lock<'a, K: Key, W: Words> {
    core: &'a Core<K, W>,
    bucket: u64,
}

impl<K: Key, W: Words> Drop for Lock<'_, K, W> {
    #[inline]
    fn drop(&mut self) {
        let index = self.core.base(self.bucket);
        self.core.change(index, |data| Some(data & !record::LOCK));
    }
}
