//! The context of a batch, and what every part of its processing needs.

use std::sync::atomic::AtomicBool;

use nf_balancing::{cells::Worker, checks::Checks, link::Link};
use nf_runtime::Packet;

use crate::{
    events::Event,
    offload::{Offload, Sampler},
    records::Records,
    snapshot::Snapshot,
    state::State,
};

/// The context of a batch.
pub struct Pass<'a> {
    pub(crate) state: &'a State,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) link: Link<'a>,
    pub(crate) checks: &'a Checks,
    /// Whether a VIP that needs no records has reached its half-open limit.
    pub(crate) flooded: &'a AtomicBool,
    pub(crate) worker: Worker,
    pub(crate) offload: &'a Offload,
    pub(crate) records: Records<'a, Sampler<'a>>,
    /// Marks of the connections with segments to send after the batch.
    pub(crate) behind: u64,
    /// Packets and bytes of this batch that were sent by their mark.
    pub(crate) marked: [u64; 2],
}

impl Pass<'_> {
    /// Passes a packet through to the other port; with one port, drops it.
    pub(crate) fn pass_on(&mut self, packet: &mut Packet) {
        if !self.link.pass_on(packet) {
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
}
