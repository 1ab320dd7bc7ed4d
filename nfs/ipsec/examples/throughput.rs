//! Measures the CPU time of the gateway's step, frame to frame, beside the bare library on the same bytes. Run by `bench/ipsec`; prints JSON.
//!
//! Each round protects a batch of packets and opens what came out of it. The library gets the same bytes in a batch of its own, so that its memory is
//! as far away, and only encrypts and decrypts them. It decrypts them by its usual call,
//! `open_in_place`, and by that of the gateway, which does not copy the plaintext onto itself. Reading the clock is not measured; filling a batch is measured on its own.

#![allow(clippy::unwrap_used, clippy::panic)] // an example for benchmarks

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_256_GCM};
use nf_ipsec::Ipsec;
use nf_packet::Ipv4;
use nf_runtime::{testing::Harness, Batch, Context, NetworkFunction, Verdict};
use rustix::time::{clock_gettime, ClockId};
use serde_json::json;

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1]];
/// Ethernet, outer IP, ESP header and IV.
const FRONT: usize = 14 + 20 + 16;
const TAG: usize = 16;
const KEY: &str = "0101010101010101010101010101010101010101010101010101010101010101aabbccdd";

/// A name, and how a round gives its value.
type Figure = (&'static str, fn(&Round) -> f64);

/// The nanoseconds of CPU time per packet of one round.
#[derive(Clone, Copy)]
struct Round {
    protect: f64,
    open: f64,
    seal_bare: f64,
    open_bare: f64,
    /// The same by the call of the gateway.
    open_separate: f64,
    /// Copying a frame into a batch, as a port does: not part of the ratio.
    fill: f64,
}

fn cpu() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the nanoseconds that an interval without content has.
fn clock() -> u64 {
    let mut intervals: Vec<u64> = (0..101)
        .map(|_| {
            let begun = cpu();
            cpu() - begun
        })
        .collect();
    intervals.sort_unstable();
    intervals[intervals.len() / 2]
}

fn gateway(end: usize) -> Harness<Ipsec> {
    let (own, other) = (end + 1, 2 - end);
    let secret = |from: usize| KEY.replace("01", &format!("0{from}"));
    let config = json!({
        "interfaces": [
            {"addresses": [format!("10.{own}.0.1/24")], "gateways": [format!("10.{own}.0.254")]},
            {"addresses": [format!("192.0.2.{own}/24")]},
        ],
        "neighbours": [
            {"address": format!("10.{own}.0.254"), "mac": "02:aa:00:00:00:01", "interface": 0},
            {"address": format!("192.0.2.{other}"), "mac": "02:00:00:00:00:01", "interface": 1},
        ],
        "tunnels": [{
            "name": "bench", "local": format!("192.0.2.{own}"), "remote": format!("192.0.2.{other}"),
            "selectors": [{"local": format!("172.16.{own}.0/24"), "remote": format!("172.16.{other}.0/24")}],
            "outbound": [{"spi": 0x1000 + own, "secret": secret(own), "esn": true}],
            "inbound": [{"spi": 0x1000 + other, "secret": secret(other), "esn": true}],
        }],
    });
    Harness::new(serde_json::from_value(config).unwrap()).unwrap()
}

/// Builds a frame whose IP packet has this length.
fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0; 14 + length];
    frame[..6].copy_from_slice(&MACS[0]);
    frame[6..12].copy_from_slice(&[2, 0xaa, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let (from, to) = ([172, 16, 1, 5].into(), [172, 16, 2, 5].into());
    Ipv4::write(&mut frame[14..], from, to, 253, length - 20).unwrap();
    frame
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[inline(always)]
fn body_and_tag(frame: &mut [u8]) -> (&mut [u8], &mut [u8; TAG]) {
    frame[FRONT..].split_last_chunk_mut().unwrap()
}

#[inline(never)]
fn seal(bare: &mut Batch, key: &LessSafeKey, first: u64) {
    for (packet, number) in bare.packets_mut().iter_mut().zip(first..) {
        let (body, tag) = body_and_tag(packet.bytes_mut());
        let data = Aad::from([1_u8; 12]);
        let value = key.seal_in_place_separate_tag(nonce(number), data, body);
        tag.copy_from_slice(value.unwrap().as_ref());
    }
}

#[inline(never)]
fn open(bare: &mut Batch, key: &LessSafeKey, first: u64) {
    for (packet, number) in bare.packets_mut().iter_mut().zip(first..) {
        let body = &mut packet.bytes_mut()[FRONT..];
        let opened = key.open_in_place(nonce(number), Aad::from([1_u8; 12]), body);
        assert!(opened.is_ok());
    }
}

#[inline(never)]
fn open_separate(bare: &mut Batch, key: &LessSafeKey, first: u64) {
    for (packet, number) in bare.packets_mut().iter_mut().zip(first..) {
        let (body, tag) = body_and_tag(packet.bytes_mut());
        let data = Aad::from([1_u8; 12]);
        let opened = key.open_in_place_separate_tag(nonce(number), data, tag, body);
        assert!(opened.is_ok());
    }
}

fn round(
    length: usize,
    (west, east): (&Ipsec, &Ipsec),
    key: &LessSafeKey,
    batches: usize,
) -> Round {
    let context = Context::new(1_000_000_000, 0, 1, &MACS);
    let (mut batch, mut arriving, mut bare) = (Batch::new(), Batch::new(), Batch::new());
    let frame = frame(length);
    let mut times = [0; 6];
    let mut number = 0_u64;
    for _ in 0..batches {
        batch.clear();
        let begun = cpu();
        (0..Batch::MAX).for_each(|_| batch.push(0, &frame).unwrap());
        times[5] += cpu() - begun;
        let begun = cpu();
        west.process(&mut batch, &context);
        times[0] += cpu() - begun;
        arriving.clear();
        bare.clear();
        for packet in batch.packets() {
            assert_eq!(packet.verdict(), Verdict::Send(1));
            arriving.push(1, packet.bytes()).unwrap();
            bare.push(1, packet.bytes()).unwrap();
        }
        let begun = cpu();
        east.process(&mut arriving, &context);
        times[1] += cpu() - begun;
        for packet in arriving.packets() {
            assert_eq!(packet.verdict(), Verdict::Send(0));
        }
        let first = number + 1;
        let begun = cpu();
        seal(&mut bare, key, first);
        times[2] += cpu() - begun;
        let begun = cpu();
        open(&mut bare, key, first);
        times[3] += cpu() - begun;
        number += Batch::MAX as u64;
        seal(&mut bare, key, first);
        let begun = cpu();
        open_separate(&mut bare, key, first);
        times[4] += cpu() - begun;
    }
    let clock = clock() * batches as u64;
    let packets = (batches * Batch::MAX) as f64;
    let each = times.map(|time| time.saturating_sub(clock) as f64 / packets);
    let [protect, open, seal_bare, open_bare, open_separate, fill] = each;
    Round {
        protect,
        open,
        seal_bare,
        open_bare,
        open_separate,
        fill,
    }
}

fn median(rounds: &[Round], value: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, batches) = if is_quick { (31, 200) } else { (101, 500) };
    let (west, east) = (gateway(0), gateway(1));
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[1; 32]).unwrap());
    let mut result = serde_json::Map::new();
    for length in [64, 1400] {
        let functions = (west.function(), east.function());
        let all: Vec<Round> = (0..rounds)
            .map(|_| round(length, functions, &key, batches))
            .collect();
        let figures: [Figure; 8] = [
            ("protect_ns", |each| each.protect),
            ("open_ns", |each| each.open),
            ("bare_seal_ns", |each| each.seal_bare),
            ("bare_open_ns", |each| each.open_bare),
            ("bare_open_separate_ns", |each| each.open_separate),
            ("fill_ns", |each| each.fill),
            ("ratio", |each| {
                (each.seal_bare + each.open_bare) / (each.protect + each.open)
            }),
            ("ratio_same_calls", |each| {
                (each.seal_bare + each.open_separate) / (each.protect + each.open)
            }),
        ];
        for (name, value) in figures {
            let digits = if name.starts_with("ratio") {
                1000.0
            } else {
                10.0
            };
            let value = (median(&all, value) * digits).round() / digits;
            result.insert(format!("{name}_{length}"), json!(value));
        }
    }
    println!("{}", serde_json::Value::from(result));
}
