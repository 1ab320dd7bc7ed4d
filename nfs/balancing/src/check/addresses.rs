//! Checks addresses: each must be a host address, and belong to one host only.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use nf_runtime::Refusal;

use super::version;
use crate::config::{wrong, Interface, Prefix, StaticNeighbour};

/// The addresses in use by a function: those of its interfaces, and its VIPs.
pub struct Addresses<'a> {
    interfaces: &'a [Interface],
    /// The configuration path of each own address.
    own: HashMap<IpAddr, String>,
    /// The name of the VIP with an address.
    vips: HashMap<IpAddr, &'a str>,
}

impl<'a> Addresses<'a> {
    /// Collects the addresses. `vips`: each VIP's address and name; [`is_vip`](Self::is_vip) checks them.
    ///
    /// # Errors
    /// The first fault of an interface's own address.
    pub fn new(
        interfaces: &'a [Interface],
        vips: impl IntoIterator<Item = (IpAddr, &'a str)>,
    ) -> Result<Self, Refusal> {
        let mut known = Self {
            interfaces,
            own: HashMap::new(),
            vips: vips.into_iter().collect(),
        };
        for (index, interface) in interfaces.iter().enumerate() {
            for (number, prefix) in interface.addresses.iter().enumerate() {
                let path = format!("interfaces[{index}].addresses[{number}]");
                known.is_vip(&path, prefix.address)?;
                known.own.insert(prefix.address, path);
            }
        }
        Ok(known)
    }

    fn prefixes(&self) -> impl Iterator<Item = &'a Prefix> {
        self.interfaces.iter().flat_map(|each| &each.addresses)
    }

    /// Checks that the table of neighbours has room for each next hop: a gateway, or a destination on a link.
    ///
    /// # Errors
    /// If it has not.
    pub fn next_hops_fit(
        &self,
        capacity: usize,
        destinations: impl IntoIterator<Item = IpAddr>,
    ) -> Result<(), Refusal> {
        let gateways = self.interfaces.iter().flat_map(|each| &each.gateways);
        let on_link = destinations
            .into_iter()
            .filter(|address| self.prefixes().any(|prefix| prefix.contains(*address)));
        let next_hops: HashSet<IpAddr> = gateways.copied().chain(on_link).collect();
        if next_hops.len() > capacity {
            let reason = format!(
                "{capacity}, expected at least {}, the number of gateways and backends on the links",
                next_hops.len()
            );
            return wrong("tables.neighbours", reason);
        }
        Ok(())
    }

    /// Checks the addresses of gateways and configured neighbours.
    ///
    /// # Errors
    /// The first fault found.
    pub fn others(&self, neighbours: &[StaticNeighbour]) -> Result<(), Refusal> {
        for (index, interface) in self.interfaces.iter().enumerate() {
            for (number, gateway) in interface.gateways.iter().enumerate() {
                let path = format!("interfaces[{index}].gateways[{number}]");
                self.is_another_host(&path, *gateway)?;
            }
        }
        let mut found = HashMap::new();
        for (index, neighbour) in neighbours.iter().enumerate() {
            let path = format!("neighbours[{index}].address");
            self.is_another_host(&path, neighbour.address)?;
            if let Some(other) = found.insert(neighbour.address, index) {
                let reason = format!(
                    "{} is already the address of neighbours[{other}]",
                    neighbour.address
                );
                return wrong(&path, reason);
            }
        }
        Ok(())
    }

    /// Checks that a VIP can have the address.
    ///
    /// # Errors
    /// If it is not a host address, or an interface's own.
    pub fn is_vip(&self, path: &str, address: IpAddr) -> Result<(), Refusal> {
        self.is_host(path, address)?;
        self.is_not_own(path, address)
    }

    /// Checks that one host can have the address.
    fn is_host(&self, path: &str, address: IpAddr) -> Result<(), Refusal> {
        if let Some(kind) = special(address) {
            let reason = format!("{address} is not a host address: it is {kind}");
            return wrong(path, reason);
        }
        for prefix in self.prefixes() {
            if let Some(kind) = special_in(prefix, address) {
                let reason = format!(
                    "{address} is not a host address: it is the {kind} of {}/{}",
                    prefix.address, prefix.length
                );
                return wrong(path, reason);
            }
        }
        Ok(())
    }

    fn is_not_own(&self, path: &str, address: IpAddr) -> Result<(), Refusal> {
        match self.own.get(&address) {
            Some(other) => wrong(
                path,
                format!("{address} is an interface's own address ({other})"),
            ),
            None => Ok(()),
        }
    }

    /// Checks that the address can belong to another host.
    ///
    /// # Errors
    /// If it is not a host address, or the function's own.
    pub fn is_another_host(&self, path: &str, address: IpAddr) -> Result<(), Refusal> {
        self.is_host(path, address)?;
        self.is_not_own(path, address)?;
        match self.vips.get(&address) {
            Some(name) => wrong(path, format!("{address} is the address of VIP {name:?}")),
            None => Ok(()),
        }
    }

    /// Checks that an interface has an address of this IP version.
    ///
    /// # Errors
    /// If none has.
    pub fn is_reached(&self, path: &str, address: IpAddr) -> Result<(), Refusal> {
        let reaches = |prefix: &Prefix| prefix.address.is_ipv4() == address.is_ipv4();
        if self.prefixes().any(reaches) {
            return Ok(());
        }
        let reason = format!(
            "{address}: no interface has an {} address to reach it from",
            version(address)
        );
        wrong(path, reason)
    }
}

/// Describes an address that no host can have on any network.
fn special(address: IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("unspecified");
    }
    if address.is_loopback() {
        return Some("a loopback address");
    }
    if address.is_multicast() {
        return Some("a multicast group");
    }
    match address {
        IpAddr::V4(address) if address.is_broadcast() => Some("the broadcast address"),
        IpAddr::V4(address) if address.octets()[0] == 0 => Some("in \"this network\", 0.0.0.0/8"),
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Some("an IPv4 address in IPv6 notation; write it as IPv4")
        }
        _ => None,
    }
}

/// Describes an address that no host of a network can have. The longest prefixes have none (RFC 3021, RFC 6164).
fn special_in(prefix: &Prefix, address: IpAddr) -> Option<&'static str> {
    if !prefix.contains(address) {
        return None;
    }
    match address {
        IpAddr::V4(address) if prefix.length <= 30 => {
            let host = u32::MAX >> prefix.length;
            match address.to_bits() & host {
                0 => Some("network address"),
                bits if bits == host => Some("broadcast address"),
                _ => None,
            }
        }
        IpAddr::V6(address) if prefix.length <= 126 => {
            let host = u128::MAX >> prefix.length;
            (address.to_bits() & host == 0).then_some("subnet-router anycast address")
        }
        _ => None,
    }
}
