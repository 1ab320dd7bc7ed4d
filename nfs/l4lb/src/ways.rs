//! Interfaces, the ways from them to next hops, and the next hops' MAC addresses.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use nf_packet::MacAddress;

use crate::{
    config::Prefix,
    snapshot::Snapshot,
    state::{Address, State},
};

pub struct Interface {
    pub mtu: usize,
    pub prefixes: Vec<Prefix>,
    pub gateways: Vec<Way>,
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

/// The way to an address: its next hop.
#[repr(C)]
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

    #[must_use]
    #[inline]
    pub fn mac(&self) -> Option<MacAddress> {
        let hop = self.hop.load(Ordering::Relaxed);
        (hop & KNOWN != 0).then(|| MacAddress::from_bits(hop & (KNOWN - 1)))
    }

    pub fn set_mac(&self, mac: Option<MacAddress>) {
        let hop = mac.map_or(0, |mac| mac.to_bits() | KNOWN);
        self.hop.store(hop, Ordering::Relaxed);
    }
}

impl Snapshot {
    /// Returns the interface and next hop for an address: its own link first, else a gateway.
    #[must_use]
    pub fn route(&self, address: IpAddr) -> Option<(usize, IpAddr)> {
        self.on_link(address)
            .map(|interface| (interface, address))
            .or_else(|| {
                self.gateway(address)
                    .map(|gateway| (gateway.interface, gateway.next))
            })
    }

    #[must_use]
    pub fn on_link(&self, address: IpAddr) -> Option<usize> {
        self.interfaces.iter().position(|interface| {
            interface
                .prefixes
                .iter()
                .any(|prefix| prefix.contains(address))
        })
    }

    /// Returns the first gateway of the address's IP version.
    #[must_use]
    pub fn gateway(&self, address: IpAddr) -> Option<&Way> {
        self.interfaces
            .iter()
            .flat_map(|interface| &interface.gateways)
            .find(|gateway| gateway.next.is_ipv4() == address.is_ipv4())
    }

    /// Every way whose next hop must be resolved.
    pub fn ways(&self) -> impl Iterator<Item = &Way> {
        let gateways = self
            .interfaces
            .iter()
            .flat_map(|interface| &interface.gateways);
        let backends = self.in_use().map(|(_, backend)| &backend.way);
        gateways.chain(backends)
    }

    /// Tells whether it is a next hop: a gateway, or a backend on a link.
    #[must_use]
    pub fn is_next(&self, address: IpAddr) -> bool {
        self.nexts.contains(&address)
    }

    /// Fills in the known neighbours.
    pub fn resolve(&self, state: &State, now: u64) {
        for neighbour in &self.config.neighbours {
            if let Some(mac) = self.fixed(neighbour.address) {
                self.learn(neighbour.address, neighbour.interface, mac);
            }
        }
        for way in self.ways().filter(|way| way.mac().is_none()) {
            let known = state.neighbours.look(&Address::from(way.next), now);
            if let Some(neighbour) = known.filter(|neighbour| neighbour.mac != 0) {
                way.set_mac(Some(MacAddress::from_bits(neighbour.mac)));
            }
        }
    }

    /// Sets a neighbour's MAC address.
    pub fn learn(&self, address: IpAddr, interface: usize, mac: MacAddress) {
        for way in self.ways() {
            if way.next == address && way.interface == interface {
                way.set_mac(Some(mac));
            }
        }
    }

    /// Forgets a neighbour that stopped answering.
    pub fn forget(&self, address: IpAddr) {
        self.ways()
            .filter(|way| way.next == address)
            .for_each(|way| way.set_mac(None));
    }

    /// Returns the MAC address of a configured neighbour, which is neither asked for nor learnt.
    #[must_use]
    pub fn fixed(&self, address: IpAddr) -> Option<MacAddress> {
        self.fixed.get(&address).copied()
    }
}
