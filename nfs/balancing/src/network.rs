//! The networks around a function: its links, its own addresses, and the ways to all destinations.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use nf_packet::MacAddress;

use crate::{
    config::{self, StaticNeighbour},
    tables::Neighbours,
    tuple::Address,
    ways::{Interface, Way},
};

/// The networks around a function, as configured. Only the MAC addresses of its ways change after it is built.
#[derive(Default)]
pub struct Network {
    interfaces: Vec<Interface>,
    addresses: HashMap<IpAddr, Owner>,
    /// The VIPs, each once, in the order of the configuration.
    vips: Vec<IpAddr>,
    /// The ways to gateways and destinations, each once.
    ways: Vec<Arc<Way>>,
    /// The next hops of all ways.
    nexts: HashSet<IpAddr>,
    /// The configured neighbours, with their interfaces.
    fixed: HashMap<IpAddr, (usize, MacAddress)>,
}

/// The owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The function, on all links.
    Vip,
    /// The interface with this index.
    Interface(usize),
}

impl Network {
    /// Builds the networks of a configuration that `check` has accepted, without VIPs and destinations.
    #[must_use]
    pub fn new(interfaces: &[config::Interface], neighbours: &[StaticNeighbour]) -> Self {
        let fixed = neighbours.iter().filter_map(|neighbour| {
            let mac = neighbour.mac.parse().ok()?;
            Some((neighbour.address, (neighbour.interface, mac)))
        });
        let mut network = Self {
            fixed: fixed.collect(),
            ..Self::default()
        };
        for (index, interface) in interfaces.iter().enumerate() {
            let mtu = interface.mtu.into();
            let gateways = interface.gateways.iter();
            let gateways: Vec<Arc<Way>> = gateways
                .map(|gateway| network.add(*gateway, index, mtu))
                .collect();
            for prefix in &interface.addresses {
                let owner = Owner::Interface(index);
                network.addresses.insert(prefix.address, owner);
            }
            network.interfaces.push(Interface {
                mtu,
                prefixes: interface.addresses.clone(),
                gateways,
            });
        }
        network
    }

    fn add(&mut self, next: IpAddr, interface: usize, mtu: usize) -> Arc<Way> {
        let mut ways = self.ways.iter();
        let is_same = |way: &&Arc<Way>| way.next == next && way.interface == interface;
        if self.nexts.contains(&next) {
            if let Some(way) = ways.find(is_same) {
                return Arc::clone(way);
            }
        }
        let way = Arc::new(Way::new(next, interface, mtu));
        if let Some((at, mac)) = self.fixed.get(&next) {
            if *at == interface {
                way.set_mac(Some(*mac));
            }
        }
        self.nexts.insert(next);
        self.ways.push(Arc::clone(&way));
        way
    }

    /// Adds an address that the function owns on all links.
    pub fn add_vip(&mut self, address: IpAddr) {
        if self.addresses.insert(address, Owner::Vip) != Some(Owner::Vip) {
            self.vips.push(address);
        }
    }

    /// Adds a destination that the function sends to, such as a backend, and returns the way there. Destinations behind one next hop share a way.
    pub fn add_destination(&mut self, address: IpAddr) -> Arc<Way> {
        let (interface, next) = self.route(address).unwrap_or((0, address));
        let mtu = self.interfaces.get(interface).map_or(0, |each| each.mtu);
        self.add(next, interface, mtu)
    }

    /// Fills in the MAC addresses of known neighbours.
    pub fn resolve(&self, neighbours: &Neighbours, now: u64) {
        for way in self.ways.iter().filter(|way| way.mac().is_none()) {
            let known = neighbours.next_hops.look(&Address::from(way.next), now);
            if let Some(neighbour) = known.filter(|neighbour| neighbour.mac != 0) {
                way.set_mac(Some(MacAddress::from_bits(neighbour.mac)));
            }
        }
    }

    /// Returns the owner of an address of the function.
    #[inline]
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<Owner> {
        self.addresses.get(&address).copied()
    }

    /// Returns the addresses that the function owns on all links.
    #[must_use]
    pub fn vips(&self) -> &[IpAddr] {
        &self.vips
    }

    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Returns an interface's own address of the same IP version as `like`: the source of what the function itself sends there.
    #[must_use]
    pub fn own_address(&self, interface: usize, like: IpAddr) -> Option<IpAddr> {
        self.interfaces.get(interface)?.address(like)
    }

    /// Returns the interface and next hop for an address: its own link first, else a gateway.
    fn route(&self, address: IpAddr) -> Option<(usize, IpAddr)> {
        let on_link = self.on_link(address).map(|interface| (interface, address));
        on_link.or_else(|| {
            let gateway = self.gateway(address)?;
            Some((gateway.interface, gateway.next))
        })
    }

    /// Returns the interface whose link has the address.
    #[must_use]
    pub fn on_link(&self, address: IpAddr) -> Option<usize> {
        self.interfaces.iter().position(|interface| {
            let mut prefixes = interface.prefixes.iter();
            prefixes.any(|prefix| prefix.contains(address))
        })
    }

    /// Returns the way to the first gateway of the address's IP version.
    #[must_use]
    pub fn gateway(&self, address: IpAddr) -> Option<&Way> {
        let mut gateways = self.interfaces.iter().flat_map(|each| &each.gateways);
        let same = |way: &&Arc<Way>| way.next.is_ipv4() == address.is_ipv4();
        gateways.find(same).map(|way| &**way)
    }

    /// Returns the MAC address of a configured neighbour, which is neither asked for nor learnt.
    #[must_use]
    pub fn fixed(&self, address: IpAddr) -> Option<MacAddress> {
        self.fixed.get(&address).map(|(_, mac)| *mac)
    }

    /// Tells whether it is a next hop: a gateway, or a destination on a link.
    pub(crate) fn is_next(&self, address: IpAddr) -> bool {
        self.nexts.contains(&address)
    }

    /// Returns every way whose next hop must be resolved.
    pub(crate) fn ways(&self) -> &[Arc<Way>] {
        &self.ways
    }

    /// Sets a neighbour's MAC address.
    pub(crate) fn set_mac(&self, address: IpAddr, interface: usize, mac: MacAddress) {
        for way in &self.ways {
            if way.next == address && way.interface == interface {
                way.set_mac(Some(mac));
            }
        }
    }

    /// Returns the MAC address of the next station toward an address, if it is known; asks no station.
    #[must_use]
    pub fn known_station(
        &self,
        neighbours: &Neighbours,
        address: IpAddr,
        now: u64,
    ) -> Option<MacAddress> {
        if let Some(mac) = self.fixed(address) {
            return Some(mac);
        }
        if self.on_link(address).is_none() {
            return self.gateway(address)?.mac();
        }
        let table = match self.is_next(address) {
            true => &neighbours.next_hops,
            false => &neighbours.stations,
        };
        let known = table.look(&Address::from(address), now)?;
        (known.mac != 0).then(|| MacAddress::from_bits(known.mac))
    }
}
