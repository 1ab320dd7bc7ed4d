//! Compares the cuckoo table with a map: the same calls must give the same answers.

use std::{collections::HashMap, time::Duration};

use nf_arena::Heap;
use proptest::prelude::*;

use super::Cuckoo;
use crate::{Class, Entry, Full, Insertion, Ipv4Flow, Ipv6Flow, Key, Lifetimes, Now, TICK_NANOS};

/// A connection table that is simple enough to be obviously right.
struct Plain<K>(HashMap<K, Record>);

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
    fn lookup(&mut self, key: &K, now: &Now) -> Option<Entry> {
        let record = self.0.get_mut(key).filter(|record| record.lives(now))?;
        record.renew(now);
        Some(record.entry)
    }

    fn insert(&mut self, key: &K, entry: Entry, now: &Now) -> Insertion {
        if let Some(existing) = self.lookup(key, now) {
            return Insertion::Existing(existing);
        }
        let expired = self.0.insert(*key, Record::new(entry, now));
        Insertion::Inserted {
            expired: expired.map(|record| record.entry),
        }
    }

    fn replace(&mut self, key: &K, old: Entry, new: Entry, now: &Now) -> Result<(), Option<Entry>> {
        let record = self.0.get_mut(key).filter(|record| record.lives(now));
        let record = record.ok_or(None)?;
        if record.entry != old {
            return Err(Some(record.entry));
        }
        *record = Record::new(new, now);
        Ok(())
    }

    fn remove(&mut self, key: &K, now: &Now) -> Option<Entry> {
        self.0.get(key).filter(|record| record.lives(now))?;
        Some(self.0.remove(key)?.entry)
    }

    /// Removes the expired records and returns them.
    fn age(&mut self, now: &Now) -> HashMap<K, Entry> {
        let expired = self.0.iter().filter(|(_, record)| !record.lives(now));
        let expired = expired.map(|(key, record)| (*key, record.entry)).collect();
        self.0.retain(|_, record| record.lives(now));
        expired
    }

    fn all(&self, now: &Now) -> HashMap<K, Entry> {
        let living = self.0.iter().filter(|(_, record)| record.lives(now));
        living.map(|(key, record)| (*key, record.entry)).collect()
    }
}

#[derive(Clone, Debug)]
enum Call {
    Lookup(u16),
    LookupBulk(Vec<u16>),
    Insert(u16, Entry),
    /// Replaces the flow's own entry, or another one.
    Replace(u16, Option<Entry>, Entry),
    Remove(u16),
    Age,
    Pass(u64),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let key = || 0_u16..60;
    let entry = || {
        (any::<u16>(), prop::sample::select(&Class::ALL[..]))
            .prop_map(|(value, class)| Entry { value, class })
    };
    let call = prop_oneof![
        4 => key().prop_map(Call::Lookup),
        2 => prop::collection::vec(key(), 0..80).prop_map(Call::LookupBulk),
        4 => (key(), entry()).prop_map(|(key, entry)| Call::Insert(key, entry)),
        3 => (key(), prop::option::of(entry()), entry()).prop_map(|(key, old, new)| Call::Replace(key, old, new)),
        1 => key().prop_map(Call::Remove),
        1 => Just(Call::Age),
        2 => (0_u64..60).prop_map(Call::Pass),
    ];
    prop::collection::vec(call, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn same_answers_ipv4(calls in calls(), seed in any::<u64>(), start in any::<u32>()) {
        same_answers::<Ipv4Flow>(&calls, seed, start)?;
    }

    #[test]
    fn same_answers_ipv6(calls in calls(), seed in any::<u64>(), start in any::<u32>()) {
        same_answers::<Ipv6Flow>(&calls, seed, start)?;
    }
}

/// Returns keys that differ in one field only, each field in turn.
fn key<K: Key>(number: u16) -> K {
    let mut lanes = K::Lanes::default();
    let mut tail = 0;
    let step = u64::from(number / 5 + 1);
    match number % 5 {
        0 => lanes.as_mut()[0] = step << 32,
        1 => lanes
            .as_mut()
            .last_mut()
            .into_iter()
            .for_each(|lane| *lane = step),
        2 => tail = step << 24,
        3 => tail = step << 8,
        _ => tail = step,
    }
    K::from_words(&lanes, tail)
}

fn cuckoo<K: Key>(capacity: usize, seed: u64) -> Cuckoo<K, Heap> {
    let memory = Heap::new(Cuckoo::<K, Heap>::words(capacity).unwrap()).unwrap();
    Cuckoo::open_seeded(memory, capacity, seed).unwrap()
}

fn all<K: Key>(table: &Cuckoo<K, Heap>, now: &Now) -> HashMap<K, Entry> {
    let mut records = HashMap::new();
    table.for_each(now, &mut |key, entry| {
        assert_eq!(records.insert(*key, entry), None)
    });
    records
}

fn same_answers<K: Key>(calls: &[Call], seed: u64, start: u32) -> Result<(), TestCaseError> {
    let table = cuckoo::<K>(1000, seed);
    let mut plain = Plain::<K>(HashMap::new());
    let lifetimes = Lifetimes::new([0, 300, 20, 900].map(Duration::from_secs)).unwrap();
    let mut nanos = u64::from(start) * TICK_NANOS / 5;
    let mut since_aged = 0;
    for call in calls {
        let now = lifetimes.at(nanos);
        match call {
            Call::Lookup(number) => {
                prop_assert_eq!(
                    table.lookup(&key(*number), &now),
                    plain.lookup(&key(*number), &now)
                );
            }
            Call::LookupBulk(numbers) => {
                let keys: Vec<K> = numbers.iter().map(|number| key(*number)).collect();
                let wrong = Some(Entry {
                    value: 1,
                    class: Class::Opening,
                });
                let mut found = vec![wrong; keys.len()];
                let mut expected = vec![wrong; keys.len()];
                table.lookup_bulk(&keys, &now, &mut found);
                for (key, expected) in keys.iter().zip(&mut expected) {
                    *expected = plain.lookup(key, &now);
                }
                prop_assert_eq!(found, expected);
            }
            Call::Insert(number, entry) => {
                prop_assert_eq!(
                    table.insert(&key(*number), *entry, &now),
                    Ok(plain.insert(&key(*number), *entry, &now))
                );
            }
            Call::Replace(number, other, new) => {
                let current = plain.lookup(&key(*number), &now);
                prop_assert_eq!(table.lookup(&key(*number), &now), current);
                let old = other.or(current).unwrap_or(*new);
                prop_assert_eq!(
                    table.replace(&key(*number), old, *new, &now),
                    plain.replace(&key(*number), old, *new, &now)
                );
            }
            Call::Remove(number) => {
                prop_assert_eq!(
                    table.remove(&key(*number), &now),
                    plain.remove(&key(*number), &now)
                );
            }
            Call::Age => {
                same_aging(&table, &mut plain, &now)?;
                since_aged = 0;
            }
            Call::Pass(ticks) => {
                if since_aged + ticks > 60 {
                    same_aging(&table, &mut plain, &now)?;
                    since_aged = 0;
                }
                since_aged += ticks;
                nanos += ticks * TICK_NANOS;
            }
        }
        let now = lifetimes.at(nanos);
        prop_assert_eq!(table.len(), plain.0.len());
        if matches!(call, Call::Pass(_)) {
            prop_assert_eq!(all(&table, &now), plain.all(&now));
        }
    }
    Ok(())
}

fn same_aging<K: Key>(
    table: &Cuckoo<K, Heap>,
    plain: &mut Plain<K>,
    now: &Now,
) -> Result<(), TestCaseError> {
    let mut expired = HashMap::new();
    let mut removed = 0;
    for _ in 0..4 {
        removed += table.age(table.slots() / 4, now, &mut |key, entry| {
            expired.insert(*key, entry);
        });
    }
    prop_assert_eq!(removed, expired.len());
    prop_assert_eq!(expired, plain.age(now));
    Ok(())
}

/// Returns flows in a realistic order: one service, clients and ports in sequence.
fn flow(number: u32) -> Ipv4Flow {
    Ipv4Flow {
        source: (0x0a00_0000 + number / 64).into(),
        destination: [198, 51, 100, 1].into(),
        source_port: 32_768 + (number % 64) as u16,
        destination_port: 443,
        protocol: 6,
    }
}

#[test]
fn fills_to_95_percent_and_loses_nothing() {
    let table = cuckoo::<Ipv4Flow>(60_000, 7);
    let now = Lifetimes::default().at(0);
    let entry = |number: u32| Entry {
        value: number as u16,
        class: Class::Established,
    };
    let mut count = 0_u32;
    let full = loop {
        match table.insert(&flow(count), entry(count), &now) {
            Ok(insertion) => assert_eq!(insertion, Insertion::Inserted { expired: None }),
            Err(full) => break full,
        }
        count += 1;
    };
    assert_eq!(full, Full);
    let load = f64::from(count) / table.slots() as f64;
    assert!(load > 0.95, "{load}");
    assert_eq!(table.len(), count as usize);
    let there = |range: std::ops::Range<u32>| {
        let keys: Vec<_> = range.clone().map(flow).collect();
        let mut found = vec![None; keys.len()];
        table.lookup_bulk(&keys, &now, &mut found);
        for (number, found) in range.zip(found) {
            assert_eq!(table.lookup(&flow(number), &now), found);
            match found {
                Some(found) => assert_eq!(found, entry(number)),
                None => return false,
            }
        }
        true
    };
    assert!(there(0..count));
    assert_eq!(all(&table, &now).len(), count as usize);
    assert_eq!(
        table.insert(&flow(3), entry(9), &now),
        Ok(Insertion::Existing(entry(3)))
    );
    for number in 0..count / 2 {
        assert_eq!(table.remove(&flow(number), &now), Some(entry(number)));
        assert_eq!(table.remove(&flow(number), &now), None);
    }
    assert_eq!(table.lookup(&flow(1), &now), None);
    assert!(there(count / 2..count));
    assert_eq!(table.len(), (count - count / 2) as usize);
    // All other records expire, and there is room again.
    let later = Lifetimes::default().at(400_000_000_000);
    assert_eq!(
        table.age(table.slots(), &later, &mut |_, _| {}),
        table.slots().min((count - count / 2) as usize)
    );
    assert_eq!(table.len(), 0);
    for number in 0..60_000 {
        assert!(table.insert(&flow(number), entry(number), &later).is_ok());
    }
}
