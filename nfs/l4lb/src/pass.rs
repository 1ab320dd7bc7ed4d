//! The context of a batch, and what every part of its processing needs.

use std::sync::atomic::AtomicBool;

use nf_packet::MacAddress;
use nf_runtime::{Context, Emitted, Packet};

use crate::{
    cells::Worker,
    checks::Checks,
    events::Event,
    offload::{Offload, Sampler},
    records::Records,
    snapshot::Snapshot,
    state::State,
};

/// The drop reason of packets that the load balancer itself consumed.
pub const TAKEN: &str = "for the load balancer";

/// The context of a batch.
pub struct Pass<'a> {
    pub(crate) state: &'a State,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) context: &'a Context<'a>,
    pub(crate) checks: &'a Checks,
    /// Whether a VIP that needs no records has reached its half-open limit.
    pub(crate) flooded: &'a AtomicBool,
    pub(crate) worker: Worker,
    pub(crate) offload: &'a Offload,
    pub(crate) records: Records<'a, Sampler<'a>>,
    /// Marks of the connections with segments to send after the batch.
    pub(crate) behind: u64,
    pub(crate) out: &'a mut Emitted,
}

impl<'a> Pass<'a> {
    #[must_use]
    pub(crate) fn is_to_me(&self, packet: &Packet) -> bool {
        packet.bytes().first_chunk::<6>() == Some(&self.context.mac(packet.port()))
    }

    #[must_use]
    pub(crate) fn mac(&self, port: usize) -> MacAddress {
        MacAddress(self.context.mac(port))
    }

    /// Passes a packet through to the other port; with one port, drops it.
    pub(crate) fn pass_on(&mut self, packet: &mut Packet) {
        if self.context.ports() == 2 && packet.port() < 2 && !self.is_to_me(packet) {
            packet.send(1 - packet.port());
        } else {
            self.refuse(packet, None, Event::NotForUs);
        }
    }

    /// Counts an event. `vip`: the VIP's index in the configuration.
    pub(crate) fn count(&self, vip: Option<usize>, event: Event) {
        let row = vip.map_or(self.state.vips.len(), |index| self.snapshot.vips[index].row);
        self.state.events.add(self.worker, row, event as usize, 1);
    }

    #[cold]
    pub(crate) fn refuse(&mut self, packet: &mut Packet, vip: Option<usize>, event: Event) {
        self.count(vip, event);
        packet.drop_for(event.name());
    }

    #[inline]
    pub(crate) fn count_traffic(&self, number: u16, column: usize, bytes: u64) {
        let row = usize::from(number);
        self.state
            .traffic
            .add_all(self.worker, row, column, [1, bytes]);
    }

    #[inline]
    pub(crate) fn send(&self, packet: &mut Packet, interface: usize, to: MacAddress) {
        let from = self.mac(interface);
        if let Some(stations) = packet.bytes_mut().first_chunk_mut::<12>() {
            stations[..6].copy_from_slice(&to.0);
            stations[6..].copy_from_slice(&from.0);
        }
        packet.send(interface);
    }
}
