//! Validates configurations; an error names the path, the value, and what was expected.

mod modes;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use nf_balancing::{
    check::{self, Addresses},
    config::wrong,
    maglev,
};
use nf_runtime::Refusal;
use nf_tables::Lifetimes;

use crate::config::{Backend, Config, Mode, Protocol, Vip};

/// The maximum of backends: a connection's record has 16 bits for the backend, and the last value means none.
pub const MOST_BACKENDS: usize = 0xffff;

/// # Errors
/// The first fault found.
pub fn check(config: &Config) -> Result<Lifetimes, Refusal> {
    tables(config)?;
    check::interfaces(&config.interfaces, &config.neighbours)?;
    addresses(config)?;
    let mut names = HashMap::new();
    let mut services = HashMap::new();
    for (index, vip) in config.vips.iter().enumerate() {
        let path = format!("vips[{index}]");
        check::name(&format!("{path}.name"), &vip.name)?;
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

/// Checks that each address belongs to one host, and that each next hop has room.
fn addresses(config: &Config) -> Result<(), Refusal> {
    let vips = config
        .vips
        .iter()
        .map(|vip| (vip.address, vip.name.as_str()));
    let known = Addresses::new(&config.interfaces, vips)?;
    let backends = config.vips.iter().flat_map(|vip| &vip.backends);
    known.next_hops_fit(
        config.tables.neighbours,
        backends.map(|backend| backend.address),
    )?;
    known.others(&config.neighbours)?;
    modes::vtep(&known, config)?;
    for (index, vip) in config.vips.iter().enumerate() {
        let path = format!("vips[{index}]");
        known.is_vip(&format!("{path}.address"), vip.address)?;
        for (number, backend) in vip.backends.iter().enumerate() {
            let path = format!("{path}.backends[{number}].address");
            known.is_another_host(&path, backend.address)?;
            modes::versions(&path, vip, backend)?;
            known.is_reached(&path, backend.address)?;
        }
    }
    Ok(())
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
    if !(1..=1024).contains(&policy.sampling) {
        return wrong(
            "offload.sampling",
            format!("{}, expected 1 to 1024", policy.sampling),
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
        check::name(&format!("{backend_path}.name"), &backend.name)?;
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
    nf_balancing::check::health(&path, health, &vip.name)
}

fn check_backend(path: &str, vip: &Vip, backend: &Backend) -> Result<(), Refusal> {
    if backend.port == Some(0) {
        return wrong(&format!("{path}.port"), "0, expected 1 to 65535");
    }
    modes::backend(path, vip, backend)
}
