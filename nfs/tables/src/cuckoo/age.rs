//! Removes expired records, and iterates over all records.

use std::sync::atomic::Ordering;

use crate::{Entry, Key, Now};

use super::{
    header::{self, Change},
    place::SLOTS,
    record,
    slots::{Core, Found},
    words::Words,
};

impl<K: Key, W: Words> Core<K, W> {
    pub(super) fn len(&self) -> usize {
        header::counted(self.words).0
    }

    pub(super) fn age(
        &self,
        budget: usize,
        now: &Now,
        expired: &mut dyn FnMut(&K, Entry),
    ) -> usize {
        let buckets = (budget.div_ceil(SLOTS) as u64).min(self.shape.buckets);
        let hand = self.words.add(header::HAND, buckets);
        let mut removed = 0;
        for bucket in hand..hand + buckets {
            let bucket = bucket % self.shape.buckets;
            for (slot, data) in self.data(bucket).into_iter().enumerate() {
                if record::is_record(data) && record::has_expired(data, now) {
                    let seen = Found { bucket, slot, data };
                    removed += usize::from(self.expire(seen, now, expired));
                }
            }
        }
        removed
    }

    /// Removes a record, unless a packet renewed it meanwhile.
    fn expire(&self, seen: Found, now: &Now, expired: &mut dyn FnMut(&K, Entry)) -> bool {
        let Found { bucket, slot, data } = seen;
        let mut change = Change::begin(self.words);
        let lanes = self.lanes(bucket, slot);
        let first = self.first_bucket(&lanes, bucket, data);
        let lock = self.lock(first);
        let index = self.base(bucket) + slot;
        let again = self.words.load(index, Ordering::Relaxed);
        // As in `displace`: if the record is unchanged, this is its lock, and the lanes are its own.
        if self.differs(data, again) {
            return false;
        }
        let (old, removed) = self.change(index, |data| {
            record::has_expired(data, now).then_some(record::emptied(data))
        });
        drop(lock);
        if removed {
            change.count_removal();
            drop(change);
            let key = self.shape.key(&self.secrets, &lanes, first, old);
            expired(&key, record::entry(old));
        }
        removed
    }

    #[inline]
    pub(super) fn first_bucket(&self, lanes: &K::Lanes, bucket: u64, data: u64) -> u64 {
        if data & record::SECOND == 0 {
            bucket
        } else {
            self.other(lanes, bucket)
        }
    }

    pub(super) fn for_each(&self, now: &Now, visit: &mut dyn FnMut(&K, Entry)) {
        for bucket in 0..self.shape.buckets {
            for slot in 0..SLOTS {
                let index = self.base(bucket) + slot;
                loop {
                    let data = self.words.load(index, Ordering::Acquire);
                    if !record::is_record(data) || record::has_expired(data, now) {
                        break;
                    }
                    let lanes = self.lanes(bucket, slot);
                    if self.differs(data, self.words.load(index, Ordering::Relaxed)) {
                        continue;
                    }
                    let first = self.first_bucket(&lanes, bucket, data);
                    let key = self.shape.key(&self.secrets, &lanes, first, data);
                    visit(&key, record::entry(data));
                    break;
                }
            }
        }
    }
}
