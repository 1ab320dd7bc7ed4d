//! The configuration of `tnic`, as written (TOML or JSON); `docs/tiara.md` explains it.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use nf_balancing::{
    check::{self, Addresses},
    config::{wrong, Interface, StaticNeighbour, Time},
};
use nf_runtime::Refusal;
use serde::{Deserialize, Serialize};

use super::engines::Manner;
use crate::{
    peers::{self, Station},
    table::{Hashing, Shape},
};

/// The greatest number of a T-NIC, and the most load balancers behind it: RS_Index has a byte for each, and some values have other meanings.
const MOST: usize = 64;

/// The paper's budget: ten million connections in a minute (5.1).
const SIGNALS_PER_S: u32 = 167_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// That toward the switch and the load balancers.
    pub interfaces: Vec<Interface>,
    #[serde(default)]
    pub neighbours: Vec<StaticNeighbour>,
    /// The T-NIC's number among those of its switch.
    #[serde(default)]
    pub number: u8,
    pub tswitch: Switch,
    pub muxes: Vec<Mux>,
    #[serde(default)]
    pub table: Table,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    pub address: IpAddr,
    /// Its control socket, for the rows of servers; default: the switch has them from its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<PathBuf>,
}

/// A software load balancer (SMux).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mux {
    pub name: String,
    pub address: IpAddr,
    /// The path of the socket on which it offloads connections: for `nf run --offload tnic:SOCKET`. Default: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
}

/// The offloaded connection table, and its engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Table {
    /// Indexes, a power of two.
    pub depth: u32,
    /// Entries at each index.
    pub width: u32,
    /// Each column has an index of its own, and entries move to make room.
    pub skewed: bool,
    /// An idle entry gives its place to a new one.
    pub evict: bool,
    pub engines: u32,
    /// The detection period: an active connection signals once in it.
    pub period: Time,
    /// The most signals per second, to all load balancers.
    pub signals_per_s: u32,
    /// The time after which entries of a load balancer that is gone are removed.
    pub orphans: Time,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            depth: 1 << 18,
            width: 2,
            skewed: false,
            evict: true,
            engines: 1,
            period: Time::seconds(2),
            signals_per_s: SIGNALS_PER_S,
            orphans: Time::seconds(10),
        }
    }
}

impl Table {
    /// # Errors
    /// If the shape is impossible, or the table cannot be split among this number of engines.
    pub fn manner(&self) -> Result<Manner, Refusal> {
        let hashing = if self.skewed {
            Hashing::Skewed
        } else {
            Hashing::Chained
        };
        let shape = Shape::new(self.depth, self.width, hashing);
        let shape = shape.map_err(|error| Refusal::configuration("table", error.to_string()))?;
        if !(1..=shape.partitions()).contains(&self.engines) {
            return wrong(
                "table.engines",
                format!("{}, expected 1 to {}", self.engines, shape.partitions()),
            );
        }
        if self.signals_per_s == 0 {
            return wrong(
                "table.signals_per_s",
                format!("0, expected at least 1: without signals, every connection counts as idle; default {SIGNALS_PER_S}"),
            );
        }
        Ok(Manner {
            shape,
            engines: self.engines,
            evicts: self.evict,
            period: self.period.0,
            signals_per_s: self.signals_per_s,
        })
    }
}

impl Mux {
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
    if config.interfaces.len() != 1 {
        return wrong(
            "interfaces",
            format!("{} of them, expected 1", config.interfaces.len()),
        );
    }
    if usize::from(config.number) >= MOST {
        return wrong(
            "number",
            format!("{}, expected 0 to {}", config.number, MOST - 1),
        );
    }
    let muxes: Vec<Station> = config.muxes.iter().map(Mux::station).collect();
    peers::check("muxes", &muxes)?;
    if muxes.len() > MOST {
        return wrong(
            "muxes",
            format!("{} of them, expected 1 to {MOST}", muxes.len()),
        );
    }
    config.table.manner()?;
    let times = [
        ("period", config.table.period),
        ("orphans", config.table.orphans),
    ];
    for (name, time) in times {
        if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&time.0) {
            return wrong(
                &format!("table.{name}"),
                format!("{time}, expected 100ms to 1h"),
            );
        }
    }
    let known = Addresses::new(&config.interfaces, [])?;
    known.others(&config.neighbours)?;
    let stations = muxes
        .iter()
        .enumerate()
        .map(|(index, mux)| (format!("muxes[{index}].address"), mux.address));
    for (path, address) in stations.chain([("tswitch.address".to_owned(), config.tswitch.address)])
    {
        known.is_another_host(&path, address)?;
        if !config.interfaces[0]
            .addresses
            .iter()
            .any(|prefix| prefix.contains(address))
        {
            return wrong(
                &path,
                format!("{address} is not on the link of interfaces[0]"),
            );
        }
    }
    Ok(())
}
