//! Messages that change the virtual switch or send packets.

use crate::api::SwitchIndex;
use crate::controllers::Incoming;
use crate::core::aside::{named_by_packet, named_by_rule};
use crate::core::bundle_parts::checkable;
use crate::core::links::Link;
use crate::core::openflow10::sayable;
use crate::core::Core;
use crate::layout::modifications::{goes_back, in_all_tables};
use crate::layout::translate::{
    flow_mod_with_flood_group, patch_added, physical_packet_out, removal_of,
};
use crate::model::facts::{Facts, Stateful};
use crate::model::hidden::HiddenGroups;
use crate::model::lookups::Lookups;
use crate::model::rule::{copy_flags, RuleKey};
use crate::model::tables::Filter;
use crate::model::truth::{checks_overlap, Changes, Request};
use crate::server::executors::HUB;
use crate::server::ports::VirtualPort;
use crate::switch_set::SwitchSet;
use crate::wire::wire;
use openflow13::{
    config, decode, openflow15, port_no, CanonicalMatch, ErrorCode, FlowMod, FlowModCommand,
    Message, PacketOut,
};
use std::time::Instant;
use tracing::warn;

/// The destination of frames of the Spanning Tree Protocol.
const STP: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];

impl Core {
    /// Sends a controller's message, or `changed` instead, to `targets` and applies it to the virtual tables; the verdict follows.
    pub(in crate::core) fn operate(
        &mut self,
        incoming: Incoming<'_>,
        changed: Option<Vec<u8>>,
        request: Request,
        targets: SwitchSet,
        now: Instant,
    ) {
        if !targets.minus(self.switches.up()).is_empty() {
            // Not all switches that must refuse it are connected.
            if let Some(error) = self.truth.refuses(&request) {
                return self.refuse(incoming, error);
            }
        }
        // Examining each of many deleted rules would take longer than everything else.
        let may_report = !deletes(&request) || self.truth.tables.reports();
        let changes = self.truth.apply(&request, now);
        if !may_report {
            return self.transmit(incoming, changed, request, changes, targets, now);
        }
        let by_meter = matches!(request, Request::Meter(_));
        self.with_expiry(now, |expiry, below| match by_meter {
            true => expiry
                .removals
                .expect_removals_by_meter(below, &changes.flows),
            false => expiry.removals.expect_removals(below, &changes.flows),
        });
        self.transmit(incoming, changed, request, changes, targets, now);
    }

    fn transmit(
        &mut self,
        incoming: Incoming<'_>,
        changed: Option<Vec<u8>>,
        request: Request,
        changes: Changes,
        targets: SwitchSet,
        now: Instant,
    ) {
        let targets = targets.intersection(self.switches.up());
        let other = changed.is_some() || incoming.is_translated();
        let original = other.then(|| incoming.sent.into());
        let origin = Some(incoming.origin);
        let verdicts = &mut self.switches.verdicts;
        let xid = verdicts.push(origin, original, request, changes, targets, now);
        let frame = changed.as_deref().unwrap_or(incoming.frame);
        self.switches.send_operation(frame, targets, xid);
    }

    pub(in crate::core) fn flow_mod(
        &mut self,
        incoming: Incoming<'_>,
        mut message: FlowMod,
        now: Instant,
    ) {
        let is_ours = self.switches.verdicts.is_modifying();
        // A rule that we add again, with a new cookie, keeps that of another version.
        if !incoming.has_importance() && !is_ours {
            message.importance = 0;
        }
        if message.command == FlowModCommand::Add && !incoming.is_openflow10() && !is_ours {
            message.cookie_mask = 0; // which has no meaning there, except to us
        }
        let matching = match message.matching.canonical() {
            Ok(matching) => matching,
            Err(refusal) => return self.refuse_malformed(incoming, refusal.error, now),
        };
        let facts = Facts::of_instructions(&message.instructions);
        if !is_ours && self.refuses_meter_inside(incoming, &facts) {
            return;
        }
        let sayable = sayable(incoming, &message);
        let incoming = Incoming {
            frame: sayable.as_deref().unwrap_or(incoming.frame),
            ..incoming
        };
        if facts.has_group && self.holds_until_aside(incoming, &named_by_rule(&message), now) {
            return;
        }
        if self.holds_until_gathered(incoming, &facts, now) {
            return;
        }
        let is_newer = facts.has_meter_inside && !message.command.is_delete();
        if is_newer && self.holds_until_alone(incoming, now) {
            return;
        }
        let what = "a rule with a meter behind other actions";
        if is_newer && self.refuses_unlinked(Link::Version15, what) {
            return self.refuse(incoming, ErrorCode::BAD_ACTION_UNSUPPORTED_ORDER);
        }
        if let Some(error) = self.refuse_by_facts(incoming, "a rule", &facts) {
            return self.refuse(incoming, error);
        }
        let what = "a rule with actions for a protocol on which it does not match";
        if sayable.is_some() && self.refuses_unlinked(Link::Version10, what) {
            return self.refuse(incoming, ErrorCode::BAD_ACTION_MATCH_INCONSISTENT);
        }
        self.begin_learning(&facts, now);
        if facts.moves_in_port {
            self.enter_everywhere(now);
        }
        if filters_on_hidden(&message, &self.server.hidden) {
            return self.delete_by_truth(incoming, message, matching, facts, now);
        }
        let targets = self.server.executors.of_in_port(matching.in_port());
        let holder = checks_overlap(&message)
            .then(|| self.holder_of_overlapping(&message, &matching))
            .flatten();
        let changed = self.physical_flow_mod(
            incoming.frame,
            &message,
            &facts,
            targets.len(),
            holder.is_some(),
            now,
        );
        let is_everywhere = self.switches.verdicts.modifies_all_tables() && !is_newer;
        let changed = match is_everywhere && goes_back(&message) {
            true => {
                self.sent_to_all_tables(changed.as_deref().unwrap_or(incoming.frame), &matching)
            }
            false => changed,
        };
        if sayable.is_some() && message.command == FlowModCommand::Add {
            let key = RuleKey::of_flow_mod(&message, matching.clone());
            self.switches.require_actions(targets, &key);
        }
        let unseen = self.unseen_in_bundle(&message, &matching, now);
        let request = Request::Flow {
            message: Box::new(message),
            matching,
            facts,
        };
        match holder {
            None => {
                match is_newer {
                    true => self.operate_newer(incoming, changed, request, targets, now),
                    false => self.operate(incoming, changed, request, targets, now),
                }
                self.change_unseen(unseen, &facts, now);
            }
            Some(holder) => self.operate_refused(incoming, changed, request, is_newer, holder, now),
        }
    }

    /// Transmits a message to a switch with a rule that it overlaps. That switch may refuse it for another reason first.
    fn operate_refused(
        &mut self,
        incoming: Incoming<'_>,
        changed: Option<Vec<u8>>,
        request: Request,
        is_newer: bool,
        holder: SwitchSet,
        now: Instant,
    ) {
        let is_linked = is_newer && self.unlinked(Link::Version15).is_empty();
        let changed = match checkable(changed.as_deref().unwrap_or(incoming.frame)) {
            Some(sayable) if is_newer && !is_linked => Some(sayable),
            _ => changed,
        };
        let transmit = |core: &mut Self| {
            core.transmit(incoming, changed, request, Changes::default(), holder, now);
            let verdicts = &mut core.switches.verdicts;
            verdicts.expect_refusal(ErrorCode::FLOW_MOD_FAILED_OVERLAP);
        };
        match is_linked {
            true => self.speaking_newer(transmit),
            false => transmit(self),
        }
    }

    /// Returns a switch with a rule that `message` overlaps: it refuses, the others might accept. `None`: no overlap; empty: that switch is
    /// not connected.
    fn holder_of_overlapping(
        &self,
        message: &FlowMod,
        matching: &CanonicalMatch,
    ) -> Option<SwitchSet> {
        let key = RuleKey::of_flow_mod(message, matching.clone());
        let up = self.switches.up();
        let mut holder = None;
        for rule in self.truth.tables.overlapping(&key) {
            let of_rule = self.server.executors.of_rule(rule).intersection(up);
            let one: SwitchSet = of_rule.iter().take(1).collect();
            if !self.switches.verdicts.may_be_in_flight(rule.created) {
                return Some(one);
            }
            // It may itself be refused.
            holder.get_or_insert(one);
        }
        holder
    }

    /// Returns the flow-mod for the switches; `None`: unchanged. If the virtual tables show no overlap, the switches are not asked to
    /// check, because they may have copies of refused rules.
    fn physical_flow_mod(
        &mut self,
        frame: &[u8],
        message: &FlowMod,
        facts: &Facts,
        copies: usize,
        overlaps: bool,
        now: Instant,
    ) -> Option<Vec<u8>> {
        let (idle, hard) = (message.idle_timeout, message.hard_timeout);
        let timed = message.command == FlowModCommand::Add && (idle != 0 || hard != 0);
        let unchecked = checks_overlap(message) && !overlaps;
        if !timed && !facts.floods && !unchecked {
            return None;
        }
        let mut changed = if facts.floods {
            flow_mod_with_flood_group(frame, &self.server.hidden)
        } else {
            frame.to_vec()
        };
        if timed || unchecked {
            let kept = if copies > 1 { 0 } else { idle };
            let dropped = if unchecked { FlowMod::CHECK_OVERLAP } else { 0 };
            let flags = copy_flags(message.flags & !dropped, idle, hard);
            patch_added(&mut changed, kept, flags);
            if idle != 0 && copies > 1 {
                self.expiry.idle.start(now);
            }
        }
        Some(changed)
    }

    /// Returns a flow-mod for one table as one for all tables, which switches take. It is a part of such a message, so it changes no other rules.
    fn sent_to_all_tables(&self, frame: &[u8], matching: &CanonicalMatch) -> Option<Vec<u8>> {
        let Ok((header, Message::FlowMod(message))) = decode(frame) else {
            return None;
        };
        let key = RuleKey::of_flow_mod(&message, matching.clone());
        let is_addition = message.command == FlowModCommand::Add;
        let old = self.truth.tables.get(&key).filter(|_| is_addition);
        let everywhere = in_all_tables(&message, old.map(|rule| rule.cookie));
        Some(wire(header.xid, &Message::Experimenter(everywhere)))
    }

    /// Deletes with a filter by out_port FLOOD or ALL, or by a hidden group: on the switches those outputs are such a group, so rules are
    /// deleted one by one.
    fn delete_by_truth(
        &mut self,
        incoming: Incoming<'_>,
        message: FlowMod,
        matching: CanonicalMatch,
        facts: Facts,
        now: Instant,
    ) {
        self.switches
            .verdicts
            .adopt(self.server.executors.all().intersection(self.switches.up()));
        for rule in self
            .truth
            .tables
            .select(&Filter::of_flow_mod(&message, matching.clone()))
        {
            self.switches.send_own_flow(
                removal_of(&rule),
                self.server.executors.of_rule(&rule),
                now,
            );
        }
        let request = Request::Flow {
            message: Box::new(message),
            matching,
            facts,
        };
        self.operate(incoming, None, request, SwitchSet::EMPTY, now);
    }

    /// Refuses what the switches would accept but one switch would not, or what cannot work. The log gives the reason, which the error
    /// cannot.
    pub(in crate::core) fn refuse_by_facts(
        &self,
        incoming: Incoming<'_>,
        what: &str,
        facts: &Facts,
    ) -> Option<ErrorCode> {
        let controller = incoming.origin.controller.0;
        let (action, error) = match facts.stateful? {
            // Executors cannot share this state.
            _ if self.server.executors.all().len() == 1 => return None,
            Stateful::ConnectionTracking => ("ct", ErrorCode::BAD_ACTION_BAD_EXP_TYPE),
            Stateful::Learn => ("learn", ErrorCode::BAD_ACTION_BAD_EXP_TYPE),
            Stateful::Normal => ("NORMAL", ErrorCode::BAD_ACTION_BAD_OUT_PORT),
        };
        let executors = self.switches.switch_names(self.server.executors.all());
        warn!(
            target: "northbound",
            controller,
            "refuses {what} with {action}: its state cannot be split, and the ports have several executors ({executors}), which cannot be gathered, or may not be (stateful in server.toml); set executor = \"{}\" in [oneswitchd], and run `unoctl port execute` for each port that has another one",
            self.switches.list[HUB].name
        );
        Some(error)
    }

    /// Starts installing all rules at all executors, because any rule may apply at any of them.
    pub(in crate::core) fn enter_everywhere(&mut self, now: Instant) {
        if self.server.executors.is_everywhere() {
            return;
        }
        let (old, new) = self.server.derive_executors_with(true);
        self.with_moves(now, |moves, below| moves.install_copies(below, &old, &new));
    }

    /// Stops this after the last rule that changes in_port was removed.
    pub(in crate::core) fn leave_everywhere(&mut self, now: Instant) {
        if !self.server.executors.is_everywhere()
            || self.truth.moves_in_port()
            || self.switches.verdicts.changes_in_flight()
        {
            return;
        }
        let (old, new) = self.server.derive_executors_with(false);
        self.with_moves(now, |moves, below| moves.retire_copies(below, &old, &new));
    }

    /// Refuses a message that no switch can accept. Of several errors in it, the hypervisor reports the one that Open vSwitch finds first;
    /// `error` is ours.
    pub(in crate::core) fn refuse_malformed(
        &mut self,
        incoming: Incoming<'_>,
        error: ErrorCode,
        now: Instant,
    ) {
        let hub = SwitchSet::of(HUB);
        if hub.intersection(self.switches.up()).is_empty() {
            return self.refuse(incoming, error);
        }
        let (request, changes) = (Request::Other, Changes::default());
        self.transmit(incoming, None, request, changes, hub, now);
        self.switches.verdicts.expect_refusal(error);
    }

    /// Refuses a meter among other actions from a controller whose version does not have it.
    pub(in crate::core) fn refuses_meter_inside(
        &mut self,
        incoming: Incoming<'_>,
        facts: &Facts,
    ) -> bool {
        let is_unknown = facts.has_meter_inside && incoming.version() < openflow15::VERSION;
        if is_unknown {
            self.refuse(incoming, ErrorCode::BAD_ACTION_BAD_TYPE);
        }
        is_unknown
    }

    pub(in crate::core) fn packet_out(
        &mut self,
        incoming: Incoming<'_>,
        message: PacketOut,
        now: Instant,
    ) {
        let facts = Facts::of_actions(message.actions.as_actions());
        if self.refuses_meter_inside(incoming, &facts) {
            return;
        }
        if facts.has_group && self.holds_until_aside(incoming, &named_by_packet(&message), now) {
            return;
        }
        let is_newer = message.packet_type != 0 || facts.has_meter_inside;
        if is_newer && self.holds_until_alone(incoming, now) {
            return;
        }
        if self.holds_until_gathered(incoming, &facts, now) {
            return;
        }
        let (what, error) = match message.packet_type {
            0 => (
                "a packet-out with a meter",
                ErrorCode::BAD_ACTION_UNSUPPORTED_ORDER,
            ),
            _ => (
                "a packet without an Ethernet header",
                ErrorCode::BAD_MATCH_BAD_VALUE,
            ),
        };
        if is_newer && self.refuses_unlinked(Link::Version15, what) {
            return self.refuse(incoming, error);
        }
        if let Some(error) = self.refuse_by_facts(incoming, "a packet-out", &facts) {
            return self.refuse(incoming, error);
        }
        self.begin_learning(&facts, now);
        let switch = match facts.moves_in_port {
            true => self.place_of_lookups(&message, now),
            false => self
                .server
                .executors
                .of_packet_out(&self.server.ports, message.in_port),
        };
        if !self.switches.list[switch].virt.is_up() {
            warn!(target: "northbound", controller = incoming.origin.controller.0, in_port = message.in_port, switch = %self.switches.list[switch].name, "refuses a packet-out: the switch that executes for its in_port is not connected");
            return self.refuse(incoming, ErrorCode::BAD_REQUEST_EPERM);
        }
        let drops = match message.data.starts_with(&STP) {
            true => config::NO_RECV_STP,
            false => config::NO_RECV,
        };
        let receives = |port: &VirtualPort| port.config & drops == 0;
        let is_port = self.server.ports.get(message.in_port).is_some_and(receives);
        let changed = (facts.floods || is_port).then(|| {
            let translated = physical_packet_out(message, is_port, &self.server.hidden);
            wire(incoming.origin.xid, &Message::PacketOut(translated))
        });
        let targets = SwitchSet::of(switch);
        match is_newer {
            true => self.operate_newer(incoming, changed, Request::PacketOut, targets, now),
            false => self.operate(incoming, changed, Request::PacketOut, targets, now),
        }
    }

    /// Returns where a packet-out runs whose actions change in_port: at the executor of the port used for the lookup.
    fn place_of_lookups(&mut self, message: &PacketOut, now: Instant) -> SwitchIndex {
        let lookups = Lookups::of(message.actions.as_actions(), message.in_port);
        let executor = |port| {
            self.server
                .executors
                .of_packet_out(&self.server.ports, port)
        };
        let places: SwitchSet = lookups.ports.iter().map(|port| executor(*port)).collect();
        match places.only() {
            Some(switch) if !lookups.unforeseen => switch,
            None if places.is_empty() && !lookups.unforeseen => executor(message.in_port),
            // No switch has all the rules that it may need.
            _ => {
                self.enter_everywhere(now);
                self.server
                    .executors
                    .of_packet_out(&self.server.ports, message.in_port)
            }
        }
    }
}

fn deletes(request: &Request) -> bool {
    let Request::Flow { message, .. } = request else {
        return false;
    };
    let commands = [FlowModCommand::Delete, FlowModCommand::DeleteStrict];
    commands.contains(&message.command)
}

fn filters_on_hidden(message: &FlowMod, hidden: &HiddenGroups) -> bool {
    let deletes = matches!(
        message.command,
        FlowModCommand::Delete | FlowModCommand::DeleteStrict
    );
    let floods = matches!(message.out_port, port_no::FLOOD | port_no::ALL);
    deletes && (floods || hidden.contain(message.out_group))
}
