//! Removing rules: their cached flows act a while longer. A removal is effective, and its packets are in its counter, when they have ended.

use super::counting::{tell_totals, METERS};
use super::To;
use crate::api::Bridge;
use crate::layout::offload;
use crate::offload::drains::{Drain, Stage, SETTLES};
use crate::offload::events::OffloadEvent;
use crate::offload::flows::FlowState;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::reads::Purpose;
use crate::switches::Switches;
use std::time::Instant;

impl Switches {
    /// Removes a rule for its writer; returns it unless an earlier removal will be answered. An unknown one may have been removed shortly
    /// before oneswitchd started.
    pub(super) fn remove(&mut self, server: &mut Server, number: u32, rule: u64) -> Option<u64> {
        let port = server.offload.ports.get(&number)?;
        match port.flows.get(&rule).map(|flow| flow.state) {
            Some(FlowState::Leaving) => None,
            Some(FlowState::Asked | FlowState::Carried) => {
                self.take_away(server, number, &[rule]).pop()
            }
            None => Some(rule),
        }
    }

    /// Sends the removals of rules; returns those that carried.
    pub(super) fn take_away(
        &mut self,
        server: &mut Server,
        number: u32,
        rules: &[u64],
    ) -> Vec<u64> {
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return Vec::new();
        };
        let leaving = port.leave(rules);
        for switch in port.places.keys().copied().collect::<Vec<_>>() {
            for rule in &leaving {
                if let Some(key) = port.flows.get(rule).map(|flow| flow.key) {
                    self.send_removal(port, &To { number, switch }, *rule, key);
                }
            }
        }
        leaving
    }

    /// Follows rules whose removals are sent.
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

    /// Removes all rules and targets of a port whose writer is gone, or another one.
    pub fn remove_orphans(&mut self, server: &mut Server, number: u32) {
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        let carrying = port.rules(|flow| !flow.is_leaving());
        let unused = port.drop_targets();
        let carrying = self.take_away(server, number, &carrying);
        self.drain(server, number, carrying);
        self.delete_targets(server, number, unused);
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

    /// Deletes a flow that no switch has.
    pub(super) fn delete_flow(&mut self, server: &mut Server, number: u32, rule: u64) {
        let port = server.offload.ports.get_mut(&number);
        let target = port.and_then(|port| port.delete(rule));
        self.delete_targets(server, number, target.into_iter().collect());
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
        let switches = drain.switches;
        if switches.is_empty() {
            if let Some(drain) = drains.list.remove(&id) {
                self.drained(server, drain);
            }
            return;
        }
        if !switches.iter().all(|switch| self.has_edge(switch)) {
            drain.stage = Stage::Confirming(self.verdicts.current_batch());
            return;
        }
        drain.stage = Stage::Reading;
        self.read(Purpose::OffloadDrain(id), Bridge::Edge, switches, METERS);
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
        tell_totals(server, number);
        for rule in &rules {
            self.delete_flow(server, number, *rule);
        }
        let port = server.offload.ports.get(&number);
        if let Some(writer) = port.and_then(|port| port.writer.as_ref()) {
            let effective = OffloadEvent::Effective(rules);
            server.offload.events.put(writer.id, effective);
        }
    }

    /// Deletes the rules of a port at a switch that it has left, and keeps its counts.
    fn place_left(&mut self, server: &mut Server, number: u32, switches: SwitchSet) {
        for switch in switches.iter() {
            let Some(port) = server.offload.ports.get_mut(&number) else {
                return;
            };
            // It may have come back.
            if let Some(place) = port.places.get(&switch).filter(|p| p.is_leaving) {
                let metered = place.metered.clone();
                port.left.insert(switch);
                self.clear_place(port, &To { number, switch });
                server.keep_offloaded(number, metered);
            }
        }
    }
}
