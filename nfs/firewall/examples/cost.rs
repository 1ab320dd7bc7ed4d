//! Measures the CPU time of the firewall, for bench/firewall.
//!
//! `cost after FLOWS PACKETS`: packets of flows whose verdict is final, in batches in memory: nanoseconds per packet, and the memory of all flows.
//! `cost before RULES CAPTURE`: all packets of a capture file with nDPI: CPU seconds of this process, and of the inspector.

#![allow(clippy::unwrap_used, clippy::panic)] // a benchmark ends at the first fault

#[path = "../tests/common/mod.rs"]
mod common;

use std::{fs, hint::black_box, path::Path, time::Duration};

use common::{config, handshake, tcp, End, Scripted, ACK};
use nf_firewall::{Firewall, Ndpi};
use nf_runtime::{testing::Harness, Batch, NetworkFunction};
use rustix::time::{clock_gettime, ClockId};
use serde_json::json;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let figures = match words[..] {
        ["after", flows, packets] => after(flows.parse().unwrap(), packets.parse().unwrap()),
        ["before", rules, capture] => before(Path::new(rules), Path::new(capture)),
        _ => panic!("usage: cost after FLOWS PACKETS | cost before RULES CAPTURE"),
    };
    println!("{figures}");
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The client of a flow: hosts and ports in turn.
fn client(number: usize) -> End {
    (
        10 + (number / 50_000) as u8,
        1024 + (number % 50_000) as u16,
    )
}

const SERVER: End = (2, 443);

fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn after(flows: usize, packets: usize) -> serde_json::Value {
    let before = resident();
    let rules = json!({"flows": flows.max(100_000), "rules": [
        {"name": "videos", "applications": ["TLS.YouTube"], "action": "drop"},
        {"name": "tls", "applications": ["TLS"], "action": "allow"},
    ]});
    let mut nf = Harness::<Firewall<Scripted>>::new(config(rules)).unwrap();
    let hello = [&b"T"[..], &[0; 516]].concat();
    for number in 0..flows {
        let client = client(number);
        for (port, frame) in handshake(client, SERVER) {
            nf.process(port, &frame);
        }
        nf.process(0, &tcp(client, SERVER, ACK, 101, 501, &hello));
        nf.tick();
        nf.take_emitted();
        nf.process(
            1,
            &tcp(SERVER, client, ACK, 501, 101 + hello.len() as u32, b""),
        );
    }
    let memory = resident() - before;
    assert_eq!(nf.counters()["flows"], flows);
    let mut random = 1_u64;
    let mut frames: Vec<(usize, Vec<u8>)> = (0..(1 << 16).min(packets))
        .map(|_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let client = client((random >> 33) as usize % flows);
            (
                1,
                tcp(SERVER, client, ACK, 501, 101 + hello.len() as u32, &[0; 64]),
            )
        })
        .collect();
    frames.truncate(frames.len() / Batch::MAX * Batch::MAX);
    let mut batch = Batch::new();
    let mut spent = Vec::new();
    let mut done = 0;
    while done < packets {
        let mut whole = 0;
        for chunk in frames.chunks(Batch::MAX) {
            batch.clear();
            for (port, frame) in chunk {
                batch.push(*port, frame).unwrap();
            }
            let start = cpu_ns();
            nf.function().process(&mut batch, &nf.context());
            whole += cpu_ns() - start;
            let first = black_box(&batch).packets()[0].verdict();
            assert_eq!(first, nf_runtime::Verdict::Send(0));
        }
        spent.push(whole as f64 / frames.len() as f64);
        done += frames.len();
    }
    spent.sort_by(f64::total_cmp);
    json!({"after_verdict_ns": spent[spent.len() / 2], "memory_bytes": memory, "flows": flows})
}

fn before(rules: &Path, capture: &Path) -> serde_json::Value {
    let rules = serde_json::from_str(&fs::read_to_string(rules).unwrap()).unwrap();
    let mut nf = Harness::<Firewall<Ndpi>>::new(config(rules)).unwrap();
    let mut reader = nf_ports::pcap::Reader::open(capture).unwrap();
    let mut batch = Batch::new();
    let mut packets = 0_u64;
    loop {
        batch.clear();
        while batch.len() < Batch::MAX {
            let packet = batch.free().first_mut().unwrap();
            if reader.next_packet(packet).unwrap().is_none() {
                break;
            }
            batch.filled(1);
            packets += 1;
        }
        if batch.is_empty() {
            break;
        }
        // Time stands still: the file is read faster than it was captured, and no packet is to wait in vain.
        nf.function().process(&mut batch, &nf.context());
        nf.tick();
        nf.take_emitted();
        // The inspector may be a ring behind, as on a busy machine.
        while nf.counters()["prefix_bytes_free"].as_f64() < Some(1e6) {
            std::thread::sleep(Duration::from_millis(1));
            nf.tick();
        }
    }
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(1));
        nf.tick();
    }
    let verdicts = nf.counters()["verdicts"].clone();
    drop(nf);
    json!({"packets": packets, "verdicts": verdicts})
}
