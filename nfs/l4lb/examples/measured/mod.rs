//! The packets of clients, and the clock, of the examples that measure the load balancer's step.

use std::net::Ipv4Addr;

use nf_packet::{Ipv4, Tcp};
use rustix::time::{clock_gettime, ClockId};

/// The MAC address of the load balancer's port.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
pub const SYN: u8 = 2;
pub const ACK: u8 = 16;

/// Returns the nanoseconds of CPU time that this thread has used.
pub fn cpu() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes a frame of a client's connection to port 80 of a VIP, without checksum, as long as `frame`.
pub fn write_frame(frame: &mut [u8], connection: u32, vip: [u8; 4], flags: u8) {
    frame[..6].copy_from_slice(&MAC);
    frame[6..12].copy_from_slice(&[2, 0xaa, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let client = Ipv4Addr::from(0x6440_0000 + (connection >> 4));
    let length = frame.len() - 34;
    Ipv4::write(&mut frame[14..], client, vip.into(), 6, length).unwrap();
    let ports = (1024 + (connection & 0xf) as u16 * 997, 80);
    Tcp::write(&mut frame[34..], ports, 1000, 0, flags, 64_000).unwrap();
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns 0, 1, 2, ... below `count` in an order without runs.
pub fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for index in (1..order.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(index, (random % (index as u64 + 1)) as usize);
    }
    order
}
