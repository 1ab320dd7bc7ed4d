use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::state::crash::Recorder;

fn pool(chunks: usize, bytes: usize) -> (ChunkPool<Recorder>, Recorder) {
    let memory = Recorder::new(ChunkPool::<Recorder>::words(chunks, bytes));
    (ChunkPool::open(memory.clone(), chunks, bytes), memory)
}

fn content(queue: &ByteQueue, pool: &ChunkPool<Recorder>) -> Vec<u8> {
    let mut bytes = vec![0; queue.len()];
    assert_eq!(queue.read_at(pool, 0, &mut bytes), queue.len());
    bytes
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize, Vec<u8>),
    Read(usize, usize, usize),
    Consume(usize, usize),
    Clear(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let queue = 0_usize..3;
    prop_oneof![
        5 => (queue.clone(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(queue, bytes)| Step::Append(queue, bytes)),
        3 => (queue.clone(), 0_usize..600, 0_usize..300)
            .prop_map(|(queue, offset, length)| Step::Read(queue, offset, length)),
        4 => (queue.clone(), 0_usize..300)
            .prop_map(|(queue, count)| Step::Consume(queue, count)),
        1 => queue.prop_map(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_queue_is_a_fifo_of_bytes(steps in prop::collection::vec(step(), 0..200)) {
        let (pool, _) = pool(15, 64);
        let mut queues = [7, 8, 9].map(ByteQueue::new);
        let mut models: [VecDeque<u8>; 3] = Default::default();
        for step in steps {
            match step {
                Step::Append(which, bytes) => {
                    let free = pool.free();
                    let taken = queues[which].append(&pool, &bytes);
                    prop_assert!(taken == bytes.len() || pool.free() == 0);
                    prop_assert!(free - pool.free() <= taken.div_ceil(64));
                    models[which].extend(&bytes[..taken]);
                }
                Step::Read(which, offset, length) => {
                    let mut found = vec![0; length];
                    let count = queues[which].read_at(&pool, offset, &mut found);
                    let wanted: Vec<_> = models[which].iter().skip(offset).take(length).copied().collect();
                    prop_assert_eq!(&found[..count], &wanted);
                }
                Step::Consume(which, count) => {
                    queues[which].consume(&pool, count);
                    let count = count.min(models[which].len());
                    models[which].drain(..count);
                }
                Step::Clear(which) => {
                    queues[which].clear(&pool);
                    models[which].clear();
                }
            }
            let mut chunks = HashSet::new();
            for (index, (queue, model)) in queues.iter().zip(&models).enumerate() {
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                prop_assert_eq!(content(queue, &pool), model.iter().copied().collect::<Vec<_>>());
                prop_assert!(queue.is_whole(&pool));
                for chunk in queue.chunks(&pool) {
                    prop_assert!(chunks.insert(chunk));
                    prop_assert_eq!(pool.owner(chunk), Some(index as u32 + 7));
                }
            }
            prop_assert_eq!(pool.free(), 15 - chunks.len());
        }
    }
}

#[test]
fn a_queue_takes_64_kib_and_a_chunk() {
    let (pool, _) = pool(40, 2048);
    let mut queue = ByteQueue::new(1);
    let bytes: Vec<u8> = (0..70_000_u32).map(|n| (n * 31 / 7) as u8).collect();
    assert_eq!(queue.append(&pool, &bytes[..100]), 100);
    assert_eq!(
        queue.append(&pool, &bytes[100..]),
        ByteQueue::MAX_BYTES - 100
    );
    assert_eq!(pool.free(), 40 - 33);
    assert_eq!(queue.append(&pool, &bytes), 0);
    assert_eq!(content(&queue, &pool), bytes[..ByteQueue::MAX_BYTES]);
    queue.consume(&pool, 1_000);
    assert_eq!(queue.append(&pool, &bytes), 1_000);
    assert_eq!(pool.free(), 40 - 34);
    queue.consume(&pool, usize::MAX);
    assert_eq!((queue, pool.free()), (ByteQueue::new(1), 40));
}

/// Kills `change` at each write and returns the remains: the queue as it was, in its record, and the pool after some writes.
fn cut_everywhere(
    (pool, memory): &(ChunkPool<Recorder>, Recorder),
    queues: &[ByteQueue],
    change: impl FnOnce(),
) -> usize {
    let before: Vec<_> = queues.iter().map(|queue| content(queue, pool)).collect();
    let mut broken = 0;
    for cut in memory.cuts(change) {
        let heir = ChunkPool::open(Recorder::of(&cut), pool.capacity(), pool.chunk_bytes());
        heir.repair();
        let (whole, torn): (Vec<_>, Vec<_>) = queues
            .iter()
            .zip(&before)
            .partition(|(queue, _)| queue.is_whole(&heir));
        for (queue, bytes) in &whole {
            assert_eq!(content(queue, &heir), **bytes);
        }
        broken += torn.len();
        torn.iter().for_each(|(queue, _)| {
            let mut queue = **queue;
            queue.clear(&heir);
            assert!(queue.is_empty());
        });
        let named: HashSet<_> = whole
            .iter()
            .flat_map(|(queue, _)| queue.chunks(&heir))
            .collect();
        heir.free_orphans(|_, chunk| named.contains(&chunk));
        assert_eq!(heir.free(), heir.capacity() - named.len());
        for (queue, bytes) in whole {
            // It continues as if nothing had happened.
            let mut queue = *queue;
            let added = queue.append(&heir, &[1; 200]);
            let mut wanted = bytes.clone();
            wanted.extend(vec![1; added]);
            assert_eq!(content(&queue, &heir), wanted);
            queue.clear(&heir);
        }
        assert_eq!(heir.free(), heir.capacity());
    }
    broken
}

#[test]
fn a_killed_record_has_its_queue_or_knows_that_it_is_broken() {
    let parts = pool(20, 64);
    let pool = &parts.0;
    let mut queues = [ByteQueue::new(1), ByteQueue::new(1)];
    for length in [1, 63, 64, 65, 200] {
        for index in 0..2 {
            let mut queue = queues[index];
            let append = || {
                queue.append(pool, &vec![length as u8; length]);
            };
            assert_eq!(cut_everywhere(&parts, &queues, append), 0);
            queues[index] = queue;
        }
    }
    let mut broken = 0;
    while !queues.iter().all(ByteQueue::is_empty) {
        for index in 0..2 {
            let mut queue = queues[index];
            broken += cut_everywhere(&parts, &queues, || queue.consume(pool, 50));
            queues[index] = queue;
        }
        // A queue's old chunk, in use again by the other queue of the same record, is not its own.
        let [mut from, mut to] = queues;
        broken += cut_everywhere(&parts, &queues, || {
            from.consume(pool, 64);
            to.append(pool, &[9; 3]);
            to.append(pool, &[9; 64]);
        });
        queues = [from, to];
        queues[1].consume(pool, 67);
    }
    assert!(broken > 0, "no cut broke a queue");
    assert_eq!(pool.free(), 20);
}
