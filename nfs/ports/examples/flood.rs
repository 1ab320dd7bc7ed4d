//! Sends UDP packets of several flows as fast as an interface takes them. `bench/veth` runs it.
//!
//! ```text
//! flood INTERFACE MAC ADDRESS FLOWS COUNT            to UDP port 53 of ADDRESS, from FLOWS ports of 10.1.0.1
//! ```
//! Prints one line of JSON: packets taken, CPU time of this process in ns.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::Ipv4Addr;

use nf_ports::{open, Choice, Frame, Wanted};

const BATCH: usize = 64;
/// The shortest frame: Ethernet, IPv4, UDP and 18 bytes.
const LENGTH: usize = 60;

fn frame(to: [u8; 6], from: [u8; 6], address: Ipv4Addr, port: u16) -> [u8; LENGTH] {
    let mut frame = [0; LENGTH];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&[10, 1, 0, 1]);
    frame[30..34].copy_from_slice(&address.octets());
    let sum: u32 = frame[14..34]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) as u16 + (folded >> 16) as u16);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..38].copy_from_slice(&53_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
    // No UDP checksum: IPv4 allows it, and all compared programs have the same work.
    frame
}

/// Returns user and system time of this process, in ns.
fn cpu_ns() -> u64 {
    let ticks = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    ticks.split(' ').next().unwrap().parse().unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, interface, mac, address, flows, count] = &arguments[..] else {
        panic!("usage: flood INTERFACE MAC ADDRESS FLOWS COUNT");
    };
    let bytes: Vec<u8> = mac
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    let (flows, count): (usize, usize) = (flows.parse().unwrap(), count.parse().unwrap());
    let mut port = open(
        interface,
        0,
        Wanted {
            choice: Choice::Packet,
            ..Wanted::default()
        },
    )
    .unwrap();
    let to = <[u8; 6]>::try_from(bytes).unwrap();
    let address = address.parse().unwrap();
    let frames: Vec<_> = (0..flows)
        .map(|flow| frame(to, port.mac, address, 1024 + flow as u16))
        .collect();
    let (mut sent, mut next, before) = (0, 0, cpu_ns());
    while sent < count {
        let batch: [Frame; BATCH] =
            std::array::from_fn(|index| Frame::from(&frames[(next + index) % flows][..]));
        next = (next + BATCH) % flows;
        sent += port.queues[0].transmit(&batch);
        while !port.queues[0].flush() {
            std::thread::yield_now();
        }
    }
    println!("{{\"sent\": {sent}, \"cpu_ns\": {}}}", cpu_ns() - before);
}
