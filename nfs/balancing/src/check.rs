//! Validates the shared parts of configurations; an error names the path, the value, and what was expected.

mod addresses;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use nf_packet::MacAddress;
use nf_runtime::Refusal;

use crate::config::{wrong, Health, HealthKind, Interface, StaticNeighbour};

pub use addresses::Addresses;

/// Checks that ports and interfaces match one to one.
///
/// # Errors
/// If their numbers differ.
pub fn ports(interfaces: &[Interface], ports: usize) -> Result<(), Refusal> {
    let interfaces = interfaces.len();
    if interfaces == ports {
        return Ok(());
    }
    wrong(
        "interfaces",
        format!("{interfaces} of them, but --port is given {ports} times; expected one per port, in the same order"),
    )
}

/// The maximum length of a name. Names appear in metrics, log lines and answers.
const LONGEST_NAME: usize = 128;

/// Checks that a name is short and printable.
///
/// # Errors
/// If it is not.
pub fn name(path: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        return wrong(path, "empty");
    }
    if name.len() > LONGEST_NAME {
        return wrong(
            path,
            format!(
                "{} bytes, expected at most {LONGEST_NAME}: every metric contains it",
                name.len()
            ),
        );
    }
    if name.contains(char::is_control) {
        return wrong(path, format!("{name:?} has control characters"));
    }
    Ok(())
}

/// Checks the interfaces and the configured neighbours, apart from the neighbours' addresses: [`Addresses`] checks these.
///
/// # Errors
/// The first fault found.
pub fn interfaces(interfaces: &[Interface], neighbours: &[StaticNeighbour]) -> Result<(), Refusal> {
    if interfaces.is_empty() {
        return wrong("interfaces", "empty; expected one per port");
    }
    for (index, interface) in interfaces.iter().enumerate() {
        interface_is_sound(&format!("interfaces[{index}]"), interface)?;
    }
    for (index, neighbour) in neighbours.iter().enumerate() {
        let path = format!("neighbours[{index}]");
        station(&format!("{path}.mac"), &neighbour.mac)?;
        if neighbour.interface >= interfaces.len() {
            return wrong(
                &format!("{path}.interface"),
                format!(
                    "{}, but there are {} interfaces",
                    neighbour.interface,
                    interfaces.len()
                ),
            );
        }
    }
    Ok(())
}

fn interface_is_sound(path: &str, interface: &Interface) -> Result<(), Refusal> {
    if interface.mtu < 1280 || usize::from(interface.mtu) > nf_runtime::MAX_FRAME - 22 {
        return wrong(
            &format!("{path}.mtu"),
            format!(
                "{}, expected 1280 to {} bytes",
                interface.mtu,
                nf_runtime::MAX_FRAME - 22
            ),
        );
    }
    for (index, gateway) in interface.gateways.iter().enumerate() {
        let gateway_path = format!("{path}.gateways[{index}]");
        if interface.gateways[..index]
            .iter()
            .any(|other| other.is_ipv4() == gateway.is_ipv4())
        {
            return wrong(
                &gateway_path,
                format!("{gateway} is a second gateway of its IP version; expected at most one"),
            );
        }
        if !interface
            .addresses
            .iter()
            .any(|prefix| prefix.contains(*gateway))
        {
            return wrong(
                &gateway_path,
                format!("{gateway} is not in the network of any address of the interface"),
            );
        }
    }
    Ok(())
}

/// Checks the options of a health check. `host`: the Host header where the check names none.
///
/// # Errors
/// The first fault found.
pub fn health(path: &str, health: &Health, host: &str) -> Result<(), Refusal> {
    if health.port == Some(0) {
        return wrong(&format!("{path}.port"), "0, expected 1 to 65535");
    }
    for (name, count) in [("rise", health.rise), ("fall", health.fall)] {
        if count == 0 {
            return wrong(&format!("{path}.{name}"), "0, expected 1 or more");
        }
    }
    if health.timeout > health.interval || health.timeout.0.is_zero() {
        return wrong(
            &format!("{path}.timeout"),
            format!(
                "{}, expected more than 0 and at most the interval, {}",
                health.timeout, health.interval
            ),
        );
    }
    if health.kind == HealthKind::Http {
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !health.path.starts_with('/') || !plain(&health.path) || health.path.len() > 512 {
            return wrong(
                &format!("{path}.path"),
                format!("{:?}, expected a path such as \"/healthy\"", health.path),
            );
        }
        let host = health.host.as_deref().unwrap_or(host);
        if !plain(host) || host.is_empty() || host.len() > 255 {
            return wrong(
                &format!("{path}.host"),
                format!("{host:?} is not a valid Host header"),
            );
        }
        if health.status.is_empty() || health.status.iter().any(|code| !(100..600).contains(code)) {
            return wrong(
                &format!("{path}.status"),
                format!("{:?}, expected codes from 100 to 599", health.status),
            );
        }
    }
    Ok(())
}

/// Checks that a text is the MAC address of one station.
///
/// # Errors
/// If it is not.
pub fn station(path: &str, text: &str) -> Result<(), Refusal> {
    match text.parse::<MacAddress>() {
        Err(reason) => wrong(path, reason),
        Ok(mac) if mac.is_multicast() || mac.to_bits() == 0 => {
            wrong(path, format!("{mac} is not the address of a station"))
        }
        Ok(_) => Ok(()),
    }
}

/// Names the IP version of an address.
#[must_use]
pub const fn version(address: IpAddr) -> &'static str {
    if address.is_ipv4() {
        "IPv4"
    } else {
        "IPv6"
    }
}
