use bytemuck::Zeroable;
use nf_arena::{Arena, ArenaBuilder};
use nf_runtime::state::StateBuilder;
use proptest::prelude::*;

use super::*;

const CHUNKS: usize = 128;

fn pool() -> (ChunkPool, Arena) {
    let mut state = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
    let chunks = state.chunk_pool("chunks", CHUNKS, 2048).unwrap();
    let (arena, ..) = state.finish().unwrap();
    (chunks, arena)
}

/// A half whose framing has reached this number.
fn half(next: u32) -> Half {
    let mut half = Half::zeroed();
    half.kept = ByteQueue::new(1);
    half.framing = framing::CHUNKED;
    half.parse_at = next;
    half
}

/// The byte of each number.
fn bytes(begin: u32, len: u32) -> Vec<u8> {
    (0..len)
        .map(|at| (begin.wrapping_add(at) % 251) as u8)
        .collect()
}

#[test]
fn runs_are_reported_and_the_one_first_that_grew_last() {
    let (chunks, _arena) = pool();
    let mut half = half(0);
    let mut keep = |begin: u32, len: u32| {
        half.keep(&chunks, begin, &bytes(begin, len));
        half.kept_blocks(&chunks).edges().to_vec()
    };
    assert_eq!(keep(200, 100), [(200, 300)]);
    assert_eq!(keep(600, 100), [(600, 700), (200, 300)]);
    assert_eq!(keep(300, 50), [(200, 350), (600, 700)]);
    assert_eq!(keep(100, 20), [(100, 120), (200, 350), (600, 700)]);
    assert_eq!(keep(900, 20), [(900, 920), (100, 120), (200, 350)]);
}

#[test]
fn a_repeated_piece_costs_nothing_and_a_piece_without_room_is_dropped() {
    let (chunks, _arena) = pool();
    let mut half = half(0);
    half.keep(&chunks, 10, &[7; 60_000]);
    let free = chunks.free();
    half.keep(&chunks, 20, &[7; 5000]);
    assert_eq!(chunks.free(), free);
    half.keep(&chunks, 70_000, &[7; 9000]);
    assert_eq!(half.kept_blocks(&chunks).edges(), [(10, 60_010)]);
    half.drop_kept(&chunks);
    assert_eq!(chunks.free(), CHUNKS);
}

proptest! {
    /// Pieces that arrive in any order leave in the order of their numbers, each byte at its place, as soon as the framing reaches them.
    #[test]
    fn bytes_leave_in_order_and_at_their_places(
        start: u32,
        arrivals in prop::collection::vec((1_u32..3000, 1_u32..400), 1..40),
        steps in prop::collection::vec(1_u32..900, 1..20),
    ) {
        let (chunks, _arena) = pool();
        let mut half = half(start);
        let mut missing = std::collections::BTreeSet::new();
        for (offset, len) in arrivals {
            let begin = start.wrapping_add(offset);
            half.keep(&chunks, begin, &bytes(begin, len));
            missing.extend(offset..offset + len);
        }
        for step in steps {
            half.parse_at = half.parse_at.wrapping_add(step);
            while let Some((begin, run)) = half.release(&chunks) {
                prop_assert!(!is_after(begin, half.parse_at));
                prop_assert_eq!(&run, &bytes(begin, run.len() as u32));
                let offset = begin.wrapping_sub(start);
                for at in offset..offset + run.len() as u32 {
                    prop_assert!(missing.remove(&at));
                }
                let end = begin.wrapping_add(run.len() as u32);
                if is_after(end, half.parse_at) {
                    half.parse_at = end;
                }
            }
            let reached = half.parse_at.wrapping_sub(start);
            prop_assert!(missing.first().is_none_or(|first| *first > reached), "{:?} {}", missing, reached);
        }
        half.drop_kept(&chunks);
        prop_assert_eq!(chunks.free(), CHUNKS);
    }
}
