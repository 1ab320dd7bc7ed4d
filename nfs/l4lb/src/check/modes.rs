//! Checks that the options of a VIP and its backends fit its mode.

use nf_balancing::{
    check::{station, version, Addresses},
    config::wrong,
};
use nf_runtime::Refusal;

use crate::config::{Backend, Config, Mode, Protocol, Vip};

/// The greatest identifier of a VXLAN network: it has 24 bits.
const MOST_NETWORK: u32 = 0xff_ffff;

pub(super) fn vip(path: &str, vip: &Vip) -> Result<(), Refusal> {
    let direct = vip.mode != Mode::Nat;
    if vip.snat && direct {
        return wrong(
            &format!("{path}.snat"),
            "requires mode nat: the other modes keep source addresses",
        );
    }
    if vip.proxy_protocol && direct {
        return wrong(
            &format!("{path}.proxy_protocol"),
            "requires mode nat: modes ipip, gue and vxlan do not see the answers, so they cannot insert bytes into the stream; the backend sees the client's address anyway",
        );
    }
    if vip.proxy_protocol && vip.protocol == Protocol::Udp {
        return wrong(
            &format!("{path}.proxy_protocol"),
            "requires TCP: servers do not accept the header in datagrams",
        );
    }
    network(&format!("{path}.vni"), vip)
}

fn network(path: &str, vip: &Vip) -> Result<(), Refusal> {
    match (vip.mode, vip.vni) {
        (Mode::Vxlan, None) => wrong(
            path,
            format!("missing, expected 0 to {MOST_NETWORK}: mode vxlan requires the network that the backends are in"),
        ),
        (Mode::Vxlan, Some(network)) if network > MOST_NETWORK => {
            wrong(path, format!("{network}, expected 0 to {MOST_NETWORK}"))
        }
        (Mode::Vxlan, Some(_)) | (_, None) => Ok(()),
        (_, Some(network)) => wrong(
            path,
            format!("{network} requires mode vxlan: the other modes have no network; remove it"),
        ),
    }
}

pub(super) fn backend(path: &str, vip: &Vip, backend: &Backend) -> Result<(), Refusal> {
    let translates = vip.mode == Mode::Nat || backend.inner_address.is_some();
    if !translates && backend.port.is_some_and(|port| port != vip.port) {
        return wrong(
            &format!("{path}.port"),
            format!(
                "{}, but modes ipip, gue and vxlan without inner_address keep the VIP's port, {}",
                backend.port.unwrap_or_default(),
                vip.port
            ),
        );
    }
    let path = format!("{path}.inner_mac");
    match (vip.mode, &backend.inner_mac) {
        (Mode::Vxlan, None) => wrong(
            &path,
            "missing, expected a MAC address such as 02:00:00:00:00:01: mode vxlan requires the address of the backend's interface in the network",
        ),
        (Mode::Vxlan, Some(mac)) => station(&path, mac),
        (_, None) => Ok(()),
        (_, Some(mac)) => wrong(
            &path,
            format!("{mac:?} requires mode vxlan: the other modes send no inner frame; remove it"),
        ),
    }
}

/// Checks the switch in whose name packets are encapsulated, and the backends that depend on it.
pub(super) fn vtep(known: &Addresses<'_>, config: &Config) -> Result<(), Refusal> {
    for (index, address) in config
        .vtep
        .iter()
        .flat_map(|vtep| &vtep.addresses)
        .enumerate()
    {
        let path = format!("vtep.addresses[{index}]");
        known.is_another_host(&path, *address)?;
        let first = config.vtep.as_ref().and_then(|vtep| vtep.address(*address));
        if first != Some(*address) {
            let version = version(*address);
            return wrong(
                &path,
                format!("{address} is a second {version} address, expected at most one"),
            );
        }
    }
    if let Some(vtep) = &config.vtep {
        station("vtep.mac", &vtep.mac)?;
    }
    for (index, vip) in config.vips.iter().enumerate() {
        for (number, backend) in vip.backends.iter().enumerate() {
            of_vtep(
                &format!("vips[{index}].backends[{number}]"),
                config,
                vip,
                backend,
            )?;
        }
    }
    Ok(())
}

fn of_vtep(path: &str, config: &Config, vip: &Vip, backend: &Backend) -> Result<(), Refusal> {
    let inside = format!("{path}.inner_address");
    match (&config.vtep, backend.inner_address) {
        (_, Some(inner)) if vip.mode != Mode::Vxlan => wrong(
            &inside,
            format!("{inner} requires mode vxlan: the other modes send no inner frame; remove it"),
        ),
        (None, Some(inner)) => wrong(
            &inside,
            format!("{inner} requires the switch that rewrites alike; add vtep"),
        ),
        (_, Some(inner)) if inner.is_ipv4() != vip.address.is_ipv4() => wrong(
            &inside,
            format!(
                "{inner} is {}, the VIP {}: they are not translated",
                version(inner),
                version(vip.address)
            ),
        ),
        (Some(vtep), _) if vip.mode == Mode::Vxlan && vtep.address(backend.address).is_none() => {
            wrong(
                &format!("{path}.address"),
                format!(
                    "{} is {}, but vtep.addresses has no such address",
                    backend.address,
                    version(backend.address)
                ),
            )
        }
        _ => Ok(()),
    }
}

/// Refuses a backend of another IP version than its VIP's where the mode does not translate between them.
pub(super) fn versions(path: &str, vip: &Vip, backend: &Backend) -> Result<(), Refusal> {
    if vip.mode != Mode::Nat || backend.address.is_ipv4() == vip.address.is_ipv4() {
        return Ok(());
    }
    let reason = format!(
        "{} is {}, the VIP {}: mode nat does not translate between them",
        backend.address,
        version(backend.address),
        version(vip.address)
    );
    wrong(path, reason)
}
