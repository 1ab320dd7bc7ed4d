//! Validates configurations; an error names the path, the value, and what was expected.

mod addresses;
mod modes;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use nf_runtime::Refusal;
use nf_tables::Lifetimes;

use crate::{
    config::{wrong, Backend, Config, HealthKind, Interface, Mode, Protocol, Vip},
    maglev,
};

/// The maximum of backends: a connection's record has 16 bits for the backend, and the last value means none.
pub const MOST_BACKENDS: usize = 0xffff;

/// Checks that ports and interfaces match one to one.
///
/// # Errors
/// If their numbers differ.
pub fn ports(config: &Config, ports: usize) -> Result<(), Refusal> {
    let interfaces = config.interfaces.len();
    if interfaces == ports {
        return Ok(());
    }
    wrong(
        "interfaces",
        format!("{interfaces} of them, but --port is given {ports} times; expected one per port, in the same order"),
    )
}

/// # Errors
/// The first fault found.
pub fn check(config: &Config) -> Result<Lifetimes, Refusal> {
    tables(config)?;
    interfaces(config)?;
    addresses::check(config)?;
    let mut names = HashMap::new();
    let mut services = HashMap::new();
    for (index, vip) in config.vips.iter().enumerate() {
        let path = format!("vips[{index}]");
        name_is_sound(&format!("{path}.name"), &vip.name)?;
        if let Some(other) = names.insert(vip.name.as_str(), index) {
            return wrong(
                &format!("{path}.name"),
                format!("{:?} is already the name of vips[{other}]", vip.name),
            );
        }
        let service = (vip.address, vip.port, vip.protocol);
        if let Some(other) = services.insert(service, &vip.name) {
            return wrong(
                &path,
                format!(
                    "{} port {} of {} already belongs to VIP {other:?}",
                    vip.protocol.name(),
                    vip.port,
                    vip.address
                ),
            );
        }
        check_vip(&path, vip)?;
    }
    answers(config)?;
    offload(config)?;
    lifetimes(config)
}

/// Refuses two VIPs whose answers would look the same: without source NAT, a backend's answer identifies the client but not the VIP.
fn answers(config: &Config) -> Result<(), Refusal> {
    let mut ends = HashMap::new();
    let plain = |vip: &&Vip| vip.mode == Mode::Nat && !vip.snat;
    for (index, vip) in config.vips.iter().enumerate() {
        for (number, backend) in vip.backends.iter().enumerate().filter(|_| plain(&vip)) {
            let port = backend.port.unwrap_or(vip.port);
            let other = ends.insert((backend.address, port, vip.protocol), (index, vip));
            if let Some((_, other)) = other.filter(|(other, _)| *other != index) {
                return wrong(
                    &format!("vips[{index}].backends[{number}]"),
                    format!(
                        "{} port {port} of {} already serves VIP {:?}, and its answers do not tell the two VIPs apart; set snat on one of them, or use another port",
                        vip.protocol.name(),
                        backend.address,
                        other.name
                    ),
                );
            }
        }
    }
    Ok(())
}

/// The maximum length of a name. Names appear in metrics, log lines and answers.
const LONGEST_NAME: usize = 128;

fn name_is_sound(path: &str, name: &str) -> Result<(), Refusal> {
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

fn tables(config: &Config) -> Result<(), Refusal> {
    let tables = &config.tables;
    let sizes = [
        ("connections_ipv4", tables.connections_ipv4, 1 << 28),
        ("connections_ipv6", tables.connections_ipv6, 1 << 28),
        ("sessions", tables.sessions, 1 << 24),
        ("fragments", tables.fragments, 1 << 24),
        ("neighbours", tables.neighbours, 1 << 20),
        ("vips", tables.vips, MOST_BACKENDS),
        ("backends", tables.backends, MOST_BACKENDS),
        ("offload", tables.offload, 1 << 20),
    ];
    for (name, value, most) in sizes {
        if value == 0 || value > most {
            return wrong(
                &format!("tables.{name}"),
                format!("{value}, expected 1 to {most}"),
            );
        }
    }
    if config.vips.len() > tables.vips {
        return wrong(
            "vips",
            format!(
                "{} of them, but tables.vips allows {}",
                config.vips.len(),
                tables.vips
            ),
        );
    }
    let backends: usize = config.vips.iter().map(|vip| vip.backends.len()).sum();
    if backends > tables.backends {
        return wrong(
            "vips",
            format!(
                "{backends} backends, but tables.backends allows {}",
                tables.backends
            ),
        );
    }
    for (name, share) in [
        ("utilisation", config.full.utilisation),
        ("table", config.full.table),
    ] {
        if !(share > 0.0 && share <= 1.0) {
            return wrong(
                &format!("full.{name}"),
                format!("{share}, expected a share: more than 0, at most 1"),
            );
        }
    }
    Ok(())
}

fn offload(config: &Config) -> Result<(), Refusal> {
    let policy = &config.offload;
    for (name, share) in [("begin", policy.begin), ("stop", policy.stop)] {
        if !(0.0..=1.0).contains(&share) {
            return wrong(
                &format!("offload.{name}"),
                format!("{share}, expected a share: 0 to 1"),
            );
        }
    }
    if policy.stop > policy.begin {
        return wrong(
            "offload.stop",
            format!(
                "{}, expected at most offload.begin, which is {}",
                policy.stop, policy.begin
            ),
        );
    }
    let rate = policy.heavy_packets_per_s;
    if !(rate > 0.0 && rate <= 1e9) {
        return wrong(
            "offload.heavy_packets_per_s",
            format!("{rate}, expected more than 0, at most 1000000000"),
        );
    }
    if !(1..=3600).contains(&(policy.idle.nanos() / 1_000_000_000)) {
        return wrong(
            "offload.idle",
            format!("{}, expected 1s to 1h", policy.idle),
        );
    }
    Ok(())
}

fn lifetimes(config: &Config) -> Result<Lifetimes, Refusal> {
    let timeouts = &config.timeouts;
    let in_order = [
        ("opening", timeouts.opening),
        ("established", timeouts.established),
        ("closing", timeouts.closing),
        ("udp", timeouts.udp),
    ];
    for (name, time) in in_order {
        if time.0 > Lifetimes::LONGEST || time.0.is_zero() {
            return wrong(
                &format!("timeouts.{name}"),
                format!(
                    "{time}, expected more than 0 and at most {}s",
                    Lifetimes::LONGEST.as_secs()
                ),
            );
        }
    }
    Lifetimes::new(in_order.map(|(_, time)| time.0)).or_else(|too_long| wrong("timeouts", too_long))
}

fn interfaces(config: &Config) -> Result<(), Refusal> {
    if config.interfaces.is_empty() {
        return wrong("interfaces", "empty; expected one per port");
    }
    for (index, interface) in config.interfaces.iter().enumerate() {
        interface_is_sound(&format!("interfaces[{index}]"), interface)?;
    }
    for (index, neighbour) in config.neighbours.iter().enumerate() {
        let path = format!("neighbours[{index}]");
        modes::station(&format!("{path}.mac"), &neighbour.mac)?;
        if neighbour.interface >= config.interfaces.len() {
            return wrong(
                &format!("{path}.interface"),
                format!(
                    "{}, but there are {} interfaces",
                    neighbour.interface,
                    config.interfaces.len()
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

fn check_vip(path: &str, vip: &Vip) -> Result<(), Refusal> {
    if vip.port == 0 {
        return wrong(&format!("{path}.port"), "0, expected 1 to 65535");
    }
    if vip.gue_port == 0 {
        return wrong(&format!("{path}.gue_port"), "0, expected 1 to 65535");
    }
    modes::vip(path, vip)?;
    health(path, vip)?;
    if vip.backends.len() > maglev::MOST_BACKENDS {
        return wrong(
            &format!("{path}.backends"),
            format!(
                "{} of them, expected at most {}: more would leave some without a slot in the Maglev table",
                vip.backends.len(),
                maglev::MOST_BACKENDS
            ),
        );
    }
    let mut names = HashMap::new();
    let mut endpoints = HashMap::new();
    for (index, backend) in vip.backends.iter().enumerate() {
        let backend_path = format!("{path}.backends[{index}]");
        name_is_sound(&format!("{backend_path}.name"), &backend.name)?;
        if let Some(other) = names.insert(backend.name.as_str(), index) {
            return wrong(
                &format!("{backend_path}.name"),
                format!(
                    "{:?} is already the name of backends[{other}]",
                    backend.name
                ),
            );
        }
        let endpoint = (backend.address, backend.port.unwrap_or(vip.port));
        if let Some(other) = endpoints.insert(endpoint, &backend.name) {
            return wrong(
                &backend_path,
                format!(
                    "{} port {} already belongs to backend {other:?}",
                    endpoint.0, endpoint.1
                ),
            );
        }
        check_backend(&backend_path, vip, backend)?;
    }
    Ok(())
}

fn health(path: &str, vip: &Vip) -> Result<(), Refusal> {
    let Some(health) = &vip.health else {
        return Ok(());
    };
    let path = format!("{path}.health");
    if vip.protocol == Protocol::Udp && health.port.is_none() {
        return wrong(
            &format!("{path}.port"),
            "required with UDP, since checks use TCP",
        );
    }
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
        let host = health.host.as_deref().unwrap_or(&vip.name);
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

fn check_backend(path: &str, vip: &Vip, backend: &Backend) -> Result<(), Refusal> {
    if backend.port == Some(0) {
        return wrong(&format!("{path}.port"), "0, expected 1 to 65535");
    }
    modes::backend(path, vip, backend)
}
