//! Removing rules with exact counts.
//!
//! Open vSwitch forgets the packets of a deleted rule that its data path has not reported yet, and cached flows act a while longer. A rule
//! is therefore hidden by a shadow first. When the cached flows have ended, its counts are final.

use super::To;
use crate::api::Bridge;
use crate::layout::offload;
use crate::offload::drains::{Drain, Stage, SETTLES};
use crate::offload::flows::{Counted, FlowState};
use crate::offload::requests::WriterId;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::reads::Purpose;
use crate::switches::Switches;
use openflow13::MultipartRequest;
use std::time::Instant;

/// Up to this number, rules are asked for one by one.
const FEW: usize = 16;

impl Switches {
    /// Removes a rule for its writer; returns it if its shadow is sent. Otherwise the writer has its answer, or will get it with the
    /// earlier removal.
    pub(super) fn remove(
        &mut self,
        server: &mut Server,
        (id, number): (WriterId, u32),
        rule: u64,
    ) -> Option<u64> {
        let port = server.offload.ports.get_mut(&number)?;
        let flow = port.flows.get(&rule).filter(|flow| !flow.is_disowned);
        match flow.map(|flow| flow.state) {
            Some(FlowState::Leaving) => return None,
            Some(FlowState::Asked | FlowState::Carried) => {}
            left => {
                let counted = left.map_or_else(Counted::default, |_| port.counted(rule));
                server.offload.events.removed(id, vec![(rule, counted)]);
                return None;
            }
        }
        self.hide(server, number, &[rule]).pop()
    }

    /// Sends the shadows of rules; returns those that carried.
    fn hide(&mut self, server: &mut Server, number: u32, rules: &[u64]) -> Vec<u64> {
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return Vec::new();
        };
        let leaving = port.leave(rules);
        for switch in port.places.keys().copied().collect::<Vec<_>>() {
            for rule in &leaving {
                if let Some(flow) = port.flows.get(rule).cloned() {
                    self.send_shadow(port, &To { number, switch }, *rule, &flow);
                }
            }
        }
        leaving
    }

    /// Follows rules whose shadows are sent.
    pub(super) fn drain(&mut self, server: &mut Server, number: u32, rules: Vec<u64>) {
        let Some(port) = server.offload.ports.get(&number) else {
            return;
        };
        if !rules.is_empty() {
            let drain = Drain {
                port: number,
                rules: Some(rules),
                switches: port.places.keys().copied().collect(),
                stage: Stage::Confirming(self.verdicts.current_batch()),
            };
            server.offload.drains.push(drain);
        }
    }

    /// Removes all rules and targets of a port whose writer is gone.
    pub fn remove_orphans(&mut self, server: &mut Server, number: u32) {
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        let carrying = port.rules(|flow| !flow.is_removed());
        let left = port.rules(|flow| flow.state == FlowState::Left);
        let unused = port.drop_targets();
        let carrying = self.hide(server, number, &carrying);
        self.drain(server, number, carrying);
        self.delete_flows(server, number, left);
        self.delete_targets(server, number, unused);
    }

    /// Removes all rules and targets of another instance than the new writer.
    pub fn remove_strange(&mut self, server: &mut Server, number: u32) {
        if let Some(port) = server.offload.ports.get_mut(&number) {
            port.disown();
        }
        self.remove_orphans(server, number);
    }

    fn delete_targets(&mut self, server: &mut Server, number: u32, targets: Vec<u16>) {
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        for switch in port.places.keys().copied().collect::<Vec<_>>() {
            for target in &targets {
                let removal = offload::target_removal(number, *target);
                self.send_target(port, switch, removal);
            }
        }
        if !port.is_active() {
            self.update_edges(server);
        }
    }

    pub(super) fn forget_rule(&mut self, server: &mut Server, number: u32, rule: u64) {
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        match port.flows.get_mut(&rule) {
            Some(flow) if flow.state == FlowState::Left => {
                self.delete_flow(server, number, rule);
            }
            Some(flow) if flow.state == FlowState::Leaving => flow.is_forgotten = true,
            _ => {}
        }
    }

    /// Deletes a flow with its rule and shadow.
    pub(super) fn delete_flow(&mut self, server: &mut Server, number: u32, rule: u64) {
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        let Some((flow, target)) = port.delete(rule) else {
            return;
        };
        for switch in port.places.keys().copied().collect::<Vec<_>>() {
            self.send_removal(port, &To { number, switch }, rule, &flow);
        }
        self.delete_targets(server, number, target.into_iter().collect());
    }

    fn delete_flows(&mut self, server: &mut Server, number: u32, rules: Vec<u64>) {
        for rule in rules {
            self.delete_flow(server, number, rule);
        }
    }

    /// Moves drains on whose switches have confirmed, or whose cached flows have ended.
    pub fn advance_drains(&mut self, server: &mut Server, now: Instant) {
        let ids: Vec<u64> = server.offload.drains.list.keys().copied().collect();
        for id in ids {
            let drains = &mut server.offload.drains;
            let Some(drain) = drains.list.get_mut(&id) else {
                continue;
            };
            let switches = drain.switches;
            let is_confirmed = |switch| self.is_confirmed(switch, Bridge::Edge);
            match drain.stage {
                Stage::Confirming(batch)
                    if self.verdicts.is_settled(batch) && switches.iter().all(is_confirmed) =>
                {
                    drain.stage = Stage::Ending(now + SETTLES, switches);
                    drains.await_end(id, switches);
                }
                Stage::Ending(until, on) if until <= now || on.is_empty() => {
                    self.read_final_counts(server, id);
                }
                _ => {}
            }
        }
    }

    fn read_final_counts(&mut self, server: &mut Server, id: u64) {
        let drains = &mut server.offload.drains;
        let Some(drain) = drains.list.get_mut(&id) else {
            return;
        };
        let (number, switches) = (drain.port, drain.switches);
        let requests: Vec<_> = match &drain.rules {
            Some(rules) if rules.len() <= FEW => rules
                .iter()
                .map(|rule| offload::request(number, Some(*rule)))
                .collect(),
            _ => vec![offload::request(number, None)],
        };
        let mut requests: Vec<_> = requests.into_iter().map(MultipartRequest::Flow).collect();
        if drain.rules.is_none() {
            requests.push(MultipartRequest::Meter { meter: number });
        }
        if !switches.iter().all(|switch| self.has_edge(switch)) {
            drain.stage = Stage::Confirming(self.verdicts.current_batch());
            return;
        }
        drain.stage = Stage::Reading(requests.len(), false);
        for request in requests {
            let purpose = Purpose::OffloadDrain(id);
            self.read(purpose, Bridge::Edge, switches, request);
        }
    }

    /// Ends a drain whose final counts are known.
    pub(super) fn drained(&mut self, server: &mut Server, drain: Drain) {
        let number = drain.port;
        match drain.rules {
            Some(rules) => self.rules_left(server, number, rules),
            None => self.place_left(server, number, drain.switches),
        }
    }

    fn rules_left(&mut self, server: &mut Server, number: u32, rules: Vec<u64>) {
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        let (mut told, mut deleted) = (Vec::new(), Vec::new());
        for rule in rules {
            let counted = port.counted(rule);
            let Some(flow) = port.flows.get_mut(&rule) else {
                continue;
            };
            flow.state = FlowState::Left;
            if !flow.is_disowned {
                told.push((rule, counted));
            }
            if flow.is_disowned || flow.is_forgotten || port.is_orphan {
                deleted.push(rule);
            }
        }
        if let Some(writer) = port.writer.as_ref().filter(|_| !told.is_empty()) {
            server.offload.events.removed(writer.id, told);
        }
        self.delete_flows(server, number, deleted);
    }

    /// Deletes the rules of a port at a switch that it has left.
    fn place_left(&mut self, server: &mut Server, number: u32, switches: SwitchSet) {
        for switch in switches.iter() {
            let Some(port) = server.offload.ports.get_mut(&number) else {
                return;
            };
            // It may have come back.
            if port.places.get(&switch).is_some_and(|p| p.is_leaving) {
                let counted = port.fold_place(switch);
                port.left.insert(switch);
                self.clear_place(port, &To { number, switch });
                server.keep_offloaded(number, counted);
            }
        }
    }
}
