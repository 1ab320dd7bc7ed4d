//! What is kept per controller connection: role, masks, and the order of its replies.

use crate::api::ControllerRole;
use openflow13::AsyncMasks;
use std::collections::VecDeque;

/// A reply that is due: it leaves when it is there, its turn has come and its batch is settled.
#[derive(Debug)]
struct Slot {
    id: u64,
    /// Everything the controller sent before is settled with this batch.
    after: u64,
    frames: Option<Vec<u8>>,
}

#[derive(Debug)]
pub struct Controller {
    pub role: ControllerRole,
    pub asynchronous: AsyncMasks,
    pub miss_send_len: u16,
    slots: VecDeque<Slot>,
    next_slot: u64,
}

impl Default for Controller {
    fn default() -> Self {
        Self {
            role: ControllerRole::Equal,
            asynchronous: default_masks(),
            miss_send_len: 128, // OFP_DEFAULT_MISS_SEND_LEN
            slots: VecDeque::new(),
            next_slot: 0,
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
        let masks = match kind {
            Asynchronous::PacketIn => self.asynchronous.packet_in,
            Asynchronous::PortStatus => self.asynchronous.port_status,
            Asynchronous::FlowRemoved => self.asynchronous.flow_removed,
        };
        let mask = masks[usize::from(self.role == ControllerRole::Slave)];
        1u32.checked_shl(u32::from(reason))
            .is_some_and(|bit| mask & bit != 0)
    }

    /// Reserves the next place among the replies.
    pub fn reserve(&mut self, after: u64) -> u64 {
        let id = self.next_slot;
        self.next_slot += 1;
        self.slots.push_back(Slot {
            id,
            after,
            frames: None,
        });
        id
    }

    pub fn fill(&mut self, id: u64, frames: Vec<u8>) {
        if let Some(slot) = self.slots.iter_mut().find(|s| s.id == id) {
            slot.frames = Some(frames);
        }
    }

    /// The next reply that may leave.
    pub fn pop_ready(&mut self, is_settled: impl Fn(u64) -> bool) -> Option<Vec<u8>> {
        let front = self.slots.front()?;
        if front.frames.is_none() || !is_settled(front.after) {
            return None;
        }
        self.slots.pop_front()?.frames
    }
}
