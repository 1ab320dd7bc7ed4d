//! What is kept per controller connection: role, masks, and the order of its replies.

use crate::api::ControllerRole;
use crate::mutants::{mutant, Fault};
use openflow13::AsyncMasks;
use std::collections::VecDeque;

/// A reply that is due: it leaves when it is there, its turn has come and its batch is settled.
#[derive(Debug)]
struct Slot {
    /// Everything the controller sent before is settled with this batch.
    after: u64,
    frames: Option<Vec<u8>>,
    /// Errors about messages between the reply before and this one; they go first.
    errors: Vec<u8>,
}

#[derive(Debug)]
pub struct Controller {
    pub role: ControllerRole,
    pub asynchronous: AsyncMasks,
    pub miss_send_len: u16,
    slots: VecDeque<Slot>,
    /// Number of `slots[0]`; they are numbered in order.
    first_slot: u64,
}

impl Default for Controller {
    fn default() -> Self {
        Self {
            role: ControllerRole::Equal,
            asynchronous: default_masks(),
            miss_send_len: 128, // OFP_DEFAULT_MISS_SEND_LEN
            slots: VecDeque::new(),
            first_slot: 0,
        }
    }
}

/// As Open vSwitch for OpenFlow 1.3 (lib/ofp-connection.c, ofputil_async_cfg_default()): index 0 for master and equal, 1 for slave.
fn default_masks() -> AsyncMasks {
    const NO_MATCH_AND_ACTION: u32 = 0b011;
    const ADD_DELETE_MODIFY: u32 = 0b111;
    const ALL_REMOVALS: u32 = 0b1111;
    AsyncMasks {
        packet_in: [NO_MATCH_AND_ACTION, 0],
        port_status: [ADD_DELETE_MODIFY; 2],
        flow_removed: [ALL_REMOVALS, 0],
    }
}

/// Asynchronous messages that a controller can mask.
#[derive(Clone, Copy, Debug)]
pub enum Asynchronous {
    PacketIn,
    PortStatus,
    FlowRemoved,
}

impl Controller {
    pub fn wants(&self, kind: Asynchronous, reason: u8) -> bool {
        if mutant(Fault::AsyncMaskIgnored) {
            return true;
        }
        let masks = match kind {
            Asynchronous::PacketIn => self.asynchronous.packet_in,
            Asynchronous::PortStatus => self.asynchronous.port_status,
            Asynchronous::FlowRemoved => self.asynchronous.flow_removed,
        };
        let slave = self.role == ControllerRole::Slave && !mutant(Fault::SlaveIsTold);
        let mask = masks[usize::from(slave)];
        1u32.checked_shl(u32::from(reason))
            .is_some_and(|bit| mask & bit != 0)
    }

    /// The number of the next reply, which tells where among the replies a message was.
    pub fn place(&self) -> u64 {
        self.first_slot + self.slots.len() as u64
    }

    /// Reserves the next place among the replies.
    pub fn reserve(&mut self, after: u64) -> u64 {
        let place = self.place();
        self.slots.push_back(Slot {
            after,
            frames: None,
            errors: Vec::new(),
        });
        place
    }

    pub fn fill(&mut self, place: u64, frames: Vec<u8>) {
        if let Some(slot) = self.slot_mut(place) {
            slot.frames = Some(frames);
        }
    }

    /// Puts an error about a message that came just before reply `place` into the order. The message's batch is settled.
    pub fn refuse(&mut self, place: u64, error: &[u8]) {
        // An error in between took the place, and has left: the next reply is the one after that.
        let place = place.max(self.first_slot);
        if let Some(slot) = self.slot_mut(place) {
            slot.errors.extend_from_slice(error);
            return;
        }
        self.slots.push_back(Slot {
            after: 0,
            frames: Some(Vec::new()),
            errors: error.to_vec(),
        });
    }

    fn slot_mut(&mut self, place: u64) -> Option<&mut Slot> {
        let index = place.checked_sub(self.first_slot)?;
        self.slots.get_mut(usize::try_from(index).ok()?)
    }

    /// What may leave next.
    pub fn pop_ready(&mut self, is_settled: impl Fn(u64) -> bool) -> Option<Vec<u8>> {
        let front = self.slots.front_mut()?;
        if !front.errors.is_empty() {
            return Some(std::mem::take(&mut front.errors));
        }
        if front.frames.is_none() || !is_settled(front.after) {
            return None;
        }
        self.first_slot += 1;
        self.slots.pop_front()?.frames
    }
}

#[cfg(test)]
mod tests;
