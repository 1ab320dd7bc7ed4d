//! Measures what HNLB's figures 4 to 8 compare, as the CPU time of the load balancer's step on packets in memory. Run by `bench/hnlb`; prints JSON.
//!
//! Each variant is the same step, parse to rewrite, in mode nat, and differs in where a packet's backend comes from: the mark that a network card has put
//! beside it, this project's connection table, or an ordinary hash table. The time of copying the packets into the batch is subtracted.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod chained;
#[path = "../measured/mod.rs"]
mod measured;
mod receiving;

use std::{collections::HashMap, hint::black_box, net::Ipv4Addr, time::Instant};

use chained::Chained;
use measured::{cpu, median, shuffled, write_frame, ACK, MAC, SYN};
use nf_l4lb::L4lb;
use nf_runtime::{testing::Harness, Batch, Context, NetworkFunction, Verdict};
use nf_tables::Ipv4Flow;
use receiving::{Loop, BURST};
use serde_json::{json, Value};

/// Flow Director's connections.
const MOST: usize = 8192;
/// The queues of HNLB with several DIPs.
const QUEUES: usize = 10;

/// The origin of a packet's backend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Mark,
    Table,
    Hash,
}

const VARIANTS: [(Variant, &str); 3] = [
    (Variant::Mark, "mark_ns"),
    (Variant::Table, "table_ns"),
    (Variant::Hash, "hash_ns"),
];

fn config(dips: u8) -> Value {
    let backend =
        |index: u8| json!({"name": format!("dip{index}"), "address": format!("10.0.1.{index}")});
    let neighbour = |index: u8| json!({"address": format!("10.0.1.{index}"), "mac": format!("02:bb:00:00:00:{index:02x}")});
    let backends: Vec<Value> = (0..dips).map(backend).collect();
    let mut neighbours: Vec<Value> = (0..dips).map(neighbour).collect();
    neighbours.push(json!({"address": "10.0.0.1", "mac": "02:aa:00:00:00:01"}));
    json!({
        "interfaces": [{"addresses": ["10.0.0.2/16"], "gateways": ["10.0.0.1"]}],
        "neighbours": neighbours,
        "tables": {"connections_ipv4": MOST, "connections_ipv6": 4096, "backends": 64, "vips": 4},
        "vips": [{"name": "web", "address": "192.0.2.1", "port": 80, "protocol": "tcp", "mode": "nat", "backends": backends}],
    })
}

/// Returns a client's frame of this length, without checksum.
fn frame(connection: u32, flags: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    write_frame(&mut frame, connection, [192, 0, 2, 1], flags);
    frame
}

/// Reads a frame's flow at its fixed place, as the paper's load balancer does.
fn flow(frame: &[u8]) -> Ipv4Flow {
    let word =
        |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let ports = word(34);
    Ipv4Flow {
        source: word(26).into(),
        destination: word(30).into(),
        source_port: (ports >> 16) as u16,
        destination_port: ports as u16,
        protocol: frame[23],
    }
}

/// Open connections, and their packets in an order without runs.
struct Scene {
    lb: Harness<L4lb>,
    frames: Vec<Vec<u8>>,
    marks: Vec<u32>,
    table: Chained,
}

impl Scene {
    fn new(connections: u32, dips: u8, bytes: usize) -> Self {
        let mut lb: Harness<L4lb> = Harness::new(serde_json::from_value(config(dips)).unwrap())
            .unwrap()
            .with_ports(1);
        lb.tick();
        let order = shuffled(connections);
        for flags in [SYN, ACK] {
            let all = order.iter().map(|number| frame(*number, flags, bytes));
            for frame in all {
                assert!(destination(&mut lb, &frame).is_some());
            }
        }
        let frames: Vec<Vec<u8>> = order
            .iter()
            .map(|number| frame(*number, ACK, bytes))
            .collect();
        let numbers = numbers(&mut lb, &frames[0]);
        let mut table = Chained::new(MOST);
        let marks = frames.iter().map(|frame| {
            let mark = numbers[&destination(&mut lb, frame).unwrap()];
            table.insert(flow(frame), mark);
            mark
        });
        let marks = marks.collect();
        Self {
            lb,
            frames,
            marks,
            table,
        }
    }

    /// Fills a batch with `count` packets from `at` on, cyclically.
    fn fill(&self, batch: &mut Batch, at: usize, count: usize, variant: Variant) {
        batch.clear();
        let mut at = at % self.frames.len();
        for index in 0..count {
            batch.push(0, &self.frames[at]).unwrap();
            if variant == Variant::Mark {
                batch.packets_mut()[index].set_mark(Some(self.marks[at]));
            }
            at = if at + 1 == self.frames.len() {
                0
            } else {
                at + 1
            };
        }
    }

    /// Returns the CPU nanoseconds per batch of `count` packets. `has_step`: with the step, or only with the copy.
    fn batch_ns(
        &self,
        batch: &mut Batch,
        turns: usize,
        count: usize,
        variant: Variant,
        has_step: bool,
    ) -> f64 {
        let macs = [MAC];
        let context = Context::new(self.lb.now(), 0, 1, &macs);
        let begun = cpu();
        for turn in 0..turns {
            self.fill(batch, turn * count, count, variant);
            if !has_step {
                black_box(&*batch);
                continue;
            }
            if variant == Variant::Hash {
                for packet in batch.packets_mut() {
                    let mark = self.table.get(&flow(packet.bytes()));
                    packet.set_mark(mark);
                }
            }
            self.lb.function().process(batch, &context);
            black_box(&*batch);
        }
        let nanos = (cpu() - begun) as f64 / turns as f64;
        let is_sent = |packet: &nf_runtime::Packet| packet.verdict() == Verdict::Send(0);
        assert!(!has_step || batch.packets().iter().all(is_sent));
        nanos
    }

    /// Returns the nanoseconds per packet of each variant's step, and of the copy.
    fn steps(&self, rounds: usize, packets: usize) -> Value {
        let mut batch = Batch::new();
        let turns = packets / Batch::MAX;
        let mut samples: [Vec<f64>; 4] = Default::default();
        for _ in 0..rounds {
            for (at, (variant, _)) in VARIANTS.into_iter().enumerate() {
                let mut time = |has_step| {
                    self.batch_ns(&mut batch, turns, Batch::MAX, variant, has_step)
                        / Batch::MAX as f64
                };
                let copy = time(false);
                samples[at].push(time(true) - copy);
                samples[3].push(copy);
            }
        }
        let [mark, table, hash, copy] = samples.map(median);
        json!({"mark_ns": round(mark), "table_ns": round(table), "hash_ns": round(hash), "copy_ns": round(copy),
            "hash_over_mark": round(hash / mark), "throughput_ratio": round((hash + copy) / (mark + copy)),
            "table_over_mark": round(table / mark)})
    }

    /// Returns the receiving loop of a variant, with measured turns.
    fn receiving(&self, variant: Variant, rounds: usize, packets: usize) -> Loop {
        let mut batch = Batch::new();
        let clock = clock_ns();
        let sizes = [1, 2, 4, 8, 16, BURST];
        let turn_ns = sizes.map(|size| {
            let turns = packets / size;
            let time = |_| self.batch_ns(&mut batch, turns, size, variant, true);
            // A turn reads the clock before and after, as in the runtime and in Algorithm 1.
            (size, median((0..rounds).map(time).collect()) + 2.0 * clock)
        });
        Loop {
            queues: if variant == Variant::Mark { QUEUES } else { 1 },
            turn_ns: turn_ns.to_vec(),
        }
    }
}

/// Returns the nanoseconds that reading the clock takes.
fn clock_ns() -> f64 {
    const READS: u32 = 1 << 18;
    let begun = cpu();
    (0..READS).for_each(|_| {
        black_box(Instant::now());
    });
    (cpu() - begun) as f64 / f64::from(READS)
}

/// Returns the address that a frame is rewritten to.
fn destination(lb: &mut Harness<L4lb>, frame: &[u8]) -> Option<Ipv4Addr> {
    match lb.process(0, frame) {
        nf_runtime::testing::Output::Sent(_, sent) => Some(flow(&sent).destination),
        nf_runtime::testing::Output::Dropped(_) => None,
    }
}

/// Returns the number of each backend, by its address.
fn numbers(lb: &mut Harness<L4lb>, frame: &[u8]) -> HashMap<Ipv4Addr, u32> {
    let mut numbers = HashMap::new();
    let macs = [MAC];
    for number in (0..64).rev() {
        let mut batch = Batch::new();
        batch.push(0, frame).unwrap();
        batch.packets_mut()[0].set_mark(Some(number));
        lb.function()
            .process(&mut batch, &Context::new(lb.now(), 0, 1, &macs));
        let sent = flow(batch.packets()[0].bytes()).destination;
        // An unknown number leads to the connection's own backend, whose number is found at last.
        numbers.insert(sent, number);
    }
    numbers
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn with(mut value: Value, key: &str, other: u64) -> Value {
    value[key] = json!(other);
    value
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, packets) = if quick { (7, 1 << 16) } else { (21, 1 << 18) };
    let scene = |connections, dips, bytes| Scene::new(connections, dips, bytes);
    let fig4 = scene(1, 1, 60).steps(rounds, packets);
    let fig5 = [1, 10, 100, 1000, 8000].map(|connections| {
        let steps = scene(connections, 10, 60).steps(rounds, packets);
        with(steps, "connections", connections.into())
    });
    let dips = [1, 2, 5, 10].map(|dips| {
        with(
            scene(1000, dips, 60).steps(rounds, packets),
            "dips",
            dips.into(),
        )
    });
    let fig6 = [64, 128, 256, 512, 1024, 1518].map(|bytes| {
        with(
            scene(1000, 10, bytes - 4).steps(rounds, packets),
            "bytes",
            bytes as u64,
        )
    });
    let both = [(Variant::Mark, "mark"), (Variant::Hash, "hash")];
    let curves = |scenes: Vec<(&str, u64, Scene)>| -> Vec<Value> {
        let each = scenes.iter().flat_map(|(key, number, scene)| {
            both.map(|(variant, name)| {
                let mut curve = scene.receiving(variant, rounds, packets / 4).curve();
                curve["variant"] = json!(name);
                with(curve, key, *number)
            })
        });
        each.collect()
    };
    let fig7 = curves(
        [1, 1000, 8000]
            .map(|connections| {
                (
                    "connections",
                    u64::from(connections),
                    scene(connections, 10, 60),
                )
            })
            .into(),
    );
    let fig8 = curves(
        [64, 512, 1518]
            .map(|bytes| ("bytes", bytes as u64, scene(1000, 10, bytes - 4)))
            .into(),
    );
    println!(
        "{}",
        json!({"clock_ns": round(clock_ns()), "fig4": fig4, "fig5": fig5, "dips": dips, "fig6": fig6, "fig7": fig7, "fig8": fig8})
    );
}
