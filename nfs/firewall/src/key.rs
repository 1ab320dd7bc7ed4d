//! The flow of a packet.

use std::net::IpAddr;

use bytemuck::{Pod, Zeroable};
use nf_packet::{icmp4, icmp6, protocol, Headers, Icmp, Version};

use crate::{ranges::number, rules::Opening};

/// The identity of a flow, the same for both directions: its ends in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Key {
    pub low: [u8; 16],
    pub high: [u8; 16],
    pub low_port: u16,
    pub high_port: u16,
    /// The VLAN with its priority bits cleared. Zero: none.
    pub vlan: u16,
    pub protocol: u8,
    pub reserved: u8,
}

/// The flow of a packet, and the end that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub key: Key,
    /// The index of the sending end: 0 is the lower one.
    pub sender: u8,
}

/// A use of ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// It quotes an undeliverable packet.
    Error,
    /// It may open a flow: an echo request, for example. The number is its identifier.
    Request(u16),
    Reply(u16),
    /// Neighbour discovery (RFC 4861), whose hop limit proves that it comes from this link.
    Neighbour,
}

/// Returns the use of an ICMP packet. None: it is no ICMP.
pub fn message(frame: &[u8], headers: &Headers) -> Option<Message> {
    let icmp = match headers.protocol {
        protocol::ICMP | protocol::ICMPV6 => Icmp::new_checked(headers.segment(frame)).ok()?,
        _ => return None,
    };
    if (headers.protocol == protocol::ICMPV6) != (headers.version == Version::V6) {
        return Some(Message::Request(0));
    }
    if icmp.is_error(headers.version) {
        return Some(Message::Error);
    }
    let identifier = (icmp.argument() >> 16) as u16;
    let message = match (headers.version, icmp.kind()) {
        (Version::V4, icmp4::ECHO_REPLY | 14 | 16 | 18) | (Version::V6, icmp6::ECHO_REPLY) => {
            Message::Reply(identifier)
        }
        (Version::V6, 133..=137) => {
            let hops = headers.packet(frame).get(7);
            if hops == Some(&255) {
                Message::Neighbour
            } else {
                Message::Request(0)
            }
        }
        (Version::V4, icmp4::ECHO | 13 | 15 | 17) | (Version::V6, icmp6::ECHO) => {
            Message::Request(identifier)
        }
        _ => Message::Request(0),
    };
    Some(message)
}

/// Returns the VLAN of a frame.
#[inline]
pub fn vlan(frame: &[u8]) -> u16 {
    match frame.get(12..16) {
        Some([0x81, 0, high, low]) | Some([0x88, 0xa8, high, low]) => {
            u16::from_be_bytes([*high, *low]) & 0xfff
        }
        _ => 0,
    }
}

#[inline]
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[10..12].copy_from_slice(&[0xff, 0xff]);
            octets[12..].copy_from_slice(&address.octets());
            octets
        }
        IpAddr::V6(address) => address.octets(),
    }
}

impl Sighting {
    /// Returns the flow of a packet, or of the packet that an ICMP error quotes. `identifier`: that of an ICMP message, in place of ports.
    #[inline]
    pub fn of(frame: &[u8], headers: &Headers, vlan: u16, identifier: u16) -> Self {
        let source = (
            octets(headers.source(frame)),
            headers.source_port | identifier,
        );
        let destination = (
            octets(headers.destination(frame)),
            headers.destination_port | identifier,
        );
        let is_low = source <= destination;
        let (low, high) = if is_low {
            (source, destination)
        } else {
            (destination, source)
        };
        Self {
            key: Key {
                low: low.0,
                high: high.0,
                low_port: low.1,
                high_port: high.1,
                vlan,
                protocol: headers.protocol,
                reserved: 0,
            },
            sender: u8::from(!is_low),
        }
    }
}

impl Key {
    /// Returns an end: its address and port.
    pub fn end(&self, index: u8) -> (IpAddr, u16) {
        let (octets, port) = if index == 0 {
            (self.low, self.low_port)
        } else {
            (self.high, self.high_port)
        };
        (std::net::Ipv6Addr::from(octets).to_canonical(), port)
    }

    /// Returns what rules see of the flow if this end opened it, by this port.
    pub fn opening(&self, client: u8, ingress: usize, ports: usize) -> Opening {
        let (source, source_port) = self.end(client);
        let (destination, destination_port) = self.end(1 - client.min(1));
        let has_ports = matches!(self.protocol, protocol::TCP | protocol::UDP);
        let port = |port| if has_ports { port } else { 0 };
        Opening {
            ingress,
            egress: (ingress + 1) % ports.max(1),
            source: number(source),
            destination: number(destination),
            protocol: self.protocol,
            source_port: port(source_port),
            destination_port: port(destination_port),
        }
    }
}
