//! Checks a configuration; an error names the path, the value, and what was expected.

use std::{collections::HashMap, net::IpAddr};

use nf_balancing::{
    check::{self, Addresses},
    config::wrong,
};
use nf_packet::protocol;
use nf_runtime::Refusal;

use crate::{
    cipher::{Cipher, Identity},
    config::{Association, Config, Encapsulation, Limits, Selector, Tunnel, INSIDE},
    secret::Secret,
    window,
};

/// The most keys that a table has room for.
const MOST_KEYS: usize = 65_536;
/// The SPIs below are reserved (RFC 4303, 2.1).
const FIRST_SPI: u32 = 256;

/// Checks all but the keys.
///
/// # Errors
/// The first fault found.
pub fn check(config: &Config) -> Result<(), Refusal> {
    check::interfaces(&config.interfaces, &config.neighbours)?;
    if config.interfaces.len() > 2 {
        let reason = format!(
            "{} of them, expected 1, or 2: toward the protected networks, and toward the peers",
            config.interfaces.len()
        );
        return wrong("interfaces", reason);
    }
    let known = Addresses::new(&config.interfaces, [])?;
    known.others(&config.neighbours)?;
    if !(1..=MOST_KEYS).contains(&config.keys) {
        let reason = format!("{}, expected 1 to {MOST_KEYS}", config.keys);
        return wrong("keys", reason);
    }
    if let Some(host) = config.ike_host {
        let inside = &config.interfaces[INSIDE];
        if !inside.addresses.iter().any(|own| own.contains(host)) {
            let reason = format!(
                "{host} is not on the link of interfaces[{INSIDE}], which leads to the protected networks"
            );
            return wrong("ike_host", reason);
        }
        known.is_another_host("ike_host", host)?;
    }
    let mut names = HashMap::new();
    let mut spis = [HashMap::new(), HashMap::new()];
    for (index, tunnel) in config.tunnels.iter().enumerate() {
        let path = format!("tunnels[{index}]");
        if let Some(other) = names.insert(&tunnel.name, index) {
            let reason = format!("{:?} is already the name of tunnels[{other}]", tunnel.name);
            return wrong(&format!("{path}.name"), reason);
        }
        ends(&path, config, tunnel)?;
        known.is_another_host(&format!("{path}.remote"), tunnel.remote)?;
        if tunnel.selectors.is_empty() {
            return wrong(&format!("{path}.selectors"), "empty; expected at least one");
        }
        for (number, selector) in tunnel.selectors.iter().enumerate() {
            selects(&format!("{path}.selectors[{number}]"), selector)?;
        }
        for (direction, (name, list)) in directions(tunnel).into_iter().enumerate() {
            for (number, association) in list.iter().enumerate() {
                let path = format!("{path}.{name}[{number}]");
                is_sound(&path, association, name == "inbound")?;
                if let Some(other) = spis[direction].insert(association.spi, path.clone()) {
                    let reason = format!("{:#x} is already the SPI of {other}", association.spi);
                    return wrong(&format!("{path}.spi"), reason);
                }
            }
        }
    }
    Ok(())
}

/// Returns the associations of both directions, with their names.
pub fn directions(tunnel: &Tunnel) -> [(&'static str, &[Association]); 2] {
    [("outbound", &tunnel.outbound), ("inbound", &tunnel.inbound)]
}

fn ends(path: &str, config: &Config, tunnel: &Tunnel) -> Result<(), Refusal> {
    check::name(&format!("{path}.name"), &tunnel.name)?;
    let outside = &config.interfaces[config.outside()];
    if !outside
        .addresses
        .iter()
        .any(|own| own.address == tunnel.local)
    {
        let reason = format!(
            "{} is not an address of interfaces[{}], which leads to the peers",
            tunnel.local,
            config.outside()
        );
        return wrong(&format!("{path}.local"), reason);
    }
    if tunnel.local.is_ipv4() != tunnel.remote.is_ipv4() {
        let reason = format!("{}, expected the IP version of `local`", tunnel.remote);
        return wrong(&format!("{path}.remote"), reason);
    }
    let gateways = &outside.gateways;
    let is_on_link = outside
        .addresses
        .iter()
        .any(|own| own.contains(tunnel.remote));
    if !is_on_link
        && !gateways
            .iter()
            .any(|each| each.is_ipv4() == tunnel.remote.is_ipv4())
    {
        let reason = format!(
            "{} is not on the link of interfaces[{}], which has no gateway of its IP version",
            tunnel.remote,
            config.outside()
        );
        return wrong(&format!("{path}.remote"), reason);
    }
    if tunnel.remote_port == 0 {
        return wrong(&format!("{path}.remote_port"), "0, expected 1 to 65535");
    }
    let Some(keepalive) = tunnel.keepalive else {
        return Ok(());
    };
    let path = format!("{path}.keepalive");
    if tunnel.encapsulation != Encapsulation::Udp {
        return wrong(&path, "only with `encapsulation = \"udp\"`");
    }
    if keepalive.0.as_secs() == 0 {
        return wrong(&path, format!("{keepalive}, expected at least 1s"));
    }
    Ok(())
}

fn selects(path: &str, selector: &Selector) -> Result<(), Refusal> {
    let is_v4 = |address: IpAddr| address.is_ipv4();
    if is_v4(selector.local.address) != is_v4(selector.remote.address) {
        return wrong(path, "`local` and `remote` have different IP versions");
    }
    for (name, ports) in [
        ("local_ports", selector.local_ports),
        ("remote_ports", selector.remote_ports),
    ] {
        let Some([first, last]) = ports else {
            continue;
        };
        let path = format!("{path}.{name}");
        if first > last {
            let reason = format!("[{first}, {last}], expected the first port and the last");
            return wrong(&path, reason);
        }
        if !matches!(selector.protocol, Some(protocol::TCP | protocol::UDP)) {
            return wrong(&path, "only with `protocol` 6 (TCP) or 17 (UDP)");
        }
    }
    Ok(())
}

fn is_sound(path: &str, association: &Association, is_inbound: bool) -> Result<(), Refusal> {
    if association.spi < FIRST_SPI {
        let reason = format!(
            "{}, expected {FIRST_SPI} or more (RFC 4303, 2.1)",
            association.spi
        );
        return wrong(&format!("{path}.spi"), reason);
    }
    if association.secret.is_some() == association.secret_file.is_some() {
        return wrong(path, "expected one of `secret` and `secret_file`");
    }
    if let Some(size) = association.window {
        let path = format!("{path}.window");
        if !is_inbound {
            return wrong(&path, "only inbound");
        }
        if !(window::SMALLEST..=window::LARGEST).contains(&size) {
            let (least, most) = (window::SMALLEST, window::LARGEST);
            return wrong(&path, format!("{size}, expected {least} to {most}"));
        }
    }
    for (name, limits) in [("soft", association.soft), ("hard", association.hard)] {
        let Some(limits) = limits else {
            continue;
        };
        let path = format!("{path}.{name}");
        if limits == Limits::default() {
            return wrong(&path, "empty; expected `bytes`, `packets` or `time`");
        }
        if limits.reached(0, 0, 0) {
            return wrong(&path, "0; expected at least 1");
        }
    }
    Ok(())
}

/// Collects the keys of a configuration; each belongs to one association.
#[derive(Default)]
pub struct Keys(HashMap<Identity, String>);

impl Keys {
    /// Loads the key of an association.
    ///
    /// # Errors
    /// If there is none, or another association has it. The error shows nothing of it.
    pub fn load(&mut self, path: &str, association: &Association) -> Result<Cipher, Refusal> {
        let (name, secret) = match (&association.secret, &association.secret_file) {
            (Some(secret), _) => ("secret", Ok(secret.clone())),
            (None, Some(file)) => ("secret_file", Secret::read(file)),
            (None, None) => ("secret", Err("missing".to_owned())),
        };
        let path = format!("{path}.{name}");
        let cipher = secret
            .and_then(|secret| secret.bytes())
            .and_then(|bytes| Cipher::new(&bytes))
            .or_else(|reason| wrong(&path, reason))?;
        if let Some(other) = self.0.insert(cipher.identity(), path.clone()) {
            let reason = format!(
                "is also the key of {other}; a key for two associations would repeat nonces, which reveals what they encrypt"
            );
            return wrong(&path, reason);
        }
        Ok(cipher)
    }
}

/// Refuses changes of what the state's shape depends on, and of the addresses of tunnels in use.
///
/// # Errors
/// If a new configuration has such a change.
pub fn allows(old: &Config, new: &Config) -> Result<(), Refusal> {
    let fixed = "cannot change while an instance lives; start a new one";
    if old.interfaces != new.interfaces {
        return wrong("interfaces", fixed);
    }
    if old.keys != new.keys {
        return wrong("keys", format!("is {} and {fixed}", old.keys));
    }
    Ok(())
}
