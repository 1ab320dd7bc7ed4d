//! Measures how the load balancer and its runtime scale with workers, on packets in memory. Run by `bench/workers`; prints JSON.
//!
//! An instance runs as in production, but its queues copy packets from templates and count what the workers send. Each worker has connections of its own,
//! as behind the hash of a network card; all share the table. The same without the load balancer shows the runtime's part, and the same with an
//! instance for each worker what the machine allows.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bare;
#[path = "../measured/config.rs"]
mod config;
#[path = "../measured/mod.rs"]
mod measured;
mod templates;

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use bare::Bare;
use measured::{median, MAC};
use nf_l4lb::L4lb;
use nf_ports::{Backend, Port, Queue};
use nf_runtime::{Instance, NetworkFunction, Options, Prepared};
use serde_json::{json, Value};
use templates::{Stage, Templates, Window};

const MOST_WORKERS: usize = 16;

/// The packets of all workers in a window.
struct Measured {
    per_second: f64,
    /// CPU nanoseconds per packet.
    nanoseconds: f64,
}

/// The workers of a measurement, and what they share.
#[derive(Clone, Copy)]
enum Sharing {
    /// All workers run one instance.
    Table,
    /// Each worker runs an instance of its own, with its part of the connections: what the machine allows.
    Nothing,
}

/// Starts an instance whose workers have these windows; each has as many connections of its own, from `first` on.
fn start<N: NetworkFunction>(
    config: N::Config,
    windows: &[Arc<Window>],
    first: u32,
    share: u32,
) -> Arc<Instance<N>> {
    let queue = |(index, window): (usize, &_)| {
        let first = first + index as u32 * share;
        Box::new(Templates::new(first..first + share, window)) as Box<dyn Queue>
    };
    let port = Port {
        name: "memory0".into(),
        backend: Backend::Memory,
        how: "templates".into(),
        notes: Vec::new(),
        mac: MAC,
        state: Box::new(|| "up"),
        queues: windows.iter().enumerate().map(queue).collect(),
        matcher: None,
        events: Vec::new(),
        overruns: Box::new(|| 0),
    };
    let options = Options {
        ports: vec![port],
        ..Options::default()
    };
    let prepared = Prepared::<N>::new(config, 1, None).expect("the configuration is accepted");
    Instance::start(options, prepared).expect("the instance starts")
}

/// Runs `N` with this many workers, which have `flows` connections together, and measures them for `time`.
fn measure<N: NetworkFunction>(
    config: impl Fn(u32) -> N::Config,
    sharing: Sharing,
    workers: usize,
    flows: u32,
    time: Duration,
) -> Measured {
    let windows: Vec<_> = (0..workers).map(|_| Window::new()).collect();
    let share = flows / workers as u32;
    let together = match sharing {
        Sharing::Table => workers,
        Sharing::Nothing => 1,
    };
    let instances: Vec<_> = windows
        .chunks(together)
        .enumerate()
        .map(|(index, windows)| {
            let first = (index * together) as u32 * share;
            start::<N>(config(together as u32 * share), windows, first, share)
        })
        .collect();
    for window in &windows {
        window.await_stage(Stage::Warm);
    }
    let begun = Instant::now();
    windows
        .iter()
        .for_each(|window| window.set(Stage::Measured));
    std::thread::sleep(time);
    windows.iter().for_each(|window| window.set(Stage::Ended));
    let elapsed = begun.elapsed();
    let sums: Vec<_> = windows.iter().map(|window| window.sum()).collect();
    for instance in instances {
        instance.stop_workers().expect("the workers stop");
    }
    let packets: u64 = sums.iter().map(|sum| sum.sent).sum();
    let received: u64 = sums.iter().map(|sum| sum.received).sum();
    assert_eq!(packets, received, "the function sends every packet");
    let busy: u64 = sums.iter().map(|sum| sum.cpu).sum();
    Measured {
        per_second: packets as f64 / elapsed.as_secs_f64(),
        nanoseconds: busy as f64 / packets as f64,
    }
}

/// Measures every number of workers in turn, with one table and with a table each, and returns the medians of `rounds`: throughput and CPU time, and
/// both beside those of one worker. `shared_cost` compares the CPU time with that of workers that share nothing.
fn scaling(numbers: &[usize], rounds: usize, run: impl Fn(Sharing, usize) -> Measured) -> Value {
    let mut samples: BTreeMap<usize, [Vec<f64>; 4]> = BTreeMap::new();
    for _ in 0..rounds {
        for &workers in numbers {
            let shared = run(Sharing::Table, workers);
            let alone = run(Sharing::Nothing, workers);
            let of_number = samples.entry(workers).or_default();
            let values = [
                shared.per_second,
                shared.nanoseconds,
                alone.per_second,
                alone.nanoseconds,
            ];
            for (samples, value) in of_number.iter_mut().zip(values) {
                samples.push(value);
            }
        }
    }
    let medians: Vec<(usize, [f64; 4])> = samples
        .into_iter()
        .map(|(workers, each)| (workers, each.map(median)))
        .collect();
    let (_, [one_rate, one_cost, ..]) = medians[0];
    let row = |&(workers, [rate, cost, alone_rate, alone_cost]): &(usize, [f64; 4])| {
        let linear = |rate: f64| round(rate / one_rate / workers as f64);
        json!({"workers": workers, "mpps": round(rate / 1e6), "ns": round(cost), "linear": linear(rate), "machine_linear": linear(alone_rate),
            "cpu_ratio": round(cost / one_cost), "machine_cpu_ratio": round(alone_cost / one_cost), "shared_cost": round(cost / alone_cost)})
    };
    medians.iter().map(row).collect()
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, time) = if quick {
        (3, Duration::from_millis(300))
    } else {
        (7, Duration::from_secs(1))
    };
    let cores = available_parallelism().map_or(1, usize::from);
    let numbers: Vec<usize> = [1, 2, 4, 8, MOST_WORKERS]
        .into_iter()
        .filter(|workers| *workers <= cores)
        .collect();
    let balanced = |flows: u32| {
        let config = |flows: u32| {
            let connections = (flows as usize * 3 / 2).max(4096);
            serde_json::from_value(config::config(connections, u32::MAX)).unwrap()
        };
        scaling(&numbers, rounds, |sharing, workers| {
            measure::<L4lb>(config, sharing, workers, flows, time)
        })
    };
    let few = balanced(16_000);
    let many = balanced(1_000_000);
    let runtime = scaling(&numbers, rounds, |sharing, workers| {
        measure::<Bare>(|_| (), sharing, workers, 16_000, time)
    });
    println!(
        "{}",
        json!({"cores": cores, "flows_16k": few, "flows_1m": many, "runtime": runtime})
    );
}
