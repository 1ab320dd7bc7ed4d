//! MAC addresses of the stations on the links: learnt only from ARP and neighbour discovery, refreshed, and forgotten.

use std::net::IpAddr;

use bytemuck::Zeroable;
use nf_packet::{Headers, MacAddress};

use super::Link;
use crate::{
    claims::{Heard, Manner},
    frames::{Frame, Segment},
    tables::Neighbour,
    tuple::Address,
    ways::Way,
};

const SECOND: u64 = 1_000_000_000;
/// An entry's lifetime without confirmation.
const LIFETIME: u64 = 120 * SECOND;
/// The age at which an entry is stale and its owner is asked again.
const STALE: u64 = 30 * SECOND;
/// The time that other stations have to answer the first question.
const UNANSWERED: u64 = 3 * SECOND;

/// The next station of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Station {
    /// The interface and the station's MAC address.
    Known(usize, MacAddress),
    /// The interface and the station's address. Its MAC address is unknown.
    Unknown(usize, IpAddr),
    Nowhere,
}

/// The reason for which a destination cannot be reached now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// The next station's MAC address is unknown; it was asked for.
    Unresolved,
    NoRoute,
}

impl Link<'_> {
    /// Learns a station's address. Adds an unknown station only if `is_new` allows it.
    pub(super) fn learn(
        &mut self,
        (address, mac): (IpAddr, MacAddress),
        interface: usize,
        manner: Manner,
        is_new: bool,
    ) {
        if mac.is_multicast()
            || mac.to_bits() == 0
            || self.network.on_link(address) != Some(interface)
            || self.network.fixed(address).is_some()
            || self.network.owner(address).is_some()
        {
            return;
        }
        let (key, now) = (Address::from(address), self.context.now());
        let hear = |neighbour: &mut Neighbour| {
            neighbour.interface = interface as u64;
            let heard = neighbour.hear(mac.to_bits(), manner, now);
            (heard, MacAddress::from_bits(neighbour.mac))
        };
        let is_next = self.network.is_next(address);
        let tables = self.neighbours;
        let known = if is_next {
            let next_hops = &tables.next_hops;
            next_hops.update_or_insert(&key, now, LIFETIME, Neighbour::zeroed, hear)
        } else {
            tables.stations.update(&key, now, LIFETIME, hear)
        };
        match known {
            Some((heard, mac)) => self.follow(address, interface, mac, heard),
            None if is_new && !is_next => {
                let mut neighbour = Neighbour::zeroed();
                hear(&mut neighbour);
                // Unanswered questions expire first and make room for known stations.
                tables.stations.replace(&key, now, LIFETIME, neighbour);
            }
            None => {}
        }
    }

    /// Applies the consequences of a message. `mac`: the neighbour's MAC address after it, which may be another station's than the sender's.
    fn follow(&mut self, address: IpAddr, interface: usize, mac: MacAddress, heard: Heard) {
        if heard.changed {
            self.network.set_mac(address, interface, mac);
        }
        if let Some(owner) = heard.ask {
            self.probe(address, interface, MacAddress::from_bits(owner));
        }
    }

    /// Asks one station whether it still has an address.
    fn probe(&mut self, address: IpAddr, interface: usize, station: MacAddress) {
        let own = self.network.own_address(interface, address);
        let macs = (self.mac(interface), station);
        if let Some(frame) = own.and_then(|own| Frame::probe(macs, own, address)) {
            self.out.emit(interface, frame.bytes());
        }
    }

    /// Asks all stations for an address, at most once a second; for an unknown next hop at first more often.
    pub fn solicit(&mut self, address: IpAddr, interface: usize) {
        let (key, now) = (Address::from(address), self.context.now());
        let tables = self.neighbours;
        let due = if self.network.is_next(address) {
            let seek = |neighbour: &mut Neighbour| neighbour.may_seek(now);
            let next_hops = &tables.next_hops;
            next_hops.update_or_insert(&key, now, LIFETIME, Neighbour::zeroed, seek)
        } else {
            let ask = |neighbour: &mut Neighbour| neighbour.may_ask(now);
            let stations = &tables.stations;
            stations.amend(&key, now, ask).or_else(|| {
                stations.update_or_insert(&key, now, UNANSWERED, Neighbour::zeroed, ask)
            })
        };
        let own = self.network.own_address(interface, address);
        if let (Some(true), Some(own)) = (due, own) {
            if let Some(frame) = Frame::solicitation(self.mac(interface), own, address) {
                self.out.emit(interface, frame.bytes());
            }
        }
    }

    /// Sends a TCP segment from the function's own address on a way and this port; asks for the next hop if its MAC address is unknown.
    pub fn send_segment(
        &mut self,
        way: &Way,
        from: u16,
        (address, port): (IpAddr, u16),
        segment: &Segment,
    ) {
        let own = self.network.own_address(way.interface, address);
        let (Some(own), Some(mac)) = (own, way.mac()) else {
            return self.solicit(way.next, way.interface);
        };
        let frame = Frame::tcp(
            (self.mac(way.interface), mac),
            (own, from),
            (address, port),
            (segment.sequence, segment.acknowledgement),
            segment.flags,
            &segment.payload,
        );
        if let Some(frame) = frame {
            self.out.emit(way.interface, frame.bytes());
        }
    }

    /// Asks for a client on a link, so that its MAC address is known when its answer comes. Its packets may be forged, so they do not teach it.
    pub fn seek_client(&mut self, frame: &[u8], headers: &Headers) {
        let client = headers.source(frame);
        if let Some(interface) = self.network.on_link(client) {
            if self.neighbour(client).is_none() {
                self.solicit(client, interface);
            }
        }
    }

    /// Returns the MAC address of a station on a link, if known.
    fn neighbour(&mut self, address: IpAddr) -> Option<MacAddress> {
        if let Some(mac) = self.network.fixed(address) {
            return Some(mac);
        }
        let (key, now) = (Address::from(address), self.context.now());
        let tables = self.neighbours;
        if self.network.is_next(address) {
            let neighbour = tables.next_hops.look(&key, now)?;
            return (neighbour.mac != 0).then(|| MacAddress::from_bits(neighbour.mac));
        }
        let mut settled = tables.stations.look(&key, now)?;
        if settled.settle(now) {
            tables
                .stations
                .update(&key, now, LIFETIME, |entry| entry.settle(now));
        }
        if settled.mac == 0 {
            return None;
        }
        // The tick refreshes next hops; the other stations are refreshed on use.
        let interface = settled.interface as usize;
        if now.saturating_sub(settled.confirmed) > STALE {
            self.solicit(address, interface);
        }
        if let Some(owner) = settled.doubted(now) {
            let may_ask = |entry: &mut Neighbour| entry.may_ask(now);
            if tables.stations.amend(&key, now, may_ask) == Some(true) {
                self.probe(address, interface, MacAddress::from_bits(owner));
            }
        }
        Some(MacAddress::from_bits(settled.mac))
    }

    /// Refreshes the next hops, once a second: asks where one is unknown, stale or in doubt, and forgets those that do not answer.
    pub fn refresh(&mut self) {
        let now = self.context.now();
        let (network, next_hops) = (self.network, &self.neighbours.next_hops);
        for way in network.ways() {
            if network.fixed(way.next).is_some() {
                continue;
            }
            let key = Address::from(way.next);
            let settled = |neighbour: &mut Neighbour| {
                neighbour.settle(now);
                *neighbour
            };
            let known = next_hops.amend(&key, now, settled);
            let Some(neighbour) = known.filter(|neighbour| neighbour.mac != 0) else {
                self.solicit(way.next, way.interface);
                continue;
            };
            let age = now.saturating_sub(neighbour.confirmed);
            if age > LIFETIME {
                next_hops.remove(&key, now);
                way.set_mac(None);
                self.solicit(way.next, way.interface);
                continue;
            }
            way.set_mac(Some(MacAddress::from_bits(neighbour.mac)));
            if let Some(owner) = neighbour.doubted(now) {
                let may_ask = |entry: &mut Neighbour| entry.may_ask(now);
                if next_hops.amend(&key, now, may_ask) == Some(true) {
                    self.probe(way.next, way.interface, MacAddress::from_bits(owner));
                }
            } else if age > STALE {
                self.solicit(way.next, way.interface);
            }
        }
    }

    /// Asks for the next hops whose MAC address is unknown, as far as that is due. Returns whether there are any.
    pub fn seek(&mut self) -> bool {
        let network = self.network;
        let mut found = false;
        for way in network.ways().iter().filter(|way| way.mac().is_none()) {
            found = true;
            self.solicit(way.next, way.interface);
        }
        found
    }

    /// Returns the next station toward an address. A station on a link is asked again if its entry is stale or in doubt.
    #[must_use]
    pub fn station(&mut self, address: IpAddr) -> Station {
        if let Some(interface) = self.network.on_link(address) {
            return match self.neighbour(address) {
                Some(mac) => Station::Known(interface, mac),
                None => Station::Unknown(interface, address),
            };
        }
        match self.network.gateway(address) {
            Some(way) => match way.mac() {
                Some(mac) => Station::Known(way.interface, mac),
                None => Station::Unknown(way.interface, way.next),
            },
            None => Station::Nowhere,
        }
    }

    /// Returns the interface and the MAC address of the next station toward an address, and asks for the latter if it is unknown.
    ///
    /// # Errors
    /// If the packet must be dropped or wait.
    pub fn reach(&mut self, address: IpAddr) -> Result<(usize, MacAddress), Unreached> {
        match self.station(address) {
            Station::Known(interface, mac) => Ok((interface, mac)),
            Station::Unknown(interface, next) => {
                self.solicit(next, interface);
                Err(Unreached::Unresolved)
            }
            Station::Nowhere => Err(Unreached::NoRoute),
        }
    }
}
