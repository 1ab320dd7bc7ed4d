//! Inserts, changes and removes one key, under its lock.

use crate::{Entry, Full, Insertion, Key, Now};

use super::{
    header::Change,
    place::Place,
    record,
    slots::{Core, Found},
    words::Words,
};

impl<K: Key, W: Words> Core<K, W> {
    pub(super) fn insert(&self, key: &K, entry: Entry, now: &Now) -> Result<Insertion, Full> {
        let place = self.place(key);
        let content = record::content(entry, now);
        let mut change = Change::begin(self.words);
        loop {
            if let Some(insertion) = self.try_insert(&place, content, now, &mut change) {
                return Ok(insertion);
            }
            self.make_room([place.first(), place.second()])?;
        }
    }

    /// Inserts into an empty slot; None: there is none.
    #[inline]
    fn try_insert(
        &self,
        place: &Place<K::Lanes>,
        content: u64,
        now: &Now,
        change: &mut Change<W>,
    ) -> Option<Insertion> {
        let _lock = self.lock(place.first());
        if let Some(found) = self.find(place) {
            return Some(self.insert_again(found, content, now));
        }
        let second = place.second();
        let (bucket, pattern, slot) = if let Some(slot) = self.claim(place.first()) {
            (place.first(), place.pattern, slot)
        } else {
            (second, place.pattern | record::SECOND, self.claim(second)?)
        };
        self.fill(bucket, slot, &place.lanes, pattern, content);
        change.count_insertion();
        Some(Insertion::Inserted { expired: None })
    }

    /// Handles the insert of a key that has a record; the caller holds its lock.
    fn insert_again(&self, found: Found, content: u64, now: &Now) -> Insertion {
        let index = self.base(found.bucket) + found.slot;
        let (old, replaced) = self.change(index, |data| {
            record::has_expired(data, now).then_some(record::with_content(data, content))
        });
        let entry = record::entry(old);
        if replaced {
            return Insertion::Inserted {
                expired: Some(entry),
            };
        }
        // Only the holder of the lock can remove the record.
        let _ = self.renew(Found { data: old, ..found }, now);
        Insertion::Existing(entry)
    }

    pub(super) fn replace(
        &self,
        key: &K,
        old: Entry,
        new: Entry,
        now: &Now,
    ) -> Result<(), Option<Entry>> {
        let place = self.place(key);
        let _change = Change::begin(self.words);
        let _lock = self.lock(place.first());
        let found = self.find(&place).ok_or(None)?;
        let content = record::content(new, now);
        let (data, replaced) = self.change(self.base(found.bucket) + found.slot, |data| {
            let is_old = !record::has_expired(data, now) && record::entry(data) == old;
            is_old.then_some(record::with_content(data, content))
        });
        if replaced {
            return Ok(());
        }
        Err((!record::has_expired(data, now)).then_some(record::entry(data)))
    }

    pub(super) fn remove(&self, key: &K, now: &Now) -> Option<Entry> {
        let place = self.place(key);
        let mut change = Change::begin(self.words);
        let _lock = self.lock(place.first());
        let found = self.find(&place)?;
        let index = self.base(found.bucket) + found.slot;
        let (old, removed) = self.change(index, |data| {
            (!record::has_expired(data, now)).then_some(record::emptied(data))
        });
        if removed {
            change.count_removal();
        }
        removed.then_some(record::entry(old))
    }
}
