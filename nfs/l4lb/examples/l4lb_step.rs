//! Measures the CPU time of the load balancer's step, parse to rewrite, on packets in memory. Run by `bench/l4lb`; prints JSON.
//!
//! Each packet is copied from its template into the buffers of a batch, as a port would do. The reported time is the difference to the same loop
//! without the step. All features are on: VIPs of every mode, IPv6, health checks, counters; the measured packets use IPIP with Maglev.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "measured/config.rs"]
mod config;
mod measured;

use std::hint::black_box;

use config::{config, VIPS};
use measured::{cpu, median, shuffled, write_frame, ACK, MAC, SYN};
use nf_l4lb::L4lb;
use nf_packet::{dissect, Ipv4, Outcome};
use nf_runtime::{testing::Harness, Batch, Context, NetworkFunction, Verdict};
use nf_tables::{Class, Cuckoo, Entry, Ipv4Flow, Lifetimes};
use serde_json::{json, Value};

const FRAME: usize = 60;
fn start(connections: usize, half_open: u32) -> Harness<L4lb> {
    let config = serde_json::from_value(config(connections, half_open)).unwrap();
    Harness::new(config).unwrap().with_ports(1)
}

/// Clients' frames, back to back.
struct Frames(Vec<u8>);

impl Frames {
    fn new(flows: impl Iterator<Item = u32>, flags: u8) -> Self {
        let mut bytes = Vec::new();
        for flow in flows {
            let mut frame = [0; FRAME];
            let vip = [192, 0, 2, (flow % u32::from(VIPS)) as u8];
            write_frame(&mut frame, flow, vip, flags);
            bytes.extend_from_slice(&frame);
        }
        Self(bytes)
    }

    fn len(&self) -> usize {
        self.0.len() / FRAME
    }

    /// Fills a batch with the frames from `at` on, cyclically.
    fn fill(&self, batch: &mut Batch, at: usize) {
        batch.clear();
        let mut at = at % self.len();
        for _ in 0..Batch::MAX {
            let start = at * FRAME;
            batch.push(0, &self.0[start..start + FRAME]).unwrap();
            at += 1;
            if at == self.len() {
                at = 0;
            }
        }
    }
}

struct Meter<'a> {
    function: &'a L4lb,
    batch: Batch,
    context: Context<'a>,
}

impl Meter<'_> {
    /// Returns the CPU nanoseconds per packet of `step`, over `packets` packets from `at` on.
    fn time(
        &mut self,
        frames: &Frames,
        at: usize,
        packets: usize,
        step: impl Fn(&mut Self),
    ) -> f64 {
        let begun = cpu();
        let mut done = 0;
        while done < packets {
            frames.fill(&mut self.batch, at + done);
            step(self);
            done += Batch::MAX;
        }
        (cpu() - begun) as f64 / done as f64
    }

    fn process(&mut self) {
        self.function.process(&mut self.batch, &self.context);
        black_box(&self.batch);
    }

    fn parse(&mut self) {
        for packet in self.batch.packets() {
            black_box(dissect(packet.bytes()).is_ok());
        }
    }

    fn nothing(&mut self) {
        black_box(&self.batch);
    }

    /// Asserts that every packet was sent.
    fn assert_sent(&self) {
        for packet in self.batch.packets() {
            assert_eq!(packet.verdict(), Verdict::Send(0));
        }
    }
}

fn established(flows: u32, rounds: usize, packets: usize) -> Value {
    let mut lb = start((flows as usize).max(4096), u32::MAX);
    lb.tick();
    let order = shuffled(flows);
    let syns = Frames::new(order.iter().copied(), SYN);
    let frames = Frames::new(order.iter().copied(), ACK);
    let macs = [MAC];
    let mut meter = Meter {
        function: lb.function(),
        batch: Batch::new(),
        context: Context::new(lb.now(), 0, 1, &macs),
    };
    // The SYNs create records; the second packets establish them.
    for frames in [&syns, &frames] {
        meter.time(frames, 0, frames.len(), Meter::process);
        meter.assert_sent();
    }
    let table = lookup_table(flows, &order);
    let lifetimes = Lifetimes::default();
    let now = lifetimes.at(lb.now());
    let lookup = |meter: &mut Meter<'_>| {
        let mut found = [None; Batch::MAX];
        let keys: Vec<Ipv4Flow> = meter
            .batch
            .packets()
            .iter()
            .map(|packet| key(packet.bytes()))
            .collect();
        table.lookup_bulk(&keys, &now, &mut found);
        black_box(&found);
    };
    let keys_only = |meter: &mut Meter<'_>| {
        let keys: Vec<Ipv4Flow> = meter
            .batch
            .packets()
            .iter()
            .map(|packet| key(packet.bytes()))
            .collect();
        black_box(&keys);
    };
    let mut samples: [Vec<f64>; 4] = Default::default();
    for round in 0..rounds {
        let at = round * packets;
        let base = meter.time(&frames, at, packets, Meter::nothing);
        let whole = meter.time(&frames, at, packets, Meter::process);
        meter.assert_sent();
        let parse = meter.time(&frames, at, packets, Meter::parse);
        let looked =
            meter.time(&frames, at, packets, lookup) - meter.time(&frames, at, packets, keys_only);
        for (samples, value) in samples
            .iter_mut()
            .zip([base, whole - base, parse - base, looked])
        {
            samples.push(value);
        }
    }
    let [base, step, parse, lookup] = samples.map(median);
    json!({"flows": flows, "step_ns": round(step), "parse_ns": round(parse), "lookup_ns": round(lookup),
        "rewrite_ns": round(step - parse - lookup), "copy_ns": round(base)})
}

fn key(frame: &[u8]) -> Ipv4Flow {
    let Ok(Outcome::Ip(headers)) = dissect(frame) else {
        unreachable!()
    };
    let ip = Ipv4::new_checked(&frame[14..]).unwrap();
    Ipv4Flow {
        source: ip.source(),
        destination: ip.destination(),
        source_port: headers.source_port,
        destination_port: headers.destination_port,
        protocol: 6,
    }
}

/// Builds a separate table with the same flows.
fn lookup_table(flows: u32, order: &[u32]) -> Cuckoo<Ipv4Flow, nf_arena::Heap> {
    let capacity = (flows as usize).max(4096);
    let memory =
        nf_arena::Heap::new(Cuckoo::<Ipv4Flow, nf_arena::Heap>::words(capacity).unwrap()).unwrap();
    let table = Cuckoo::open(memory, capacity).unwrap();
    let frames = Frames::new(order.iter().copied(), ACK);
    let now = Lifetimes::default().at(1_000_000_000);
    for frame in frames.0.chunks_exact(FRAME) {
        let entry = Entry {
            value: 7,
            class: Class::Established,
        };
        table.insert(&key(frame), entry, &now).unwrap();
    }
    table
}

/// Measures first packets of new connections, up to a million, in a table two thirds full at the end. Its memory has been touched before.
fn first(flows: u32) -> f64 {
    let mut lb = start(flows as usize * 3 / 2, u32::MAX);
    let frames = Frames::new(shuffled(flows).into_iter(), SYN);
    let macs = [MAC];
    let mut samples = Vec::new();
    for _ in 0..4 {
        let context = Context::new(lb.now(), 0, 1, &macs);
        let mut meter = Meter {
            function: lb.function(),
            batch: Batch::new(),
            context,
        };
        let whole = meter.time(&frames, 0, frames.len(), Meter::process);
        meter.assert_sent();
        samples.push(whole - meter.time(&frames, 0, frames.len(), Meter::nothing));
        // All records expire.
        for _ in 0..3 {
            lb.advance(60_000_000_000);
            lb.tick();
        }
    }
    median(samples.split_off(1))
}

/// Measures the SYNs of a flood beside `flows` connections, which must all keep their backends.
fn flood(flows: u32, attackers: u32) -> f64 {
    let lb = start((flows as usize) * 2, 1000);
    let macs = [MAC];
    let mut meter = Meter {
        function: lb.function(),
        batch: Batch::new(),
        context: Context::new(lb.now(), 0, 1, &macs),
    };
    let own: Vec<u32> = (0..flows).collect();
    let established = Frames::new(own.iter().copied(), ACK);
    meter.time(&established, 0, established.len(), Meter::process);
    let before = destinations(&mut meter, &established);
    let spoofed = Frames::new(
        shuffled(attackers).into_iter().map(|flow| flow + flows * 2),
        SYN,
    );
    // The half-open limit is reached.
    meter.time(&spoofed, 0, 50_000, Meter::process);
    let whole = meter.time(&spoofed, 50_000, attackers as usize, Meter::process);
    meter.assert_sent();
    let base = meter.time(&spoofed, 50_000, attackers as usize, Meter::nothing);
    assert_eq!(
        before,
        destinations(&mut meter, &established),
        "connections changed their backends"
    );
    whole - base
}

/// Returns the last byte of each tunnel's far end.
fn destinations(meter: &mut Meter<'_>, frames: &Frames) -> Vec<u8> {
    let mut all = Vec::new();
    for at in (0..frames.len()).step_by(Batch::MAX) {
        frames.fill(&mut meter.batch, at);
        meter.process();
        all.extend(
            meter
                .batch
                .packets()
                .iter()
                .map(|packet| packet.bytes()[33]),
        );
    }
    all
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, packets, most) = if quick {
        (7, 1 << 19, 1_000_000)
    } else {
        (21, 1 << 20, 1_000_000)
    };
    let by_flows: Vec<Value> = [1, 1000, 100_000, most]
        .into_iter()
        .map(|flows| established(flows, rounds, packets))
        .collect();
    let first_ns = round(first(most));
    let flood_ns = round(median(
        (0..if quick { 3 } else { 7 })
            .map(|_| flood(100_000, 1_000_000))
            .collect(),
    ));
    println!(
        "{}",
        json!({"hot_ns": by_flows[1]["step_ns"], "m1_ns": by_flows[3]["step_ns"], "first_ns": first_ns, "flood_ns": flood_ns, "by_flows": by_flows})
    );
}
