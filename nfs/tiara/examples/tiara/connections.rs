//! CPU time of a connection at the load balancer: its packets through the step of `l4lb`, and its insertion and deletion.

use std::hint::black_box;

use nf_l4lb::L4lb;
use nf_packet::{Ipv4, Tcp};
use nf_runtime::{testing::Harness, Batch, Context, NetworkFunction, Verdict};
use nf_tables::Ipv4Flow;
use nf_tiara::{Hashing, Operation, Shape};
use serde_json::{json, Value};

use crate::bench::{cpu, decision, engine, round, smux, table, OneEngine, Smux};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
const FRAME: usize = 60;
/// Connections that are in the same state at a time.
const TOGETHER: u32 = 4096;
const SYN: u8 = 2;
const ACK: u8 = 16;
const PSH_ACK: u8 = 24;
const FIN_ACK: u8 = 17;
/// The packets of a connection from its client: its answers bypass the load balancer.
const PACKETS: [u8; 5] = [SYN, ACK, PSH_ACK, ACK, FIN_ACK];

fn start(connections: u32) -> Harness<L4lb> {
    let backends: Vec<Value> = (0..32)
        .map(|index| json!({"name": format!("web{index}"), "address": format!("10.0.1.{index}")}))
        .collect();
    let neighbours: Vec<Value> = (0..32)
        .map(|index| json!({"address": format!("10.0.1.{index}"), "mac": format!("02:bb:00:00:00:{index:02x}")}))
        .collect();
    let config = json!({
        "interfaces": [{"addresses": ["10.0.0.2/16"]}],
        "neighbours": neighbours,
        "tables": {"connections_ipv4": connections, "connections_ipv6": 4096, "backends": 64, "vips": 16},
        "vips": [{"name": "web", "address": "192.0.2.1", "port": 80, "protocol": "tcp", "mode": "ipip", "half_open_limit": u32::MAX,
            "health": {"kind": "tcp", "interval": "600m", "timeout": "600m"}, "backends": backends}],
    });
    let config = serde_json::from_value(config).unwrap();
    let mut lb = Harness::new(config).unwrap().with_ports(1);
    lb.tick();
    lb
}

fn key(number: u32) -> Ipv4Flow {
    Ipv4Flow {
        source: (0x6440_0000 + (number >> 4)).into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 1024 + (number & 0xf) as u16 * 997,
        destination_port: 80,
        protocol: 6,
    }
}

fn frame(number: u32, flags: u8) -> [u8; FRAME] {
    let (key, mut frame) = (key(number), [0; FRAME]);
    frame[..6].copy_from_slice(&MAC);
    frame[6..12].copy_from_slice(&[2, 0xaa, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    Ipv4::write(&mut frame[14..], key.source, key.destination, 6, 20).unwrap();
    let ports = (key.source_port, key.destination_port);
    Tcp::write(&mut frame[34..], ports, 1000, 0, flags, 64_000).unwrap();
    frame
}

/// The CPU time of the parts, in ns.
#[derive(Default)]
struct Parts {
    step: f64,
    queues: f64,
    engine: f64,
}

/// Lets connections come and go, thousands at a time.
pub fn measure(quick: bool) -> Value {
    let connections = if quick { 1 << 18 } else { 1 << 20 };
    let lb = start(connections * 3 / 2);
    let shape = Shape::new(1 << 20, 2, Hashing::Chained).unwrap();
    let table = table(shape);
    let mut engine = engine(&table, 0, 1);
    let mut smux = smux(&mut engine, shape, 0, 1);
    let mut parts = Parts::default();
    for first in (0..connections).step_by(TOGETHER as usize) {
        for flags in PACKETS {
            parts.step += packets(&lb, first, flags);
            if flags == SYN {
                let insert = |number| Operation::insert(key(number), decision(number));
                operations(&mut smux, &mut engine, first, insert, &mut parts);
            }
        }
        let delete = |number| Operation::Delete { key: key(number) };
        operations(&mut smux, &mut engine, first, delete, &mut parts);
    }
    let each = |nanos: f64| round(nanos / f64::from(connections), 1);
    json!({
        "smux_ns": each(parts.step + parts.queues), "step_ns": each(parts.step), "queues_ns": each(parts.queues),
        "engine_ns": each(parts.engine),
    })
}

/// Processes a packet of each connection; returns the CPU time without that of the copies into batches.
fn packets(lb: &Harness<L4lb>, first: u32, flags: u8) -> f64 {
    let frames: Vec<_> = (first..first + TOGETHER)
        .map(|number| frame(number, flags))
        .collect();
    let macs = [MAC];
    let context = Context::new(lb.now(), 0, 1, &macs);
    let mut batch = Batch::new();
    let mut time = |step: &dyn Fn(&mut Batch)| {
        let begun = cpu();
        for frames in frames.chunks(Batch::MAX) {
            batch.clear();
            for frame in frames {
                batch.push(0, frame).unwrap();
            }
            step(&mut batch);
        }
        cpu() - begun
    };
    let copies = time(&|batch| {
        black_box(batch);
    });
    let whole = time(&|batch| lb.function().process(batch, &context));
    let is_sent = |packet: &nf_runtime::Packet| packet.verdict() == Verdict::Send(0);
    assert!(batch.packets().iter().all(is_sent));
    whole - copies
}

/// Performs an operation for each connection.
fn operations(
    smux: &mut Smux<u32>,
    engine: &mut OneEngine,
    first: u32,
    operation: impl Fn(u32) -> Operation<Ipv4Flow>,
    parts: &mut Parts,
) {
    for chunk in (first..first + TOGETHER).step_by(256) {
        let begun = cpu();
        for number in chunk..chunk + 256 {
            smux.submit(operation(number), number).unwrap();
        }
        let submitted = cpu();
        while engine.poll() > 0 {}
        let executed = cpu();
        smux.poll(&mut |completed| {
            black_box(completed);
        })
        .unwrap();
        parts.queues += submitted - begun + cpu() - executed;
        parts.engine += executed - submitted;
    }
}
