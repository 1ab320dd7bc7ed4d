//! MAC addresses of the stations on the links: learnt only from ARP and neighbour discovery, refreshed, and forgotten.
//!
//! Next hops (gateways and backends) have their own table: only the configuration adds to it, so other stations cannot fill it. Clients on a
//! link are in a second table, which first evicts those that never answered.

use std::net::IpAddr;

use bytemuck::Zeroable;
use nf_packet::{Headers, MacAddress};

use crate::{
    claims::{Heard, Manner},
    frames::Frame,
    pass::Pass,
    snapshot::Owner,
    state::{Address, Neighbour},
};

const SECOND: u64 = 1_000_000_000;
/// An entry's lifetime without confirmation.
pub const LIFETIME: u64 = 120 * SECOND;
/// The age at which an entry is stale and its owner is asked again.
const STALE: u64 = 30 * SECOND;
/// The time that other stations have to answer the first question.
const UNANSWERED: u64 = 3 * SECOND;

impl Pass<'_> {
    /// Learns a station's address. Adds an unknown station only if `is_new` allows it.
    pub(crate) fn learn(
        &mut self,
        (address, mac): (IpAddr, MacAddress),
        interface: usize,
        manner: Manner,
        is_new: bool,
    ) {
        if mac.is_multicast()
            || mac.to_bits() == 0
            || self.snapshot.on_link(address) != Some(interface)
            || self.snapshot.fixed(address).is_some()
            || matches!(
                self.snapshot.owner(address),
                Some(Owner::Vip | Owner::Own(_))
            )
        {
            return;
        }
        let (key, now) = (Address::from(address), self.context.now());
        let hear = |neighbour: &mut Neighbour| {
            neighbour.interface = interface as u64;
            neighbour.hear(mac.to_bits(), manner, now)
        };
        let is_next = self.snapshot.is_next(address);
        let state = self.state;
        let known = if is_next {
            let neighbours = &state.neighbours;
            neighbours.update_or_insert(&key, now, LIFETIME, Neighbour::zeroed, hear)
        } else {
            state.stations.update(&key, now, LIFETIME, hear)
        };
        match known {
            Some(heard) => self.follow(address, interface, mac, heard),
            None if is_new && !is_next => {
                let mut neighbour = Neighbour::zeroed();
                hear(&mut neighbour);
                // Unanswered questions expire first and make room for known stations.
                state.stations.replace(&key, now, LIFETIME, neighbour);
            }
            None => {}
        }
    }

    /// Applies the consequences of a message from a station.
    fn follow(&mut self, address: IpAddr, interface: usize, mac: MacAddress, heard: Heard) {
        if heard.changed {
            self.snapshot.set_mac(address, interface, mac);
        }
        if let Some(owner) = heard.ask {
            self.probe(address, interface, MacAddress::from_bits(owner));
        }
    }

    /// Asks one station whether it still has an address.
    fn probe(&mut self, address: IpAddr, interface: usize, station: MacAddress) {
        let own = self.own_address(address, interface);
        let macs = (self.mac(interface), station);
        if let Some(frame) = own.and_then(|own| Frame::probe(macs, own, address)) {
            self.out.emit(interface, frame.bytes());
        }
    }

    fn own_address(&self, like: IpAddr, interface: usize) -> Option<IpAddr> {
        self.snapshot.interfaces.get(interface)?.address(like)
    }

    /// Asks all stations for an address, at most once a second.
    pub(crate) fn solicit(&mut self, address: IpAddr, interface: usize) {
        let (key, now) = (Address::from(address), self.context.now());
        let ask = |neighbour: &mut Neighbour| neighbour.may_ask(now);
        let state = self.state;
        let due = if self.snapshot.is_next(address) {
            let neighbours = &state.neighbours;
            neighbours.update_or_insert(&key, now, LIFETIME, Neighbour::zeroed, ask)
        } else {
            let stations = &state.stations;
            stations.amend(&key, now, ask).or_else(|| {
                stations.update_or_insert(&key, now, UNANSWERED, Neighbour::zeroed, ask)
            })
        };
        let own = self.own_address(address, interface);
        if let (Some(true), Some(own)) = (due, own) {
            if let Some(frame) = Frame::solicitation(self.mac(interface), own, address) {
                self.out.emit(interface, frame.bytes());
            }
        }
    }

    /// Asks for a client on a link, so that its MAC address is known when its answer comes. Its packets may be forged, so they do not teach it.
    pub(crate) fn seek_client(&mut self, frame: &[u8], headers: &Headers) {
        let client = headers.source(frame);
        if let Some(interface) = self.snapshot.on_link(client) {
            if self.neighbour(client).is_none() {
                self.solicit(client, interface);
            }
        }
    }

    /// Returns the MAC address of a station on a link, if known.
    pub(crate) fn neighbour(&mut self, address: IpAddr) -> Option<MacAddress> {
        if let Some(mac) = self.snapshot.fixed(address) {
            return Some(mac);
        }
        let (key, now) = (Address::from(address), self.context.now());
        let state = self.state;
        if self.snapshot.is_next(address) {
            let neighbour = state.neighbours.look(&key, now)?;
            return (neighbour.mac != 0).then(|| MacAddress::from_bits(neighbour.mac));
        }
        let mut settled = state.stations.look(&key, now)?;
        if settled.settle(now) {
            state
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
            if state.stations.amend(&key, now, may_ask) == Some(true) {
                self.probe(address, interface, MacAddress::from_bits(owner));
            }
        }
        Some(MacAddress::from_bits(settled.mac))
    }

    /// Refreshes the next hops, once a second: asks where one is unknown, stale or in doubt, and forgets those that do not answer.
    pub(crate) fn refresh_neighbours(&mut self) {
        let now = self.context.now();
        let snapshot = self.snapshot;
        for way in snapshot.ways() {
            if snapshot.fixed(way.next).is_some() {
                continue;
            }
            let key = Address::from(way.next);
            let settled = |neighbour: &mut Neighbour| (neighbour.settle(now), *neighbour);
            let known = self.state.neighbours.amend(&key, now, settled);
            let Some((changed, neighbour)) = known.filter(|(_, neighbour)| neighbour.mac != 0)
            else {
                self.solicit(way.next, way.interface);
                continue;
            };
            let age = now.saturating_sub(neighbour.confirmed);
            if age > LIFETIME {
                self.state.neighbours.remove(&key, now);
                snapshot.forget_mac(way.next);
                self.solicit(way.next, way.interface);
                continue;
            }
            if changed {
                let mac = MacAddress::from_bits(neighbour.mac);
                snapshot.set_mac(way.next, way.interface, mac);
            } else if way.mac().is_none() {
                way.set_mac(Some(MacAddress::from_bits(neighbour.mac)));
            }
            if let Some(owner) = neighbour.doubted(now) {
                let may_ask = |entry: &mut Neighbour| entry.may_ask(now);
                if self.state.neighbours.amend(&key, now, may_ask) == Some(true) {
                    self.probe(way.next, way.interface, MacAddress::from_bits(owner));
                }
            } else if age > STALE {
                self.solicit(way.next, way.interface);
            }
        }
    }

    /// Returns the interface and next hop for an address.
    pub(crate) fn station(&mut self, address: IpAddr) -> Station {
        if let Some(interface) = self.snapshot.on_link(address) {
            return match self.neighbour(address) {
                Some(mac) => Station::Known(interface, mac),
                None => Station::Unknown(interface, address),
            };
        }
        match self.snapshot.gateway(address) {
            Some(way) => match way.mac() {
                Some(mac) => Station::Known(way.interface, mac),
                None => Station::Unknown(way.interface, way.next),
            },
            None => Station::Nowhere,
        }
    }
}

/// The next station of a packet.
pub(crate) enum Station {
    Known(usize, MacAddress),
    /// The address is known, the MAC address is not.
    Unknown(usize, IpAddr),
    Nowhere,
}
