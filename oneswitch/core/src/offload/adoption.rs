//! Taking over the rules of an earlier run: the switches know the flows, their numbers, their targets and their counts.

use crate::offload::flows::{Counted, Flow, FlowState};
use crate::offload::ports::OffloadPort;
use crate::offload::requests::{Clients, FlowKey, OffloadTarget};
use crate::offload::Offload;
use std::collections::BTreeMap;
use std::time::Instant;

/// A rule that a switch has.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub rule: u64,
    pub key: FlowKey,
    pub clients: Clients,
    pub target: u16,
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

    pub fn adopt_rule(&mut self, number: u32, found: Found, now: Instant) {
        let Some(port) = self.unclaimed(number, now) else {
            return;
        };
        if port.refuses(found.rule, &found.key, found.target).is_none() {
            let flow = Flow {
                key: found.key,
                clients: found.clients,
                target: found.target,
                state: FlowState::Carried,
                base: Counted::default(),
                told: Counted::default(),
                is_disowned: false,
                is_forgotten: false,
            };
            port.insert(found.rule, flow);
        }
    }

    /// Marks adopted rules with a shadow as removed; returns those, by port, whose removal must be followed.
    pub fn adopt_shadows(
        &mut self,
        shadows: impl Iterator<Item = (u32, u64)>,
    ) -> BTreeMap<u32, Vec<u64>> {
        let mut leaving: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (number, rule) in shadows {
            let port = self.ports.get_mut(&number);
            if let Some(port) = port.filter(|port| port.last.is_none() && !port.is_orphan) {
                leaving
                    .entry(number)
                    .or_default()
                    .extend(port.leave(&[rule]));
            }
        }
        leaving.retain(|_, rules| !rules.is_empty());
        leaving
    }
}
