//! Compares the structures of state with plain models: alone, shared by threads, and adopted by a second owner.

#![allow(clippy::unwrap_used)]

use std::{collections::HashMap, os::fd::AsFd, thread};

use nf_arena::{Arena, ArenaBuilder};
use nf_runtime::state::{FlowTable, StateBuilder};
use proptest::prelude::*;

fn fresh() -> StateBuilder {
    StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap())
}

fn adopt(arena: &Arena) -> StateBuilder {
    StateBuilder::new(
        ArenaBuilder::adopt(arena.as_fd().try_clone_to_owned().unwrap(), "test", 1).unwrap(),
    )
}

#[derive(Clone, Debug)]
enum FlowStep {
    Add(u16, u64),
    Get(u16),
    Insert(u16, u64),
    Look(u16),
    Remove(u16),
    Pass(u64),
    Adopt,
}

fn flow_step() -> impl Strategy<Value = FlowStep> {
    prop_oneof![
        5 => (0_u16..40, 1_u64..100).prop_map(|(key, ttl)| FlowStep::Add(key, ttl)),
        3 => (0_u16..40).prop_map(FlowStep::Get),
        3 => (0_u16..40, 1_u64..100).prop_map(|(key, ttl)| FlowStep::Insert(key, ttl)),
        2 => (0_u16..40).prop_map(FlowStep::Look),
        1 => (0_u16..40).prop_map(FlowStep::Remove),
        2 => (1_u64..60).prop_map(FlowStep::Pass),
        1 => Just(FlowStep::Adopt),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Count {
    packets: u64,
    odd: [u8; 3],
    rest: [u8; 5],
}

proptest! {
    #[test]
    fn a_flow_table_is_a_map_whose_entries_expire(steps in prop::collection::vec(flow_step(), 0..200)) {
        let mut builder = fresh();
        let mut table: FlowTable<[u8; 13], Count> = builder.flow_table("flows", 100).unwrap();
        let (mut arena, ..) = builder.finish().unwrap();
        let mut model: HashMap<u16, (u64, Count)> = HashMap::new();
        let (mut now, ttl_of_get) = (1_000, 50);
        let key_of = |key: u16| { let mut bytes = [9; 13]; bytes[5..7].copy_from_slice(&key.to_le_bytes()); bytes };
        for step in steps {
            model.retain(|_, (end, _)| *end > now);
            match step {
                FlowStep::Add(key, ttl) => {
                    let new = Count { packets: 0, odd: [key as u8; 3], rest: [7; 5] };
                    let count = |count: &mut Count| { count.packets += 1; *count };
                    let got = table.update_or_insert(&key_of(key), now, ttl, || new, count);
                    let entry = model.entry(key).or_insert((0, new));
                    entry.0 = now + ttl;
                    entry.1.packets += 1;
                    prop_assert_eq!(got, Some(entry.1));
                }
                FlowStep::Get(key) => {
                    let expected = model.get_mut(&key).map(|entry| { entry.0 = now + ttl_of_get; entry.1 });
                    prop_assert_eq!(table.get(&key_of(key), now, ttl_of_get), expected);
                }
                FlowStep::Insert(key, ttl) => {
                    let new = Count { packets: 5, odd: [key as u8; 3], rest: [8; 5] };
                    let expected = match model.get(&key) {
                        Some((_, old)) => Err(Some(*old)),
                        None => {
                            model.insert(key, (now + ttl, new));
                            Ok(())
                        }
                    };
                    prop_assert_eq!(table.insert(&key_of(key), now, ttl, new), expected);
                }
                FlowStep::Look(key) => {
                    let expected = model.get(&key).map(|entry| entry.1);
                    prop_assert_eq!(table.look(&key_of(key), now), expected);
                }
                FlowStep::Remove(key) => {
                    prop_assert_eq!(table.remove(&key_of(key), now), model.remove(&key).map(|entry| entry.1));
                }
                FlowStep::Pass(time) => now += time,
                FlowStep::Adopt => {
                    let mut builder = adopt(&arena);
                    table = builder.flow_table("flows", 100).unwrap();
                    arena = builder.finish().unwrap().0;
                }
            }
            let mut listed = HashMap::new();
            table.for_each(now, |key, count| { listed.insert(u16::from_le_bytes([key[5], key[6]]), *count); });
            let live = model.iter().filter(|(_, (end, _))| *end > now).map(|(key, (_, count))| (*key, *count)).collect::<HashMap<_, _>>();
            prop_assert_eq!(table.len(now), live.len());
            prop_assert_eq!(listed, live);
        }
    }
}

#[test]
fn a_full_table_refuses_new_keys_and_keeps_the_old() {
    let mut builder = fresh();
    let table: FlowTable<u64, u64> = builder.flow_table("flows", 10_000).unwrap();
    let add = |key| table.update_or_insert(&key, 1, 1000, || key, |_| ());
    // The hash is secret, so a part may be full by bad luck: one filling of about 40 refuses a few keys.
    let refused = (0..10_000_u64).filter(|key| add(*key).is_none());
    assert!(refused.count() < 10, "fewer than its capacity");
    let kept = (0..100_000_u64)
        .filter(|key| add(*key).is_some())
        .collect::<Vec<_>>();
    assert!(kept.len() < 100_000);
    assert!(kept.iter().all(|key| table.get(key, 1, 1000) == Some(*key)));
    assert_eq!(table.len(1), kept.len());
    assert!(!table.is_empty(1) && table.is_empty(1001));
}

/// Keys that fill one part under a hash without a secret fill no part of this table, and its next owners find them all.
#[test]
fn a_keys_place_is_secret_and_survives_adoption() {
    let places = || {
        let mut builder = fresh();
        let table: FlowTable<u64, u64> = builder.flow_table("flows", 2_000).unwrap();
        let arena = builder.finish().unwrap().0;
        // Finds the words of the arena that a key changes, one key at a time.
        let place = |key: u64| {
            table.replace(&key, 1, 10, 7);
            let region = arena.region("flows").unwrap();
            let words = nf_arena::Memory::words(region);
            let at = words
                .iter()
                .skip(8)
                .position(|word| word.load(std::sync::atomic::Ordering::Relaxed) != 0);
            table.remove(&key, 1);
            for word in words.iter().skip(8) {
                word.store(0, std::sync::atomic::Ordering::Relaxed);
            }
            at.unwrap()
        };
        (0..50).map(place).collect::<Vec<_>>()
    };
    assert_ne!(places(), places());
    let mut builder = fresh();
    let table: FlowTable<u64, u64> = builder.flow_table("flows", 100).unwrap();
    (0..100).for_each(|key| assert!(!table.replace(&key, 1, 10, key)));
    let arena = builder.finish().unwrap().0;
    let heir: FlowTable<u64, u64> = adopt(&arena).flow_table("flows", 100).unwrap();
    assert!((0..100).all(|key| heir.look(&key, 1) == Some(key)));
}

#[test]
fn new_entries_replace_those_that_end_first() {
    let mut builder = fresh();
    let table: FlowTable<u64, u64> = builder.flow_table("flows", 64).unwrap();
    // These end late and stay.
    (0..20).for_each(|key| assert!(!table.replace(&key, 1, 1 << 40, key)));
    let evicted = (100..10_000_u64)
        .filter(|key| table.replace(key, *key, 200, *key))
        .count();
    assert!(evicted > 9_000, "{evicted}");
    assert!((0..20).all(|key| table.look(&key, 9_999) == Some(key)));
    assert!((9_950..10_000).all(|key| table.look(&key, 9_999) == Some(key)));
    // An existing key takes no room.
    assert!(!table.replace(&9_999, 9_999, 100, 5));
    assert_eq!(table.look(&9_999, 9_999), Some(5));
    // Looking does not renew.
    assert_eq!(table.look(&9_999, 10_098), Some(5));
    assert_eq!(table.look(&9_999, 10_099), None);
}

#[test]
fn workers_share_flows() {
    let mut builder = fresh();
    let table: FlowTable<u32, [u64; 4]> = builder.flow_table("flows", 64).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for turn in 0..5_000_u32 {
                    let raise = |all: &mut [u64; 4]| all.iter_mut().for_each(|one| *one += 1);
                    table
                        .update_or_insert(&(turn % 50), 1, 100, || [0; 4], raise)
                        .unwrap();
                    let all = table.look(&(turn % 50), 1).unwrap();
                    assert!(all.iter().all(|one| *one == all[0]), "torn: {all:?}");
                }
            });
        }
    });
    assert!((0..50).all(|key| table.get(&key, 1, 100) == Some([400; 4])));
}

#[test]
fn a_lock_of_a_dead_process_does_not_block_its_successor() {
    let mut builder = fresh();
    let table: FlowTable<u32, u64> = builder.flow_table("flows", 1).unwrap();
    table.insert(&7, 1, 100, 5).unwrap();
    let (arena, ..) = builder.finish().unwrap();
    // A kill leaves the lock of the only part, the first word after the header, as it is.
    nf_arena::Memory::words(arena.region("flows").unwrap())[8]
        .store(1, std::sync::atomic::Ordering::Relaxed);
    let mut builder = adopt(&arena);
    let heir: FlowTable<u32, u64> = builder.flow_table("flows", 1).unwrap();
    builder.finish().unwrap().2.run();
    assert_eq!(heir.get(&7, 1, 100), Some(5));
}
