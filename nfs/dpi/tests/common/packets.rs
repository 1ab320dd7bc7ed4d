//! Packets, from the IP header on.

use nf_dpi::{Packet, Request};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// Returns an IPv4 packet, without checksums.
pub fn ipv4(protocol: u8, source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(source);
    packet.extend(destination);
    packet.extend(payload);
    packet
}

pub fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let fields = [source, destination, length, 0];
    let mut datagram: Vec<u8> = fields
        .iter()
        .flat_map(|field| field.to_be_bytes())
        .collect();
    datagram.extend(payload);
    datagram
}

/// A question for the address of a name.
pub fn dns_query(name: &str) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    ipv4(
        UDP,
        [10, 0, 0, 1],
        [10, 0, 0, 2],
        &udp(40_000, 53, &message),
    )
}

/// A datagram that nothing knows.
pub fn noise(text: &[u8]) -> Vec<u8> {
    ipv4(
        UDP,
        [10, 0, 0, 1],
        [10, 0, 0, 2],
        &udp(40_001, 40_002, text),
    )
}

pub fn packet(flow: u64, sequence: u64, bytes: &[u8]) -> Request<'_> {
    Request::Packet(Packet {
        flow,
        sequence,
        time_ms: 1000 + sequence,
        bytes,
    })
}
