//! Requests of writers.

use super::counting::METERS;
use super::To;
use crate::api::{Bridge, SwitchIndex};
use crate::layout::offload;
use crate::offload::drains::Drain;
use crate::offload::events::{OffloadEvent, OffloadListed, OffloadRefused};
use crate::offload::flows::{Flow, FlowState};
use crate::offload::ports::{OffloadPort, Ways};
use crate::offload::requests::{OffloadRequest, OffloadTarget, WriterId};
use crate::offload::writers::{Listing, Writer};
use crate::server::Server;
use crate::switches::reads::{Parts, Purpose};
use crate::switches::Switches;

impl Switches {
    /// Carries out a writer's requests, in their order.
    pub fn offload_requests(
        &mut self,
        server: &mut Server,
        (id, number): (WriterId, u32),
        requests: &[OffloadRequest],
    ) {
        let mut leaving = Vec::new();
        for request in requests {
            match *request {
                OffloadRequest::Alive => {}
                OffloadRequest::List => server.offload.set_listing(number, Listing::Asked),
                OffloadRequest::Target(target, treatment) => {
                    self.put_target(server, (id, number), target, treatment);
                }
                OffloadRequest::Drop(target) => self.drop_target(server, number, target),
                OffloadRequest::Install {
                    rule,
                    key,
                    target,
                    clients,
                    counter,
                } => {
                    let flow = Flow {
                        key,
                        clients,
                        target,
                        counter,
                        state: FlowState::Asked,
                        told: 0,
                    };
                    let refused = self.install(server, number, rule, flow);
                    if let Some(reason) = refused {
                        server.offload.refuse(id, number, rule, reason);
                    }
                }
                OffloadRequest::Remove(rule) => {
                    leaving.extend(self.remove(server, number, rule));
                }
            }
        }
        self.drain(server, number, leaving);
    }

    fn install(
        &mut self,
        server: &mut Server,
        number: u32,
        rule: u64,
        flow: Flow,
    ) -> Option<OffloadRefused> {
        let port = server.offload.ports.get_mut(&number)?;
        if let Some(reason) = port.refuses(rule, &flow) {
            return Some(reason);
        }
        let places = staying(port);
        if !places.iter().any(|switch| self.has_edge(*switch)) {
            return Some(OffloadRefused::Rate);
        }
        let mut xids = Vec::new();
        for switch in places {
            let xid = self.send_rule(port, &To { number, switch }, rule, &flow);
            let batch = self.verdicts.current_batch();
            if let Some(xid) = xid {
                port.installing.push_back((batch, xid, rule));
                xids.push(xid);
            }
        }
        port.insert(rule, flow);
        for xid in xids {
            server.offload.asked(xid, number, rule);
        }
        None
    }

    /// Handles the refusal of an install by a switch.
    pub fn install_refused(
        &mut self,
        server: &mut Server,
        (number, rule): (u32, u64),
        reason: OffloadRefused,
    ) {
        let Some(port) = server.offload.ports.get(&number) else {
            return;
        };
        let is_asked = |flow: &&Flow| flow.state == FlowState::Asked;
        if port.flows.get(&rule).filter(is_asked).is_none() {
            return;
        }
        let writer = port.writer.as_ref().map(|writer| writer.id);
        // The goal of a move may have accepted it.
        self.take_away(server, number, &[rule]);
        self.delete_flow(server, number, rule);
        if let Some(id) = writer {
            server.offload.refuse(id, number, rule, reason);
        }
    }

    /// Reports installs that all switches of their port have confirmed.
    pub fn confirm_installs(&mut self, server: &mut Server) {
        let offload = &mut server.offload;
        let mut answered = Vec::new();
        for port in offload.ports.values_mut() {
            port.forget_sent(|batch| self.verdicts.is_settled(batch));
            let places = staying(port);
            let is_confirmed = |switch: &SwitchIndex| self.is_confirmed(*switch, Bridge::Edge);
            while let Some((batch, xid, rule)) = port.installing.front().copied() {
                if !self.verdicts.is_settled(batch) || !places.iter().all(is_confirmed) {
                    break;
                }
                port.installing.pop_front();
                answered.push(xid);
                let flow = port.flows.get_mut(&rule);
                let Some(flow) = flow.filter(|flow| flow.state == FlowState::Asked) else {
                    continue;
                };
                flow.state = FlowState::Carried;
                if let Some(writer) = &port.writer {
                    offload.events.installed(writer.id, rule);
                }
            }
        }
        for xid in answered {
            offload.take_asked(xid);
        }
    }

    fn put_target(
        &mut self,
        server: &mut Server,
        (id, number): (WriterId, u32),
        target: u16,
        treatment: Option<OffloadTarget>,
    ) {
        let Some(treatment) = treatment.filter(|it| may_name(server, number, it)) else {
            return self.drop_target(server, number, target);
        };
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        let was_active = port.is_active();
        let former = port.peer;
        if !port.put_target(target, treatment) {
            let detail = format!("target {target} is not written: port {number} has {} targets, and those of a target's flows have its IP version; expected fewer targets, or addresses of that version", port.targets.len());
            return server.offload.events.error(id, "unsupported", detail);
        }
        if !was_active || port.peer != former {
            // Its tables come with the first target, and the way of a peer with the first one that names it.
            self.update_edges(server);
        }
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        for (switch, ways) in ways(port) {
            let group = offload::group(number, target, &treatment, &ways);
            self.send_target(port, switch, group);
        }
    }

    fn drop_target(&mut self, server: &mut Server, number: u32, target: u16) {
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        if port.drop_target(target) {
            for (switch, _) in ways(port) {
                let removal = offload::target_removal(number, target);
                self.send_target(port, switch, removal);
            }
            if !port.is_active() {
                self.update_edges(server);
            }
        }
    }

    /// Lists rules for writers that have asked, once none is leaving: whatever a rule has carried is in the totals then. A switch that is
    /// not in service is not waited for.
    pub fn advance_lists(&mut self, server: &mut Server) {
        let is_asked = |port: &OffloadPort| {
            let writer = port.writer.as_ref();
            writer.is_some_and(|writer| writer.listing == Listing::Asked)
        };
        let ports = server.offload.ports.iter();
        let asked = ports.filter(|(_, port)| is_asked(port)).map(|(n, _)| *n);
        for number in asked.collect::<Vec<_>>() {
            let is_leaving = |drain: &Drain| {
                let mut switches = drain.switches.iter();
                drain.port == number
                    && drain.rules.is_some()
                    && switches.all(|switch| self.has_edge(switch))
            };
            if server.offload.drains.list.values().any(is_leaving) {
                continue;
            }
            server.offload.set_listing(number, Listing::Reading);
            let from = self.places(server, number);
            if from.is_empty() {
                self.list_answered(server, number, &Vec::new());
            } else {
                self.read(Purpose::OffloadList(number), Bridge::Edge, from, METERS);
            }
        }
    }

    /// Tells a writer the totals of the port's counters, then its rules.
    pub fn list_answered(&mut self, server: &mut Server, number: u32, parts: &Parts) {
        self.meters_answered(server, number, parts);
        let Some(port) = server.offload.ports.get_mut(&number) else {
            return;
        };
        let is_reading = |writer: &&mut Writer| writer.listing == Listing::Reading;
        let Some(writer) = port.writer.as_mut().filter(is_reading) else {
            return;
        };
        writer.listing = Listing::Idle;
        let flows = port.flows.iter().filter(|(_, flow)| !flow.is_leaving());
        let listed = flows.map(|(rule, flow)| OffloadListed {
            rule: *rule,
            key: flow.key,
            target: flow.target,
            counter: flow.counter,
        });
        let listed = OffloadEvent::Listed(listed.collect());
        server.offload.events.put(writer.id, listed);
    }
}

/// Tells whether a port's target may lead where it says: packets leave only as a port of the same owner.
fn may_name(server: &Server, number: u32, target: &OffloadTarget) -> bool {
    let OffloadTarget::Pass(peer) = *target else {
        return true;
    };
    let owner = |number| Some(server.ports.get(number)?.owner.as_ref());
    let peers = owner(peer);
    peers.is_some() && peers == owner(number)
}

/// Returns the switches that get a port's new rules.
pub(super) fn staying(port: &OffloadPort) -> Vec<SwitchIndex> {
    let places = port.places.iter().filter(|(_, place)| !place.is_leaving);
    places.map(|(switch, _)| *switch).collect()
}

/// Returns the switches of a port, and the way on at each.
fn ways(port: &OffloadPort) -> Vec<(SwitchIndex, Ways)> {
    let places = port.places.iter();
    places.map(|(s, place)| (*s, place.ways.clone())).collect()
}
