//! The configuration of `tswitch`, as written (TOML or JSON); `docs/tiara.md` explains it.

use std::net::IpAddr;

use nf_balancing::{
    check::{self, Addresses},
    config::{wrong, Interface, StaticNeighbour},
};
use nf_runtime::Refusal;
use serde::{Deserialize, Serialize};

use super::{servers::Server, sides::INSIDE};
use crate::peers::{self, Station};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// That toward the Internet, and that toward the datacenter; the addresses of the latter are the switch's tunnel endpoints.
    pub interfaces: Vec<Interface>,
    #[serde(default)]
    pub neighbours: Vec<StaticNeighbour>,
    pub vips: Vec<IpAddr>,
    /// The source of inner frames.
    pub mac: String,
    pub nics: Vec<Nic>,
    /// The software load balancers behind the T-NICs.
    pub muxes: Vec<Station>,
    /// Rows of the RS table from the start on; `tswitch.put_servers` adds others.
    #[serde(default)]
    pub servers: Vec<Server>,
}

/// A T-NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    pub name: String,
    pub address: IpAddr,
    /// The names of the software load balancers behind it: they get its packets while it is dead.
    pub muxes: Vec<String>,
}

impl Nic {
    #[must_use]
    pub fn station(&self) -> Station {
        Station {
            name: self.name.clone(),
            address: self.address,
        }
    }
}

/// # Errors
/// The first fault found.
pub fn check(config: &Config) -> Result<(), Refusal> {
    check::interfaces(&config.interfaces, &config.neighbours)?;
    if config.interfaces.len() != 2 {
        return wrong(
            "interfaces",
            format!(
                "{} of them, expected 2: toward the Internet, and toward the datacenter",
                config.interfaces.len()
            ),
        );
    }
    check::station("mac", &config.mac)?;
    let nics: Vec<Station> = config.nics.iter().map(Nic::station).collect();
    peers::check("nics", &nics)?;
    peers::check("muxes", &config.muxes)?;
    for (index, nic) in config.nics.iter().enumerate() {
        let is_unknown = |name: &&String| !config.muxes.iter().any(|mux| mux.name == **name);
        if let Some(name) = nic.muxes.iter().find(is_unknown) {
            return wrong(
                &format!("nics[{index}].muxes"),
                format!("{name:?} is not the name of one of `muxes`"),
            );
        }
    }
    let vips = config.vips.iter().map(|vip| (*vip, "a VIP"));
    let known = Addresses::new(&config.interfaces, vips)?;
    for (index, vip) in config.vips.iter().enumerate() {
        known.is_vip(&format!("vips[{index}]"), *vip)?;
    }
    known.others(&config.neighbours)?;
    for (index, station) in nics.iter().chain(&config.muxes).enumerate() {
        let path = match index.checked_sub(nics.len()) {
            None => format!("nics[{index}].address"),
            Some(index) => format!("muxes[{index}].address"),
        };
        known.is_another_host(&path, station.address)?;
        let mut prefixes = config.interfaces[INSIDE].addresses.iter();
        if !prefixes.any(|prefix| prefix.contains(station.address)) {
            return wrong(
                &path,
                format!(
                    "{} is not on the link of interfaces[{INSIDE}]",
                    station.address
                ),
            );
        }
    }
    Ok(())
}
