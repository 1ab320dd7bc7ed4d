//! Packet headers in place: parsing, rewriting, checksums, encapsulation. It never copies, allocates or panics, whatever the bytes.
//!
//! [`dissect`] scans a frame once and returns the offsets of its headers; the views ([`Ipv4`], [`Tcp`], ...) read and write
//! the fields of one header. A view made by `new_checked` never accesses bytes beyond its buffer.

mod arp;
pub mod checksum;
mod dissect;
mod encapsulation;
mod ethernet;
mod icmp;
mod ipv4;
mod ipv6;
mod ndp;
mod rewrite;
mod rss;
mod tcp;
mod udp;

pub use arp::{Arp, ArpOperation};
pub use dissect::{dissect, dissect_ip, dissect_quoted, Fragment, Headers, Outcome, Version};
pub use encapsulation::{Tunnel, TunnelKind};
pub use ethernet::{ethertype, Ethernet, MacAddress, VLAN_TAG_BYTES};
pub use icmp::{icmp4, icmp6, Icmp};
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use ndp::{NeighbourAdvertisement, NeighbourMessage, NeighbourSolicitation};
pub use rewrite::{decrement_ttl, decrement_ttl_of, rewrite_address, rewrite_sequence, Side};
pub use rss::rss_hash;
pub use tcp::{flags as tcp_flags, Tcp, TcpOption, TcpOptions};
pub use udp::Udp;

/// IANA's protocol numbers.
pub mod protocol {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IPV4: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const AUTHENTICATION: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const DESTINATION_OPTIONS: u8 = 60;
}

/// The fault of a malformed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Malformed {
    /// Fewer bytes than the headers declare or need.
    Truncated,
    /// Contradictory length fields.
    Length,
    /// A version other than the EtherType or the context requires.
    Version,
    /// A wrong checksum of the IPv4 header or of an ICMP message.
    Checksum,
    /// A first fragment too short for its ports, or a fragment that would overwrite them (RFC 1858, RFC 7112).
    TinyFragment,
    /// More than 8 extension headers, or an order that RFC 8200 forbids.
    ExtensionHeaders,
    /// Source routing: an IPv4 source route, or an IPv6 routing header before the last hop (RFC 5095).
    SourceRoute,
}

impl Malformed {
    /// Returns the name used by counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Length => "length",
            Self::Version => "version",
            Self::Checksum => "checksum",
            Self::TinyFragment => "tiny-fragment",
            Self::ExtensionHeaders => "extension-headers",
            Self::SourceRoute => "source-route",
        }
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Malformed {}

/// Big-endian fields at an offset. Callers check the length; beyond it, reads return 0 and writes do nothing.
pub(crate) mod field {
    #[inline(always)]
    pub(crate) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
        match bytes
            .get(at..at.wrapping_add(N))
            .and_then(<[u8]>::first_chunk)
        {
            Some(chunk) => *chunk,
            None => [0; N],
        }
    }

    #[inline(always)]
    pub(crate) fn set<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
        if let Some(chunk) = bytes
            .get_mut(at..at.wrapping_add(N))
            .and_then(<[u8]>::first_chunk_mut)
        {
            *chunk = value;
        }
    }

    #[inline(always)]
    pub(crate) fn get16(bytes: &[u8], at: usize) -> u16 {
        u16::from_be_bytes(get(bytes, at))
    }

    #[inline(always)]
    pub(crate) fn get32(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(get(bytes, at))
    }

    #[inline(always)]
    pub(crate) fn set16(bytes: &mut [u8], at: usize, value: u16) {
        set(bytes, at, value.to_be_bytes());
    }

    #[inline(always)]
    pub(crate) fn set32(bytes: &mut [u8], at: usize, value: u32) {
        set(bytes, at, value.to_be_bytes());
    }
}
