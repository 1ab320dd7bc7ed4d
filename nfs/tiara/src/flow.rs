//! Flows: the operations that IPv4 and IPv6 share.

use std::net::{Ipv4Addr, Ipv6Addr};

use nf_offload::FlowKey;
use nf_packet::{Headers, Version};
use nf_tables::{Ipv4Flow, Ipv6Flow, Key};

/// A connection in the client's direction.
pub trait Flow: Key {
    fn key(&self) -> FlowKey;
}

/// A flow of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyFlow {
    V4(Ipv4Flow),
    V6(Ipv6Flow),
}

impl AnyFlow {
    /// Returns the flow of a key. None: the IP versions differ, or it has no such protocol.
    #[must_use]
    pub fn of_key(key: &FlowKey) -> Option<Self> {
        let (source_port, destination_port) = (key.source_port, key.destination_port);
        let protocol = u8::try_from(key.protocol).ok()?;
        let [source, destination] = [key.source, key.destination].map(Ipv6Addr::from);
        match (source.to_ipv4_mapped(), destination.to_ipv4_mapped()) {
            (Some(source), Some(destination)) => Some(Self::V4(Ipv4Flow {
                source,
                destination,
                source_port,
                destination_port,
                protocol,
            })),
            (None, None) => Some(Self::V6(Ipv6Flow {
                source,
                destination,
                source_port,
                destination_port,
                protocol,
            })),
            _ => None,
        }
    }

    /// Returns the flow of a packet with ports.
    #[must_use]
    #[inline]
    pub fn of_packet(frame: &[u8], headers: &Headers) -> Self {
        let (source_port, destination_port) = (headers.source_port, headers.destination_port);
        let protocol = headers.protocol;
        let at = usize::from(headers.network);
        match headers.version {
            Version::V4 => Self::V4(Ipv4Flow {
                source: Ipv4Addr::from(bytes::<4>(frame, at + 12)),
                destination: Ipv4Addr::from(bytes::<4>(frame, at + 16)),
                source_port,
                destination_port,
                protocol,
            }),
            Version::V6 => Self::V6(Ipv6Flow {
                source: Ipv6Addr::from(bytes::<16>(frame, at + 8)),
                destination: Ipv6Addr::from(bytes::<16>(frame, at + 24)),
                source_port,
                destination_port,
                protocol,
            }),
        }
    }

    #[must_use]
    pub fn key(&self) -> FlowKey {
        match self {
            Self::V4(flow) => flow.key(),
            Self::V6(flow) => flow.key(),
        }
    }
}

impl Flow for Ipv4Flow {
    fn key(&self) -> FlowKey {
        FlowKey {
            source: self.source.to_ipv6_mapped().octets(),
            destination: self.destination.to_ipv6_mapped().octets(),
            source_port: self.source_port,
            destination_port: self.destination_port,
            protocol: self.protocol.into(),
        }
    }
}

impl Flow for Ipv6Flow {
    fn key(&self) -> FlowKey {
        FlowKey {
            source: self.source.octets(),
            destination: self.destination.octets(),
            source_port: self.source_port,
            destination_port: self.destination_port,
            protocol: self.protocol.into(),
        }
    }
}

#[inline]
fn bytes<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    let rest = frame.get(at..).and_then(|rest| rest.first_chunk::<N>());
    rest.copied().unwrap_or([0; N])
}
