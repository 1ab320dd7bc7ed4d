//! Arenas between two owners: adoption, refusal, and copies during writes.

#![allow(clippy::unwrap_used)]

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use nf_arena::{Arena, ArenaBuilder, ArenaError, Clock, Memory, Region, BLOCK_WORDS};
use proptest::prelude::*;

/// Longer than a test may take.
const NEVER: Duration = Duration::from_secs(100);

fn build(regions: &[(&str, &str, usize)]) -> (Arena, Vec<Region>) {
    let mut builder = ArenaBuilder::fresh("test", 1).unwrap();
    let made = regions
        .iter()
        .map(|(name, layout, words)| builder.region(name, layout, *words).unwrap())
        .collect();
    (builder.finish().unwrap(), made)
}

fn duplicate(arena: &Arena) -> OwnedFd {
    arena.as_fd().try_clone_to_owned().unwrap()
}

fn put(region: &Region, index: usize, value: u64) {
    region.words()[index].store(value, Ordering::Relaxed);
    region.touch(index);
}

fn copy_dirty(from: &Arena, to: &Arena) -> usize {
    let (mut buffer, mut copied) = (Vec::new(), 0);
    for (source, target) in from.regions().iter().zip(to.regions()) {
        for block in 0..source.blocks() {
            if source.take_block(block, &mut buffer) {
                assert!(target.put_block(block, &buffer));
                copied += 1;
            }
        }
    }
    copied
}

const PAGE_WORDS: usize = 512;

/// Writes to the first word of each of these pages; returns how many page faults that took.
fn faults_of_writing(region: &Region, pages: std::ops::Range<usize>) -> u64 {
    let faults = || {
        let told = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Fields from the state on, the third one, follow the command's name; the tenth is minflt (proc_pid_stat(5)).
        let (_, fields) = told.rsplit_once(')').unwrap();
        let field = fields.split_whitespace().nth(7).unwrap();
        field.parse::<u64>().unwrap()
    };
    let before = faults();
    pages.for_each(|page| put(region, page * PAGE_WORDS, 1));
    faults() - before
}

#[test]
fn prefaulting_maps_the_pages_that_hold_data_and_fills_no_other() {
    const PAGES: usize = 4096;
    let (arena, regions) = build(&[("a", "u64", 10), ("b", "u64", PAGES * PAGE_WORDS)]);
    faults_of_writing(&regions[1], 100..PAGES / 2);
    let blocks = || rustix::fs::fstat(&arena).unwrap().st_blocks;
    let before = blocks();
    let mut builder = ArenaBuilder::adopt(duplicate(&arena), "test", 1).unwrap();
    builder.region("a", "u64", 10).unwrap();
    let region = builder.region("b", "u64", PAGES * PAGE_WORDS).unwrap();
    let adopted = builder.finish().unwrap();
    adopted.prefault();
    assert_eq!(blocks(), before);
    assert!(faults_of_writing(&region, 100..PAGES / 2) < 10);
    assert_eq!(region.words()[99 * PAGE_WORDS].load(Ordering::Relaxed), 0);
}

#[test]
fn a_thread_that_waits_for_a_word_is_woken_through_another_mapping() {
    let (arena, regions) = build(&[("a", "u64", 10)]);
    let mut builder = ArenaBuilder::adopt(duplicate(&arena), "test", 1).unwrap();
    let theirs = builder.region("a", "u64", 10).unwrap();
    put(&regions[0], 7, 3 << 32 | 1);
    let waiting = thread::spawn(move || theirs.wait(7, 3 << 32 | 1, NEVER));
    while regions[0].wake_waiting(7) == 0 {
        thread::yield_now();
    }
    waiting.join().unwrap();
    assert_eq!(regions[0].wake_waiting(7), 0);
    regions[0].wait(7, 2, NEVER); // returns at once: it is not 2
}

#[test]
fn an_adopted_arena_is_the_same_memory() {
    let (arena, regions) = build(&[("a", "u64", 10), ("b", "pairs", 1000)]);
    put(&regions[1], 999, 42);
    let mut builder = ArenaBuilder::adopt(duplicate(&arena), "test", 1).unwrap();
    assert!(builder.is_adopted());
    let again = (
        builder.region("a", "u64", 10).unwrap(),
        builder.region("b", "pairs", 1000).unwrap(),
    );
    let adopted = builder.finish().unwrap();
    assert_eq!(adopted.schema(), arena.schema());
    assert_eq!(again.1.words()[999].load(Ordering::Relaxed), 42);
    put(&again.0, 0, 7);
    assert_eq!(regions[0].words()[0].load(Ordering::Relaxed), 7);
    assert_eq!(adopted.digest(), arena.digest());
}

#[test]
fn incompatible_state_is_refused_and_names_the_region() {
    let (arena, _) = build(&[("a", "u64", 10), ("b", "pairs", 1000)]);
    let adopt = || ArenaBuilder::adopt(duplicate(&arena), "test", 1).unwrap();
    for (name, layout, words, expected) in [
        (
            "b",
            "triples",
            1000,
            "region \"b\": its layout is \"pairs\", expected \"triples\"",
        ),
        (
            "b",
            "pairs",
            1001,
            "region \"b\": it has 1000 words, expected 1001",
        ),
        ("c", "u64", 1, "region \"c\": the state has no such region"),
    ] {
        let error = adopt()
            .region(name, layout, words)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut builder = adopt();
    builder.region("a", "u64", 10).unwrap();
    let error = builder.finish().err().unwrap().to_string();
    assert!(
        error.contains("region \"b\": this instance has no such region"),
        "{error}"
    );
}

#[test]
fn regions_beyond_the_end_of_any_file_are_refused() {
    let mut builder = ArenaBuilder::fresh("test", 1).unwrap();
    for words in [1 << 60, 1 << 61, (1 << 61) + 10, usize::MAX] {
        let refused = builder.region("a", "u64", words);
        assert!(matches!(refused, Err(ArenaError::Refused { .. })));
    }
    builder.region("a", "u64", 10).unwrap();
    builder.finish().unwrap();
}

#[test]
fn a_state_of_another_kind_or_version_is_refused() {
    let (arena, _) = build(&[("a", "u64", 10)]);
    for (kind, version) in [("test", 2), ("toast", 1)] {
        let mut builder = ArenaBuilder::adopt(duplicate(&arena), kind, version).unwrap();
        builder.region("a", "u64", 10).unwrap();
        let error = builder.finish().err().unwrap().to_string();
        assert!(error.contains("another kind or version"), "{error}");
    }
}

#[test]
fn a_descriptor_that_is_not_an_arena_is_refused() {
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    assert!(matches!(
        ArenaBuilder::adopt(null, "test", 1),
        Err(ArenaError::NotAnArena { .. })
    ));
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let raw = rustix::fs::memfd_create("raw", flags).unwrap();
    rustix::fs::ftruncate(&raw, 1 << 17).unwrap();
    let unsealed = ArenaBuilder::adopt(raw.try_clone().unwrap(), "test", 1)
        .err()
        .unwrap();
    assert!(unsealed.to_string().contains("not sealed"), "{unsealed}");
    rustix::fs::fcntl_add_seals(&raw, rustix::fs::SealFlags::SHRINK).unwrap();
    let foreign = ArenaBuilder::adopt(raw, "test", 1).err().unwrap();
    assert!(foreign.to_string().contains("nf-arena"), "{foreign}");
}

#[test]
fn the_schema_depends_on_kind_version_and_every_region() {
    let schema = |kind, version, regions: &[(&str, &str, usize)]| {
        let mut builder = ArenaBuilder::fresh(kind, version).unwrap();
        for (name, layout, words) in regions {
            builder.region(name, layout, *words).unwrap();
        }
        builder.finish().unwrap().schema()
    };
    let base = schema("k", 1, &[("a", "x", 5)]);
    assert_eq!(base, schema("k", 1, &[("a", "x", 5)]));
    for other in [
        schema("l", 1, &[("a", "x", 5)]),
        schema("k", 2, &[("a", "x", 5)]),
        schema("k", 1, &[("b", "x", 5)]),
        schema("k", 1, &[("a", "y", 5)]),
        schema("k", 1, &[("a", "x", 6)]),
    ] {
        assert_ne!(base, other);
    }
}

#[test]
fn a_copy_during_writes_ends_equal() {
    let spec = [("state", "u64", 100_000)];
    let (from, regions) = build(&spec);
    let (to, _) = build(&spec);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 1..=2_u64 {
            let (region, stop) = (&regions[0], &stop);
            scope.spawn(move || {
                let mut random = seed;
                while !stop.load(Ordering::Relaxed) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    put(region, (random >> 33) as usize % 100_000, random);
                }
            });
        }
        for _ in 0..20 {
            copy_dirty(&from, &to);
        }
        stop.store(true, Ordering::Relaxed);
    });
    copy_dirty(&from, &to);
    assert_eq!(from.digest(), to.digest());
    assert_eq!(copy_dirty(&from, &to), 0);
}

#[test]
fn the_clock_resumes_from_the_states_time() {
    let (arena, _) = build(&[]);
    let clock = Clock::of(&arena);
    clock.resume(5_000_000_000_000);
    let first = clock.now();
    assert!(first >= 5_000_000_000_000);
    assert!(clock.now() >= first);
}

proptest! {
    #[test]
    fn exactly_the_written_blocks_are_copied(writes in prop::collection::vec((0_usize..5000, any::<u64>()), 0..200)) {
        let (from, regions) = build(&[("state", "u64", 5000)]);
        let (to, _) = build(&[("state", "u64", 5000)]);
        copy_dirty(&from, &to);
        let mut blocks: Vec<_> = writes.iter().map(|(index, _)| index / BLOCK_WORDS).collect();
        blocks.sort_unstable();
        blocks.dedup();
        for (index, value) in &writes {
            put(&regions[0], *index, *value);
        }
        prop_assert_eq!(regions[0].dirty_blocks(), blocks.len());
        prop_assert_eq!(copy_dirty(&from, &to), blocks.len());
        prop_assert_eq!(from.digest(), to.digest());
    }
}
