//! Real threads on one table: readers, writers, aging. Every lookup must find the stable keys, and no key may ever have another one's value.

#![allow(clippy::unwrap_used)]

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use nf_arena::Heap;
use nf_tables::{Class, Cuckoo, Entry, Insertion, Ipv4Flow, Key, Lifetimes, TICK_NANOS};

const SEED: u64 = 11;
const CAPACITY: usize = 20_000;
const WRITERS: usize = 2;
/// The stable keys, followed by those of each writer; at the highest load the table is about 95 % full.
const STABLE: usize = CAPACITY / 2;
const CHURNING: usize = CAPACITY / 4 + CAPACITY / 40;

fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn key(number: usize) -> Ipv4Flow {
    let random = mix(number as u64);
    Ipv4Flow::from_words(&[random], mix(random) >> 24)
}

/// Returns the fixed entry of a key. Only stable keys are established.
fn entry(number: usize) -> Entry {
    let class = if number < STABLE {
        Class::Established
    } else {
        Class::Opening
    };
    Entry {
        value: mix(mix(number as u64) + 1) as u16,
        class,
    }
}

/// Returns the duration, which CHURN_SECONDS can extend.
fn duration() -> Duration {
    let seconds = std::env::var("CHURN_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(2.0))
}

#[test]
fn lookups_never_miss_stable_keys_nor_return_wrong_values() {
    let memory = Heap::new(Cuckoo::<Ipv4Flow, Heap>::words(CAPACITY).unwrap()).unwrap();
    let table = Cuckoo::open_seeded(memory, CAPACITY, SEED).unwrap();
    let lifetimes = Lifetimes::new([0, 60, 0, 0].map(Duration::from_secs)).unwrap();
    let nanos = AtomicU64::new(0);
    let now = || lifetimes.at(nanos.load(Ordering::Relaxed));
    for number in 0..STABLE {
        table.insert(&key(number), entry(number), &now()).unwrap();
    }
    let stop = AtomicBool::new(false);
    let stopped = || stop.load(Ordering::Relaxed);
    let (moved_time, lookups, writes, aged) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (table, now, stopped) = (&table, &now, &stopped);
                scope.spawn(move || write(table, writer, now, stopped))
            })
            .collect();
        let readers = [true, false].map(|bulk| {
            let (table, now, stopped) = (&table, &now, &stopped);
            scope.spawn(move || read(table, bulk, now, stopped))
        });
        // Readers keep the stable keys alive; the others live for a tick.
        let aging = scope.spawn(|| {
            let mut aged = 0;
            while !stopped() {
                aged += table.age(64, &now(), &mut |_, entry| {
                    assert_eq!(entry.class, Class::Opening, "aged a stable key");
                });
                std::thread::yield_now();
            }
            aged
        });
        let end = Instant::now() + duration();
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            nanos.fetch_add(TICK_NANOS / 8, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
        let lookups: u64 = readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum();
        let writes: u64 = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum();
        (
            nanos.load(Ordering::Relaxed),
            lookups,
            writes,
            aging.join().unwrap(),
        )
    });
    println!(
        "{lookups} lookups, {writes} writes, {aged} aged, {} ticks",
        moved_time / TICK_NANOS
    );
    let mut records = 0;
    table.for_each(&now(), &mut |_, _| records += 1);
    assert!(table.len() >= records && lookups > 0 && writes > 0 && aged > 0);
    // After all lifetimes, and before expired records seem alive again.
    // No slot is left locked or claimed: the table can be filled, emptied and filled.
    let later = lifetimes.at(nanos.load(Ordering::Relaxed) + 40 * TICK_NANOS);
    table.age(table.slots(), &later, &mut |_, _| {});
    assert_eq!(table.len(), 0);
    for number in 0..CAPACITY {
        table.insert(&key(number), entry(number), &later).unwrap();
    }
    assert_eq!(table.len(), CAPACITY);
}

/// Inserts and removes its own keys, whose state it knows, and some of the other writer's keys, whose state it does not know.
fn write(
    table: &Cuckoo<Ipv4Flow, Heap>,
    writer: usize,
    now: &dyn Fn() -> nf_tables::Now,
    stopped: &dyn Fn() -> bool,
) -> u64 {
    let shared = STABLE + WRITERS * CHURNING;
    let mut there = vec![false; CHURNING];
    let mut writes = 0;
    while !stopped() {
        // This key is abandoned: aging must remove it.
        let abandoned = (1 << 40) + 2 * writes as usize + writer;
        let _ = table.insert(&key(abandoned), entry(abandoned), &now());
        for step in 0..1000_u64 {
            writes += 1;
            let random = mix(SEED ^ writes << 8 ^ writer as u64) as usize;
            if step % 16 == 0 {
                // Both writers insert and remove these.
                let number = shared + random % 8;
                let now = now();
                match table.insert(&key(number), entry(number), &now) {
                    Ok(Insertion::Existing(found)) => assert_eq!(found, entry(number)),
                    Ok(Insertion::Inserted { .. }) => {
                        let removed = table.remove(&key(number), &now);
                        assert!(removed.is_none_or(|removed| removed == entry(number)));
                    }
                    Err(_) => {}
                }
                continue;
            }
            let index = random % CHURNING;
            let number = STABLE + writer * CHURNING + index;
            if there[index] {
                let removed = table.remove(&key(number), &now());
                // It may be absent because it expired.
                assert!(removed.is_none_or(|removed| removed == entry(number)));
                there[index] = false;
                continue;
            }
            let then = now();
            if let Ok(insertion) = table.insert(&key(number), entry(number), &then) {
                assert!(matches!(insertion, Insertion::Inserted { .. }));
                let found = table.lookup(&key(number), &then);
                let expected = Some(entry(number));
                assert!(found == expected || found.is_none() && now() != then);
                there[index] = true;
            }
        }
    }
    writes
}

fn read(
    table: &Cuckoo<Ipv4Flow, Heap>,
    bulk: bool,
    now: &dyn Fn() -> nf_tables::Now,
    stopped: &dyn Fn() -> bool,
) -> u64 {
    let keys: Vec<_> = (0..CAPACITY).map(key).collect();
    let mut found = vec![None; CAPACITY];
    let mut lookups = 0;
    while !stopped() {
        // The next round over the stable keys starts well within a lifetime.
        for (start, chunk) in keys.chunks(100).enumerate() {
            if bulk {
                table.lookup_bulk(chunk, &now(), &mut found);
            } else {
                for (key, found) in chunk.iter().zip(&mut found) {
                    *found = table.lookup(key, &now());
                }
            }
            for (index, found) in found[..chunk.len()].iter().enumerate() {
                let number = start * 100 + index;
                assert!(
                    found.is_some() || number >= STABLE,
                    "missed stable key {number}"
                );
                assert!(
                    found.is_none_or(|found| found == entry(number)),
                    "key {number}: {found:?}"
                );
            }
            lookups += chunk.len() as u64;
        }
    }
    lookups
}
