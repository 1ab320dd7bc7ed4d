//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::{field, MacAddress, Malformed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    Request,
    Reply,
}

/// An ARP message, by value since it is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    pub operation: ArpOperation,
    pub sender_mac: MacAddress,
    pub sender: Ipv4Addr,
    pub target_mac: MacAddress,
    pub target: Ipv4Addr,
}

impl Arp {
    pub const BYTES: usize = 28;
    /// The hardware and protocol types, Ethernet and IPv4, and their address lengths.
    const PREFIX: [u8; 6] = [0, 1, 8, 0, 6, 4];

    /// # Errors
    /// If it is too short, for another medium or protocol, or neither a request nor a reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() < Self::BYTES {
            return Err(Malformed::Truncated);
        }
        if field::get::<6>(bytes, 0) != Self::PREFIX {
            return Err(Malformed::Version);
        }
        let operation = match field::get16(bytes, 6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(Malformed::Version),
        };
        Ok(Self {
            operation,
            sender_mac: MacAddress(field::get(bytes, 8)),
            sender: Ipv4Addr::from(field::get::<4>(bytes, 14)),
            target_mac: MacAddress(field::get(bytes, 18)),
            target: Ipv4Addr::from(field::get::<4>(bytes, 24)),
        })
    }

    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        field::set(bytes, 0, Self::PREFIX);
        let operation = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        field::set16(bytes, 6, operation);
        field::set(bytes, 8, self.sender_mac.0);
        field::set(bytes, 14, self.sender.octets());
        field::set(bytes, 18, self.target_mac.0);
        field::set(bytes, 24, self.target.octets());
    }
}
