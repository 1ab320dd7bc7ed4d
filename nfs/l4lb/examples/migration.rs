//! Moves a load balancer with many flows between instances under traffic, and reports what packets experienced. `bench/nf_migration` runs it.
//!
//! ```text
//! migration FLOWS MODE MOVES PPS RATE_MBPS            MODE: memfd, copy, none (no moves); RATE_MBPS: of a copy; 0: unlimited
//! ```
//! Prints one line of JSON. Each packet carries its flow, its number in the flow, and its send time.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    sync::Arc,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        RwLock,
    },
    thread,
    time::{Duration, Instant},
};

use nf_l4lb::L4lb;
use nf_packet::checksum;
use nf_ports::memory::{self, Wire};
use nf_runtime::{
    migration::{marker, Migration, Secret},
    Instance, Options, Prepared,
};
use serde_json::{json, Value};

const PORT_MAC: [u8; 6] = [2; 6];
const GATEWAY_MAC: [u8; 6] = [4; 6];
/// Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
/// Outgoing frames start with Ethernet and the outer IPv4 header.
const PAYLOAD_OUT: usize = HEADERS + 20;
/// The pause between moves.
const PAUSE: Duration = Duration::from_millis(20);
/// Larger than any queue between sender and collector.
const PREFILL_WINDOW: usize = 20_000;

struct Rig {
    instance: Arc<Instance<L4lb>>,
    migration: Migration,
    wire: Wire,
}

impl Rig {
    fn new(flows: usize, hold: bool) -> Self {
        let (port, mut wires) = memory::port(0, PORT_MAC, 1).unwrap();
        let options = Options {
            ports: vec![port],
            hold,
            ..Options::default()
        };
        let config = serde_json::from_value(config(flows)).unwrap();
        let instance = Instance::start(options, Prepared::new(config, 1, None).unwrap()).unwrap();
        Self {
            migration: Migration::of(&instance),
            instance,
            wire: wires.remove(0),
        }
    }

    fn ask(&self, verb: &'static str, request: Value) -> Value {
        self.migration.answer(verb, &request, vec![]).unwrap().0
    }
}

fn config(flows: usize) -> Value {
    let backends: Vec<Value> = (10..20)
        .map(|number| json!({"name": format!("b{number}"), "address": format!("10.0.0.{number}")}))
        .collect();
    json!({
        "interfaces": [{"addresses": ["10.0.0.2/24"], "gateways": ["10.0.0.1"]}],
        "neighbours": (3..20).chain([1]).map(|n| json!({"address": format!("10.0.0.{n}"), "mac": "04:04:04:04:04:04"})).collect::<Vec<_>>(),
        "tables": {"connections_ipv4": (flows + flows / 8).max(4096), "connections_ipv6": 64, "sessions": 64, "fragments": 64,
                   "neighbours": 64, "vips": 4, "backends": 16},
        "vips": [{"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "mode": "ipip", "backends": backends}],
    })
}

/// Builds a UDP packet of a flow to the VIP.
fn packet(flow: u32, number: u32, sent: u64) -> Vec<u8> {
    let mut frame = vec![0; HEADERS + 16];
    frame[..6].copy_from_slice(&PORT_MAC);
    frame[6..12].copy_from_slice(&GATEWAY_MAC);
    frame[12] = 8;
    let ip = &mut frame[14..34];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&44_u16.to_be_bytes());
    ip[8..10].copy_from_slice(&[64, 17]);
    // Each client address has 64 flows.
    ip[12..16].copy_from_slice(&(0x6440_0000 + flow / 64).to_be_bytes());
    ip[16..20].copy_from_slice(&[192, 0, 2, 1]);
    let sum = checksum::of(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame[34..36].copy_from_slice(&(1024 + (flow % 64) as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&53_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&24_u16.to_be_bytes());
    frame[HEADERS..HEADERS + 4].copy_from_slice(&flow.to_le_bytes());
    frame[HEADERS + 4..HEADERS + 8].copy_from_slice(&number.to_le_bytes());
    frame[HEADERS + 8..].copy_from_slice(&sent.to_le_bytes());
    frame
}

/// The results as seen by packets.
struct Tally {
    next: Vec<u32>,
    backend: Vec<[u8; 4]>,
    received: usize,
    duplicated: usize,
    reordered: usize,
    /// Packets that went to another backend than earlier ones of their flow.
    strayed: usize,
    latency_ns: Vec<u32>,
    last: u64,
    longest_gap: u64,
}

impl Tally {
    fn new(flows: usize) -> Self {
        Self {
            next: vec![0; flows],
            backend: vec![[0; 4]; flows],
            received: 0,
            duplicated: 0,
            reordered: 0,
            strayed: 0,
            latency_ns: Vec::new(),
            last: 0,
            longest_gap: 0,
        }
    }

    fn see(&mut self, frame: &[u8], now: u64, timed: bool) {
        if frame.len() != PAYLOAD_OUT + 16 {
            // The load balancer's own ARP and neighbour discovery.
            return;
        }
        let word = |at: usize| {
            u32::from_le_bytes(
                frame[PAYLOAD_OUT + at..PAYLOAD_OUT + at + 4]
                    .try_into()
                    .unwrap(),
            )
        };
        let (flow, number) = (word(0) as usize, word(4));
        let sent = u64::from(word(8)) | u64::from(word(12)) << 32;
        self.received += 1;
        match number.cmp(&self.next[flow]) {
            std::cmp::Ordering::Equal => self.next[flow] += 1,
            std::cmp::Ordering::Greater => {
                self.reordered += 1;
                self.next[flow] = number + 1;
            }
            std::cmp::Ordering::Less => self.duplicated += 1,
        }
        let backend: [u8; 4] = frame[30..34].try_into().unwrap();
        self.strayed += usize::from(self.backend[flow] != [0; 4] && self.backend[flow] != backend);
        self.backend[flow] = backend;
        if timed {
            self.latency_ns
                .push(now.saturating_sub(sent).min(u64::from(u32::MAX)) as u32);
            if self.last != 0 {
                self.longest_gap = self.longest_gap.max(now - self.last);
            }
            self.last = now;
        }
    }
}

struct World {
    start: Instant,
    /// The instances still in use, oldest first; the sender sends to `to`.
    rigs: RwLock<Vec<Arc<Rig>>>,
    to: AtomicUsize,
    stop: AtomicBool,
    received: AtomicUsize,
    timed: AtomicBool,
}

impl World {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn send(&self, flow: u32, number: u32) {
        let frame = packet(flow, number, self.now());
        let rigs = self.rigs.read().unwrap();
        rigs[self.to.load(Ordering::SeqCst)].wire.send(&frame);
    }

    /// Sends one packet of each flow, then packets of random flows at a rate until stopped. Returns the number sent.
    fn traffic(&self, flows: usize, pps: u64) -> usize {
        let mut numbers = vec![0_u32; flows];
        let mut sent = 0;
        for (flow, number) in numbers.iter_mut().enumerate() {
            while sent > self.received.load(Ordering::Relaxed) + PREFILL_WINDOW {
                thread::yield_now();
            }
            self.send(flow as u32, 0);
            *number = 1;
            sent += 1;
        }
        while self.received.load(Ordering::Relaxed) < sent {
            thread::yield_now();
        }
        self.timed.store(true, Ordering::SeqCst);
        let (mut random, begin, mut due) = (1_u64, Instant::now(), 0_u64);
        while !self.stop.load(Ordering::SeqCst) {
            let elapsed = begin.elapsed().as_nanos() as u64 * pps / 1_000_000_000;
            while due < elapsed {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let flow = (random >> 33) as usize % flows;
                self.send(flow as u32, numbers[flow]);
                numbers[flow] += 1;
                (sent, due) = (sent + 1, due + 1);
            }
            thread::sleep(Duration::from_micros(50));
        }
        sent
    }

    fn collect(&self, flows: usize, all: &AtomicUsize) -> Tally {
        let mut tally = Tally::new(flows);
        let mut held: Vec<Vec<u8>> = Vec::new();
        loop {
            let timed = self.timed.load(Ordering::Relaxed);
            let rigs = self.rigs.read().unwrap().clone();
            // The newest first, then older ones to their ends: packets of an older instance precede those of a newer one.
            for rig in rigs.iter().rev() {
                let from = held.len();
                held.extend(std::iter::from_fn(|| rig.wire.receive()));
                held[from..].reverse();
            }
            let now = self.now();
            let count = held.len();
            held.drain(..)
                .rev()
                .for_each(|frame| tally.see(&frame, now, timed));
            self.received.store(tally.received, Ordering::Relaxed);
            if count == 0 {
                if tally.received >= all.load(Ordering::SeqCst)
                    || self.now() > LIMIT.as_nanos() as u64
                {
                    return tally;
                }
                thread::sleep(Duration::from_micros(20));
            }
        }
    }
}

const SECRET: &str = "5e0f0cb18d6a44b57c1ab1e0d70ce7d0a35d5ee14d2ed9d1a0d0a9b3a7c1e2f4";
const LIMIT: Duration = Duration::from_secs(600);

struct Moves {
    freeze_us: Vec<f64>,
    bytes: Vec<u64>,
    frozen_bytes: Vec<u64>,
}

/// Makes moves one after the other, each to a fresh instance.
fn make_moves(world: &World, flows: usize, mode: &str, moves: usize, rate_mbps: u64) -> Moves {
    let mut figures = Moves {
        freeze_us: Vec::new(),
        bytes: Vec::new(),
        frozen_bytes: Vec::new(),
    };
    let directory = tempfile::tempdir().unwrap();
    for epoch in 1..=moves as u64 {
        thread::sleep(PAUSE);
        let new = Arc::new(Rig::new(flows, true));
        world.rigs.write().unwrap().push(Arc::clone(&new));
        let rigs = world.rigs.read().unwrap().clone();
        let old = &rigs[world.to.load(Ordering::SeqCst)];
        let (prepared, descriptors) = old
            .migration
            .answer(
                "prepare",
                &json!({"epoch": epoch, "secret": SECRET}),
                vec![],
            )
            .unwrap();
        let mut bytes = 0;
        if mode == "memfd" {
            let request = json!({"epoch": epoch, "mode": "memfd", "rings": prepared["rings"]});
            new.migration.answer("hold", &request, descriptors).unwrap();
        } else {
            let listen = format!("unix:{}/{epoch}", directory.path().display());
            let request = json!({"epoch": epoch, "secret": SECRET, "mode": "copy", "listen": listen, "rings": prepared["rings"]});
            let to = new.ask("hold", request)["address"].clone();
            let mut request = json!({"epoch": epoch, "to": to, "fit_bytes": 65536});
            if rate_mbps > 0 {
                request["rate_mbps"] = json!(rate_mbps);
            }
            bytes = old.ask("precopy", request)["bytes"].as_u64().unwrap();
        }
        let this = json!({"epoch": epoch});
        let given = thread::scope(|scope| {
            scope.spawn(|| new.ask("commit", this.clone()));
            old.ask("give", this.clone())
        });
        if mode == "copy" {
            let left = given["bytes"].as_u64().unwrap();
            figures.frozen_bytes.push(left);
            bytes += left;
        }
        figures.freeze_us.push(given["freeze_us"].as_f64().unwrap());
        world.to.fetch_add(1, Ordering::SeqCst);
        // Waits until no sender can still use the old instance.
        drop(world.rigs.write().unwrap());
        let secret = Secret::parse(SECRET).unwrap();
        old.wire
            .send(&marker(PORT_MAC, GATEWAY_MAC, &secret, epoch, 0));
        old.ask("drain", json!({"epoch": epoch, "paths": 1}));
        new.ask("handover", this);
        figures.bytes.push(bytes);
        old.instance.stop_workers().unwrap();
        // Two stay for the collector, which may not have emptied the old one yet.
        let mut rigs = world.rigs.write().unwrap();
        if rigs.len() > 3 {
            rigs.remove(0);
            world.to.fetch_sub(1, Ordering::SeqCst);
        }
    }
    thread::sleep(PAUSE);
    figures
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, flows, mode, moves, pps, rate_mbps] = &arguments[..] else {
        panic!("usage: migration FLOWS memfd|copy|none MOVES PPS RATE_MBPS");
    };
    let number = |text: &String| text.parse::<u64>().unwrap();
    let (flows, moves) = (number(flows) as usize, number(moves) as usize);
    let world = World {
        start: Instant::now(),
        rigs: RwLock::new(vec![Arc::new(Rig::new(flows, false))]),
        to: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        received: AtomicUsize::new(0),
        timed: AtomicBool::new(false),
    };
    let all = AtomicUsize::new(usize::MAX);
    let (tally, sent, figures) = thread::scope(|scope| {
        let collector = scope.spawn(|| world.collect(flows, &all));
        let sender = scope.spawn(|| {
            let sent = world.traffic(flows, number(pps));
            all.store(sent, Ordering::SeqCst);
            sent
        });
        while !world.timed.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        let figures = if mode == "none" {
            thread::sleep((PAUSE + Duration::from_millis(10)) * moves as u32);
            None
        } else {
            Some(make_moves(&world, flows, mode, moves, number(rate_mbps)))
        };
        world.stop.store(true, Ordering::SeqCst);
        let sent = sender.join().unwrap();
        // Frames that have not arrived after this pause are lost.
        thread::sleep(Duration::from_millis(200));
        all.store(0, Ordering::SeqCst);
        (collector.join().unwrap(), sent, figures)
    });
    println!("{}", report(flows, mode, sent, tally, figures));
}

fn report(
    flows: usize,
    mode: &str,
    sent: usize,
    mut tally: Tally,
    figures: Option<Moves>,
) -> Value {
    tally.latency_ns.sort_unstable();
    let at = |share: f64| {
        f64::from(tally.latency_ns[((tally.latency_ns.len() - 1) as f64 * share) as usize]) / 1e6
    };
    let mut report = json!({
        "flows": flows, "mode": mode, "sent": sent,
        "lost": sent.saturating_sub(tally.received - tally.duplicated), "duplicated": tally.duplicated, "reordered": tally.reordered,
        "other_backend": tally.strayed,
        "latency_p50_ms": at(0.5), "latency_p99_ms": at(0.99), "longest_gap_ms": tally.longest_gap as f64 / 1e6,
    });
    if let Some(mut figures) = figures {
        figures.freeze_us.sort_unstable_by(f64::total_cmp);
        let freeze = |share: f64| {
            figures.freeze_us[((figures.freeze_us.len() - 1) as f64 * share).round() as usize]
                / 1000.0
        };
        let mean = |all: &[u64]| all.iter().sum::<u64>() / all.len().max(1) as u64;
        report["moves"] = json!(figures.freeze_us.len());
        report["freeze_p50_ms"] = json!(freeze(0.5));
        report["freeze_p99_ms"] = json!(freeze(0.99));
        report["bytes"] = json!(mean(&figures.bytes));
        report["bytes_while_frozen"] = json!(mean(&figures.frozen_bytes));
    }
    report
}
