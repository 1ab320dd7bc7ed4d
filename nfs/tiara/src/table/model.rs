//! Runs the entries' own code under loom: every interleaving of a writer and a reader, and every stale value that the memory model allows the reader to
//! see. The order of the other papers, key and then value, is modelled as well, and fails.

use std::sync::atomic::Ordering;

use loom::{
    sync::{atomic::AtomicU64, Arc},
    thread,
};
use nf_tables::{Ipv4Flow, Key};

use super::{
    entries::{Entries, Words},
    shape::Slot,
};

#[derive(Clone, Copy)]
struct Modelled<'a>(&'a [AtomicU64; 4]);

impl Words for Modelled<'_> {
    fn load(self, index: usize) -> u64 {
        self.0[index].load(Ordering::Acquire)
    }

    fn store(self, index: usize, value: u64) {
        self.0[index].store(value, Ordering::Release);
    }
}

/// Keys whose words all differ, and their values.
fn key(number: u64) -> Ipv4Flow {
    Ipv4Flow::from_words(&[number], number)
}

type OneEntry<'a> = Entries<Ipv4Flow, Modelled<'a>>;

/// The operations of readers, each in a model of its own.
const READERS: [fn(&OneEntry<'_>); 3] = [
    |entries| {
        let found = entries.find(Slot(0), &key(1));
        assert!(found.is_none_or(|value| value == 1), "torn: {found:?}");
    },
    |entries| {
        let found = entries.find(Slot(0), &key(2));
        assert!(found.is_none_or(|value| value == 2), "torn: {found:?}");
    },
    |entries| {
        let read = entries.read(Slot(0));
        let is_whole = |(found, value)| found == key(value);
        assert!(read.is_none_or(is_whole), "torn: {read:?}");
    },
];

/// Tries every interleaving of each reader with a writer that replaces the entry of the first key by that of the second.
fn model(replace: fn(Modelled<'_>)) {
    for reader in READERS {
        loom::model(move || {
            let words: Arc<[AtomicU64; 4]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
            Entries::new(Modelled(&words)).write(Slot(0), &key(1), 1);
            let writer = {
                let words = words.clone();
                thread::spawn(move || replace(Modelled(&words)))
            };
            let entries = Entries::new(Modelled(&words));
            reader(&entries);
            writer.join().unwrap();
            assert_eq!(entries.find(Slot(0), &key(2)), Some(2));
        });
    }
}

#[test]
fn readers_see_whole_entries_or_none() {
    model(|words| Entries::new(words).write(Slot(0), &key(2), 2));
}

#[test]
fn readers_see_whole_entries_or_none_around_a_deletion() {
    model(|words| {
        let entries = Entries::new(words);
        entries.clear(Slot(0));
        entries.write(Slot(0), &key(2), 2);
    });
}

#[test]
#[should_panic = "torn"]
fn the_key_before_the_value_is_not_enough() {
    model(|words| {
        // The words of an entry: control, value, tail, lane.
        words.store(3, 2);
        words.store(2, 2);
        words.store(1, 2);
    });
}
