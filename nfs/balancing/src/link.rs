//! A function's view of its links while it processes a batch: it answers for its addresses there, and finds the stations that it sends to.
//!
//! `stations` knows MAC addresses; `discovery` handles ARP, neighbour discovery and echo requests; `upkeep` does the periodic work.

mod discovery;
mod stations;
mod upkeep;

use nf_packet::{Ethernet, MacAddress};
use nf_runtime::{Context, Emitted, Packet};

use crate::{network::Network, tables::Neighbours};

pub use discovery::Handled;
pub use stations::{Station, Unreached};
pub use upkeep::Upkeep;

/// The drop reason of packets that the function itself consumed.
pub const TAKEN: &str = "for the function itself";

/// The links around a function, during a batch or a tick.
pub struct Link<'a> {
    pub network: &'a Network,
    pub neighbours: &'a Neighbours,
    pub context: &'a Context<'a>,
    pub out: &'a mut Emitted,
}

impl Link<'_> {
    /// Returns a port's own MAC address.
    #[inline]
    #[must_use]
    pub fn mac(&self, port: usize) -> MacAddress {
        MacAddress(self.context.mac(port))
    }

    /// Tells whether the frame is addressed to the port by which it came.
    #[inline]
    #[must_use]
    pub fn is_to_me(&self, packet: &Packet) -> bool {
        packet.bytes().first_chunk::<6>() == Some(&self.context.mac(packet.port()))
    }

    /// Sends a packet by an interface to a station.
    #[inline]
    pub fn send(&self, packet: &mut Packet, interface: usize, to: MacAddress) {
        let from = self.mac(interface);
        if let Some(stations) = packet.bytes_mut().first_chunk_mut::<12>() {
            stations[..6].copy_from_slice(&to.0);
            stations[6..].copy_from_slice(&from.0);
        }
        packet.send(interface);
    }

    /// Sends a packet back to its sender, from the port's own MAC address. VLAN tags stay.
    pub fn turn_back(&self, packet: &mut Packet) {
        let mac = self.mac(packet.port());
        if let Ok(mut ethernet) = Ethernet::new_checked(packet.bytes_mut()) {
            let to = ethernet.source();
            ethernet.set_destination(to);
            ethernet.set_source(mac);
        }
        packet.send(packet.port());
    }

    /// Sends a packet for another station out of the other port. Returns false if no other port exists or the frame is addressed to this one; the
    /// packet has no verdict yet.
    pub fn pass_on(&self, packet: &mut Packet) -> bool {
        let passes = self.context.ports() == 2 && packet.port() < 2 && !self.is_to_me(packet);
        if passes {
            packet.send(1 - packet.port());
        }
        passes
    }
}

/// Tells whether the frame is a broadcast or multicast.
#[must_use]
pub fn is_to_all(packet: &Packet) -> bool {
    packet.bytes().first().is_some_and(|byte| byte & 1 != 0)
}
