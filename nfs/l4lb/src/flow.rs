//! Flows: the operations that IPv4 and IPv6 connections share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nf_arena::Region;
use nf_balancing::tuple::Tuple;
use nf_packet::Headers;
use nf_tables::{Cuckoo, Ipv4Flow, Ipv6Flow, Key};
use xxhash_rust::xxh3::xxh3_64;

/// A connection in the client's direction: the source is the client, the destination the VIP.
pub trait Flow: Key {
    /// Returns its table; only the owner of the tables can call this.
    fn table(tables: &Tables) -> &Cuckoo<Self, Region>;

    /// Builds the flow of a client's packet.
    fn of(frame: &[u8], headers: &Headers) -> Self;

    fn source(&self) -> (IpAddr, u16);
    fn destination(&self) -> (IpAddr, u16);
    fn protocol(&self) -> u8;

    /// Hashes the flow; every load balancer gets the same hash.
    fn flow_hash(&self) -> u64;

    /// Identifies its VIP: the [`service`](fn@service) of its destination.
    #[inline]
    fn service(&self) -> u64 {
        let (address, port) = self.destination();
        service(address, port, self.protocol())
    }

    #[must_use]
    fn tuple(&self) -> Tuple {
        let (source, source_port) = self.source();
        let (destination, destination_port) = self.destination();
        Tuple {
            source: source.into(),
            destination: destination.into(),
            source_port,
            destination_port,
            protocol: self.protocol().into(),
        }
    }
}

/// The connection tables of both versions. `records` owns them and makes every change.
pub struct Tables {
    pub ipv4: Cuckoo<Ipv4Flow, Region>,
    pub ipv6: Cuckoo<Ipv6Flow, Region>,
}

/// The endpoints and protocol of a flow of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyFlow {
    V4(Ipv4Flow),
    V6(Ipv6Flow),
}

impl AnyFlow {
    /// None: the IP versions differ.
    #[must_use]
    pub fn of_tuple(tuple: &Tuple) -> Option<Self> {
        let source = (tuple.source.ip(), tuple.source_port);
        let destination = (tuple.destination.ip(), tuple.destination_port);
        Self::new(source, destination, u8::try_from(tuple.protocol).ok()?)
    }

    #[must_use]
    pub fn tuple(&self) -> Tuple {
        match self {
            Self::V4(flow) => flow.tuple(),
            Self::V6(flow) => flow.tuple(),
        }
    }

    #[must_use]
    pub fn flow_hash(&self) -> u64 {
        match self {
            Self::V4(flow) => flow.flow_hash(),
            Self::V6(flow) => flow.flow_hash(),
        }
    }

    /// None: the IP versions differ.
    #[must_use]
    #[inline]
    pub fn new(source: (IpAddr, u16), destination: (IpAddr, u16), protocol: u8) -> Option<Self> {
        match (source.0, destination.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Some(Self::V4(Ipv4Flow {
                source: from,
                destination: to,
                source_port: source.1,
                destination_port: destination.1,
                protocol,
            })),
            (IpAddr::V6(from), IpAddr::V6(to)) => Some(Self::V6(Ipv6Flow {
                source: from,
                destination: to,
                source_port: source.1,
                destination_port: destination.1,
                protocol,
            })),
            _ => None,
        }
    }
}

impl Flow for Ipv4Flow {
    #[inline]
    fn table(tables: &Tables) -> &Cuckoo<Self, Region> {
        &tables.ipv4
    }

    #[inline(always)]
    fn of(frame: &[u8], headers: &Headers) -> Self {
        let at = usize::from(headers.network) + 12;
        let [a, b, c, d, e, f, g, h] = frame
            .get(at..)
            .and_then(|rest| rest.first_chunk::<8>())
            .copied()
            .unwrap_or_default();
        Self {
            source: Ipv4Addr::new(a, b, c, d),
            destination: Ipv4Addr::new(e, f, g, h),
            source_port: headers.source_port,
            destination_port: headers.destination_port,
            protocol: headers.protocol,
        }
    }

    fn source(&self) -> (IpAddr, u16) {
        (self.source.into(), self.source_port)
    }

    fn destination(&self) -> (IpAddr, u16) {
        (self.destination.into(), self.destination_port)
    }

    fn protocol(&self) -> u8 {
        self.protocol
    }

    #[inline]
    fn flow_hash(&self) -> u64 {
        let addresses =
            u64::from(self.source.to_bits()) << 32 | u64::from(self.destination.to_bits());
        mix(
            addresses,
            ports(self.source_port, self.destination_port, self.protocol),
        )
    }
}

impl Flow for Ipv6Flow {
    #[inline]
    fn table(tables: &Tables) -> &Cuckoo<Self, Region> {
        &tables.ipv6
    }

    #[inline(always)]
    fn of(frame: &[u8], headers: &Headers) -> Self {
        let at = usize::from(headers.network) + 8;
        let address = |at: usize| {
            Ipv6Addr::from(
                frame
                    .get(at..)
                    .and_then(|rest| rest.first_chunk::<16>())
                    .copied()
                    .unwrap_or_default(),
            )
        };
        Self {
            source: address(at),
            destination: address(at + 16),
            source_port: headers.source_port,
            destination_port: headers.destination_port,
            protocol: headers.protocol,
        }
    }

    fn source(&self) -> (IpAddr, u16) {
        (self.source.into(), self.source_port)
    }

    fn destination(&self) -> (IpAddr, u16) {
        (self.destination.into(), self.destination_port)
    }

    fn protocol(&self) -> u8 {
        self.protocol
    }

    #[inline]
    fn flow_hash(&self) -> u64 {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.source.octets());
        bytes[16..].copy_from_slice(&self.destination.octets());
        mix(
            xxh3_64(&bytes),
            ports(self.source_port, self.destination_port, self.protocol),
        )
    }
}

/// Returns a number for a VIP: exact for IPv4, a hash for IPv6.
#[inline]
#[must_use]
pub fn service(address: IpAddr, port: u16, protocol: u8) -> u64 {
    let address = match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            mix((bits >> 64) as u64, bits as u64)
        }
    };
    address.rotate_left(24) ^ u64::from(port) << 8 ^ u64::from(protocol)
}

#[inline]
fn ports(source: u16, destination: u16, protocol: u8) -> u64 {
    u64::from(source) << 24 | u64::from(destination) << 8 | u64::from(protocol)
}

/// Multiplies to 128 bits and folds, twice, so that each bit of the result depends on the whole input.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let once = fold(a ^ 0x9e37_79b9_7f4a_7c15, b ^ 0xe703_7ed1_a0b4_28db);
    fold(once ^ 0x8ebc_6af0_9c88_c6e3, 0x5895_cc1f_8a4d_9a0b)
}
