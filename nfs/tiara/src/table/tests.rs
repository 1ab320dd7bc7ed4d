//! Tests of shapes, places, and tables without engines.

use std::collections::HashSet;

use nf_arena::Heap;
use nf_tables::{Ipv4Flow, Ipv6Flow, Key};
use proptest::prelude::*;

use super::{ConnectionTable, Decision, Hashing, Shape, Slot, TableError};

fn shape(depth: u32, width: u32, hashing: Hashing) -> Shape {
    Shape::new(depth, width, hashing).unwrap()
}

fn table<K: Key>(shape: Shape) -> ConnectionTable<K, Heap> {
    let memory = Heap::new(ConnectionTable::<K, Heap>::words(shape)).unwrap();
    ConnectionTable::open(memory, shape).unwrap()
}

fn flow(number: u64) -> Ipv4Flow {
    Ipv4Flow::from_words(
        &[number.wrapping_mul(0x9e37_79b9_7f4a_7c15)],
        number & 0xffff,
    )
}

fn decision(rs_index: u32) -> Decision {
    Decision {
        rs_index,
        rs_port: !rs_index as u16,
    }
}

const HASHINGS: [Hashing; 2] = [Hashing::Chained, Hashing::Skewed];

#[test]
fn impossible_shapes_and_memories_are_refused() {
    for (depth, width) in [(0, 1), (3, 1), (1, 0), (1, 9), (1 << 30, 4)] {
        let refused = Shape::new(depth, width, Hashing::Chained);
        assert_eq!(refused, Err(TableError::Shape { depth, width }));
    }
    let shape = shape(64, 2, Hashing::Chained);
    // Entries of 32 or 64 bytes, and a bit for each.
    let needed = ConnectionTable::<Ipv4Flow, Heap>::words(shape);
    assert_eq!(needed, 128 * 4 + 2);
    assert_eq!(ConnectionTable::<Ipv6Flow, Heap>::words(shape), 128 * 8 + 2);
    let small = ConnectionTable::<Ipv4Flow, _>::open(Heap::new(needed - 1).unwrap(), shape);
    let words = needed - 1;
    assert_eq!(small.err(), Some(TableError::TooSmall { words, needed }));
}

#[test]
fn engines_own_all_places_of_their_flows_and_share_none() {
    for (depth, width, engines) in [
        (1, 1, 1),
        (64, 3, 1),
        (4096, 2, 3),
        (1 << 14, 4, 64),
        (128, 8, 2),
    ] {
        for hashing in HASHINGS {
            let shape = shape(depth, width, hashing);
            assert!(engines <= shape.partitions());
            let mut next = 0;
            for engine in 0..engines {
                let slots = shape.slots_of(engine, engines);
                assert_eq!(slots.start, next);
                assert!(depth < 64 || slots.start % 64 == 0);
                next = slots.end;
            }
            assert_eq!(next as usize, shape.slots());
            for number in 0..2000 {
                let key = flow(number);
                let own = shape.slots_of(shape.engine_of(&key, engines), engines);
                let places = shape.places(&key);
                assert!(places.slots().iter().all(|slot| own.contains(&slot.0)));
                let columns = places.slots().iter().map(|slot| slot.0 % width);
                assert!(columns.eq(0..width));
            }
        }
    }
}

#[test]
fn columns_share_an_index_or_have_their_own() {
    let indexes = |hashing, key: &Ipv4Flow| -> HashSet<u32> {
        let shape = shape(1 << 16, 2, hashing);
        let places = shape.places(key);
        places.slots().iter().map(|slot| slot.0 / 2).collect()
    };
    let mut apart = 0;
    for number in 0..1000 {
        assert_eq!(indexes(Hashing::Chained, &flow(number)).len(), 1);
        apart += usize::from(indexes(Hashing::Skewed, &flow(number)).len() == 2);
    }
    assert!(apart > 990, "{apart}");
}

#[test]
fn flows_that_share_an_index_have_different_ones_in_the_second_column() {
    let shape = shape(1 << 12, 2, Hashing::Skewed);
    let of = |number| shape.places(&flow(number)).slots().to_vec();
    let first = of(0)[0];
    let sharing: Vec<_> = (1..200_000)
        .map(of)
        .filter(|places| places[0] == first)
        .collect();
    let second: HashSet<_> = sharing.iter().map(|places| places[1]).collect();
    // They have 64 indexes of their partition to choose from.
    assert!(
        sharing.len() > 30 && second.len() > sharing.len() / 3,
        "{} of {}",
        second.len(),
        sharing.len()
    );
}

#[test]
fn marks_are_of_one_slot_and_one_period() {
    let table = table::<Ipv4Flow>(shape(64, 2, Hashing::Chained));
    assert!(table.mark(Slot(64)) && !table.mark(Slot(64)) && table.mark(Slot(127)));
    assert!(!table.is_marked(Slot(0)) && table.is_marked(Slot(64)));
    assert_eq!((table.take_marks(0), table.take_marks(1)), (0, 1 | 1 << 63));
    assert_eq!(table.take_marks(1), 0);
    assert!(table.mark(Slot(64)));
    table.unmark(Slot(64));
    assert!(!table.is_marked(Slot(64)) && table.mark(Slot(64)));
    // A new entry has not been hit.
    table.write(Slot(64), &flow(1), decision(1));
    assert!(!table.is_marked(Slot(64)));
}

fn check_writes<K: Key>(shape: Shape, keys: &[K]) {
    let table = table::<K>(shape);
    for (number, key) in keys.iter().enumerate() {
        let slot = shape.places(key).slots()[0];
        let wanted = decision(number as u32);
        assert_eq!(table.lookup(key), None);
        table.write(slot, key, wanted);
        let found = table.lookup(key).unwrap();
        assert_eq!((found.decision, found.slot), (wanted, slot));
        assert_eq!(table.entry(slot), Some((*key, wanted)));
        // Every other key differs in one word at least.
        let others = keys.iter().filter(|other| *other != key);
        assert!(others
            .into_iter()
            .all(|other| table.lookup(other).is_none()));
        let mut bulk = vec![None; keys.len()];
        table.lookup_bulk(keys, &mut bulk);
        assert!(bulk
            .iter()
            .zip(keys)
            .all(|(bulk, key)| *bulk == table.lookup(key)));
        table.clear(slot);
        assert_eq!((table.lookup(key), table.entry(slot)), (None, None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In a table of one index, all flows have the same places: only their keys tell them apart.
    #[test]
    fn lookups_compare_whole_keys(
        lanes in proptest::collection::hash_set([0..2_u64, 0..2_u64, 0..2_u64, 0..2_u64], 1..12),
        tails in proptest::array::uniform2(0..1_u64 << 40),
        width in 1..4_u32,
    ) {
        for hashing in HASHINGS {
            let shape = shape(1, width, hashing);
            let both = tails.iter().collect::<HashSet<_>>();
            let v6: Vec<_> = lanes.iter().flat_map(|lanes| both.iter().map(|tail| Ipv6Flow::from_words(lanes, **tail))).collect();
            check_writes(shape, &v6);
            let lanes: HashSet<_> = lanes.iter().map(|lanes| lanes[0] << 32 | lanes[1]).collect();
            let v4: Vec<_> = lanes.iter().flat_map(|lane| both.iter().map(|tail| Ipv4Flow::from_words(&[*lane], **tail))).collect();
            check_writes(shape, &v4);
        }
    }
}
