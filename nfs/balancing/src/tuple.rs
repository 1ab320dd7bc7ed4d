//! Addresses and tuples as plain data, for keys and values of the state.

use std::net::{IpAddr, Ipv6Addr};

use bytemuck::{Pod, Zeroable};

/// An address as 16 bytes; IPv4 addresses are mapped (RFC 4291, 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct Address([u8; 16]);

impl From<IpAddr> for Address {
    #[inline]
    fn from(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        })
    }
}

impl Address {
    #[inline]
    #[must_use]
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

/// The addresses, ports and protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tuple {
    pub source: Address,
    pub destination: Address,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u32,
}
