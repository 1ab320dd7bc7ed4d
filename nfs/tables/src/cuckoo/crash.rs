//! Interrupts changes at each of their writes, as kill -9 would, and checks how the next instance recovers.

use std::{cell::Cell, collections::HashMap, panic::AssertUnwindSafe, sync::atomic::Ordering};

use nf_arena::{Heap, Memory};

use crate::{Class, Cuckoo, Entry, Ipv4Flow, Key, Lifetimes, Now};

use super::{
    record,
    slots::{Core, Found},
    words::{View, Words},
};

const CAPACITY: usize = 3_600;

/// The words of an instance that dies at a write.
#[derive(Clone, Copy)]
struct Mortal<'a> {
    view: View<'a, Heap>,
    writes_left: &'a Cell<usize>,
}

impl Mortal<'_> {
    /// Tells whether it may write. It dies at the first refused write; writes of its unwinding are suppressed.
    fn may_write(&self) -> bool {
        let left = self.writes_left.get();
        self.writes_left.set(left.saturating_sub(1));
        assert!(left > 0 || std::thread::panicking(), "killed");
        left > 0
    }
}

impl Words for Mortal<'_> {
    fn load(self, index: usize, order: Ordering) -> u64 {
        self.view.load(index, order)
    }

    fn window(self, index: usize, count: usize) -> Self {
        Self {
            view: self.view.window(index, count),
            ..self
        }
    }

    fn store(self, index: usize, value: u64) {
        if self.may_write() {
            self.view.store(index, value);
        }
    }

    fn exchange(self, index: usize, current: u64, new: u64) -> Result<(), u64> {
        if self.may_write() {
            self.view.exchange(index, current, new)
        } else {
            Ok(())
        }
    }

    fn add(self, index: usize, value: u64) -> u64 {
        if self.may_write() {
            self.view.add(index, value)
        } else {
            0
        }
    }

    fn prefetch<const LEVEL: u8>(self, _index: usize) {}

    fn count_line(self) -> usize {
        self.view.count_line()
    }

    fn wait(self, _turn: u32) {}
}

fn key(number: usize) -> Ipv4Flow {
    Ipv4Flow::from_words(&[number as u64], number as u64 % 7)
}

fn entry(number: usize) -> Entry {
    Entry {
        value: number as u16,
        class: Class::Established,
    }
}

fn now() -> Now {
    Lifetimes::default().at(0)
}

fn table() -> Cuckoo<Ipv4Flow, Heap> {
    let words = Cuckoo::<Ipv4Flow, Heap>::words(CAPACITY).unwrap();
    Cuckoo::open_seeded(Heap::new(words).unwrap(), CAPACITY, 5).unwrap()
}

/// Returns a table with the words of another, as the next instance finds them.
fn adopted(from: &Cuckoo<Ipv4Flow, Heap>) -> Cuckoo<Ipv4Flow, Heap> {
    let memory = Heap::new(from.memory.words().len()).unwrap();
    for (to, from) in memory.words().iter().zip(from.memory.words()) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Cuckoo::open(memory, CAPACITY).unwrap()
}

fn records(table: &Cuckoo<Ipv4Flow, Heap>) -> HashMap<Ipv4Flow, Entry> {
    let mut records = HashMap::new();
    table.for_each(&now(), &mut |key, entry| {
        assert_eq!(records.insert(*key, entry), None, "{key:?} has two records");
    });
    records
}

/// Interrupts `work` at its first write, its second, and so on until it completes. `changing` is the affected key.
fn cut_everywhere(
    before: &Cuckoo<Ipv4Flow, Heap>,
    changing: &Ipv4Flow,
    work: impl Fn(&Core<Ipv4Flow, Mortal<'_>>),
) {
    for writes in 0.. {
        let cut = adopted(before);
        let writes_left = Cell::new(writes);
        let words = Mortal {
            view: View::new(&cut.memory),
            writes_left: &writes_left,
        };
        let core = Core::new(words, cut.shape);
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| work(&core))).is_ok();

        let next = adopted(&cut);
        // The first change triggers recovery.
        let unrelated = key(1_000_000);
        next.insert(&unrelated, entry(0), &now()).unwrap();
        assert_eq!(next.remove(&unrelated, &now()), Some(entry(0)));
        let (mut expected, mut found) = (records(before), records(&next));
        assert_eq!(next.len(), found.len(), "after {writes} writes");
        expected.remove(changing);
        found.remove(changing);
        assert_eq!(expected, found, "after {writes} writes");
        for bucket in 0..next.shape.buckets {
            let core = next.core();
            let data = core.data(bucket);
            assert!(data
                .iter()
                .all(|data| !record::is_claimed(*data) && data & record::LOCK == 0));
        }
        if done {
            assert!(writes > 4, "{writes} writes");
            return;
        }
    }
}

#[test]
fn interrupted_inserts_replacements_and_removals_recover() {
    let table = table();
    for number in 0..CAPACITY / 2 {
        table.insert(&key(number), entry(number), &now()).unwrap();
    }
    let new = key(CAPACITY);
    cut_everywhere(&table, &new, |core| {
        core.insert(&new, entry(9), &now()).unwrap();
    });
    for number in 0..8 {
        cut_everywhere(&table, &key(number), |core| {
            core.replace(&key(number), entry(number), entry(77), &now())
                .unwrap();
        });
        cut_everywhere(&table, &key(number), |core| {
            core.remove(&key(number), &now()).unwrap();
        });
    }
}

#[test]
fn interrupted_moves_recover() {
    let table = table();
    for number in 0..CAPACITY {
        table.insert(&key(number), entry(number), &now()).unwrap();
    }
    // New keys whose buckets are both full, so that other records are moved.
    let mut displacing = (CAPACITY..).map(key).filter(|key| {
        let core = table.core();
        let place = core.place(key);
        let is_full = |bucket| core.data(bucket).into_iter().all(record::is_record);
        is_full(place.first()) && is_full(place.second())
    });
    for _ in 0..4 {
        let key = displacing.next().unwrap();
        cut_everywhere(&table, &key, |core| {
            core.insert(&key, entry(9), &now()).unwrap();
        });
    }
}

#[test]
fn a_copy_in_the_second_bucket_is_dropped() {
    let table = table();
    let key = key(1);
    let core = table.core();
    let place = core.place(&key);
    table.insert(&key, entry(1), &now()).unwrap();
    let found: Found = core.find(&place).unwrap();
    let second = place.second();
    let slot = core.claim(second).unwrap();
    core.fill(
        second,
        slot,
        &place.lanes,
        found.data | record::SECOND,
        found.data,
    );
    core.recover();
    assert_eq!(records(&table).len(), 1);
    assert_eq!(table.len(), 1);
}
