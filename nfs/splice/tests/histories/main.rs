//! Random histories of a spliced stream against a byte-level model, and the properties of the map alone.

#![allow(clippy::unwrap_used, clippy::panic)]

mod world;

use nf_splice::{
    segment::{is_after, is_before},
    Map, Refused, Region,
};
use proptest::prelude::*;
use world::{Action, World};

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => (any::<u16>(), any::<u8>()).prop_map(|(start, length)| Action::Send { start, length }),
        2 => any::<u8>().prop_map(Action::Pass),
        3 => (0_u8..40, 0_u8..60).prop_map(|(taken, given)| Action::Replace { taken, given }),
        3 => any::<(u8, u8, u8)>().prop_map(|(region, start, length)| Action::Give { region, start, length }),
        6 => (any::<u8>(), prop::bool::weighted(0.2)).prop_map(|(index, again)| Action::Deliver { index, again }),
        1 => any::<u8>().prop_map(Action::Lose),
        5 => (any::<u8>(), prop::bool::weighted(0.2)).prop_map(|(index, again)| Action::Acknowledge { index, again }),
        1 => any::<u8>().prop_map(Action::LoseAcknowledgement),
        1 => (0_u16..800).prop_map(Action::Open),
    ]
}

/// First numbers, many of them close to where they wrap or change sign.
fn start() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        (0_u32..600).prop_map(|before| 0_u32.wrapping_sub(before)),
        (0_u32..600).prop_map(|before| 0x8000_0000 - before),
    ]
}

/// A map with up to two regions, and the number of its first byte.
fn map() -> impl Strategy<Value = (Map, u32)> {
    let region = (0_u32..5_000, 0_u32..3_000, 0_u32..3_000);
    let regions = prop::collection::vec(region, 0..=2);
    (start(), start(), regions).prop_map(|(source, destination, regions)| {
        let (mut map, mut end) = (Map::between(source, destination), source);
        for (passed, taken, given) in regions {
            let from = end.wrapping_add(passed);
            map.insert(from, taken, given).unwrap();
            end = from.wrapping_add(taken);
        }
        (map, source)
    })
}

fn inside(map: &Map, sequence: u32) -> Option<Region> {
    map.regions()
        .find(|region| sequence.wrapping_sub(region.from) < region.taken)
}

proptest! {
    #[test]
    fn every_history_ends_with_the_stream_that_was_meant(
        source in start(),
        destination in start(),
        actions in prop::collection::vec(action(), 1..150),
    ) {
        let mut world = World::new(source, destination);
        for action in &actions {
            world.act(action);
        }
        world.finish();
    }

    #[test]
    fn a_passed_byte_comes_back_and_a_taken_one_stands_for_its_region((map, first) in map(), ahead in 0_u32..20_000) {
        let sequence = first.wrapping_add(ahead);
        let number = map.forward(sequence);
        if let Some(region) = inside(&map, sequence) {
            prop_assert_eq!(number, region.at);
        } else {
            prop_assert_eq!(map.back(number), sequence);
            prop_assert_eq!(map.back_start(number), sequence);
            // Its end, too.
            prop_assert_eq!(map.back(number.wrapping_add(1)), sequence.wrapping_add(1));
        }
    }

    #[test]
    fn all_directions_are_monotone((map, first) in map(), ahead in 0_u32..20_000, more in 0_u32..10_000) {
        let (low, high) = (first.wrapping_add(ahead), first.wrapping_add(ahead + more));
        prop_assert!(!is_after(map.forward(low), map.forward(high)));
        let number = map.forward(first);
        let (low, high) = (number.wrapping_add(ahead), number.wrapping_add(ahead + more));
        prop_assert!(!is_after(map.back(low), map.back(high)));
        prop_assert!(!is_after(map.back_start(low), map.back_start(high)));
    }

    #[test]
    fn the_parts_of_a_segment_are_its_bytes((map, first) in map(), ahead in 0_u32..15_000, length in 0_u32..15_000) {
        let sequence = first.wrapping_add(ahead);
        let parts: Vec<_> = map.parts(sequence, length).collect();
        prop_assert!(parts.len() <= 5);
        let mut next = 0;
        for part in &parts {
            prop_assert!(part.offset == next && part.length > 0);
            next += part.length;
            for offset in [part.offset, next - 1] {
                let byte = sequence.wrapping_add(offset);
                prop_assert_eq!(inside(&map, byte).is_none(), part.to.is_some());
                if let Some(to) = part.to {
                    prop_assert_eq!(map.forward(byte), to.wrapping_add(offset - part.offset));
                }
            }
        }
        prop_assert_eq!(next, length);
    }

    #[test]
    fn settling_keeps_what_is_not_acknowledged((map, first) in map(), ahead in 0_u32..20_000, more in 0_u32..10_000) {
        let acknowledgement = map.forward(first).wrapping_add(ahead);
        let mut settled = map;
        let count = settled.settle(acknowledgement);
        prop_assert_eq!(settled.regions().count() + count as usize, map.regions().count());
        prop_assert_eq!(settled.regions().collect::<Vec<_>>(), map.regions().skip(count as usize).collect::<Vec<_>>());
        for region in settled.regions() {
            prop_assert!(is_before(acknowledgement, region.at.wrapping_add(region.given)));
        }
        let number = acknowledgement.wrapping_add(more);
        prop_assert_eq!(settled.back(number), map.back(number));
        prop_assert_eq!(settled.back_start(number), map.back_start(number));
        let sequence = map.back(acknowledgement).wrapping_add(more);
        prop_assert_eq!(settled.forward(sequence), map.forward(sequence));
        // Bytes before it are acknowledged, wherever it comes out.
        let old = settled.forward(map.back(acknowledgement).wrapping_sub(more + 1));
        prop_assert!(is_before(old, acknowledgement));
    }

    /// An empty segment of a correct sender lies between the acknowledged position and the end of the bytes sent.
    #[test]
    fn an_empty_segment_lies_where_the_splice_stands((map, first) in map(), ahead in 0_u32..20_000, offset in 0_u32..3_000) {
        let sequence = first.wrapping_add(ahead);
        let number = map.forward(sequence);
        let touched: Vec<_> = map
            .regions()
            .filter(|region| sequence.wrapping_sub(region.from) <= region.taken)
            .collect();
        let (Some(one), Some(other)) = (touched.first(), touched.last()) else {
            prop_assert_eq!(map.forward_empty(sequence, number.wrapping_add(offset)), number);
            return Ok(());
        };
        let end = other.at.wrapping_add(other.given);
        prop_assert_eq!(map.forward_empty(sequence, one.at.wrapping_sub(offset)), one.at);
        prop_assert_eq!(map.forward_empty(sequence, end.wrapping_add(offset)), end);
        let between = one.at.wrapping_add(offset % (end.wrapping_sub(one.at) + 1));
        prop_assert_eq!(map.forward_empty(sequence, between), between);
    }
}

const INSERTED: (u32, u32, u32) = (1_000, 0, 100);

fn map_with(regions: &[(u32, u32, u32)]) -> Map {
    let mut map = Map::with_delta(0);
    for (from, taken, given) in regions {
        map.insert(*from, *taken, *given).unwrap();
    }
    map
}

#[test]
fn edges_at_an_insertion() {
    let map = map_with(&[INSERTED]);
    assert_eq!(
        [999, 1_000, 1_001].map(|at| map.forward(at)),
        [999, 1_100, 1_101]
    );
    let edges = [999, 1_000, 1_001, 1_099, 1_100, 1_101];
    assert_eq!(
        edges.map(|at| map.back(at)),
        [999, 1_000, 1_000, 1_000, 1_000, 1_001]
    );
    assert_eq!(
        edges.map(|at| map.back_start(at)),
        [999, 1_000, 1_000, 1_000, 1_000, 1_001]
    );
}

#[test]
fn edges_at_a_removal() {
    let map = map_with(&[(1_000, 100, 0)]);
    assert_eq!(
        [999, 1_000, 1_099, 1_100].map(|at| map.forward(at)),
        [999, 1_000, 1_000, 1_000]
    );
    // No byte is to come for the removed ones.
    assert_eq!(
        [999, 1_000, 1_001].map(|at| map.back(at)),
        [999, 1_100, 1_101]
    );
    assert_eq!(
        [999, 1_000, 1_001].map(|at| map.back_start(at)),
        [999, 1_100, 1_101]
    );
}

#[test]
fn edges_at_a_rewritten_head() {
    let map = map_with(&[(1_000, 50, 80)]);
    assert_eq!(
        [1_000, 1_001, 1_049, 1_050].map(|at| map.forward(at)),
        [1_000, 1_000, 1_000, 1_080]
    );
    let edges = [1_000, 1_001, 1_079, 1_080, 1_081];
    assert_eq!(
        edges.map(|at| map.back(at)),
        [1_000, 1_000, 1_000, 1_050, 1_051]
    );
    assert_eq!(
        edges.map(|at| map.back_start(at)),
        [1_000, 1_050, 1_050, 1_050, 1_051]
    );
}

#[test]
fn a_third_region_waits_and_an_earlier_one_is_refused() {
    let mut map = map_with(&[INSERTED]);
    assert_eq!(map.insert(999, 1, 1), Err(Refused::Order));
    assert_eq!(map.insert(1_000, 10, 0), Ok(()));
    assert_eq!(map.insert(2_000, 0, 1), Err(Refused::Full));
    assert_eq!(map.constant(), None);
    assert_eq!(map.settle(1_099), 0);
    // The removal behind it gives nothing, so nothing is missing.
    assert_eq!(map.settle(1_100), 2);
    assert_eq!(map.constant(), Some(90));
    assert_eq!(map, Map::with_delta(90));
    assert_eq!(map.insert(999, 1, 1), Ok(()));
}

#[test]
fn a_refusal_says_what_to_do() {
    for (refused, advice) in [
        (Refused::Full, "wait for an"),
        (Refused::Order, "order of the stream"),
    ] {
        assert!(refused.to_string().contains(advice));
    }
}

/// A server whose window is closed accepts only RCV.NXT.
#[test]
fn a_reset_behind_an_insertion_is_exact() {
    let map = map_with(&[INSERTED]);
    for acknowledged in [1_000, 1_042, 1_100] {
        assert_eq!(map.forward_empty(1_000, acknowledged), acknowledged);
    }
    assert_eq!(map.forward_empty(1_000, 900), 1_000);
    assert_eq!(map.forward_empty(1_000, 1_200), 1_100);
    assert_eq!(map.forward_empty(999, 1_042), 999);
    assert_eq!(map.forward_empty(1_001, 1_042), 1_101);
}

#[test]
fn a_fin_passes_behind_the_last_region() {
    let map = map_with(&[(1_000, 10, 30)]);
    // Ten taken bytes with a FIN behind them.
    let parts: Vec<_> = map
        .parts(1_000, 11)
        .map(|part| (part.offset, part.length, part.to))
        .collect();
    assert_eq!(parts, [(0, 10, None), (10, 1, Some(1_030))]);
    assert_eq!(map.back(1_031), 1_011);
}

#[test]
fn a_map_fits_48_bytes() {
    assert!(std::mem::size_of::<Map>() <= 48);
}
