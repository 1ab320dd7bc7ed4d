//! Taking over the rules of an earlier run: the switches know the flows, their numbers, their targets and their counters.

use crate::offload::flows::{Flow, FlowState};
use crate::offload::ports::OffloadPort;
use crate::offload::requests::{Clients, FlowKey, OffloadTarget};
use crate::offload::Offload;
use std::time::Instant;

/// A rule that a switch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The port.
    pub number: u32,
    pub rule: u64,
    pub key: FlowKey,
    pub clients: Clients,
    pub target: u16,
    pub counter: u16,
}

impl Offload {
    /// Returns the port if no writer has claimed it since the start.
    fn unclaimed(&mut self, number: u32, now: Instant) -> Option<&mut OffloadPort> {
        let port = self.ports.entry(number).or_default();
        if port.last.is_none() {
            port.alone_since.get_or_insert(now);
        }
        (port.last.is_none() && !port.is_orphan).then_some(port)
    }

    pub fn adopt_target(&mut self, number: u32, target: u16, rewrite: OffloadTarget, now: Instant) {
        let port = self.unclaimed(number, now);
        if let Some(port) = port.filter(|port| !port.targets.contains_key(&target)) {
            port.put_target(target, rewrite);
        }
    }

    pub fn adopt_rule(&mut self, found: Found, now: Instant) {
        let Some(port) = self.unclaimed(found.number, now) else {
            return;
        };
        let flow = Flow {
            key: found.key,
            clients: found.clients,
            target: found.target,
            counter: found.counter,
            state: FlowState::Carried,
            told: 0,
        };
        if port.refuses(found.rule, &flow).is_none() {
            port.insert(found.rule, flow);
        }
    }
}
