//! Interfaces, and the ways from them to next hops.

use std::{
    net::IpAddr,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
};

use nf_packet::MacAddress;

use crate::config::Prefix;

/// An interface of the function.
pub struct Interface {
    pub mtu: usize,
    pub prefixes: Vec<Prefix>,
    pub gateways: Vec<Arc<Way>>,
}

impl Interface {
    /// Returns its own address of the same IP version as `like`.
    #[must_use]
    pub fn address(&self, like: IpAddr) -> Option<IpAddr> {
        self.prefixes
            .iter()
            .map(|prefix| prefix.address)
            .find(|address| address.is_ipv4() == like.is_ipv4())
    }
}

/// The way to an address: its next hop. The fields that each packet needs are on one cache line.
#[repr(C, align(32))]
pub struct Way {
    /// The MAC address, with bit 48 set where it is known.
    hop: AtomicU64,
    pub interface: usize,
    /// The interface's MTU.
    pub mtu: usize,
    pub next: IpAddr,
}

const KNOWN: u64 = 1 << 48;

impl Way {
    pub(crate) fn new(next: IpAddr, interface: usize, mtu: usize) -> Self {
        Self {
            next,
            interface,
            mtu,
            hop: AtomicU64::new(0),
        }
    }

    /// Returns the MAC address of the next hop, if it is known.
    #[must_use]
    #[inline]
    pub fn mac(&self) -> Option<MacAddress> {
        let hop = self.hop.load(Ordering::Relaxed);
        (hop & KNOWN != 0).then(|| MacAddress::from_bits(hop & (KNOWN - 1)))
    }

    pub(crate) fn set_mac(&self, mac: Option<MacAddress>) {
        let hop = mac.map_or(0, |mac| mac.to_bits() | KNOWN);
        self.hop.store(hop, Ordering::Relaxed);
    }
}
