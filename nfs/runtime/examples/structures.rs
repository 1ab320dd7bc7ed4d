//! Measures the structures of state on one core, in nanoseconds per call: `cargo run --release -p nf-runtime --example structures`.

use std::{error::Error, hint::black_box};

use nf_arena::ArenaBuilder;
use nf_runtime::state::{ByteQueue, StateBuilder, CHUNK_BYTES};
use rustix::time::{clock_gettime, ClockId};

const RECORDS: usize = 10_000;
const CALLS: usize = 500_000;
const TICK: u64 = 10_000_000;

/// Returns the CPU time of this thread in nanoseconds.
fn cpu_time() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Prints the CPU time of a call, the least of five runs.
fn measure(name: &str, mut call: impl FnMut(usize)) {
    let runs = (0..5).map(|_| {
        let begun = cpu_time();
        (0..CALLS).for_each(&mut call);
        (cpu_time() - begun) / CALLS as f64
    });
    println!("{name:40} {:6.1} ns", runs.fold(f64::MAX, f64::min));
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut builder = StateBuilder::new(ArenaBuilder::fresh("structures", 1)?);
    let slab = builder.slab::<[u64; 64]>("records", RECORDS)?;
    let pool = builder.chunk_pool("chunks", RECORDS, CHUNK_BYTES)?;
    let timers = builder.timers("timers", RECORDS)?;
    builder.finish()?;

    let ids: Vec<_> = (0..RECORDS / 2)
        .filter_map(|n| slab.insert([n as u64; 64]))
        .collect();
    let near = |turn: usize| ids[turn % 16];
    let far = |turn: usize| ids[turn.wrapping_mul(7919) % ids.len()];
    let change = |record: &mut [u64; 64], turn: usize| {
        record[3] = turn as u64;
        record[40] = turn as u64;
    };
    measure("slab: update 2 of 64 words, 16 records", |turn| {
        slab.update(near(turn), |record| change(record, turn));
    });
    measure("slab: update 2 of 64 words, 5,000", |turn| {
        slab.update(far(turn), |record| change(record, turn));
    });
    measure("slab: look at 64 words, 16 records", |turn| {
        black_box(slab.look(near(turn)));
    });
    measure("slab: insert and remove 64 words", |turn| {
        let id = slab.insert([turn as u64; 64]).unwrap_or_default();
        slab.remove(id);
    });

    measure("chunks: take and give", |_| {
        pool.give(pool.take(1).unwrap_or_default());
    });
    let mut queue = ByteQueue::new(1);
    let mut bytes = [7; 1448];
    measure("queue: append, read, consume 300 bytes", |_| {
        queue.append(&pool, &bytes[..300]);
        black_box(queue.read_at(&pool, 0, &mut bytes[..300]));
        queue.consume(&pool, 300);
    });
    measure("queue: append, read, consume 1,448 bytes", |_| {
        queue.append(&pool, &bytes);
        black_box(queue.read_at(&pool, 0, &mut bytes));
        queue.consume(&pool, 1448);
    });

    let mut now = 1_000 * TICK;
    let id = |turn: usize| (turn.wrapping_mul(7919) % RECORDS) as u32;
    (0..RECORDS).for_each(|turn| timers.set(id(turn), now + 6_000 * TICK));
    measure("timers: renew, each time in a later tick", |turn| {
        timers.set(id(turn), now + (6_000 + turn as u64 / 64) * TICK);
    });
    measure("timers: renew, within the tick", |turn| {
        timers.set(id(turn), now + 100_000 * TICK);
    });
    measure("timers: set, then cancel, 200 ms", |turn| {
        now += TICK / 64;
        timers.set(id(turn), now + 20 * TICK);
        timers.cancel(id(turn));
        if turn % 64 == 0 {
            timers.expire(now, 1_000, |_| ());
        }
    });
    let mut calls = 0;
    measure("timers: set, then expire, 200 ms", |turn| {
        now += TICK / 64;
        timers.set(id(turn), now + 20 * TICK);
        if turn % 64 == 0 {
            timers.expire(now, 1_000, |_| calls += 1);
        }
    });
    println!("{calls} timers expired");
    measure("timers: expire, nothing due", |_| {
        timers.expire(now, 1_000, |_| ());
    });
    Ok(())
}
