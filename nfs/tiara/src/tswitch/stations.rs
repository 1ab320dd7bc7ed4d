//! The T-NICs and the software load balancers behind them: who gets which packets.

use nf_balancing::{link::Link, network::Network, tables::Neighbours};
use nf_packet::MacAddress;
use serde_json::{json, Value};

use super::config::Config;
use crate::{
    peers::Peer,
    share::{mux_share, nic_share, Shares},
};

/// All stations.
pub struct Stations {
    nics: Vec<Peer>,
    /// The numbers of the load balancers behind each T-NIC.
    behind: Vec<Vec<usize>>,
    muxes: Vec<Peer>,
}

/// The stations that are alive, and the shares of packets that follow from that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    nics: Vec<bool>,
    muxes: Vec<bool>,
    of_nics: Shares,
    /// Of the load balancers behind each T-NIC.
    of_muxes: Vec<Shares>,
}

/// The next station of a packet to a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Nic(usize, MacAddress),
    Mux(usize, MacAddress),
    Nobody,
}

impl Stations {
    #[must_use]
    pub fn new(config: &Config, network: &mut Network) -> Self {
        let nics = config
            .nics
            .iter()
            .map(|nic| Peer::of(&nic.station(), network))
            .collect();
        let place = |name: &String| config.muxes.iter().position(|mux| mux.name == *name);
        let behind = config
            .nics
            .iter()
            .map(|nic| nic.muxes.iter().filter_map(place).collect());
        Self {
            nics,
            behind: behind.collect(),
            muxes: config
                .muxes
                .iter()
                .map(|mux| Peer::of(mux, network))
                .collect(),
        }
    }

    pub fn ask(&self, link: &mut Link<'_>) {
        self.nics
            .iter()
            .chain(&self.muxes)
            .for_each(|peer| peer.ask(link));
    }

    #[must_use]
    pub fn living(&self, neighbours: &Neighbours, now: u64) -> Living {
        let alive = |peers: &[Peer]| {
            peers
                .iter()
                .map(|peer| peer.is_alive(neighbours, now))
                .collect()
        };
        self.with(alive(&self.nics), alive(&self.muxes))
    }

    #[must_use]
    pub fn none_living(&self) -> Living {
        self.with(vec![false; self.nics.len()], vec![false; self.muxes.len()])
    }

    fn with(&self, nics: Vec<bool>, muxes: Vec<bool>) -> Living {
        // While a T-NIC is dead, its load balancers have the records of its flows.
        let serves =
            |number: usize| nics[number] || self.behind[number].iter().any(|mux| muxes[*mux]);
        let all = self.nics.iter().enumerate();
        let of_nics = Shares::new(all.map(|(number, nic)| (nic.name.as_str(), serves(number))));
        let of_muxes = self.behind.iter().map(|behind| {
            Shares::new(
                behind
                    .iter()
                    .map(|mux| (self.muxes[*mux].name.as_str(), muxes[*mux])),
            )
        });
        Living {
            of_muxes: of_muxes.collect(),
            of_nics,
            nics,
            muxes,
        }
    }

    /// Tells whether a frame with this source comes from a T-NIC.
    #[must_use]
    #[inline]
    pub fn has_nic(&self, mac: MacAddress) -> bool {
        self.nics.iter().any(|nic| nic.mac() == Some(mac))
    }

    /// Returns the next station of a packet to a VIP. `slow`: it must be a load balancer.
    #[must_use]
    #[inline]
    pub fn next(&self, living: &Living, rss: u32, slow: bool) -> Next {
        let Some(nic) = living.of_nics.of(nic_share(rss)) else {
            return Next::Nobody;
        };
        if living.nics[nic] && !slow {
            return self.nics[nic]
                .mac()
                .map_or(Next::Nobody, |mac| Next::Nic(nic, mac));
        }
        let Some(mux) = living.of_muxes[nic].of(mux_share(rss)) else {
            return Next::Nobody;
        };
        let mux = self.behind[nic][mux];
        self.muxes[mux]
            .mac()
            .map_or(Next::Nobody, |mac| Next::Mux(mux, mac))
    }
}

impl Living {
    /// Iterates over all stations: name, and whether it is alive.
    pub fn all<'a>(&'a self, stations: &'a Stations) -> impl Iterator<Item = (&'a str, bool)> {
        let peers = stations.nics.iter().chain(&stations.muxes);
        let alive = self.nics.iter().chain(&self.muxes);
        peers.map(|peer| peer.name.as_str()).zip(alive.copied())
    }

    #[must_use]
    pub fn nics(&self, stations: &Stations) -> Value {
        told(&stations.nics, &self.nics)
    }

    #[must_use]
    pub fn muxes(&self, stations: &Stations) -> Value {
        told(&stations.muxes, &self.muxes)
    }
}

fn told(peers: &[Peer], alive: &[bool]) -> Value {
    let each = peers.iter().zip(alive);
    each.map(|(peer, alive)| json!({"name": peer.name, "alive": alive}))
        .collect()
}
