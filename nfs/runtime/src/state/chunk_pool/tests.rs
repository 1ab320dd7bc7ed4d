use std::{
    collections::{HashMap, HashSet},
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use nf_arena::{Arena, ArenaBuilder};
use proptest::prelude::*;

use super::*;
use crate::state::{crash::Recorder, StateBuilder};

fn pool(capacity: usize, bytes: usize) -> (ChunkPool, Arena) {
    let mut builder = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
    let pool = builder.chunk_pool("chunks", capacity, bytes).unwrap();
    (pool, builder.finish().unwrap().0)
}

fn adopt(arena: &Arena, capacity: usize, bytes: usize) -> (ChunkPool, Arena) {
    let file = arena.as_fd().try_clone_to_owned().unwrap();
    let before = arena.digest();
    let mut builder = StateBuilder::new(ArenaBuilder::adopt(file, "test", 1).unwrap());
    let pool = builder.chunk_pool("chunks", capacity, bytes).unwrap();
    let adopted = builder.finish().unwrap().0;
    assert_eq!(arena.digest(), before, "opening changed the state");
    (pool, adopted)
}

/// Earlier and later instances must have the same layout.
#[test]
fn sizes_match_the_layout() {
    // 16 lists with a cache line, a header of 4 words per chunk, and the chunks in whole blocks.
    assert_eq!(ChunkPool::<Region>::words(1, 64), 192 + 8);
    assert_eq!(
        ChunkPool::<Region>::words(16, CHUNK_BYTES),
        128 + 64 + 16 * 256
    );
    assert_eq!(
        ChunkPool::<Region>::layout(5, 64),
        "chunks v1, 5 of 64 bytes"
    );
    let mut builder = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
    for (capacity, bytes, detail) in [
        (
            1,
            0,
            "chunks: chunks of 0 bytes; expected a multiple of 64, at least 64",
        ),
        (
            1,
            100,
            "chunks: chunks of 100 bytes; expected a multiple of 64, at least 64",
        ),
        (
            1 << 25,
            64,
            "chunks: is 33554432; expected at most 16777216",
        ),
    ] {
        let refusal = builder.chunk_pool("chunks", capacity, bytes).err().unwrap();
        assert_eq!(refusal.detail, detail);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take(u32),
    Give(usize),
    Write(usize, usize, Vec<u8>),
    Read(usize, usize, usize),
    Orphans(u32),
    Adopt,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u32..5).prop_map(Step::Take),
        2 => any::<usize>().prop_map(Step::Give),
        6 => (any::<usize>(), 0_usize..140, prop::collection::vec(any::<u8>(), 0..70))
            .prop_map(|(which, offset, bytes)| Step::Write(which, offset, bytes)),
        4 => (any::<usize>(), 0_usize..140, 0_usize..140)
            .prop_map(|(which, offset, length)| Step::Read(which, offset, length)),
        1 => (0_u32..5).prop_map(Step::Orphans),
        1 => Just(Step::Adopt),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_keep_their_bytes_until_they_are_given_back(
        capacity in 1_usize..30,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        const BYTES: usize = 128;
        let (mut pool, mut arena) = pool(capacity, BYTES);
        let mut model: HashMap<Chunk, (u32, Vec<u8>)> = HashMap::new();
        let mut known = vec![Chunk::default()];
        for step in steps {
            match step {
                Step::Take(owner) => {
                    let chunk = pool.take(owner);
                    prop_assert_eq!(chunk.is_some(), model.len() < capacity);
                    if let Some(chunk) = chunk {
                        prop_assert!(!known.contains(&chunk) && !chunk.is_none());
                        prop_assert!(pool.write(chunk, 0, &[owner as u8; BYTES]));
                        known.push(chunk);
                        model.insert(chunk, (owner, vec![owner as u8; BYTES]));
                    }
                }
                Step::Give(which) => {
                    let chunk = known[which % known.len()];
                    prop_assert_eq!(pool.give(chunk), model.remove(&chunk).is_some());
                }
                Step::Write(which, offset, bytes) => {
                    let chunk = known[which % known.len()];
                    let place = model.get_mut(&chunk).and_then(|(_, content)| {
                        content.get_mut(offset..offset + bytes.len())
                    });
                    prop_assert_eq!(pool.write(chunk, offset, &bytes), place.is_some());
                    if let Some(place) = place {
                        place.copy_from_slice(&bytes);
                    }
                }
                Step::Read(which, offset, length) => {
                    let chunk = known[which % known.len()];
                    let wanted = model.get(&chunk).and_then(|(_, content)| {
                        content.get(offset..offset + length)
                    });
                    let mut found = vec![0; length];
                    prop_assert_eq!(pool.read(chunk, offset, &mut found), wanted.is_some());
                    prop_assert!(wanted.is_none_or(|wanted| wanted == found));
                }
                Step::Orphans(gone) => {
                    let before = model.len();
                    model.retain(|_, (owner, _)| *owner != gone);
                    let freed = pool.free_orphans(|owner, chunk| {
                        assert!(owner == gone || model.contains_key(&chunk));
                        owner != gone
                    });
                    prop_assert_eq!(freed, before - model.len());
                }
                Step::Adopt => (pool, arena) = adopt(&arena, capacity, BYTES),
            }
            prop_assert_eq!(pool.free(), capacity - model.len());
            for chunk in &known {
                prop_assert_eq!(pool.owner(*chunk), model.get(chunk).map(|(owner, _)| *owner));
            }
        }
        for (chunk, (_, content)) in &model {
            let mut found = vec![0; BYTES];
            prop_assert!(pool.read(*chunk, 0, &mut found));
            prop_assert_eq!(&found, content);
        }
    }
}

#[test]
fn a_write_dirties_every_block_that_it_changes() {
    let (pool, arena) = pool(2, CHUNK_BYTES);
    let region = arena.region("chunks").unwrap();
    let chunk = pool.take(1).unwrap();
    let mut block = Vec::new();
    let mut take = || {
        (0..region.blocks())
            .filter(|index| region.take_block(*index, &mut block))
            .collect::<Vec<_>>()
    };
    take();
    let first = pool.start(chunk, 0, 1).unwrap() / 64;
    for (offset, length, blocks) in [
        (0, 1, 0..1),
        (511, 1, 0..1),
        (511, 2, 0..2),
        (3, 1500, 0..3),
        (512, 1536, 1..4),
        (2047, 1, 3..4),
        (5, 0, 0..0),
    ] {
        assert!(pool.write(chunk, offset, &vec![7; length]));
        let wanted: Vec<_> = blocks.map(|block| first + block).collect();
        assert_eq!(take(), wanted, "{offset}, {length}");
    }
}

/// Threads take chunks, fill them, and give them to each other or back.
#[test]
fn workers_share_a_pool() {
    const CAPACITY: usize = 24;
    let (pool, _arena) = pool(CAPACITY, 64);
    let shelf = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for worker in 0..4_u32 {
            let (pool, shelf) = (&pool, &shelf);
            scope.spawn(move || {
                for turn in 0..20_000_u32 {
                    if let Some(chunk) = pool.take(worker) {
                        let mark = [worker as u8 ^ turn as u8; 64];
                        assert!(pool.write(chunk, 0, &mark));
                        shelf.lock().unwrap().push((chunk, worker, mark));
                    }
                    let other = {
                        let mut shelf = shelf.lock().unwrap();
                        let length = shelf.len();
                        (length > turn as usize % CAPACITY)
                            .then(|| shelf.swap_remove(turn as usize % length))
                    };
                    if let Some((chunk, owner, mark)) = other {
                        let mut found = [0; 64];
                        assert!(pool.read(chunk, 0, &mut found));
                        assert_eq!((pool.owner(chunk), found), (Some(owner), mark));
                        assert!(pool.give(chunk) && !pool.give(chunk));
                    }
                }
            });
        }
    });
    let left = shelf.into_inner().unwrap();
    assert_eq!(pool.free(), CAPACITY - left.len());
    assert!(left.iter().all(|(chunk, ..)| pool.give(*chunk)));
    let all: HashSet<_> = (0..CAPACITY).map(|_| pool.take(0).unwrap()).collect();
    assert_eq!((all.len(), pool.take(0)), (CAPACITY, None));
}

#[test]
fn of_threads_that_give_a_chunk_back_at_once_one_succeeds() {
    const TURNS: u64 = 5_000;
    let (pool, _arena) = pool(2, 64);
    const END: u64 = u64::MAX;
    let mut twice = None;
    let (given, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    let wait = |word: &AtomicU64, not: u64| loop {
        let now = word.load(Ordering::Acquire);
        if now != not {
            return now;
        }
        thread::yield_now();
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            for turn in 1..=TURNS {
                last = wait(&given, last);
                if last == END {
                    return;
                }
                let success = u64::from(pool.give(Chunk(last)));
                answered.store(turn << 1 | success, Ordering::Release);
            }
        });
        let mut last = 0;
        for turn in 1..=TURNS {
            let chunk = pool.take(1).unwrap_or_default();
            given.store(chunk.0, Ordering::Release);
            (0..turn % 100).for_each(|_| std::hint::spin_loop());
            let success = u64::from(pool.give(chunk));
            last = wait(&answered, last);
            if success + last % 2 != 1 {
                twice = Some(turn);
                given.store(END, Ordering::Release);
                break;
            }
        }
    });
    assert_eq!(twice, None);
    assert_eq!(pool.free(), 2);
}

#[test]
fn a_killed_call_leaves_each_chunk_in_use_or_free() {
    const CAPACITY: usize = 40;
    let words = ChunkPool::<Recorder>::words(CAPACITY, 64);
    let pool = ChunkPool::open(Recorder::new(words), CAPACITY, 64);
    let check = |named: &[Chunk], change: &mut dyn FnMut()| {
        let cuts = pool.memory.cuts(change);
        for (writes, cut) in cuts.iter().enumerate() {
            let memory = Recorder::of(cut);
            let heir = ChunkPool::open(memory.clone(), CAPACITY, 64);
            assert_eq!(memory.content(), *cut, "opening changed the state");
            heir.repair();
            heir.free_orphans(|owner, chunk| {
                assert_eq!(owner, 5);
                named.contains(&chunk)
            });
            let kept = named.iter().filter(|chunk| heir.owner(**chunk) == Some(5));
            let mut all: HashSet<_> = kept.copied().collect();
            assert_eq!(heir.free(), CAPACITY - all.len(), "after {writes} writes");
            while let Some(chunk) = heir.take(6) {
                assert!(all.insert(chunk), "{chunk:?} was taken twice");
            }
            assert_eq!(all.len(), CAPACITY, "after {writes} writes");
        }
        assert!(cuts.len() > 3);
    };
    let mut chunks: Vec<_> = (0..30).map(|_| pool.take(5).unwrap()).collect();
    chunks
        .drain(..10)
        .for_each(|chunk| assert!(pool.give(chunk)));
    for _ in 0..15 {
        let before = chunks.clone();
        check(&before, &mut || chunks.push(pool.take(5).unwrap()));
    }
    while chunks.len() > 5 {
        let before = chunks.clone();
        let given = chunks.remove(3);
        check(&before, &mut || assert!(pool.give(given)));
    }
}
