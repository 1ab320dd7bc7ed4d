//! Our own messages to the switches.

use super::Switches;
use crate::api::{Bridge, Destination, SwitchIndex};
use crate::layout::modifications::in_two_steps;
use crate::model::truth::{Changes, Request};
use crate::switch_set::SwitchSet;
use crate::switches::sync::WHOLE_PACKET;
use crate::switches::verdict::NOT_AN_OPERATION;
use crate::wire::wire;
use openflow13::extension::set_packet_in_format;
use openflow13::openflow10::PacketInFormat;
use openflow13::{FlowMod, GroupMod, Message, SwitchConfig};
use std::time::Instant;

impl Switches {
    /// Returns an xid for a message that is not an operation.
    pub fn fresh_xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.next_xid | NOT_AN_OPERATION
    }

    /// Sends a message to `virt` of `targets` as an operation without a controller.
    pub fn send_own(&mut self, message: &Message, targets: SwitchSet, now: Instant) {
        let targets = targets.intersection(self.up());
        if targets.is_empty() {
            return;
        }
        let (request, changes) = (Request::Other, Changes::default());
        let verdicts = &mut self.verdicts;
        let xid = verdicts.push(None, None, request, changes, targets, now);
        let frame = wire(xid, message);
        for switch in targets.iter() {
            self.list[switch].own_changes += 1;
            self.put_to_virt(switch, &frame, xid);
        }
    }

    pub fn send_own_flow(&mut self, message: FlowMod, targets: SwitchSet, now: Instant) {
        let message = self.without_actions_of_version10(message, targets);
        let message = self.without_meters_inside(message, targets);
        match in_two_steps(&message) {
            Some(steps) => steps
                .iter()
                .for_each(|step| self.send_own(step, targets, now)),
            None => self.send_own(&Message::FlowMod(message), targets, now),
        }
    }

    /// Sends a message to one bridge outside of the operations; the batch's barrier covers it.
    pub fn send_to(&mut self, switch: SwitchIndex, bridge: Bridge, message: &Message) -> u32 {
        let xid = self.fresh_xid();
        let to = Destination::Switch(switch, bridge);
        self.outbox.put(to, &wire(xid, message));
        self.verdicts.touch(switch, bridge);
        xid
    }

    /// Changes a hidden group of `switch`.
    pub fn send_hidden(&mut self, switch: SwitchIndex, message: GroupMod) {
        self.list[switch].own_changes += 1;
        self.send_to(switch, Bridge::Virt, &Message::GroupMod(message));
    }

    /// Sends the barriers of the open batch; returns false if there is none.
    pub fn close_batch(&mut self) -> bool {
        let barrier = self.fresh_xid();
        let Some(awaited) = self.verdicts.close(barrier) else {
            return false;
        };
        let frame = wire(barrier, &Message::BarrierRequest);
        for (set, bridge) in [(awaited.virt, Bridge::Virt), (awaited.edge, Bridge::Edge)] {
            for switch in set.iter() {
                self.outbox.put(Destination::Switch(switch, bridge), &frame);
            }
        }
        for switch in awaited.newer.iter() {
            self.put_to_newer(switch, &frame);
        }
        true
    }

    /// Sends a controller's message, or its removal by us, to `virt` of `targets` with the xid of its operation.
    pub fn send_operation(&mut self, frame: &[u8], targets: SwitchSet, xid: u32) {
        for switch in targets.iter() {
            self.put_to_virt(switch, frame, xid);
        }
    }

    /// Chooses the format of packet-ins.
    pub fn set_continues_packets(&mut self, wanted: bool) {
        if self.continues_packets == wanted {
            return;
        }
        self.continues_packets = wanted;
        for switch in 0..self.list.len() {
            if !self.list[switch].virt.is_down() {
                self.send_packet_in_format(switch);
            }
        }
    }

    pub fn send_packet_in_format(&mut self, switch: SwitchIndex) {
        let format = match self.continues_packets {
            true => PacketInFormat::Nicira2,
            false => PacketInFormat::Standard,
        };
        self.send_to(switch, Bridge::Virt, &set_packet_in_format(format));
    }

    /// Tells all switches how to treat fragments; returns whether that is new.
    pub fn set_fragments(&mut self, flags: u16) -> bool {
        if flags == self.fragment_flags {
            return false;
        }
        self.fragment_flags = flags;
        let physical = Message::SetConfig(SwitchConfig {
            flags,
            miss_send_len: WHOLE_PACKET,
        });
        for switch in 0..self.list.len() {
            // One that is being compared has been told the earlier ones.
            if !self.list[switch].virt.is_down() {
                self.send_to(switch, Bridge::Virt, &physical);
            }
        }
        true
    }
}
