//! Checks addresses: each must be a host address, and belong to one host only.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use nf_runtime::Refusal;

use crate::config::{wrong, Backend, Config, Mode, Prefix, Vip};

pub(super) fn check(config: &Config) -> Result<(), Refusal> {
    let known = Known::new(config)?;
    next_hops_fit(config, &known)?;
    for (index, interface) in config.interfaces.iter().enumerate() {
        for (number, gateway) in interface.gateways.iter().enumerate() {
            let path = format!("interfaces[{index}].gateways[{number}]");
            known.is_another_host(&path, *gateway)?;
        }
    }
    let mut neighbours = HashMap::new();
    for (index, neighbour) in config.neighbours.iter().enumerate() {
        let path = format!("neighbours[{index}].address");
        known.is_another_host(&path, neighbour.address)?;
        if let Some(other) = neighbours.insert(neighbour.address, index) {
            let reason = format!(
                "{} is already the address of neighbours[{other}]",
                neighbour.address
            );
            return wrong(&path, reason);
        }
    }
    for (index, vip) in config.vips.iter().enumerate() {
        let path = format!("vips[{index}]");
        known.is_host(&format!("{path}.address"), vip.address)?;
        known.is_not_own(&format!("{path}.address"), vip.address)?;
        for (number, backend) in vip.backends.iter().enumerate() {
            known.is_backend(&format!("{path}.backends[{number}].address"), vip, backend)?;
        }
    }
    Ok(())
}

/// Checks that the table has room for each next hop: a gateway, or a backend on a link.
fn next_hops_fit(config: &Config, known: &Known<'_>) -> Result<(), Refusal> {
    let gateways = config.interfaces.iter().flat_map(|each| &each.gateways);
    let backends = config.vips.iter().flat_map(|vip| &vip.backends);
    let on_link = backends.map(|backend| &backend.address).filter(|address| {
        known
            .prefixes
            .iter()
            .any(|prefix| prefix.contains(**address))
    });
    let next_hops: HashSet<&IpAddr> = gateways.chain(on_link).collect();
    if next_hops.len() > config.tables.neighbours {
        let reason = format!(
            "{}, expected at least {}, the number of gateways and backends on the links",
            config.tables.neighbours,
            next_hops.len()
        );
        return wrong("tables.neighbours", reason);
    }
    Ok(())
}

/// The addresses in use by the load balancer.
struct Known<'a> {
    prefixes: Vec<Prefix>,
    /// The configuration path of each own address.
    own: HashMap<IpAddr, String>,
    vips: HashMap<IpAddr, &'a str>,
}

impl<'a> Known<'a> {
    fn new(config: &'a Config) -> Result<Self, Refusal> {
        let prefixes = config
            .interfaces
            .iter()
            .flat_map(|interface| interface.addresses.iter().copied());
        let vips = config.vips.iter();
        let mut known = Self {
            prefixes: prefixes.collect(),
            own: HashMap::new(),
            vips: vips.map(|vip| (vip.address, vip.name.as_str())).collect(),
        };
        for (index, interface) in config.interfaces.iter().enumerate() {
            for (number, prefix) in interface.addresses.iter().enumerate() {
                let path = format!("interfaces[{index}].addresses[{number}]");
                known.is_host(&path, prefix.address)?;
                known.is_not_own(&path, prefix.address)?;
                known.own.insert(prefix.address, path);
            }
        }
        Ok(known)
    }

    /// Checks that one host can have the address.
    fn is_host(&self, path: &str, address: IpAddr) -> Result<(), Refusal> {
        if let Some(kind) = special(address) {
            let reason = format!("{address} is not a host address: it is {kind}");
            return wrong(path, reason);
        }
        for prefix in &self.prefixes {
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
    fn is_another_host(&self, path: &str, address: IpAddr) -> Result<(), Refusal> {
        self.is_host(path, address)?;
        self.is_not_own(path, address)?;
        match self.vips.get(&address) {
            Some(name) => wrong(path, format!("{address} is the address of VIP {name:?}")),
            None => Ok(()),
        }
    }

    fn is_backend(&self, path: &str, vip: &Vip, backend: &Backend) -> Result<(), Refusal> {
        let address = backend.address;
        self.is_another_host(path, address)?;
        let version = |address: IpAddr| if address.is_ipv4() { "IPv4" } else { "IPv6" };
        if vip.mode == Mode::Nat && address.is_ipv4() != vip.address.is_ipv4() {
            let reason = format!(
                "{address} is {}, the VIP {}: mode nat does not translate between them",
                version(address),
                version(vip.address)
            );
            return wrong(path, reason);
        }
        let is_reached = |prefix: &Prefix| prefix.address.is_ipv4() == address.is_ipv4();
        if !self.prefixes.iter().any(is_reached) {
            let reason = format!(
                "{address}: no interface has an {} address to reach it from",
                version(address)
            );
            return wrong(path, reason);
        }
        Ok(())
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
