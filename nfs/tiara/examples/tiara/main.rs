//! The table and its engines at full scale, on flows in memory. Run by `bench/tiara`; prints JSON.
//!
//! Times are CPU times of the threads that do the work. `tiara quick` takes half a minute, `tiara` a few minutes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod aging;
mod bench;
mod connections;
mod engines;
mod eviction;
mod fill;

use serde_json::json;

fn main() {
    let quick = std::env::args()
        .nth(1)
        .is_some_and(|scale| scale == "quick");
    let (mut aging, mut removal) = (json!(null), json!(null));
    let fills = fill::all(quick, &mut |table, engine| {
        aging = aging::measure(table, engine);
        removal = engines::removal(table, engine);
    });
    let result = json!({
        "fills": fills,
        "smuxes": engines::by_smuxes(quick),
        "engines": engines::by_engines(quick),
        "connections": connections::measure(quick),
        "aging": aging,
        "removal": removal,
        "eviction": eviction::zipf_hits(quick),
        "flood": eviction::flood(quick),
    });
    println!("{result}");
}
