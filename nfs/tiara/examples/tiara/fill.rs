//! Ten million flows into 32M slots, in each shape.

use std::hint::black_box;

use nf_tables::Ipv4Flow;
use nf_tiara::{Hashing, Shape};
use serde_json::{json, Value};

use crate::bench::{
    cpu, engine, flow, insert, mix, round, run, smux, table, OneEngine, Run, Table, FLOWS,
};
use crate::engines::churn;

const M: u32 = 1 << 20;
/// Names, shapes: the paper's, the same memory without the first choice being the only one, and a wider one.
const SHAPES: [(&str, u32, u32, Hashing); 6] = [
    ("32Mx1", 32 * M, 1, Hashing::Chained),
    ("16Mx2", 16 * M, 2, Hashing::Chained),
    ("8Mx4", 8 * M, 4, Hashing::Chained),
    ("16Mx2 skewed", 16 * M, 2, Hashing::Skewed),
    ("8Mx4 skewed", 8 * M, 4, Hashing::Skewed),
    ("4Mx8", 4 * M, 8, Hashing::Chained),
];

fn filled(depth: u32, width: u32, hashing: Hashing) -> (Table, OneEngine, Run) {
    let shape = Shape::new(depth, width, hashing).unwrap();
    let table = table(shape);
    let mut engine = engine(&table, 0, 1);
    let mut smux = smux(&mut engine, shape, 0, 1);
    let run = run(&mut smux, &mut engine, (0..FLOWS).map(insert));
    (table, engine, run)
}

/// Fills a table of each shape; in quick runs, of the first four. `then` gets the full table that the paper recommends, and its engine.
pub fn all(quick: bool, then: &mut dyn FnMut(&Table, &mut OneEngine)) -> Vec<Value> {
    let fill = |(name, depth, width, hashing)| {
        let (table, mut engine, run) = filled(depth, width, hashing);
        let counts = engine.counts();
        assert_eq!(counts.inserted + counts.full, u64::from(FLOWS));
        let (lookup_ns, hits) = lookups(&table);
        let churn = churn(&table, &mut engine, quick);
        if name == "16Mx2" {
            then(&table, &mut engine);
        }
        json!({
            "shape": name, "depth": depth, "width": width,
            "not_inserted_pct": round(run.refused as f64 * 100.0 / f64::from(FLOWS), 4),
            "moves_per_insert": round(counts.moved as f64 / counts.inserted as f64, 4),
            "lookup_ns": round(lookup_ns, 1), "hit_share": round(hits, 4), "churn": churn,
        })
    };
    let shapes = if quick { 4 } else { SHAPES.len() };
    SHAPES.into_iter().take(shapes).map(fill).collect()
}

/// Returns the ns of a lookup in bulks of 32, of random flows, and the share of hits.
fn lookups(table: &Table) -> (f64, f64) {
    const LOOKUPS: usize = 1 << 20;
    let keys: Vec<Ipv4Flow> = (0..LOOKUPS as u64)
        .map(|number| flow((mix(number ^ 0x5eed << 32) % u64::from(FLOWS)) as u32))
        .collect();
    let mut found = vec![None; LOOKUPS];
    let begun = cpu();
    table.lookup_bulk(&keys, &mut found);
    let nanos = (cpu() - begun) / LOOKUPS as f64;
    let hits = black_box(&found).iter().flatten().count();
    (nanos, hits as f64 / LOOKUPS as f64)
}
