//! Tests of sizes, secrets, the bits of a record, and steps of aging.

use std::{
    collections::HashSet,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Barrier,
    },
    time::Duration,
};

use nf_arena::{Heap, Memory};

use super::{
    lines::{line_of_thread, SHARED_LINE},
    place::SLOTS,
    record::{self, Fields, Renewal},
    Cuckoo, TableError,
};
use crate::{
    lifetime::{EXPIRY_SPAN, LIVING_TICKS},
    Class, Entry, Ipv4Flow, Ipv6Flow, Key, Lifetimes, Now, TICK_NANOS,
};

fn memory<K: Key>(capacity: usize) -> Heap {
    Heap::new(Cuckoo::<K, Heap>::words(capacity).unwrap()).unwrap()
}

fn flow(number: u64) -> Ipv4Flow {
    Ipv4Flow::from_words(&[number], 0)
}

fn entry(class: Class) -> Entry {
    Entry { value: 7, class }
}

#[test]
fn sizes_follow_the_capacity() {
    // A bucket has four slots, filled to 90 %, in one cache line or three; the header has 16 lines.
    for (capacity, buckets) in [(1, 1024), (3686, 1024), (3687, 1025), (36_000, 10_000)] {
        let table = Cuckoo::<Ipv4Flow, _>::open(memory::<Ipv4Flow>(capacity), capacity).unwrap();
        assert_eq!((table.slots(), table.capacity()), (buckets * 4, capacity));
        let words = (
            Cuckoo::<Ipv4Flow, Heap>::words(capacity),
            Cuckoo::<Ipv6Flow, Heap>::words(capacity),
        );
        assert_eq!(words, (Ok(128 + 8 * buckets), Ok(128 + 24 * buckets)));
    }
    let most = (1 << 24) * 4 / 10 * 9;
    assert!(Cuckoo::<Ipv4Flow, Heap>::words(most).is_ok());
    let capacity = most + 1;
    let refused = TableError::TooLarge { capacity, most };
    assert_eq!(Cuckoo::<Ipv4Flow, Heap>::words(capacity), Err(refused));
    let words = Cuckoo::<Ipv4Flow, Heap>::words(1000).unwrap();
    let small = Cuckoo::<Ipv4Flow, _>::open(Heap::new(words - 1).unwrap(), 1000).err();
    let refused = TableError::TooSmall {
        words: words - 1,
        needed: words,
    };
    assert_eq!(small, Some(refused));
}

#[test]
fn secrets_are_odd_and_differ() {
    let secrets = |table: &Cuckoo<Ipv4Flow, Heap>| table.core().secrets.0;
    let mut seen = HashSet::new();
    for seed in 0..32 {
        let seeded = || Cuckoo::open_seeded(memory::<Ipv4Flow>(1), 1, seed).unwrap();
        assert_eq!(secrets(&seeded()), secrets(&seeded()));
        let random = Cuckoo::open(memory::<Ipv4Flow>(1), 1).unwrap();
        for secret in [secrets(&seeded()), secrets(&random)].concat() {
            assert!(secret % 2 == 1 && seen.insert(secret), "{secret:#x}");
        }
    }
    // SplitMix64 of seed 0, as published.
    let first = Cuckoo::open_seeded(memory::<Ipv4Flow>(1), 1, 0).unwrap();
    assert_eq!(secrets(&first)[0], 0xe220_a839_7b1d_cdaf);
}

fn at(tick: u64) -> Now {
    let seconds = [0, 300, 20, 900].map(Duration::from_secs);
    Lifetimes::new(seconds).unwrap().at(tick * TICK_NANOS)
}

#[test]
fn a_record_is_renewed_when_less_than_its_lifetime_is_left() {
    for start in [0, 100, EXPIRY_SPAN - 1, EXPIRY_SPAN * 1000 + 3] {
        for class in Class::ALL {
            let data = record::content(entry(class), &at(start)) | record::PRESENT;
            assert_eq!(record::entry(data), entry(class));
            let granted = at(start).expiry(class) - start;
            let enough = at(start).enough(class);
            for passed in 0..=granted + EXPIRY_SPAN - LIVING_TICKS {
                let now = at(start + passed);
                let (expired, fresh) = (passed > granted, granted.saturating_sub(passed) >= enough);
                assert_eq!(
                    record::has_expired(data, &now),
                    expired,
                    "{class:?} {passed}"
                );
                let found_fresh = record::Fresh::at(&now).contains(data | record::LOCK);
                assert_eq!(found_fresh, !expired && fresh, "{class:?} {passed}");
                match record::renewal(data, &now) {
                    Renewal::Expired => assert!(expired),
                    Renewal::Unneeded => assert!(!expired && fresh),
                    Renewal::To(renewed) => {
                        assert!(!expired && !fresh);
                        let other = record::content(entry(class), &now) | record::PRESENT;
                        assert_eq!(renewed, other);
                    }
                }
            }
        }
    }
}

#[test]
fn the_later_of_two_expiries_outlives() {
    let of = |tick| record::content(entry(Class::Opening), &at(tick));
    for start in [0, 400, EXPIRY_SPAN * 7] {
        for (later, outlives) in [
            (0, false),
            (1, true),
            (447, true),
            (448, false),
            (511, false),
        ] {
            let (one, other) = (of(start + later), of(start));
            assert_eq!(record::outlives(one, other), outlives, "{start} {later}");
        }
    }
}

#[test]
fn fields_of_a_record_do_not_overlap() {
    let all = u64::MAX;
    let content = record::content(entry(Class::Closing), &at(5));
    assert_eq!(record::with_content(0, content), content);
    assert_eq!(
        record::with_content(all, content) & record::LOCK,
        record::LOCK
    );
    assert_eq!(
        record::entry(record::with_content(all, content)),
        entry(Class::Closing)
    );
    let later = record::content(entry(Class::Opening), &at(9));
    let changed = record::with_expiry_of(content, later);
    assert_eq!(record::entry(changed), entry(Class::Closing));
    assert!(!record::outlives(changed, later) && !record::outlives(later, changed));
    // Tag and version share 34 bits.
    let fields = Fields::new(30);
    let pattern = fields.pattern(all);
    let mut data = fields.successor(0, pattern, content | record::LOCK);
    assert!(fields.matches(data, pattern) && fields.mismatch(data, pattern) == 0);
    let mut versions = HashSet::new();
    for _ in 0..16 {
        assert!(versions.insert(data >> 28), "a version repeated");
        assert_eq!(
            (data & record::LOCK, record::entry(data)),
            (0, entry(Class::Closing))
        );
        assert!(fields.matches(data, pattern));
        data = fields.successor(data, pattern, content);
    }
    assert!(!versions.insert(data >> 28));
    assert!(!fields.matches(data, pattern | record::SECOND));
    assert_ne!(fields.mismatch(data, pattern | record::SECOND), 0);
    assert!(!fields.matches(data ^ 1 << 32, pattern));
    assert_eq!(fields.leading_bits(data), (all >> 34) << 34);
}

#[test]
fn states_of_a_slot_are_told_apart() {
    let content = record::content(entry(Class::Closing), &at(5));
    let record = content | record::PRESENT;
    let second = record | record::SECOND;
    let claimed = record::claimed(content);
    for (data, state) in [
        (content, [true, false, false]),
        (claimed, [false, true, false]),
        (record, [false, false, true]),
        (second, [false, false, true]),
    ] {
        let is = [
            record::is_empty(data),
            record::is_claimed(data),
            record::is_record(data),
        ];
        assert_eq!(is, state);
        assert_eq!(record::emptied(data), content);
    }
}

#[test]
fn aging_examines_as_many_places_as_its_budget() {
    let table = Cuckoo::open_seeded(memory::<Ipv4Flow>(1), 1, 3).unwrap();
    let insert_all = |now: &Now| {
        for number in 0..2000 {
            table
                .insert(&flow(number), entry(Class::Opening), now)
                .unwrap();
        }
    };
    let (mut start, places) = (0, table.slots());
    for (budget, steps) in [(places, 1), (places / 4, 4), (1, places / SLOTS)] {
        insert_all(&at(start));
        let later = at(start + 20);
        assert_eq!(table.age(0, &later, &mut |_, _| {}), 0);
        let mut told = HashSet::new();
        for step in 0..steps {
            assert!(told.len() < 2000, "{step} of {steps}");
            let before = told.len();
            let removed = table.age(budget, &later, &mut |key, entry| {
                assert!(told.insert(*key) && entry.class == Class::Opening);
            });
            assert_eq!(removed, told.len() - before);
            assert_eq!(table.len(), 2000 - told.len());
            assert!(removed <= budget.next_multiple_of(SLOTS));
            if told.len() == 2000 {
                break;
            }
        }
        assert_eq!((told.len(), table.is_empty()), (2000, true));
        start += 20;
    }
    // A larger budget than the table has places examines each place once.
    insert_all(&at(start));
    assert_eq!(
        table.age(usize::MAX / 2, &at(start + 20), &mut |_, _| {}),
        2000
    );
}

#[test]
fn threads_count_in_their_own_lines_while_any_are_free() {
    const THREADS: usize = 20;
    let all_have_one = Barrier::new(THREADS);
    let shared = AtomicUsize::new(0);
    let lines = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let line = line_of_thread();
                    assert_eq!(line_of_thread(), line);
                    all_have_one.wait();
                    line
                })
            })
            .collect();
        let mut lines = HashSet::new();
        for thread in threads {
            let line = thread.join().unwrap();
            if line == SHARED_LINE {
                shared.fetch_add(1, Ordering::Relaxed);
            } else {
                assert!(line < SHARED_LINE && lines.insert(line), "{line} twice");
            }
        }
        lines.len()
    });
    // Threads of other tests may hold some of the 13.
    let shared = shared.into_inner();
    assert!(shared >= THREADS - SHARED_LINE && shared + lines == THREADS);
    assert_eq!(SHARED_LINE, 13);
}

#[test]
fn counts_of_all_threads_add_up() {
    let memory = memory::<Ipv4Flow>(30_000);
    let size = memory.words().len();
    let table = Cuckoo::open_seeded(memory, 30_000, 5).unwrap();
    let both = Barrier::new(20);
    std::thread::scope(|scope| {
        for thread in 0..20 {
            let (table, both) = (&table, &both);
            scope.spawn(move || {
                for number in 0..1000 {
                    let key = flow(thread << 32 | number);
                    table.insert(&key, entry(Class::Opening), &at(0)).unwrap();
                }
                both.wait();
                // Removes another thread's records, so that they are added in one line and subtracted in another.
                for number in 0..600 {
                    let key = flow(((thread + 1) % 20) << 32 | number);
                    assert_eq!(table.remove(&key, &at(0)), Some(entry(Class::Opening)));
                }
            });
        }
    });
    assert_eq!(table.len(), 20 * 400);
    assert_eq!(size, 128 + 8 * 8334);
}
