//! Kills a process whose threads change all structures of state, again and again, and checks what its successor finds.

#![allow(clippy::unwrap_used)]

use std::{
    collections::HashSet,
    env,
    os::fd::{AsFd, AsRawFd},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use nf_arena::{Arena, ArenaBuilder, Memory, Region};
use nf_runtime::state::{ByteQueue, ChunkPool, Pod, Repairs, Slab, StateBuilder, Timers};

const RECORDS: usize = 60;
const CHUNKS: usize = 50;
const TICK: u64 = 10_000_000;
const ARENA: &str = "NF_TEST_KILLED_ARENA";

/// A record that is whole if all its marks are equal.
#[derive(Clone, Copy, Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Record {
    marks: [u64; 16],
    queue: ByteQueue,
}

struct State {
    slab: Slab<Record>,
    pool: ChunkPool,
    timers: Timers,
    /// The number of steps of all processes.
    steps: Region,
}

fn declare(builder: ArenaBuilder) -> (State, Arena, Repairs) {
    let mut builder = StateBuilder::new(builder);
    let state = State {
        slab: builder.slab("records", RECORDS).unwrap(),
        pool: builder.chunk_pool("chunks", CHUNKS, 64).unwrap(),
        timers: builder.timers("timers", RECORDS).unwrap(),
        steps: builder.region("steps", "u64", 1).unwrap(),
    };
    let (arena, _, repairs) = builder.finish().unwrap();
    (state, arena, repairs)
}

fn adopt(file: std::os::fd::OwnedFd) -> (State, Arena, Repairs) {
    declare(ArenaBuilder::adopt(file, "killed", 1).unwrap())
}

impl State {
    fn steps(&self) -> &AtomicU64 {
        &self.steps.words()[0]
    }

    fn step(&self, random: u64) {
        let now = self.steps().fetch_add(1, Ordering::Relaxed) * TICK / 8;
        let mark = random >> 8;
        let slot = (random >> 40) as u32 % RECORDS as u32;
        match (self.slab.id(slot), random % 8) {
            (None, 0..4) => {
                let queue = ByteQueue::new(slot);
                let marks = [mark; 16];
                if let Some(id) = self.slab.insert(Record { marks, queue }) {
                    self.timers.set(id.slot(), now + random % (200 * TICK));
                }
            }
            (Some(id), 0..3) => {
                self.slab.update(id, |record| {
                    record.marks = [mark; 16];
                    record
                        .queue
                        .append(&self.pool, &[3; 100][..mark as usize % 100]);
                });
            }
            (Some(id), 3..5) => {
                self.slab
                    .update(id, |record| record.queue.consume(&self.pool, 70));
                self.timers.set(id.slot(), now + random % (300 * TICK));
            }
            (Some(id), 5) => {
                if let Some(mut record) = self.slab.remove(id) {
                    record.queue.clear(&self.pool);
                    self.timers.cancel(id.slot());
                }
            }
            _ => {
                self.timers.expire(now, 10, |slot| {
                    if slot % 2 == 0 {
                        self.timers.set(slot, now + 50 * TICK);
                    }
                });
            }
        }
    }

    /// Ends what the killed process left unfinished, as a function's `resumed` does.
    fn clean_up(&self) {
        let mut named = HashSet::new();
        self.slab.for_each(|id, record| {
            assert!(
                record.marks.iter().all(|mark| *mark == record.marks[0]),
                "torn"
            );
            if record.queue.is_whole(&self.pool) {
                named.extend(record.queue.chunks(&self.pool));
            } else {
                let mut broken = self.slab.remove(id).unwrap();
                broken.queue.clear(&self.pool);
            }
        });
        self.pool.free_orphans(|_, chunk| named.contains(&chunk));
        assert_eq!(self.pool.free(), CHUNKS - named.len());
    }

    /// Checks that nothing is lost or in use twice.
    fn check(&self) {
        let mut records = 0;
        self.slab.for_each(|_, _| records += 1);
        assert_eq!(self.slab.len(), records);
        let record = Record {
            marks: [0; 16],
            queue: ByteQueue::new(0),
        };
        let new: Vec<_> = (records..RECORDS)
            .map(|_| self.slab.insert(record).unwrap())
            .collect();
        assert!(self.slab.insert(record).is_none());
        assert_eq!(new.iter().collect::<HashSet<_>>().len(), new.len());
        new.into_iter()
            .for_each(|id| assert!(self.slab.remove(id).is_some()));

        let free = self.pool.free();
        let taken: Vec<_> = (0..free).map(|_| self.pool.take(9).unwrap()).collect();
        assert!(self.pool.take(9).is_none());
        taken
            .into_iter()
            .for_each(|chunk| assert!(self.pool.give(chunk)));

        let is_set = |id: &u32| self.timers.deadline(*id).is_some();
        let set: Vec<_> = (0..RECORDS as u32).filter(is_set).collect();
        let mut calls = Vec::new();
        let again = self.timers.expire(u64::MAX, 10_000, |id| calls.push(id));
        calls.sort_unstable();
        assert_eq!((again, calls), (false, set));
    }
}

/// A process that ends with this value.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs in the process to be killed, which ends by itself if it is not.
#[test]
#[ignore = "a part of the test below, which starts it"]
fn threads_change_the_state() {
    let Ok(path) = env::var(ARENA) else {
        return;
    };
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path);
    let (state, ..) = adopt(file.unwrap().into());
    let seed = state.steps().load(Ordering::Relaxed);
    thread::scope(|scope| {
        for worker in 1..=3 {
            let state = &state;
            scope.spawn(move || {
                let mut random = (seed << 2 | worker).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                for _ in 0..5_000_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    state.step(random);
                }
            });
        }
    });
}

#[test]
fn a_killed_process_leaves_state_that_its_successor_repairs() {
    let (mut state, mut arena, _) = declare(ArenaBuilder::fresh("killed", 1).unwrap());
    for round in 0..12 {
        let path = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            arena.as_fd().as_raw_fd()
        );
        let wanted = state.steps().load(Ordering::Relaxed) + 3_000 + 791 * round;
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "threads_change_the_state", "--ignored"])
            .env(ARENA, path)
            .stdout(Stdio::null())
            .spawn();
        let mut child = Killed(child.unwrap());
        while state.steps().load(Ordering::Relaxed) < wanted {
            assert!(child.0.try_wait().unwrap().is_none(), "it ended by itself");
            thread::yield_now();
        }
        drop(child);
        let repairs;
        (state, arena, repairs) = adopt(arena.as_fd().try_clone_to_owned().unwrap());
        repairs.run();
        state.clean_up();
        state.check();
    }
}
