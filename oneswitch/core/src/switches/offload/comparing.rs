//! Compares the offload rules and targets of an `edge`, and adopts those of an earlier run of oneswitchd.

use super::counting::see_one;
use super::{ChangedSince, To};
use crate::api::{Bridge, SwitchIndex};
use crate::layout::findings::{Findings, FOREIGN, MISSING};
use crate::layout::messages::removal;
use crate::layout::offload::{self, reported, reported_target, Reported};
use crate::layout::repair;
use crate::offload::adoption::Found;
use crate::offload::drains::{Drain, Stage};
use crate::offload::flows::Flow;
use crate::offload::requests::FlowKey;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::Switches;
use foldhash::{HashMap, HashMapExt};
use openflow13::{FlowStats, GroupDesc, GroupMod, Message, MeterConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What an `edge` reported of one flow.
#[derive(Debug, Default, Clone, Copy)]
struct Pair {
    has_rule: bool,
    has_shadow: bool,
}

impl Switches {
    /// Brings the offload rules of `edge` to their wanted state; returns the differences.
    pub fn compare_offload(
        &mut self,
        server: &mut Server,
        switch: SwitchIndex,
        flows: &[&FlowStats],
        (groups, meters): (Vec<GroupDesc>, &[MeterConfig]),
        now: Instant,
    ) -> Findings {
        let changed = std::mem::take(&mut self.list[switch].changed_since);
        let mut found = Findings::default();
        let metered = self.adopt_meters(server, switch, meters, &changed, &mut found);
        self.adopt(server, switch, flows, &groups, now);
        self.place_offload(server, switch, true);
        self.complete_meters(server, switch, &metered, &changed, &mut found);
        found.append(self.compare_targets(server, switch, &groups, &changed));
        let mut pairs: HashMap<(u32, FlowKey), Pair> = HashMap::new();
        for flow in flows {
            let kept = reported(flow).filter(|r| is_wanted(server, switch, flow, r));
            if let Some(kept) = kept {
                let pair = pairs.entry((kept.number, kept.key)).or_default();
                pair.has_shadow |= kept.target.is_none();
                if kept.target.is_some() {
                    pair.has_rule = true;
                    see_one(server, kept.number, switch, flow);
                }
                continue;
            }
            let is_in_flight =
                reported(flow).is_some_and(|r| changed.flows.contains(&(r.number, r.key)));
            if !is_in_flight {
                let edge = &self.list[switch].edge;
                found.add(FOREIGN, || {
                    edge.rule_name(flow.table_id, flow.priority, &flow.matching)
                });
                let removal = Message::FlowMod(removal(flow));
                self.send_to(switch, Bridge::Edge, &removal);
            }
        }
        for number in server.offload.ports.keys().copied().collect::<Vec<_>>() {
            self.complete_flows(server, To { number, switch }, &pairs, &changed, &mut found);
        }
        found
    }

    /// Takes over the meters of ports, and removes foreign ones; returns the ports that have theirs.
    fn adopt_meters(
        &mut self,
        server: &mut Server,
        switch: SwitchIndex,
        meters: &[MeterConfig],
        changed: &ChangedSince,
        found: &mut Findings,
    ) -> BTreeSet<u32> {
        let mut there = BTreeSet::new();
        for number in meters.iter().map(|meter| meter.meter_id) {
            if self.adopt_meter(server, &To { number, switch }) {
                there.insert(number);
            } else if !changed.meters.contains(&number) {
                found.add(FOREIGN, || format!("meter {number}"));
                let removal = Message::MeterMod(offload::meter_removal(number));
                self.send_to(switch, Bridge::Edge, &removal);
            }
        }
        there
    }

    /// Adds the meters that ports lack here: their switch has lost what it had counted since the last report.
    fn complete_meters(
        &mut self,
        server: &mut Server,
        switch: SwitchIndex,
        there: &BTreeSet<u32>,
        changed: &ChangedSince,
        found: &mut Findings,
    ) {
        let lacks = |number: &u32| !there.contains(number) && !changed.meters.contains(number);
        let numbers = server.offload.ports.keys().copied().filter(lacks);
        for number in numbers.collect::<Vec<_>>() {
            let port = server.offload.ports.get_mut(&number);
            let Some(port) = port.filter(|port| port.places.contains_key(&switch)) else {
                continue;
            };
            let lost = port.fold_meter(switch);
            found.add(MISSING, || format!("meter {number}"));
            self.send_meter(port, switch, offload::meter(number));
            server.keep_offloaded(number, lost);
        }
    }

    /// Sends the rules and shadows of a port that a switch lacks.
    fn complete_flows(
        &mut self,
        server: &mut Server,
        to: To,
        pairs: &HashMap<(u32, FlowKey), Pair>,
        changed: &ChangedSince,
        found: &mut Findings,
    ) {
        let Some(port) = server.offload.ports.get(&to.number) else {
            return;
        };
        let Some(place) = port.places.get(&to.switch) else {
            return;
        };
        let is_leaving = place.is_leaving;
        let lacks = |flow: &Flow| {
            let key = (to.number, flow.key);
            let there = pairs.get(&key).copied().unwrap_or_default();
            (!there.has_rule || there.has_shadow != flow.is_removed())
                && !changed.flows.contains(&key)
        };
        for rule in port.rules(lacks) {
            let Some(port) = server.offload.ports.get_mut(&to.number) else {
                return;
            };
            let Some(flow) = port.flows.get(&rule).cloned() else {
                continue;
            };
            let key = (to.number, flow.key);
            let there = pairs.get(&key).copied().unwrap_or_default();
            if flow.is_removed() && there.has_rule {
                self.send_shadow(port, &to, rule, &flow);
                continue;
            }
            if there.has_rule {
                continue; // A shadow that is not wanted is foreign.
            }
            port.fold(to.switch, rule);
            if !flow.is_removed() && !is_leaving {
                found.add(MISSING, || {
                    format!("offload rule {rule} of port {}", to.number)
                });
                self.send_rule(port, &to, rule, &flow);
            }
        }
    }

    fn compare_targets(
        &mut self,
        server: &mut Server,
        switch: SwitchIndex,
        groups: &[GroupDesc],
        changed: &ChangedSince,
    ) -> Findings {
        let mut wanted: BTreeMap<u32, GroupMod> = BTreeMap::new();
        // Targets of ports that have moved away stay as they are.
        let mut kept = BTreeSet::new();
        for (number, port) in &server.offload.ports {
            let Some(place) = port.places.get(&switch) else {
                continue;
            };
            if place.is_leaving {
                kept.insert(*number);
                continue;
            }
            for (target, state) in &port.targets {
                let group = offload::group(*number, *target, &state.target, &place.way);
                wanted.insert(group.group_id, group);
            }
        }
        let is_in_flight = |id| changed.groups.contains(&id);
        let groups = groups
            .iter()
            .filter(|g| !kept.contains(&(g.group_id >> 16)));
        let groups: Vec<_> = groups.cloned().collect();
        let repair = repair::groups(&groups, wanted, is_in_flight);
        for message in &repair.messages {
            self.send_to(switch, Bridge::Edge, message);
        }
        repair.found
    }

    /// Takes over the rules of ports that no writer has claimed since the start.
    fn adopt(
        &mut self,
        server: &mut Server,
        switch: SwitchIndex,
        flows: &[&FlowStats],
        groups: &[GroupDesc],
        now: Instant,
    ) {
        // A port that has moved away may have left rules whose counts are not final.
        let may_be = |server: &Server, number: u32| {
            let offload = server.offload.ports.get(&number);
            server.ports.get(number).is_some()
                && !offload.is_some_and(|port| port.left.contains(switch))
        };
        for (number, target, rewrite) in groups.iter().filter_map(reported_target) {
            if may_be(server, number) {
                server.offload.adopt_target(number, target, rewrite, now);
            }
        }
        for flow in flows {
            let Some(found) = reported(flow).filter(|r| may_be(server, r.number)) else {
                continue;
            };
            if let Some(target) = found.target {
                let rule = Found {
                    rule: flow.cookie,
                    key: found.key,
                    clients: found.clients,
                    target,
                };
                server.offload.adopt_rule(found.number, rule, now);
            }
        }
        let shadows = flows.iter().filter_map(|flow| {
            let found = reported(flow).filter(|r| r.target.is_none())?;
            Some((found.number, flow.cookie))
        });
        for (number, rules) in server.offload.adopt_shadows(shadows) {
            let drain = Drain {
                port: number,
                rules: Some(rules),
                switches: SwitchSet::of(switch),
                stage: Stage::Confirming(self.verdicts.current_batch()),
            };
            server.offload.drains.push(drain);
        }
    }
}

/// Tells whether a reported rule or shadow is as it should be.
fn is_wanted(server: &Server, switch: SwitchIndex, flow: &FlowStats, found: &Reported) -> bool {
    let port = server.offload.ports.get(&found.number);
    let Some(port) = port.filter(|port| port.places.contains_key(&switch)) else {
        return false;
    };
    let known = port.flows.get(&flow.cookie).filter(|f| f.key == found.key);
    known.is_some_and(|known| match found.target {
        Some(target) => target == known.target && found.clients == known.clients,
        None => known.is_removed(),
    })
}
