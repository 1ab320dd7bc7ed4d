//! Requests of controllers for statistics, and the switches' answers.

use crate::api::{Bridge, ControllerId, SwitchIndex};
use crate::controllers::merge::Answers;
use crate::controllers::reply::Reply;
use crate::controllers::Incoming;
use crate::core::Core;
use crate::expiry::idle::count_by_rule;
use crate::offload::sums::{self, Sums};
use crate::switch_set::SwitchSet;
use crate::switches::fold::{Fold, LostCopies};
use crate::switches::offload::counting::{metered, see};
use crate::switches::reads::{flows, Answer, ControllerQuestion, Parts, Payer, Purpose, Shown};
use crate::switches::sync::Compared;
use crate::switches::verdict::Origin;
use openflow13::{
    encode_error, meter_no, ErrorCode, FlowRemoved, Header, Multipart, MultipartReply,
    MultipartRequest, PortStats,
};
use std::time::Instant;

impl Core {
    /// Handles a controller's multipart request.
    pub(in crate::core) fn multipart_request(
        &mut self,
        incoming: Incoming<'_>,
        request: Multipart<MultipartRequest>,
        now: Instant,
    ) {
        if self.holds_until_counters_come(incoming, &request.body, now) {
            return;
        }
        let is_monitor = matches!(request.body, MultipartRequest::FlowMonitor(_));
        if is_monitor && self.holds_monitor_message(incoming) {
            return;
        }
        if self.holds_table_change(incoming, &request.body, now) {
            return;
        }
        let Some(controller) = self.controllers.get_mut(incoming.origin.controller) else {
            return;
        };
        let request = match controller.assemble(incoming.origin.xid, incoming.sent, request, now) {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => return self.refuse(incoming, error),
        };
        if let MultipartRequest::FlowMonitor(requests) = &request {
            return self.monitor_request(incoming, requests);
        }
        if let Some(error) = self.view().unknown_subject(&request) {
            return self.refuse(incoming, error);
        }
        let origin = incoming.origin;
        let Some(slot) = self.reserve_reply(origin.controller) else {
            return;
        };
        let (bridge, from) = self.view().sources(&request);
        if from.is_empty() {
            let answers = Answers {
                parts: Vec::new(),
                steady: true,
                since: u64::MAX,
                existing: self.truth.existing(&request),
                offloaded: Sums::new(),
                shown: Shown::in_version(incoming.version()),
            };
            let reply = self.view().merge(&request, answers, origin.xid, now);
            return self.fill_reply(origin.controller, slot, reply);
        }
        let reserved = self.view().answer_size(&request) + incoming.sent.len();
        self.controllers.pay(origin.controller, reserved);
        let since = self.truth.tables.begin_reading();
        let asked = self.view().physical_request(&request);
        let existing = self.truth.existing(&request);
        let offloaded = self.ask_offload_sums(&request);
        let question = ControllerQuestion {
            origin,
            frame: incoming.sent.into(),
            slot,
            request,
            since,
            existing,
            behind: self.switches.verdicts.current_batch(),
            reserved,
            epoch: self.server.epoch,
            offloaded,
            shown: Shown::in_version(incoming.version()),
        };
        if let Some(question) = self.change_tables(incoming.version(), question) {
            self.ask_switches(question, (bridge, from), asked, now);
        }
    }

    /// Refuses requests of which nothing has arrived for too long.
    pub(in crate::core) fn give_up_partials(&mut self, now: Instant) {
        for (controller, xid, frame) in self.controllers.give_up_partials(now) {
            let origin = Origin {
                controller,
                xid,
                place: 0,
            };
            let incoming = Incoming {
                origin,
                frame: &frame,
                sent: &frame,
            };
            self.refuse(incoming, ErrorCode::ONF_MULTIPART_REQUEST_TIMEOUT);
        }
    }

    /// Asks for the packets that offload rules carried, if they count for a controller's request. Meters that are gone by now are in no
    /// answer.
    fn ask_offload_sums(&mut self, request: &MultipartRequest) -> Option<u64> {
        let numbers = self.view().offload_subjects(request);
        if numbers.is_empty() {
            return None;
        }
        let mut gone = Sums::new();
        for number in &numbers {
            let port = self.server.ports.get(*number);
            for (counter, counted) in port.into_iter().flat_map(|port| &port.offloaded) {
                let leaves = self.server.offload.leaves_as(*number, *counter);
                sums::add(&mut gone, *number, leaves, *counted);
            }
        }
        let question = self.server.offload.sums.begin(gone);
        for number in numbers {
            let from = self.switches.places(&self.server, number);
            if !from.is_empty() {
                let request = MultipartRequest::Meter {
                    meter: meter_no::ALL,
                };
                let purpose = Purpose::OffloadSum { question, number };
                self.switches.read(purpose, Bridge::Edge, from, request);
            }
        }
        Some(question)
    }

    /// Handles a part of a switch's answer.
    pub(in crate::core) fn read_reply(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        header: Header,
        reply: Multipart<MultipartReply>,
        now: Instant,
    ) {
        if let MultipartReply::Experimenter(told) = &reply.body {
            if self.rules_changed(switch, told, now) && !self.switches.is_question(header.xid) {
                return;
            }
        }
        let is_wanted = match self.switches.part_arrives(switch, bridge, header) {
            None => return,
            Some(Payer::Us) => true,
            Some(Payer::Controller(id, bytes)) => self.controllers.pay(id, bytes),
        };
        if is_wanted {
            self.switches.keep_part(header.xid, switch, reply.body);
        }
        if !reply.more {
            let answer = self.switches.read_answered(header.xid, switch);
            self.route_answer(answer, now);
        }
    }

    pub(in crate::core) fn route_answer(&mut self, answer: Option<Answer>, now: Instant) {
        let Some(answer) = answer.and_then(|answer| self.switches.keep_early(answer)) else {
            return;
        };
        let Answer {
            purpose,
            number: question,
            bridge,
            asked,
            missed,
            parts,
            folded,
            error,
            last,
        } = answer;
        match purpose {
            Purpose::Controller(question) => {
                let mut parts = parts;
                for each in folded {
                    each.take_from(&question.request, &mut parts);
                }
                self.answer_controller(question, parts, error, now)
            }
            Purpose::Inventory => {
                if self.switches.inventory_part(last, bridge, parts, error) {
                    self.inventory_complete(last, bridge, now);
                }
            }
            Purpose::MoveBaseline(number, goal) => {
                let stats = first_port_stats(parts);
                self.with_moves(now, |moves, below| {
                    moves.baseline_answered(below, number, &goal, question, stats, error)
                });
            }
            Purpose::FoldPort(number)
            | Purpose::FoldRules {
                moving: Some(number),
                ..
            }
            | Purpose::FoldCounters(Some(number))
                if !missed.is_empty() =>
            {
                self.with_moves(now, |moves, below| moves.fold_missed(below, number, error))
            }
            Purpose::FoldPort(number) => {
                let stats = first_port_stats(parts);
                self.folded(number, stats.map(Fold::Port), now);
            }
            Purpose::FoldRules {
                moving: Some(number),
                ..
            } => self.folded(number, Some(Fold::Rules(last, parts)), now),
            Purpose::FoldRules { old, new, .. } => {
                let lost = LostCopies {
                    switch: last,
                    parts,
                    old,
                    new,
                };
                // The copies were removed right after the request.
                let (truth, journal) = (&mut self.truth, &mut self.journal);
                self.switches.fold_rules(truth, journal, lost, question)
            }
            Purpose::FoldCounters(Some(number)) => {
                self.folded(number, Some(Fold::Counted(parts)), now)
            }
            Purpose::FoldCounters(None) => {
                let (truth, journal) = (&mut self.truth, &mut self.journal);
                self.switches.fold_counted(truth, journal, parts)
            }
            Purpose::OffloadCounts(number) => {
                let server = &mut self.server;
                self.switches.counts_answered(server, number, &parts, now)
            }
            Purpose::OffloadDrain(id) => {
                let (server, is_lost) = (&mut self.server, !missed.is_empty());
                self.switches.drain_answered(server, id, &parts, is_lost)
            }
            Purpose::OffloadSum { question, number } => {
                for (_, part) in &parts {
                    for (counter, counted) in metered(number, part) {
                        let offload = &mut self.server.offload;
                        let leaves = offload.leaves_as(number, counter);
                        offload.sums.add(question, number, leaves, counted);
                    }
                }
                see(&mut self.server, number, &parts);
            }
            Purpose::OffloadMeters(number) => {
                self.switches
                    .meters_answered(&mut self.server, number, &parts)
            }
            Purpose::OffloadList(number) => {
                self.switches
                    .list_answered(&mut self.server, number, &parts)
            }
            Purpose::Traffic => self.with_moves(now, |moves, below| {
                moves.traffic_answered(below, question, parts)
            }),
            Purpose::Watch => {}
            Purpose::Learned { keys, since } => {
                self.learned_rules_read(last, &keys, since, flows(parts), now)
            }
            Purpose::IdlePoll => {
                let heard = asked.minus(missed);
                let packets = count_by_rule(flows(parts));
                self.with_expiry(now, |expiry, below| {
                    for key in expiry.idle.polled(below, &packets, heard) {
                        let (reason, gone) = (FlowRemoved::IDLE_TIMEOUT, SwitchSet::EMPTY);
                        expiry.removals.expire(below, &key, reason, gone);
                    }
                });
            }
        }
    }

    /// Gives controllers the answers that waited for the messages before their requests.
    pub(in crate::core) fn route_settled_answers(&mut self, now: Instant) {
        for answer in self.switches.take_settled_answers() {
            self.route_answer(Some(answer), now);
        }
    }

    pub(in crate::core) fn answer_controller(
        &mut self,
        question: ControllerQuestion,
        parts: Parts,
        error: Option<ErrorCode>,
        now: Instant,
    ) {
        let (id, xid) = (question.origin.controller, question.origin.xid);
        let place = (id, question.slot);
        let sums = &mut self.server.offload.sums;
        let offloaded = question.offloaded.map(|open| sums.end(open));
        let reply = match error {
            Some(error) => {
                self.controllers.refused += 1;
                encode_error(xid, error, &question.frame).into()
            }
            None => {
                let answers = Answers {
                    parts,
                    steady: question.epoch == self.server.epoch,
                    since: question.since,
                    existing: question.existing,
                    offloaded: offloaded.unwrap_or_default(),
                    shown: question.shown,
                };
                self.view().merge(&question.request, answers, xid, now)
            }
        };
        self.give_answer(place, question.reserved, reply);
    }

    /// Gives a controller its complete answer, in its slot; `reserved`: bytes for it.
    pub(in crate::core) fn give_answer(
        &mut self,
        (id, slot): (ControllerId, u64),
        reserved: usize,
        reply: Reply,
    ) {
        self.truth.tables.end_reading();
        if let Some(controller) = self.controllers.get_mut(id) {
            controller.give_back(reserved);
        }
        self.fill_reply(id, slot, reply);
    }

    fn folded(&mut self, number: u32, fold: Option<Fold>, now: Instant) {
        self.with_moves(now, |moves, below| moves.folded(below, number, fold));
    }

    /// Compares and repairs a bridge whose answers are complete, and takes it into service.
    fn inventory_complete(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        if bridge == Bridge::Virt && self.switches.is_virt_untold(switch) {
            return self.switches.retry_resync(switch, bridge, now);
        }
        let inventory = self.switches.take_inventory(switch, bridge);
        // An incomplete `edge` may hide rules that must not exist.
        let (is_partial, begun, since) =
            (inventory.error.is_some(), inventory.begun, inventory.since);
        let is_compared = match bridge {
            Bridge::Virt => {
                let (truth, server) = (&self.truth, &mut self.server);
                let compared = self
                    .switches
                    .compare_virt(truth, server, switch, inventory, now);
                compared
                    .map(|c| self.follow(switch, c, since, now))
                    .is_some()
            }
            Bridge::Edge => {
                self.with_moves(now, |moves, below| moves.read_baselines(below, switch));
                let server = &mut self.server;
                let is_compared = self.switches.compare_edge(server, switch, &inventory, now);
                self.switches.apply_port_configs(server, switch);
                is_compared
            }
        };
        if is_compared && !is_partial {
            self.switches.compared(switch, bridge, begun);
        }
        self.switches.list[switch].session_mut(bridge).again |= is_partial;
        self.announce_ports(None);
        if std::mem::take(&mut self.switches.list[switch].session_mut(bridge).again) {
            self.switches.request_resync(switch, bridge, now);
        }
    }

    /// Brings the virtual tables in line with what a switch has rightly done by itself.
    fn follow(&mut self, switch: SwitchIndex, compared: Compared, since: u64, now: Instant) {
        self.with_expiry(now, |expiry, below| {
            for (key, reason, gone) in compared.expired {
                expiry.removals.expire(below, &key, reason, gone);
            }
        });
        self.restored(compared.restored, now);
        self.enter_found(switch, &compared.learned, since, now);
    }
}

fn first_port_stats(parts: Parts) -> Option<PortStats> {
    parts.into_iter().find_map(|(_, part)| match part {
        MultipartReply::PortStats(stats) => stats.into_iter().next(),
        _ => None,
    })
}
