//! Sends SYNs from spoofed addresses at a steady rate. `tests/l7lb/test_floods.py` runs it.
//!
//! ```text
//! syns INTERFACE MAC ADDRESS PORT COUNT RATE         COUNT SYNs to PORT of ADDRESS, RATE in a second
//! ```
//! The sources are different addresses of 100.64.0.0/10. Prints one line of JSON: the SYNs taken, and the seconds.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    net::Ipv4Addr,
    thread::sleep,
    time::{Duration, Instant},
};

use nf_ports::{open, Choice, Frame, Wanted};

const BATCH: usize = 64;
const IP: usize = 14;
const TCP: usize = IP + 20;
/// MSS, SACK permitted, timestamps, window scale: Linux's SYN.
const OPTIONS: [u8; 20] = [
    2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
];
const LENGTH: usize = TCP + 20 + OPTIONS.len();

fn checksum(start: u32, bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2);
    let sum = words.fold(start, |sum, pair| {
        sum + (u32::from(pair[0]) << 8 | u32::from(pair[1]))
    });
    let folded = (sum & 0xffff) + (sum >> 16);
    (!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes()
}

/// Builds what all SYNs have in common.
fn common(to: [u8; 6], from: [u8; 6], address: Ipv4Addr, port: u16) -> [u8; LENGTH] {
    let mut frame = [0; LENGTH];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[IP] = 0x45;
    frame[IP + 2..IP + 4].copy_from_slice(&((LENGTH - IP) as u16).to_be_bytes());
    frame[IP + 8..IP + 10].copy_from_slice(&[64, 6]);
    frame[IP + 16..TCP].copy_from_slice(&address.octets());
    frame[TCP + 2..TCP + 4].copy_from_slice(&port.to_be_bytes());
    frame[TCP + 12..TCP + 16].copy_from_slice(&[0xa0, 2, 0xfa, 0xf0]);
    frame[TCP + 20..].copy_from_slice(&OPTIONS);
    frame
}

/// Fills in the source, the sequence number and the checksums of a SYN.
fn syn(common: &[u8; LENGTH], number: u32) -> [u8; LENGTH] {
    let mut frame = *common;
    // A bijection on 22 bits.
    let host = number.wrapping_mul(2_654_435_761) & 0x003f_ffff;
    let port = 1024 + (number.wrapping_mul(40_503) >> 8) as u16 % 60_000;
    frame[IP + 12..IP + 16].copy_from_slice(&(0x6440_0000 | host).to_be_bytes());
    frame[TCP..TCP + 2].copy_from_slice(&port.to_be_bytes());
    frame[TCP + 4..TCP + 8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
    let sum = checksum(0, &frame[IP..TCP]);
    frame[IP + 10..IP + 12].copy_from_slice(&sum);
    let pseudo = frame[IP + 12..TCP].chunks(2);
    let start = pseudo.fold(6 + (LENGTH - TCP) as u32, |sum, pair| {
        sum + (u32::from(pair[0]) << 8 | u32::from(pair[1]))
    });
    let sum = checksum(start, &frame[TCP..]);
    frame[TCP + 16..TCP + 18].copy_from_slice(&sum);
    frame
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, interface, mac, address, port, count, rate] = &arguments[..] else {
        panic!("usage: syns INTERFACE MAC ADDRESS PORT COUNT RATE");
    };
    let bytes: Vec<u8> = mac
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    let (count, rate): (usize, f64) = (count.parse().unwrap(), rate.parse().unwrap());
    let wanted = Wanted {
        choice: Choice::Packet,
        ..Wanted::default()
    };
    let mut output = open(interface, 0, wanted).unwrap();
    let to = <[u8; 6]>::try_from(bytes).unwrap();
    let common = common(
        to,
        output.mac,
        address.parse().unwrap(),
        port.parse().unwrap(),
    );
    let (mut sent, begin) = (0, Instant::now());
    while sent < count {
        let frames: Vec<_> = (sent..count.min(sent + BATCH))
            .map(|number| syn(&common, number as u32))
            .collect();
        let batch: Vec<Frame> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
        sent += output.queues[0].transmit(&batch);
        while !output.queues[0].flush() {
            std::thread::yield_now();
        }
        let due = Duration::from_secs_f64(sent as f64 / rate);
        sleep(due.saturating_sub(begin.elapsed()));
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{{\"sent\": {sent}, \"seconds\": {seconds:.3}}}");
}
