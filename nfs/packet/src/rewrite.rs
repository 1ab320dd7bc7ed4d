//! Replaces addresses and ports in place, and updates every checksum that covers them.

use std::net::IpAddr;

use crate::{checksum::Delta, field, protocol, Fragment, Headers, Version};

/// One end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Source,
    Destination,
}

/// Replaces one end's address, and its port where the packet has ports. A wrong checksum stays wrong.
/// An address of the other IP version changes nothing. In a truncated quoted packet, it changes what is present.
#[inline]
pub fn rewrite_address(
    frame: &mut [u8],
    headers: &Headers,
    side: Side,
    address: IpAddr,
    port: u16,
) {
    let network = usize::from(headers.network);
    let transport = usize::from(headers.transport);
    let delta = match (headers.version, address) {
        (Version::V4, IpAddr::V4(new)) => {
            let at = network + if side == Side::Source { 12 } else { 16 };
            let (old, new) = (field::get32(frame, at), u32::from(new));
            field::set32(frame, at, new);
            let delta = Delta::default().replace32(old, new);
            let sum = delta.apply(field::get16(frame, network + 10));
            field::set16(frame, network + 10, sum);
            delta
        }
        (Version::V6, IpAddr::V6(new)) => {
            let at = network + if side == Side::Source { 8 } else { 24 };
            let old: [u8; 16] = field::get(frame, at);
            field::set(frame, at, new.octets());
            Delta::default().replace(&old, &new.octets())
        }
        _ => return,
    };
    if headers.fragment == Fragment::Later {
        return;
    }
    let port_at = transport + if side == Side::Source { 0 } else { 2 };
    match headers.protocol {
        protocol::TCP => {
            let delta = replace_port(frame, port_at, port, delta);
            let sum = delta.apply(field::get16(frame, transport + 16));
            field::set16(frame, transport + 16, sum);
        }
        protocol::UDP => {
            let delta = replace_port(frame, port_at, port, delta);
            update_udp(frame, transport + 6, delta);
        }
        protocol::ICMPV6 => {
            let sum = delta.apply(field::get16(frame, transport + 2));
            field::set16(frame, transport + 2, sum);
        }
        _ => {}
    }
}

#[inline(always)]
fn replace_port(frame: &mut [u8], at: usize, port: u16, delta: Delta) -> Delta {
    let old = field::get16(frame, at);
    field::set16(frame, at, port);
    delta.replace16(old, port)
}

/// Updates a UDP checksum. A checksum of 0 means none, and stays; a result of 0 is sent as 0xffff (RFC 768).
#[inline(always)]
fn update_udp(frame: &mut [u8], at: usize, delta: Delta) {
    let old = field::get16(frame, at);
    if old != 0 {
        let new = delta.apply(old);
        field::set16(frame, at, if new == 0 { 0xffff } else { new });
    }
}

/// Replaces the sequence number of a TCP segment, and updates its checksum where present: a quoted segment may end after 8 bytes (RFC 792).
pub fn rewrite_sequence(frame: &mut [u8], headers: &Headers, new: impl FnOnce(u32) -> u32) {
    let transport = usize::from(headers.transport);
    let old = field::get32(frame, transport + 4);
    let new = new(old);
    field::set32(frame, transport + 4, new);
    let sum = Delta::default()
        .replace32(old, new)
        .apply(field::get16(frame, transport + 16));
    field::set16(frame, transport + 16, sum);
}

/// Decrements the TTL or hop limit; returns false, without a change, if it would become zero.
#[inline]
pub fn decrement_ttl(frame: &mut [u8], headers: &Headers) -> bool {
    let packet = frame.get_mut(headers.network.into()..);
    packet.is_some_and(|packet| decrement_ttl_of(packet, headers.version))
}

/// Does the same to an IP packet.
#[inline(always)]
pub fn decrement_ttl_of(packet: &mut [u8], version: Version) -> bool {
    match version {
        Version::V4 => {
            let Some([.., ttl, _, high, low]) = packet.first_chunk_mut::<12>() else {
                return false;
            };
            let is_alive = *ttl > 1;
            if is_alive {
                *ttl -= 1;
                // One less in the high byte of a word, whatever it was.
                let sum = Delta::default().replace16(0x100, 0);
                let sum = sum.apply(u16::from_be_bytes([*high, *low]));
                [*high, *low] = sum.to_be_bytes();
            }
            is_alive
        }
        Version::V6 => packet.get_mut(7).is_some_and(|limit| {
            let is_alive = *limit > 1;
            *limit -= u8::from(is_alive);
            is_alive
        }),
    }
}
