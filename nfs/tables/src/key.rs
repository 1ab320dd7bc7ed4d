//! Flows as keys: the five fields that identify a connection.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A key as words: its addresses (`Lanes`), and its tail of 40 bits, ports and protocol. Different keys have different words.
pub trait Key: Copy + Eq + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static {
    type Lanes: Copy + Eq + Default + AsRef<[u64]> + AsMut<[u64]> + std::fmt::Debug + Send + Sync;

    /// The length of the tail, at most 40 bits.
    const TAIL_BITS: u32;
    /// The key type's name in a table's header, so that tables with other keys are recognised.
    const NAME: [u8; 4];

    fn lanes(&self) -> Self::Lanes;
    fn tail(&self) -> u64;
    fn from_words(lanes: &Self::Lanes, tail: u64) -> Self;
}

/// A flow over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ipv4Flow {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
}

/// A flow over IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ipv6Flow {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
}

/// Packs the fields in their order in memory, so that the compiler reads them in one load.
#[inline]
fn tail(source_port: u16, destination_port: u16, protocol: u8) -> u64 {
    u64::from(source_port) | u64::from(destination_port) << 16 | u64::from(protocol) << 32
}

impl Key for Ipv4Flow {
    type Lanes = [u64; 1];
    const TAIL_BITS: u32 = 40;
    const NAME: [u8; 4] = *b"ipv4";

    #[inline]
    fn lanes(&self) -> [u64; 1] {
        let word = |address: Ipv4Addr| u64::from(u32::from_le_bytes(address.octets()));
        [word(self.source) | word(self.destination) << 32]
    }

    #[inline]
    fn tail(&self) -> u64 {
        tail(self.source_port, self.destination_port, self.protocol)
    }

    fn from_words(lanes: &[u64; 1], tail: u64) -> Self {
        let address = |word: u64| Ipv4Addr::from((word as u32).to_le_bytes());
        Self {
            source: address(lanes[0]),
            destination: address(lanes[0] >> 32),
            source_port: tail as u16,
            destination_port: (tail >> 16) as u16,
            protocol: (tail >> 32) as u8,
        }
    }
}

impl Key for Ipv6Flow {
    type Lanes = [u64; 4];
    const TAIL_BITS: u32 = 40;
    const NAME: [u8; 4] = *b"ipv6";

    #[inline]
    fn lanes(&self) -> [u64; 4] {
        let word = |address: Ipv6Addr| u128::from_le_bytes(address.octets());
        let (source, destination) = (word(self.source), word(self.destination));
        [
            source as u64,
            (source >> 64) as u64,
            destination as u64,
            (destination >> 64) as u64,
        ]
    }

    #[inline]
    fn tail(&self) -> u64 {
        tail(self.source_port, self.destination_port, self.protocol)
    }

    fn from_words(lanes: &[u64; 4], tail: u64) -> Self {
        let address = |low: u64, high: u64| {
            Ipv6Addr::from((u128::from(low) | u128::from(high) << 64).to_le_bytes())
        };
        Self {
            source: address(lanes[0], lanes[1]),
            destination: address(lanes[2], lanes[3]),
            source_port: tail as u16,
            destination_port: (tail >> 16) as u16,
            protocol: (tail >> 32) as u8,
        }
    }
}
