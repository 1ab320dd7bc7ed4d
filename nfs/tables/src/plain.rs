//! A map behind a lock.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{ConnectionTable, Entry, Full, Insertion, Key, Now};

/// A connection table that is simple enough to be obviously right, and slow because of its lock. It lives in private memory and cannot be moved: for
/// tests and comparison.
pub struct Plain<K> {
    records: Mutex<Records<K>>,
    capacity: usize,
}

struct Records<K> {
    map: HashMap<K, Record>,
    /// The keys that the current aging pass has not examined yet.
    to_age: Vec<K>,
}

#[derive(Clone, Copy)]
struct Record {
    entry: Entry,
    /// The last tick in which the record lives.
    expiry: u64,
}

impl Record {
    fn new(entry: Entry, now: &Now) -> Self {
        Self {
            entry,
            expiry: now.expiry(entry.class),
        }
    }

    fn lives(&self, now: &Now) -> bool {
        self.expiry >= now.tick()
    }

    fn renew(&mut self, now: &Now) {
        if self.expiry < now.tick() + now.enough(self.entry.class) {
            self.expiry = now.expiry(self.entry.class);
        }
    }
}

impl<K: Key> Plain<K> {
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            records: Mutex::new(Records {
                map: HashMap::new(),
                to_age: Vec::new(),
            }),
            capacity,
        }
    }

    fn records(&self) -> MutexGuard<'_, Records<K>> {
        // Every change leaves the map consistent, even one that panics.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Key> ConnectionTable<K> for Plain<K> {
    fn lookup(&self, key: &K, now: &Now) -> Option<Entry> {
        let mut records = self.records();
        let record = records
            .map
            .get_mut(key)
            .filter(|record| record.lives(now))?;
        record.renew(now);
        Some(record.entry)
    }

    fn insert(&self, key: &K, entry: Entry, now: &Now) -> Result<Insertion, Full> {
        let mut records = self.records();
        let count = records.map.len();
        match records.map.get_mut(key) {
            Some(record) if record.lives(now) => {
                record.renew(now);
                Ok(Insertion::Existing(record.entry))
            }
            Some(record) => {
                let expired = Some(record.entry);
                *record = Record::new(entry, now);
                Ok(Insertion::Inserted { expired })
            }
            None if count >= self.capacity => Err(Full),
            None => {
                records.map.insert(*key, Record::new(entry, now));
                Ok(Insertion::Inserted { expired: None })
            }
        }
    }

    fn replace(&self, key: &K, old: Entry, new: Entry, now: &Now) -> Result<(), Option<Entry>> {
        let mut records = self.records();
        let record = records
            .map
            .get_mut(key)
            .filter(|record| record.lives(now))
            .ok_or(None)?;
        if record.entry != old {
            return Err(Some(record.entry));
        }
        *record = Record::new(new, now);
        Ok(())
    }

    fn remove(&self, key: &K, now: &Now) -> Option<Entry> {
        let record = self.records().map.remove(key)?;
        record.lives(now).then_some(record.entry)
    }

    fn age(&self, budget: usize, now: &Now, expired: &mut dyn FnMut(&K, Entry)) -> usize {
        let mut records = self.records();
        if records.to_age.is_empty() {
            records.to_age = records.map.keys().copied().collect();
        }
        let rest = records.to_age.len().saturating_sub(budget);
        let mut removed = 0;
        for key in records.to_age.split_off(rest) {
            if let Some(record) = records.map.get(&key).filter(|record| !record.lives(now)) {
                expired(&key, record.entry);
                records.map.remove(&key);
                removed += 1;
            }
        }
        removed
    }

    fn len(&self) -> usize {
        self.records().map.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn for_each(&self, now: &Now, visit: &mut dyn FnMut(&K, Entry)) {
        let records = self.records();
        for (key, record) in records.map.iter().filter(|(_, record)| record.lives(now)) {
            visit(key, record.entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Class, Ipv4Flow, Lifetimes, TICK_NANOS};

    fn key(number: u64) -> Ipv4Flow {
        Ipv4Flow::from_words(&[number], 0)
    }

    fn at(tick: u64) -> Now {
        let lifetimes = Lifetimes::new([32 * TICK_NANOS; 4].map(Duration::from_nanos)).unwrap();
        lifetimes.at(tick * TICK_NANOS)
    }

    const ENTRY: Entry = Entry {
        value: 7,
        class: Class::Datagram,
    };

    #[test]
    fn records_are_renewed_and_aged_in_steps() {
        let table = Plain::new(10);
        for number in 0..10 {
            let inserted = table.insert(&key(number), ENTRY, &at(0));
            assert_eq!(inserted, Ok(Insertion::Inserted { expired: None }));
        }
        assert_eq!(table.insert(&key(10), ENTRY, &at(0)), Err(Full));
        assert_eq!((table.len(), table.capacity()), (10, 10));
        // 33 of the 35 granted ticks suffice: a packet renews the record after more than two.
        assert_eq!(table.lookup(&key(0), &at(2)), Some(ENTRY));
        assert_eq!(table.lookup(&key(1), &at(3)), Some(ENTRY));
        assert_eq!(table.lookup(&key(2), &at(35)), Some(ENTRY));
        assert_eq!(table.lookup(&key(0), &at(36)), None);
        assert_eq!(table.lookup(&key(1), &at(38)), Some(ENTRY));
        let mut expired = Vec::new();
        let mut removed = Vec::new();
        for _ in 0..3 {
            removed.push(table.age(4, &at(38), &mut |key, _| expired.push(*key)));
        }
        expired.sort_unstable();
        let old: Vec<_> = [0, 3, 4, 5, 6, 7, 8, 9].map(key).to_vec();
        assert_eq!(expired.len(), old.len());
        assert!(old.iter().all(|key| expired.contains(key)));
        assert_eq!((removed.iter().sum::<usize>(), table.len()), (8, 2));
        assert!(removed.iter().all(|count| *count <= 4));
        let mut left = Vec::new();
        table.for_each(&at(38), &mut |key, _| left.push(*key));
        left.sort_unstable();
        assert_eq!(left, [key(1), key(2)]);
    }

    #[test]
    fn an_expired_record_is_replaced_and_reported() {
        let table = Plain::new(1);
        let new = Entry { value: 8, ..ENTRY };
        table.insert(&key(0), ENTRY, &at(0)).unwrap();
        assert_eq!(
            table.insert(&key(0), new, &at(1)),
            Ok(Insertion::Existing(ENTRY))
        );
        assert_eq!(table.replace(&key(0), new, new, &at(1)), Err(Some(ENTRY)));
        assert_eq!(table.replace(&key(0), ENTRY, new, &at(40)), Err(None));
        let inserted = table.insert(&key(0), new, &at(40));
        assert_eq!(
            inserted,
            Ok(Insertion::Inserted {
                expired: Some(ENTRY)
            })
        );
        assert_eq!(table.remove(&key(0), &at(80)), None);
        assert!(table.is_empty() && Full.to_string().contains("full"));
    }
}
