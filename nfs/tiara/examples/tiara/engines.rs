//! The speed of engines (Figures 10 and 11).

use std::sync::Barrier;

use nf_tiara::{Hashing, Operation, Outcome, Shape};
use serde_json::{json, Value};

use crate::bench::{
    cpu, delete, engine, flow, insert, round, run, smux, table, OneEngine, Run, Table, FLOWS,
};

/// Measures deletions and insertions in a table full of ten million flows, whose memory has been touched.
pub fn churn(table: &Table, engine: &mut OneEngine, quick: bool) -> Value {
    let changed = if quick { FLOWS / 4 } else { FLOWS };
    let mut smux = smux(engine, table.shape(), 0, 1);
    let deleted = run(&mut smux, engine, (0..changed).map(delete));
    let inserted = run(&mut smux, engine, (0..changed).map(insert));
    json!({
        "insert_ns": round(inserted.engine_ns_per_op(), 1),
        "delete_ns": round(deleted.engine_ns_per_op(), 1),
        "smux_ns": round((inserted.smux_ns_per_op() + deleted.smux_ns_per_op()) / 2.0, 1),
    })
}

/// Measures the removal of one of ten thousand servers from the full table.
pub fn removal(table: &Table, engine: &mut OneEngine) -> Value {
    let mut smux = smux(engine, table.shape(), 0, 1);
    let operation = Operation::DeleteServer { rs_index: 7 };
    smux.submit(operation, 0).unwrap();
    let (begun, mut polls, mut longest) = (cpu(), 0, 0.0_f64);
    let mut before = begun;
    while engine.poll() > 0 {
        let now = cpu();
        longest = longest.max(now - before);
        (before, polls) = (now, polls + 1);
    }
    let mut deleted = 0;
    smux.poll(&mut |completed| match completed.outcome {
        Outcome::Deleted(count) => deleted = count,
        other => unreachable!("{other:?}"),
    })
    .unwrap();
    assert!(deleted > 0);
    json!({
        "deleted": deleted, "ms": round((before - begun) / 1e6, 1), "polls": polls, "longest_poll_us": round(longest / 1e3, 1),
    })
}

/// Measures insertions by one engine for 1 to 4 load balancers, each with queues of its own.
pub fn by_smuxes(quick: bool) -> Vec<Value> {
    let (shape, flows) = sized(quick);
    let table = table(shape);
    let mut engine = engine(&table, 0, 1);
    let mut smuxes: Vec<_> = (0..4).map(|_| smux(&mut engine, shape, 0, 1)).collect();
    // The first round touches the memory.
    run(&mut smuxes[0], &mut engine, (0..flows).map(insert));
    let mut rows = Vec::new();
    for count in 1..=4_usize {
        let mut sum = Run::default();
        for kind in [delete, insert] {
            sum = Run::default();
            // In turns of a queue's length.
            for chunk in 0..flows / 4096 {
                let smux = &mut smuxes[chunk as usize % count];
                let flows = chunk * 4096..(chunk + 1) * 4096;
                let done = run(smux, &mut engine, flows.map(kind));
                sum.operations += done.operations;
                sum.engine_ns += done.engine_ns;
                sum.smux_ns += done.smux_ns;
            }
        }
        // The engine is the bottleneck unless its load balancers are slower together.
        let engine = 1e3 / sum.engine_ns_per_op();
        let offered = count as f64 * 1e3 / sum.smux_ns_per_op();
        rows.push(json!({
            "smuxes": count, "engine_mops": round(engine, 2), "offered_mops": round(offered, 2),
            "mops": round(engine.min(offered), 2),
        }));
    }
    rows
}

/// Measures insertions by 1 to 3 engines of one table at the same time: operations per microsecond of each one's CPU time, summed.
pub fn by_engines(quick: bool) -> Vec<Value> {
    let (shape, flows) = sized(quick);
    let mut rows: Vec<Value> = Vec::new();
    let mut single = 0.0;
    for engines in 1..=3_u32 {
        let table = table(shape);
        let start = Barrier::new(engines as usize);
        let rates: Vec<f64> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..engines)
                .map(|number| {
                    let (table, start) = (&table, &start);
                    scope.spawn(move || own_part(table, start, number, engines, flows))
                })
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let rate = rates.iter().sum::<f64>();
        if engines == 1 {
            single = rate;
        }
        rows.push(json!({
            "engines": engines, "mops": round(rate, 2), "speedup": round(rate / single, 3),
        }));
    }
    rows
}

/// Inserts the flows of one engine with a load balancer of its own; returns the operations per microsecond of the engine's CPU time.
fn own_part(table: &Table, start: &Barrier, number: u32, engines: u32, flows: u32) -> f64 {
    let shape = table.shape();
    let own: Vec<u32> = (0..flows)
        .filter(|&number_of| shape.engine_of(&flow(number_of), engines) == number)
        .collect();
    let mut engine = engine(table, number, engines);
    let mut smux = smux(&mut engine, shape, number, engines);
    // The first round touches the memory.
    run(&mut smux, &mut engine, own.iter().copied().map(insert));
    run(&mut smux, &mut engine, own.iter().copied().map(delete));
    start.wait();
    let inserted = run(&mut smux, &mut engine, own.iter().copied().map(insert));
    1e3 / inserted.engine_ns_per_op()
}

fn sized(quick: bool) -> (Shape, u32) {
    let scale = if quick { 2 } else { 0 };
    let shape = Shape::new((16 << 20) >> scale, 2, Hashing::Chained).unwrap();
    (shape, FLOWS >> scale)
}
