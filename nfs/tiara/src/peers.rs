//! The stations that packets are shared among: T-NICs and software load balancers. They are alive while they answer ARP or neighbour discovery, which a
//! process that hangs or is gone does not.

use std::{net::IpAddr, sync::Arc};

use nf_balancing::{
    config::wrong, frames::Frame, link::Link, network::Network, tables::Neighbours, tuple::Address,
    ways::Way,
};
use nf_packet::MacAddress;
use nf_runtime::Refusal;
use serde::{Deserialize, Serialize};

const MILLISECOND: u64 = 1_000_000;
/// The time between two questions.
pub const ASKS: u64 = 200 * MILLISECOND;
/// A station that has not answered for this time is dead.
const DEAD: u64 = 1000 * MILLISECOND;
/// The most stations of a kind: shares name them by a byte.
const MOST: usize = 256;

/// A station, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Station {
    pub name: String,
    pub address: IpAddr,
}

/// A station that is watched.
pub struct Peer {
    pub name: String,
    way: Arc<Way>,
}

impl Peer {
    #[must_use]
    pub fn of(station: &Station, network: &mut Network) -> Self {
        Self {
            name: station.name.clone(),
            way: network.add_destination(station.address),
        }
    }

    /// Returns its MAC address, if it is known.
    #[must_use]
    #[inline]
    pub fn mac(&self) -> Option<MacAddress> {
        self.way.mac()
    }

    /// Tells whether it has answered lately.
    #[must_use]
    pub fn is_alive(&self, neighbours: &Neighbours, now: u64) -> bool {
        let known = neighbours
            .next_hops
            .look(&Address::from(self.way.next), now);
        known.is_some_and(|known| known.mac != 0 && now.saturating_sub(known.confirmed) < DEAD)
    }

    /// Asks it whether it is there.
    pub fn ask(&self, link: &mut Link<'_>) {
        let (interface, address) = (self.way.interface, self.way.next);
        let Some(own) = link.network.own_address(interface, address) else {
            return;
        };
        let from = link.mac(interface);
        let question = match self.mac() {
            Some(mac) => Frame::probe((from, mac), own, address),
            None => Frame::solicitation(from, own, address),
        };
        if let Some(frame) = question {
            link.out.emit(interface, frame.bytes());
        }
    }
}

/// Checks stations: names and addresses must differ.
///
/// # Errors
/// The first fault found.
pub fn check(path: &str, stations: &[Station]) -> Result<(), Refusal> {
    if stations.is_empty() || stations.len() > MOST {
        return wrong(
            path,
            format!("{} of them, expected 1 to {MOST}", stations.len()),
        );
    }
    for (index, station) in stations.iter().enumerate() {
        nf_balancing::check::name(&format!("{path}[{index}].name"), &station.name)?;
        let mut before = stations[..index].iter();
        let same =
            |other: &&Station| other.name == station.name || other.address == station.address;
        if let Some(other) = before.find(same) {
            let reason = format!(
                "{:?} at {} has the name or the address of {:?}",
                station.name, station.address, other.name
            );
            return wrong(&format!("{path}[{index}]"), reason);
        }
    }
    Ok(())
}
