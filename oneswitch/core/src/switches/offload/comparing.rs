//! Compares the offload rules and targets of an `edge`, and adopts those of an earlier run of oneswitchd.

use super::{ChangedSince, To};
use crate::api::{Bridge, SwitchIndex};
use crate::layout::findings::{Findings, FOREIGN, MISSING};
use crate::layout::messages::removal;
use crate::layout::offload::{self, reported, reported_target};
use crate::layout::repair;
use crate::offload::adoption::Found;
use crate::offload::flows::Flow;
use crate::offload::requests::FlowKey;
use crate::server::Server;
use crate::switches::Switches;
use foldhash::{HashSet, HashSetExt};
use openflow13::{FlowStats, GroupDesc, GroupMod, Message, MeterConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

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
        adopt(server, switch, flows, &groups, now);
        self.place_offload(server, switch, true);
        self.complete_meters(server, switch, &metered, &changed, &mut found);
        found.append(self.compare_targets(server, switch, &groups, &changed));
        let mut there: HashSet<(u32, FlowKey)> = HashSet::new();
        for flow in flows {
            let known = reported(flow);
            let is_in_flight = |found: &Found| changed.flows.contains(&(found.number, found.key));
            match known {
                Some(kept) if is_wanted(server, switch, &kept) => {
                    there.insert((kept.number, kept.key));
                }
                Some(moving) if is_in_flight(&moving) => {}
                _ => {
                    // A rule that leaves has stayed because its switch was not in service.
                    if !known.is_some_and(|found| is_leaving(server, &found)) {
                        let edge = &self.list[switch].edge;
                        found.add(FOREIGN, || {
                            edge.rule_name(flow.table_id, flow.priority, &flow.matching)
                        });
                    }
                    let removal = Message::FlowMod(removal(flow));
                    self.send_to(switch, Bridge::Edge, &removal);
                }
            }
        }
        for number in server.offload.ports.keys().copied().collect::<Vec<_>>() {
            self.complete_flows(server, To { number, switch }, &there, &changed, &mut found);
        }
        found
    }

    /// Takes over the meters of ports, and removes foreign ones; returns those that are there.
    fn adopt_meters(
        &mut self,
        server: &mut Server,
        switch: SwitchIndex,
        meters: &[MeterConfig],
        changed: &ChangedSince,
        found: &mut Findings,
    ) -> BTreeSet<u32> {
        let mut there = BTreeSet::new();
        for id in meters.iter().map(|meter| meter.meter_id) {
            let (number, counter) = offload::counter_of(id);
            if changed.meters.contains(&id) {
                continue;
            }
            if self.adopt_meter(server, &To { number, switch }, counter) {
                there.insert(id);
            } else {
                found.add(FOREIGN, || format!("meter {id}"));
                let removal = Message::MeterMod(offload::meter_removal(id));
                self.send_to(switch, Bridge::Edge, &removal);
            }
        }
        there
    }

    /// Adds the meters that a switch lacks: it has lost what it had counted since the last report.
    fn complete_meters(
        &mut self,
        server: &mut Server,
        switch: SwitchIndex,
        there: &BTreeSet<u32>,
        changed: &ChangedSince,
        found: &mut Findings,
    ) {
        for number in server.offload.ports.keys().copied().collect::<Vec<_>>() {
            let Some(port) = server.offload.ports.get_mut(&number) else {
                continue;
            };
            let Some(place) = port.places.get_mut(&switch) else {
                continue;
            };
            let is_lost = |counter: &u16| {
                let id = offload::meter_id(number, *counter);
                !there.contains(&id) && !changed.meters.contains(&id)
            };
            let lost: Vec<_> = place.metered.iter().map(|(c, seen)| (*c, *seen)).collect();
            let lost: Vec<_> = lost.into_iter().filter(|(c, _)| is_lost(c)).collect();
            place.metered.retain(|counter, _| !is_lost(counter));
            let is_staying = !place.is_leaving;
            for (counter, _) in lost.iter().filter(|_| is_staying) {
                if port.uses(*counter) {
                    found.add(MISSING, || {
                        format!("meter of counter {counter} of port {number}")
                    });
                    self.send_meter(port, &To { number, switch }, *counter);
                }
            }
            server.keep_offloaded(number, lost);
        }
    }

    /// Sends the rules of a port that a switch lacks.
    fn complete_flows(
        &mut self,
        server: &mut Server,
        to: To,
        there: &HashSet<(u32, FlowKey)>,
        changed: &ChangedSince,
        found: &mut Findings,
    ) {
        let Some(port) = server.offload.ports.get_mut(&to.number) else {
            return;
        };
        let place = port.places.get(&to.switch);
        if place.is_none_or(|place| place.is_leaving) {
            return;
        }
        let lacks = |flow: &Flow| {
            let key = (to.number, flow.key);
            !flow.is_leaving() && !there.contains(&key) && !changed.flows.contains(&key)
        };
        for rule in port.rules(lacks) {
            if let Some(flow) = port.flows.get(&rule).cloned() {
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
                let group = offload::group(*number, *target, &state.target, &place.ways);
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
}

/// Takes over the rules of ports that no writer has claimed since the start.
fn adopt(
    server: &mut Server,
    switch: SwitchIndex,
    flows: &[&FlowStats],
    groups: &[GroupDesc],
    now: Instant,
) {
    // A port that has moved away may have left rules whose cached flows have not ended.
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
    for found in flows.iter().filter_map(|flow| reported(flow)) {
        if may_be(server, found.number) {
            server.offload.adopt_rule(found, now);
        }
    }
}

/// Tells whether a reported rule is as it should be.
fn is_wanted(server: &Server, switch: SwitchIndex, found: &Found) -> bool {
    let port = server.offload.ports.get(&found.number);
    let port = port.filter(|port| port.places.contains_key(&switch));
    let known = port.and_then(|port| port.flows.get(&found.rule));
    known.is_some_and(|known| {
        let wanted = (known.key, known.clients, known.target, known.counter);
        wanted == (found.key, found.clients, found.target, found.counter) && !known.is_leaving()
    })
}

fn is_leaving(server: &Server, found: &Found) -> bool {
    let port = server.offload.ports.get(&found.number);
    let known = port.and_then(|port| port.flows.get(&found.rule));
    known.is_some_and(|known| known.key == found.key && known.is_leaving())
}
