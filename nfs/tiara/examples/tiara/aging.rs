//! Aging of ten million flows with a detection period of a minute.

use std::time::Duration;

use nf_offload::FlowKey;
use nf_tiara::{Aging, AnyFlow, SignalBudget, Slot, Sweep};
use serde_json::{json, Value};

use crate::bench::{cpu, flow, mix, round, OneEngine, Table, FLOWS};

const PERIOD: Duration = Duration::from_secs(60);
const SIGNALS_PER_S: u32 = 167_000;
/// Times at which the NIC ends periods.
const STEPS: u64 = 600;

/// Lets a minute pass in which every flow of the table sends packets all the time, so that it signals as soon as its period begins.
pub fn measure(table: &Table, engine: &mut OneEngine) -> Value {
    // The first minute, in which all flows have been offloaded, ends.
    let slots = engine.slots();
    for slot in slots.clone() {
        if table.entry(Slot(slot)).is_some() {
            table.mark(Slot(slot));
        }
    }
    let mut sweep = Sweep::new(slots, PERIOD, 0);
    let mut budget = SignalBudget::new(SIGNALS_PER_S, PERIOD / STEPS as u32);
    let (mut per_step, mut sweep_ns) = (Vec::new(), 0.0);
    // Slots whose flows have not signalled in their period.
    let mut silent = Vec::new();
    for step in 1..=STEPS {
        let now = step * PERIOD.as_nanos() as u64 / STEPS;
        let begun = cpu();
        let mut ended = Vec::new();
        sweep.advance(now, &mut |group| {
            engine.end_period(group);
            ended.push(group);
        });
        sweep_ns += cpu() - begun;
        let of_group = |group: u32| (64 * group..64 * (group + 1)).map(Slot);
        let occupied = ended.into_iter().flat_map(of_group);
        silent.extend(occupied.filter(|&slot| table.entry(slot).is_some()));
        let before = silent.len();
        silent.retain(|&slot| {
            let first = table.mark(slot);
            let waits = first && !budget.take(now);
            if waits {
                table.unmark(slot);
            }
            waits
        });
        per_step.push(before - silent.len());
    }
    assert!(
        silent.len() < SIGNALS_PER_S as usize / 10,
        "{}",
        silent.len()
    );
    let signals: usize = per_step.iter().sum();
    let seconds = per_step.chunks(STEPS as usize / 60);
    let most = seconds.map(|second| second.iter().sum::<usize>()).max();
    let (signal_ns, period_ms) = smux();
    let share = signals as f64 * signal_ns / 60e9 + period_ms / 60e3 + sweep_ns / 60e9;
    json!({
        "signals": signals, "signals_per_s": round(signals as f64 / 60.0, 0), "most_signals_in_a_second": most,
        "signal_ns": round(signal_ns, 1), "smux_period_ms": round(period_ms, 2), "engine_sweep_ms": round(sweep_ns / 1e6, 2),
        "core_share_pct": round(share * 100.0, 2),
    })
}

/// Returns the ns of a signal at the load balancer, and the ms of a period's end there.
fn smux() -> (f64, f64) {
    let idle = Duration::from_secs(180);
    let mut aging = Aging::new(PERIOD, idle, 0);
    let key = |number| AnyFlow::V4(flow(number)).key();
    (0..FLOWS).for_each(|number| aging.begin(key(number)));
    const SIGNALS: u64 = 1 << 20;
    let active: Vec<FlowKey> = (0..SIGNALS)
        .map(|number| key((mix(number << 32) % u64::from(FLOWS)) as u32))
        .collect();
    let begun = cpu();
    for flow in &active {
        aging.signal(flow);
    }
    let signal = (cpu() - begun) / SIGNALS as f64;
    let begun = cpu();
    let mut expired = 0_u32;
    for step in 1..=STEPS {
        aging.advance(step * PERIOD.as_nanos() as u64 / STEPS, &mut |_| {
            expired += 1;
        });
    }
    assert_eq!(expired, 0);
    (signal, (cpu() - begun) / 1e6)
}
