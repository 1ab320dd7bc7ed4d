//! Tables that change owners: adopted through the arena's file, or copied block by block during writes.

#![allow(clippy::unwrap_used)]

use std::{
    collections::HashMap,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use nf_arena::{Arena, ArenaBuilder, Heap, Memory, Region};
use nf_tables::{Class, Cuckoo, Entry, Ipv4Flow, Ipv6Flow, Key, Lifetimes, Now, TableError};

const CAPACITY: usize = 5_000;

fn entry(number: u64) -> Entry {
    Entry {
        value: number as u16,
        class: Class::Datagram,
    }
}

fn key<K: Key>(number: u64) -> K {
    let mut lanes = K::Lanes::default();
    lanes.as_mut().fill(number);
    K::from_words(&lanes, number & 0xffff)
}

fn now() -> Now {
    Lifetimes::default().at(1 << 40)
}

fn region<K: Key>(mut builder: ArenaBuilder) -> (Arena, Cuckoo<K, Region>) {
    let words = Cuckoo::<K, Region>::words(CAPACITY).unwrap();
    let region = builder.region("flows", "cuckoo v1", words).unwrap();
    let table = Cuckoo::open(region, CAPACITY).unwrap();
    (builder.finish().unwrap(), table)
}

fn records<K: Key>(table: &Cuckoo<K, Region>) -> HashMap<K, Entry> {
    let mut records = HashMap::new();
    table.for_each(&now(), &mut |key, entry| {
        assert_eq!(records.insert(*key, entry), None);
    });
    records
}

fn adopt_and_continue<K: Key>() {
    let (arena, table) = region::<K>(ArenaBuilder::fresh("test", 1).unwrap());
    for number in 0..CAPACITY as u64 {
        table.insert(&key(number), entry(number), &now()).unwrap();
    }
    let file = arena.as_fd().try_clone_to_owned().unwrap();
    drop((arena, table));
    let (_arena, table) = region::<K>(ArenaBuilder::adopt(file, "test", 1).unwrap());
    assert_eq!(table.len(), CAPACITY);
    for number in 0..CAPACITY as u64 {
        assert_eq!(table.lookup(&key(number), &now()), Some(entry(number)));
    }
    assert_eq!(table.remove(&key(3), &now()), Some(entry(3)));
    table.insert(&key(3), entry(4), &now()).unwrap();
    assert_eq!(records(&table).len(), CAPACITY);
}

#[test]
fn an_adopted_table_continues() {
    adopt_and_continue::<Ipv4Flow>();
    adopt_and_continue::<Ipv6Flow>();
}

#[test]
fn a_copy_made_during_writes_is_equal() {
    let (arena, table) = region::<Ipv4Flow>(ArenaBuilder::fresh("test", 1).unwrap());
    // Opened while empty, with its own secrets, which the copy replaces.
    let (copy_arena, copy) = region::<Ipv4Flow>(ArenaBuilder::fresh("test", 1).unwrap());
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    let take = || {
        let (from, to) = (&arena.regions()[0], &copy_arena.regions()[0]);
        let mut block = Vec::new();
        for index in 0..from.blocks() {
            if from.take_block(index, &mut block) {
                assert!(to.put_block(index, &block));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Some records are displaced, some replaced, some renewed, some removed.
                let number = written.load(Ordering::Relaxed);
                let _ = table.insert(&key(number), entry(number), &now());
                let old = entry(if number % 2 == 0 { number / 2 } else { number });
                let _ = table.replace(&key(number / 2), old, entry(number + 1), &now());
                table.lookup(&key(number / 3), &Lifetimes::default().at(3 << 40));
                table.remove(&key(number.wrapping_sub(CAPACITY as u64)), &now());
                written.store(number + 1, Ordering::Relaxed);
            }
        });
        while written.load(Ordering::Relaxed) < 3 * CAPACITY as u64 {
            take();
        }
        stop.store(true, Ordering::Relaxed);
    });
    take();
    assert_eq!(arena.digest(), copy_arena.digest());
    assert_eq!(records(&table), records(&copy));
    assert_eq!(table.len(), copy.len());
    for key in records(&table).keys() {
        assert_eq!(table.lookup(key, &now()), copy.lookup(key, &now()));
    }
    copy.insert(&key(1 << 60), entry(1), &now()).unwrap();
}

#[test]
fn memory_without_a_matching_table_is_refused() {
    let words = Cuckoo::<Ipv6Flow, Heap>::words(CAPACITY).unwrap();
    let small = Cuckoo::<Ipv4Flow, _>::open(Heap::new(100).unwrap(), CAPACITY).err();
    assert!(matches!(
        small,
        Some(TableError::TooSmall { words: 100, .. })
    ));

    let memory = || {
        let memory = Heap::new(words).unwrap();
        memory.words()[0].store(7, Ordering::Relaxed);
        memory
    };
    let foreign = Cuckoo::<Ipv4Flow, _>::open(memory(), CAPACITY)
        .err()
        .unwrap();
    assert!(foreign.to_string().contains("0x7"), "{foreign}");

    let file = {
        let mut builder = ArenaBuilder::fresh("test", 1).unwrap();
        let region = builder.region("flows", "cuckoo v1", words).unwrap();
        Cuckoo::<Ipv6Flow, _>::open(region, CAPACITY).unwrap();
        let arena = builder.finish().unwrap();
        arena.as_fd().try_clone_to_owned().unwrap()
    };
    let mut builder = ArenaBuilder::adopt(file, "test", 1).unwrap();
    let region = builder.region("flows", "cuckoo v1", words).unwrap();
    assert!(Cuckoo::<Ipv4Flow, _>::open(region.clone(), CAPACITY).is_err());
    assert!(Cuckoo::<Ipv6Flow, _>::open(region.clone(), CAPACITY - 500).is_err());
    assert!(Cuckoo::<Ipv6Flow, _>::open(region, CAPACITY).is_ok());

    let large = Cuckoo::<Ipv4Flow, Heap>::words(100_000_000).unwrap_err();
    assert!(large.to_string().contains("100000000"));
}
