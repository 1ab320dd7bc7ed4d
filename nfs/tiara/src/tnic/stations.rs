//! The stations around a T-NIC: its switch, and the load balancers behind it.

use nf_balancing::{link::Link, network::Network, tables::Neighbours};
use nf_packet::MacAddress;
use serde_json::{json, Value};

use super::config::{Config, Mux};
use crate::{
    peers::{Peer, Station},
    share::Shares,
};

pub struct Stations {
    switch: Peer,
    muxes: Vec<Peer>,
}

/// The stations that are alive, and the shares of the load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    switch: bool,
    muxes: Vec<bool>,
    shares: Shares,
}

impl Stations {
    #[must_use]
    pub fn new(config: &Config, network: &mut Network) -> Self {
        let switch = Station {
            name: "tswitch".to_owned(),
            address: config.tswitch.address,
        };
        Self {
            switch: Peer::of(&switch, network),
            muxes: config
                .muxes
                .iter()
                .map(Mux::station)
                .map(|mux| Peer::of(&mux, network))
                .collect(),
        }
    }

    pub fn ask(&self, link: &mut Link<'_>) {
        self.switch.ask(link);
        self.muxes.iter().for_each(|mux| mux.ask(link));
    }

    #[must_use]
    pub fn living(&self, neighbours: &Neighbours, now: u64) -> Living {
        let alive = |peer: &Peer| peer.is_alive(neighbours, now);
        self.with(alive(&self.switch), self.muxes.iter().map(alive).collect())
    }

    #[must_use]
    pub fn none_living(&self) -> Living {
        self.with(false, vec![false; self.muxes.len()])
    }

    fn with(&self, switch: bool, muxes: Vec<bool>) -> Living {
        let shares = Shares::new(
            self.muxes
                .iter()
                .map(|mux| mux.name.as_str())
                .zip(muxes.iter().copied()),
        );
        Living {
            switch,
            muxes,
            shares,
        }
    }

    #[must_use]
    #[inline]
    pub fn is_switch(&self, mac: MacAddress) -> bool {
        self.switch.mac() == Some(mac)
    }

    #[must_use]
    #[inline]
    pub fn switch_mac(&self) -> Option<MacAddress> {
        self.switch.mac()
    }

    #[must_use]
    pub fn is_mux(&self, mac: MacAddress) -> bool {
        self.muxes.iter().any(|mux| mux.mac() == Some(mac))
    }

    #[must_use]
    pub fn mux_mac(&self, mux: usize) -> Option<MacAddress> {
        self.muxes.get(mux)?.mac()
    }
}

impl Living {
    /// Tells whether a load balancer is alive.
    #[must_use]
    pub fn has(&self, mux: usize) -> bool {
        self.muxes.get(mux).copied().unwrap_or(false)
    }

    /// Returns the load balancer of a share. None: all are dead.
    #[must_use]
    pub fn share(&self, share: u8) -> Option<usize> {
        self.shares.of(share)
    }

    /// Iterates over all stations: name, and whether it is alive.
    pub fn all<'a>(&'a self, stations: &'a Stations) -> impl Iterator<Item = (&'a str, bool)> {
        let muxes = stations.muxes.iter().map(|mux| mux.name.as_str());
        let muxes = muxes.zip(self.muxes.iter().copied());
        [("tswitch", self.switch)].into_iter().chain(muxes)
    }

    #[must_use]
    pub fn told(&self, stations: &Stations) -> Value {
        self.all(stations)
            .map(|(name, alive)| json!({"name": name, "alive": alive}))
            .collect()
    }
}
