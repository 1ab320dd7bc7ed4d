//! Sends the offload rules to the switches that have a port's interface, and reads their counts.

mod comparing;
pub mod counting;
mod placing;
mod removing;
mod requests;

use super::Switches;
use crate::api::{Bridge, SwitchIndex};
use crate::layout::offload;
use crate::offload::flows::{Counted, Flow};
use crate::offload::ports::{OffloadPort, Place, Ways};
use crate::offload::requests::FlowKey;
use foldhash::HashSet;
use openflow13::{GroupMod, Message, MeterMod};
use std::collections::btree_map::Entry;

/// The rules and targets of a bridge that messages concern which it got after it was asked for its state.
#[derive(Debug, Default)]
pub struct ChangedSince {
    /// By port and flow.
    flows: HashSet<(u32, FlowKey)>,
    groups: HashSet<u32>,
    meters: HashSet<u32>,
}

/// A port and one of its places, for sending.
struct To {
    number: u32,
    switch: SwitchIndex,
}

impl Switches {
    fn has_edge(&self, switch: SwitchIndex) -> bool {
        self.list[switch].edge.is_up()
    }

    /// Sends a message about a port's flows, if the bridge is in service; otherwise the comparison will bring it.
    fn send_offload(
        &mut self,
        port: &mut OffloadPort,
        switch: SwitchIndex,
        message: &Message,
    ) -> Option<u32> {
        if !self.has_edge(switch) {
            return None;
        }
        let xid = self.send_to(switch, Bridge::Edge, message);
        port.count_sent(self.verdicts.current_batch());
        Some(xid)
    }

    /// Sends a flow's rule, after its counter's meter; returns the message's xid.
    fn send_rule(
        &mut self,
        port: &mut OffloadPort,
        to: &To,
        rule: u64,
        flow: &Flow,
    ) -> Option<u32> {
        self.send_meter(port, to, flow.counter);
        self.note_flow(to, flow.key);
        let message = offload::rule(to.number, rule, flow);
        self.send_offload(port, to.switch, &Message::FlowMod(message))
    }

    fn send_removal(&mut self, port: &mut OffloadPort, to: &To, rule: u64, key: FlowKey) {
        self.note_flow(to, key);
        let message = offload::removal(to.number, rule);
        self.send_offload(port, to.switch, &Message::FlowMod(message));
    }

    fn send_target(&mut self, port: &mut OffloadPort, switch: SwitchIndex, message: GroupMod) {
        if self.list[switch].edge.resync.is_some() {
            let changed = &mut self.list[switch].changed_since;
            changed.groups.insert(message.group_id);
        }
        self.send_offload(port, switch, &Message::GroupMod(message));
    }

    /// Sends a counter's meter, unless its place has it.
    fn send_meter(&mut self, port: &mut OffloadPort, to: &To, counter: u16) {
        let place = port.places.get_mut(&to.switch);
        if let Some(Entry::Vacant(new)) = place.map(|place| place.metered.entry(counter)) {
            new.insert(Counted::default());
            let meter = offload::meter(to.number, counter);
            self.send_meter_mod(port, to.switch, meter);
        }
    }

    fn send_meter_mod(&mut self, port: &mut OffloadPort, switch: SwitchIndex, message: MeterMod) {
        if self.list[switch].edge.resync.is_some() {
            let changed = &mut self.list[switch].changed_since;
            changed.meters.insert(message.meter_id);
        }
        self.send_offload(port, switch, &Message::MeterMod(message));
    }

    /// Records that the answer of a bridge that is being read may not show this flow's rule as it will be.
    fn note_flow(&mut self, to: &To, key: FlowKey) {
        let switch = &mut self.list[to.switch];
        if switch.edge.resync.is_some() {
            switch.changed_since.flows.insert((to.number, key));
        }
    }
}

fn place_with(ways: Ways) -> Place {
    Place {
        ways,
        ..Place::default()
    }
}
