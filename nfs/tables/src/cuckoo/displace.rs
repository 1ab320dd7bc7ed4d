//! Makes room in a full bucket by moving records to their other buckets.

use nf_arena::FIRST_LEVEL;

use crate::{Full, Key};

use super::{
    place::SLOTS,
    record,
    slots::{Core, Found},
    words::Words,
};

/// The number of buckets that a search visits. A chain then has at most five moves; with four slots per bucket, tables fill to above 95 %.
const SEARCHED: usize = 512;
/// The number of plans that other threads may invalidate before an insert gives up.
const PLANS: u32 = 256;

/// A bucket reached by the search.
#[derive(Clone, Copy)]
struct Step {
    bucket: u64,
    /// The slot of the earlier step's bucket whose record could move here.
    from: u16,
    slot: u8,
    data: u64,
}

impl<K: Key, W: Words> Core<K, W> {
    /// Moves records so that one of the two buckets has an empty slot. Another thread may take it before the caller does.
    ///
    /// # Errors
    /// If the search finds no way.
    #[cold]
    pub(super) fn make_room(&self, buckets: [u64; 2]) -> Result<(), Full> {
        // Few searches go further, and small blocks are cheaper to allocate.
        let mut steps = Vec::with_capacity(40);
        for turn in 0..PLANS {
            steps.clear();
            let end = self.plan(buckets, &mut steps).ok_or(Full)?;
            if self.carry_out(&steps, end) {
                return Ok(());
            }
            self.words.wait(turn);
        }
        Err(Full)
    }

    /// Finds the shortest way to an empty slot and returns its last step. Takes no locks, so the plan may be outdated when it is used.
    fn plan(&self, buckets: [u64; 2], steps: &mut Vec<Step>) -> Option<usize> {
        steps.extend(buckets.map(|bucket| Step {
            bucket,
            from: 0,
            slot: 0,
            data: 0,
        }));
        let mut at = 0;
        while at < steps.len() {
            let bucket = steps[at].bucket;
            let data = self.data(bucket);
            if data.iter().any(|data| record::is_empty(*data)) {
                return Some(at);
            }
            for (slot, data) in data.into_iter().enumerate() {
                if steps.len() == SEARCHED || !record::is_record(data) {
                    continue;
                }
                let other = self.other(&self.lanes(bucket, slot), bucket);
                if other == bucket {
                    continue;
                }
                // The search reads this bucket soon, and prefetches few others before.
                self.words.prefetch::<FIRST_LEVEL>(self.base(other));
                steps.push(Step {
                    bucket: other,
                    from: at as u16,
                    slot: slot as u8,
                    data,
                });
            }
            at += 1;
        }
        None
    }

    /// Makes the moves of a plan, from its end. False: another thread interfered.
    fn carry_out(&self, steps: &[Step], end: usize) -> bool {
        let mut step = steps[end];
        let mut at = end;
        // The first two steps are the buckets that need room.
        while at >= 2 {
            at = usize::from(step.from);
            let record = Found {
                bucket: steps[at].bucket,
                slot: usize::from(step.slot),
                data: step.data,
            };
            if !self.displace(record, step.bucket) {
                return false;
            }
            step = steps[at];
        }
        true
    }

    /// Moves a record to its other bucket. False: it is gone, or `to` has no empty slot.
    pub(super) fn displace(&self, seen: Found, to: u64) -> bool {
        debug_assert!(seen.slot < SLOTS && seen.bucket != to);
        let second = seen.data & record::SECOND != 0;
        let _lock = self.lock(if second { to } else { seen.bucket });
        let from = self.base(seen.bucket) + seen.slot;
        let data = self.words.load(from, std::sync::atomic::Ordering::Acquire);
        if self.differs(seen.data, data) {
            return false;
        }
        // If it is the planned record, this is its lock, so its lanes are right and stay.
        let lanes = self.lanes(seen.bucket, seen.slot);
        let again = self.words.load(from, std::sync::atomic::Ordering::Relaxed);
        if self.differs(data, again) || self.other(&lanes, seen.bucket) != to {
            return false;
        }
        let Some(slot) = self.claim(to) else {
            return false;
        };
        let copy = self.fill(to, slot, &lanes, again ^ record::SECOND, again);
        self.change(from, |data| {
            // A reader may renew the old record after the copy was made: the later expiry counts.
            self.keep_expiry(copy, data);
            Some(record::emptied(data))
        });
        true
    }

    fn keep_expiry(&self, copy: Found, original: u64) {
        self.change(self.base(copy.bucket) + copy.slot, |data| {
            record::outlives(original, data).then_some(record::with_expiry_of(data, original))
        });
    }
}
