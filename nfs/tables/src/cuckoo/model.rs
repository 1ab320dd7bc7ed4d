//! Runs the table's own code under loom: every interleaving of its steps (up to some preemptions), and every stale value that the memory model allows
//! a thread to read. The table has two buckets, and the keys are chosen by their place. The paper's variants are modelled as well, and fail.

use std::{sync::atomic::Ordering, time::Duration};

use loom::{
    sync::{
        atomic::{fence, AtomicU64},
        Arc,
    },
    thread,
};

use crate::{Class, Entry, Insertion, Key, Lifetimes, Now, TICK_NANOS};

use super::{
    header, lines,
    place::{Place, Secrets, Shape, SLOTS},
    record,
    slots::{Core, Found, Look},
    words::Words,
};

const BUCKETS: u64 = 2;
const BUCKET_WORDS: usize = 8;
const SECRETS: [u64; 3] = [
    0x1234_5678_9abc_def1,
    0x9e37_79b9_7f4a_7c15,
    0x0fed_cba9_8765_4321,
];

/// A word observed by loom.
///
/// loom 0.7 compares a thread's next access only with the last access to the word when it looks for conflicts. After "A loads, B loads, B exchanges"
/// the last one is B's own load, so loom never tries B's exchange before A's load. Each access is therefore preceded by a step that conflicts with all
/// others: a relaxed addition to a second word, which synchronizes nothing.
struct Word {
    value: AtomicU64,
    steps: AtomicU64,
}

impl Word {
    fn new(value: u64) -> Self {
        Self {
            value: AtomicU64::new(value),
            steps: AtomicU64::new(0),
        }
    }

    fn step(&self) -> &AtomicU64 {
        self.steps.fetch_add(1, Ordering::Relaxed);
        &self.value
    }
}

/// The words of a table: those of the buckets, one for aging's position, and one for all counts. Secrets never change.
#[derive(Clone, Copy)]
struct Modelled<'a> {
    words: &'a [Word],
    start: usize,
}

impl Modelled<'_> {
    fn word(&self, index: usize) -> &AtomicU64 {
        let index = index + self.start;
        match index.checked_sub(header::WORDS) {
            Some(index) => self.words[index].step(),
            None if index == header::HAND => self.words[BUCKETS as usize * BUCKET_WORDS].step(),
            None => self.words[BUCKETS as usize * BUCKET_WORDS + 1].step(),
        }
    }
}

impl Words for Modelled<'_> {
    fn load(self, index: usize, order: Ordering) -> u64 {
        match index + self.start {
            index @ 2..=4 => SECRETS[index - 2],
            // Counts of other threads, which the model does not have.
            index if (header::HAND + 1..header::WORDS - 8).contains(&index) => 0,
            _ => self.word(index).load(order),
        }
    }

    fn window(self, index: usize, _count: usize) -> Self {
        Self {
            start: self.start + index,
            ..self
        }
    }

    fn store(self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }

    fn exchange(self, index: usize, current: u64, new: u64) -> Result<(), u64> {
        let word = self.word(index);
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    fn add(self, index: usize, value: u64) -> u64 {
        self.word(index).fetch_add(value, Ordering::Relaxed)
    }

    fn prefetch<const LEVEL: u8>(self, _index: usize) {}

    /// loom runs all its threads in one thread of the system.
    fn count_line(self) -> usize {
        lines::SHARED_LINE
    }

    fn wait(self, _turn: u32) {
        thread::yield_now();
    }
}

/// A key of one lane and a tail of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Small {
    lane: u64,
    tail: u8,
}

impl Key for Small {
    type Lanes = [u64; 1];
    const TAIL_BITS: u32 = 8;
    const NAME: [u8; 4] = *b"test";

    fn lanes(&self) -> [u64; 1] {
        [self.lane]
    }

    fn tail(&self) -> u64 {
        self.tail.into()
    }

    fn from_words(lanes: &[u64; 1], tail: u64) -> Self {
        Self {
            lane: lanes[0],
            tail: tail as u8,
        }
    }
}

#[derive(Clone)]
struct Table(Arc<Vec<Word>>);

impl Table {
    fn new() -> Self {
        let words = BUCKETS as usize * BUCKET_WORDS + 2;
        Self(Arc::new((0..words).map(|_| Word::new(0)).collect()))
    }

    fn core(&self) -> Core<Small, Modelled<'_>> {
        let words = Modelled {
            words: &self.0,
            start: 0,
        };
        Core::new(words, shape())
    }

    /// Spawns a thread that works on the table concurrently.
    fn spawn<T: 'static>(
        &self,
        work: impl FnOnce(&Core<Small, Modelled<'_>>) -> T + 'static,
    ) -> thread::JoinHandle<T> {
        let table = self.clone();
        thread::spawn(move || work(&table.core()))
    }

    /// Returns all records of a key in both buckets.
    fn records(&self, key: &Small) -> Vec<Found> {
        let core = self.core();
        let place = core.place(key);
        let mut records = Vec::new();
        for bucket in 0..BUCKETS {
            for (slot, data) in core.data(bucket).into_iter().enumerate() {
                let is_key = record::is_record(data) && core.lanes(bucket, slot) == place.lanes;
                records.extend(is_key.then_some(Found { bucket, slot, data }));
            }
        }
        records
    }
}

fn shape() -> Shape {
    Shape::new(BUCKETS, Small::TAIL_BITS)
}

fn place(key: &Small) -> Place<[u64; 1]> {
    shape().place(&Secrets(SECRETS), key)
}

/// Returns keys whose first bucket is `first`. All have the same tag, so they differ only in their lanes.
fn keys(first: u64) -> impl Iterator<Item = Small> {
    (1..)
        .map(|lane| Small { lane, tail: 0 })
        .flat_map(move |key| {
            (0..=255)
                .map(move |tail| Small { tail, ..key })
                .filter(move |key| {
                    let place = place(key);
                    place.first() == first
                        && place.second() != first
                        && shape().fields.leading_bits(place.pattern) == 0
                })
        })
}

fn key(number: usize) -> Small {
    keys(0).nth(number).unwrap()
}

fn entry(value: u16) -> Entry {
    Entry {
        value,
        class: Class::Established,
    }
}

/// Returns the time `ticks` after the start; records live for ten ticks.
fn at(ticks: u64) -> Now {
    let lifetimes = Lifetimes::new([Duration::from_nanos(10 * TICK_NANOS); 4]).unwrap();
    lifetimes.at(ticks * TICK_NANOS)
}

/// Runs a scenario in all executions with at most two preemptions. MODEL_PREEMPTIONS=3 takes minutes.
fn model(scenario: impl Fn() + Sync + Send + 'static) {
    let preemptions = std::env::var("MODEL_PREEMPTIONS").ok();
    let preemptions = preemptions
        .and_then(|number| number.parse().ok())
        .unwrap_or(2);

    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        scenario();
    });
    println!("{} executions", executions.load(Ordering::Relaxed));
    assert!(
        executions.load(Ordering::Relaxed) > 1,
        "loom tried only one execution"
    );
}

/// Tells whether loom finds an execution in which the scenario fails.
fn fails(scenario: impl Fn() + Sync + Send + 'static) -> bool {
    let run = std::panic::AssertUnwindSafe(move || model(scenario));
    std::panic::catch_unwind(run).is_err()
}

/// Puts the key into a bucket: its first, 0, or its second, 1.
fn put(core: &Core<Small, Modelled<'_>>, key: &Small, bucket: u64, value: u16, now: &Now) -> Found {
    let place = core.place(key);
    let slot = core.claim(bucket).unwrap();
    let pattern = place.pattern | (bucket * record::SECOND);
    let content = record::content(entry(value), now);
    core.fill(bucket, slot, &place.lanes, pattern, content)
}

/// Finds a key by LB-NIC's lookup, without checking the first bucket again.
fn find_as_in_the_paper(core: &Core<Small, Modelled<'_>>, key: &Small) -> Option<Found> {
    let place = core.place(key);
    let pattern = place.pattern;
    let buckets = [
        (place.first(), pattern),
        (place.second(), pattern | record::SECOND),
    ];
    loop {
        let mut changed = false;
        for (bucket, pattern) in buckets {
            match core.look(bucket, core.data(bucket), pattern, &place.lanes) {
                Look::Found(found) => return Some(found),
                Look::Changed => changed = true,
                Look::Missing(_) => {}
            }
        }
        if !changed {
            return None;
        }
    }
}

/// Looks up a key while it moves from its second bucket to its first, and back.
fn lookup_beside_moves(
    moves: usize,
    find: fn(&Core<Small, Modelled<'_>>, &Small) -> Option<Found>,
) {
    let table = Table::new();
    let moving = put(&table.core(), &key(0), 1, 7, &at(0));
    let mover = table.spawn(move |core| {
        let mut record = moving;
        for _ in 0..moves {
            assert!(core.displace(record, 1 - record.bucket));
            record = core.find(&core.place(&key(0))).unwrap();
        }
    });
    let found = find(&table.core(), &key(0)).expect("a stable key was missed");
    assert_eq!(record::entry(found.data), entry(7));
    mover.join().unwrap();
}

#[test]
fn a_moving_key_is_found() {
    model(|| lookup_beside_moves(1, |core, key| core.find(&core.place(key))));
    model(|| lookup_beside_moves(2, |core, key| core.find(&core.place(key))));
}

#[test]
fn the_papers_lookup_misses_a_moving_key() {
    assert!(fails(|| lookup_beside_moves(1, find_as_in_the_paper)));
}

/// Looks up one of two keys while the second takes over the first one's slot.
fn lookup_beside_reuse(
    lookup: fn(&Core<Small, Modelled<'_>>, &Small) -> Option<Entry>,
    sought: usize,
    expected: u16,
) {
    let table = Table::new();
    let first = put(&table.core(), &key(0), 0, 7, &at(0));
    let writer = table.spawn(move |core| {
        core.change(core.base(first.bucket) + first.slot, |data| {
            Some(record::emptied(data))
        });
        put(core, &key(1), 0, 8, &at(0));
    });
    let found = lookup(&table.core(), &key(sought));
    assert!([None, Some(entry(expected))].contains(&found));
    writer.join().unwrap();
}

#[test]
fn a_reused_slot_never_yields_a_wrong_value() {
    model(|| lookup_beside_reuse(|core, key| core.lookup(key, &at(0)), 0, 7));
    model(|| lookup_beside_reuse(|core, key| core.lookup(key, &at(0)), 1, 8));
}

/// Tests the results that bulk lookups accept without further checks.
#[test]
fn a_reused_slot_never_yields_a_wrong_value_at_a_glance() {
    fn glance(core: &Core<Small, Modelled<'_>>, key: &Small) -> Option<Entry> {
        let place = core.place(key);
        let (data, doubt) = core.glance(place.first(), place.pattern, &place.lanes);
        (doubt == 0).then_some(record::entry(data))
    }
    model(|| lookup_beside_reuse(glance, 0, 7));
    model(|| lookup_beside_reuse(glance, 1, 8));
}

/// Models LB-NIC's slot: a key word and a data word, written in this order with a fence between them. A free slot has no key.
#[test]
fn a_reused_slot_yields_a_wrong_value_in_the_papers_order() {
    fn reuse(invalidate_data_first: bool) {
        const NOTHING: u64 = 0;
        let slot = Arc::new([Word::new(1), Word::new(10)]);
        let writer = {
            let slot = slot.clone();
            thread::spawn(move || {
                let [key, data] = &*slot;
                key.step().store(NOTHING, Ordering::Release);
                if invalidate_data_first {
                    data.step().store(NOTHING, Ordering::Relaxed);
                }
                fence(Ordering::SeqCst);
                key.step().store(2, Ordering::Release);
                fence(Ordering::SeqCst);
                data.step().store(20, Ordering::Release);
            })
        };
        let [key, data] = &*slot;
        if key.step().load(Ordering::Acquire) == 2 {
            let value = data.step().load(Ordering::Acquire);
            fence(Ordering::SeqCst);
            let is_same = key.step().load(Ordering::Acquire) == 2;
            assert!(
                !is_same || value == 20 || value == NOTHING,
                "the value of another key"
            );
        }
        writer.join().unwrap();
    }
    assert!(fails(|| reuse(false)));
    model(|| reuse(true));
}

#[test]
fn two_inserts_of_one_key_agree() {
    model(|| {
        let table = Table::new();
        let other = table.spawn(|core| core.insert(&key(0), entry(7), &at(0)).unwrap());
        let mine = table.core().insert(&key(0), entry(8), &at(0)).unwrap();
        let other = other.join().unwrap();
        let inserted = Insertion::Inserted { expired: None };
        assert!(
            (mine, other) == (inserted, Insertion::Existing(entry(8)))
                || (other, mine) == (inserted, Insertion::Existing(entry(7)))
        );
        assert_eq!(table.records(&key(0)).len(), 1);
        assert_eq!(table.core().len(), 1);
    });
}

#[test]
fn a_concurrent_insert_and_remove_are_ordered() {
    model(|| {
        let table = Table::new();
        table.core().insert(&key(0), entry(7), &at(0)).unwrap();
        let remover = table.spawn(|core| core.remove(&key(0), &at(0)));
        let insertion = table.core().insert(&key(0), entry(8), &at(0)).unwrap();
        let removed = remover.join().unwrap();
        let left = table.records(&key(0));
        assert_eq!(removed, Some(entry(7)));
        match insertion {
            Insertion::Existing(found) => assert!(found == entry(7) && left.is_empty()),
            Insertion::Inserted { .. } => {
                assert!(left.len() == 1 && record::entry(left[0].data) == entry(8))
            }
        }
    });
}

#[test]
fn an_insert_finds_its_key_during_a_move() {
    model(|| {
        let table = Table::new();
        let moving = put(&table.core(), &key(0), 1, 7, &at(0));
        let mover = table.spawn(move |core| core.displace(moving, 0));
        let insertion = table.core().insert(&key(0), entry(8), &at(0)).unwrap();
        assert_eq!(insertion, Insertion::Existing(entry(7)));
        mover.join().unwrap();
        assert_eq!(table.records(&key(0)).len(), 1);
    });
}

#[test]
fn a_renewal_during_a_move_is_kept_and_affects_no_other_record() {
    model(|| {
        let table = Table::new();
        let moving = put(&table.core(), &key(0), 1, 7, &at(0));
        let mover = table.spawn(move |core| {
            assert!(core.displace(moving, 0));
            // The old slot is reused for another record.
            put(core, &key(1), 1, 8, &at(1));
        });
        assert_eq!(table.core().lookup(&key(0), &at(5)), Some(entry(7)));
        mover.join().unwrap();
        let [moved] = table.records(&key(0))[..] else {
            unreachable!("one record")
        };
        assert_eq!(record::entry(moved.data), entry(7));
        assert!(
            !record::has_expired(moved.data, &at(15)),
            "the renewal was lost"
        );
        let [other] = table.records(&key(1))[..] else {
            unreachable!("one record")
        };
        assert_eq!(record::entry(other.data), entry(8));
        assert!(
            record::has_expired(other.data, &at(13)),
            "the renewal changed another record"
        );
    });
}

#[test]
fn a_record_is_either_renewed_or_aged() {
    model(|| {
        let table = Table::new();
        table.core().insert(&key(0), entry(7), &at(0)).unwrap();
        // The record's last tick is 11.
        let aging = table.spawn(|core| core.age(BUCKETS as usize * SLOTS, &at(12), &mut |_, _| {}));
        let found = table.core().lookup(&key(0), &at(11));
        let aged = aging.join().unwrap();
        assert_eq!(found.is_some(), aged == 0);
        assert_eq!(table.records(&key(0)).len(), 1 - aged);
        assert_eq!(table.core().len(), 1 - aged);
    });
}
