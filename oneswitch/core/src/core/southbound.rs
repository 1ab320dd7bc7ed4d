//! Messages of switches.

use crate::api::{Bridge, Destination, SwitchIndex};
use crate::controllers::telling::Hearers;
use crate::core::Core;
use crate::model::happened::{by_message, Happened};
use crate::server::ports::VirtualPort;
use crate::switch_set::SwitchSet;
use crate::switches::verdict::{Refused, Settled, NOT_AN_OPERATION};
use crate::wire::wire;
use openflow13::config::PORT_DOWN;
use openflow13::openflow10;
use openflow13::{continuation, decode, kind, ErrorMessage, Header, Message, PortStatus};
use std::time::Instant;
use tracing::{debug, error, info, warn};

impl Core {
    /// A bridge's session has finished its OpenFlow handshake.
    pub fn switch_up(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        if !self.switches.list[switch].session(bridge).is_down() {
            self.switch_down(switch, bridge, now);
        }
        if bridge == Bridge::Virt {
            // Before the switch reports its rules.
            self.resume_learning(switch, now);
        }
        self.switches.synchronise(switch, bridge);
    }

    pub fn switch_down(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        let session = self.switches.list[switch].session_mut(bridge);
        if session.is_down() {
            return;
        }
        session.end();
        self.switches.doubt(switch, bridge, now);
        self.switches
            .outbox
            .discard(Destination::Switch(switch, bridge));
        self.switches.verdicts.forget(switch, bridge);
        if bridge == Bridge::Virt {
            self.forget_trial(switch);
        }
        for question in self.switches.forget_reads(switch, bridge) {
            let answer = self.switches.read_answered(question, switch);
            self.route_answer(answer, now);
        }
        if bridge == Bridge::Virt {
            self.with_expiry(now, |expiry, below| {
                expiry.removals.forget_removals(below, switch);
            });
        } else {
            self.switches.list[switch].installed.clear();
            self.announce_ports(None);
        }
        self.settle(now);
    }

    /// Handles `frame`, one complete message of a bridge.
    pub fn switch_message(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        frame: &[u8],
        now: Instant,
    ) {
        let Some(header) = Header::parse(frame) else {
            return;
        };
        match header.kind {
            kind::BARRIER_REPLY if self.trial_answered(switch, header.xid) => self.settle(now),
            kind::BARRIER_REPLY => {
                self.switches
                    .verdicts
                    .barrier_reply(header.xid, switch, bridge);
                self.settle(now);
            }
            kind::PACKET_IN if bridge == Bridge::Virt => {
                self.packet_in(switch, frame, 0, self.hearers_of(switch))
            }
            kind::EXPERIMENTER
                if bridge == Bridge::Virt && continuation::properties_of(frame).is_some() =>
            {
                self.packet_in(switch, frame, 0, self.hearers_of(switch))
            }
            _ => self.decoded_switch_message(switch, bridge, header, frame, now),
        }
    }

    /// Handles a message on a connection that [`openflow10::subscribe_to_misses`] has set up.
    pub fn packet_missed(&mut self, switch: SwitchIndex, frame: &[u8]) {
        if frame.get(1) == Some(&openflow10::kind::BARRIER_REPLY) {
            return self.misses_come(switch);
        }
        match openflow10::decode_miss(frame) {
            Ok(Some(packet)) => {
                let frame = wire(0, &Message::PacketIn(packet));
                self.controllers.relay_packet_in(&frame, 0, Hearers::All);
            }
            Ok(None) => {}
            Err(refusal) => {
                let switch = &self.switches.list[switch].name;
                error!(target: "southbound", %switch, detail = %refusal, "cannot take a packet that met no rule");
            }
        }
    }

    fn decoded_switch_message(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        header: Header,
        frame: &[u8],
        now: Instant,
    ) {
        let message = match decode(frame) {
            Ok((_, message)) => message,
            Err(refusal) => {
                let reason = format!(
                    "sent a message of type {} that cannot be read: {}",
                    header.kind, refusal.detail
                );
                error!(target: "southbound", switch = %self.switches.list[switch].name, ?bridge, "{reason}");
                self.switches.disconnects.push((switch, bridge, reason));
                return;
            }
        };
        match message {
            Message::Error(error) => self.switch_error(switch, bridge, header.xid, error, now),
            Message::MultipartReply(reply) => self.read_reply(switch, bridge, header, reply, now),
            Message::FlowRemoved(removed) if bridge == Bridge::Virt => {
                self.with_expiry(now, |expiry, below| {
                    expiry.removals.flow_removed(below, switch, &removed);
                });
            }
            Message::PortStatus(status) => self.switch_port_changed(switch, bridge, status),
            Message::Experimenter(message) if bridge == Bridge::Virt => {
                self.switches.tlv_table_reported(switch, &message)
            }
            Message::Experimenter(_) => {} // a bundle's progress; its errors come as errors
            Message::FeaturesReply(features) => {
                self.switches.list[switch].features = Some(features)
            }
            _ => {
                debug!(target: "southbound", switch = %self.switches.list[switch].name, ?bridge, kind = header.kind, "ignored message")
            }
        }
    }

    fn switch_error(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        xid: u32,
        message: ErrorMessage,
        now: Instant,
    ) {
        let error = message.error;
        if xid & NOT_AN_OPERATION == 0 && bridge == Bridge::Virt {
            if !self.switches.verdicts.refuse(xid, switch, message) {
                warn!(target: "southbound", switch = %self.switches.list[switch].name, %error, xid, "error about an unknown message");
            }
        } else if self.bundle_error(switch, bridge, xid, &message) {
        } else if bridge == Bridge::Edge && self.is_refused_install(xid, error) {
            info!(target: "southbound", switch = %self.switches.list[switch].name, %error, "refused an offload rule");
        } else if self.switches.is_question(xid) {
            let answer = self.switches.read_failed(switch, bridge, xid, error);
            self.route_answer(answer, now);
        } else {
            error!(target: "southbound", switch = %self.switches.list[switch].name, ?bridge, %error, "refused a message of ours; reading its state again");
            self.switches.list[switch].repairs += 1;
            self.switches.list[switch].session_mut(bridge).refusal = Some(error);
            self.switches.doubt(switch, bridge, now);
            self.switches.request_resync(switch, bridge, now);
        }
    }

    /// Sends controllers the errors for refused messages, and repairs switches that disagreed.
    pub(in crate::core) fn report_settled(&mut self, settled: Settled, now: Instant) {
        self.discarded.extend(settled.discarded);
        let (ours, theirs): (Vec<_>, Vec<_>) = settled
            .refused
            .into_iter()
            .partition(|refused| refused.origin.is_none());
        let mut happened = by_message(&settled.happened).peekable();
        for refused in theirs {
            let is_earlier = |changes: &&[Happened]| changes[0].number < refused.number;
            while let Some(changes) = happened.next_if(is_earlier) {
                self.tell_changes(changes);
            }
            self.report_refusal(refused);
        }
        happened.for_each(|changes| self.tell_changes(changes));
        self.discard_happened(settled.happened);
        self.release_replies();
        self.with_expiry(now, |expiry, below| {
            let (kept, removed) = (&settled.not_removed, settled.removed_too);
            expiry.removals.correct_removals(below, kept, removed);
            expiry.removals.tell_settled_removals(below);
        });
        for (origin, request) in &settled.forwarded {
            self.controllers.forward_request(*origin, request);
        }
        for switch in settled.repair.intersection(self.switches.up()).iter() {
            warn!(target: "southbound", switch = %self.switches.list[switch].name, "disagrees with another switch about a message; repairing it");
            self.switches.doubt(switch, Bridge::Virt, now);
            self.switches.request_resync(switch, Bridge::Virt, now);
        }
        for switch in 0..self.switches.list.len() {
            let refused = ours.iter().filter(|refused| refused.by.contains(switch));
            self.copies_refused(switch, &refused.collect::<Vec<_>>(), now);
        }
    }

    /// Sends the error for a message that the switches refused.
    fn report_refusal(&mut self, refused: Refused) {
        if let (Some(origin), Some(part)) = (refused.origin, refused.part) {
            self.controllers.strike_part(origin.controller, part);
        }
        if refused.is_check {
            self.held.drop_checked();
        }
        let by = self.switches.switch_names(refused.by);
        if let Some(origin) = refused.origin {
            let (controller, kind) = (origin.controller.0, refused.message.get(1).copied());
            info!(target: "northbound", controller, kind, xid = origin.xid, error = %refused.error, by, "refuses a message");
        }
        self.controllers.report_refusal(refused);
    }

    /// Handles refused copies of accepted rules, groups or meters: the switch lacks them until it accepts them.
    fn copies_refused(&mut self, switch: SwitchIndex, refused: &[&Refused], now: Instant) {
        let Some(first) = refused.first() else {
            return;
        };
        error!(target: "southbound", switch = %self.switches.list[switch].name, copies = refused.len(), error = %first.error, "refused copies of accepted rules, groups or meters; writing them again");
        self.switches.list[switch].virt.refusal = Some(first.error);
        self.with_moves(now, |moves, below| {
            moves.fail_moves_to(below, SwitchSet::of(switch), first.error)
        });
        self.switches.retry_resync(switch, Bridge::Virt, now);
    }

    fn switch_port_changed(&mut self, switch: SwitchIndex, bridge: Bridge, status: PortStatus) {
        let session = self.switches.list[switch].session_mut(bridge);
        if session.is_down() {
            return;
        }
        let number = status.port.number;
        let up = session.is_up();
        let sent = session.port_mods.get(&number).copied().unwrap_or(0);
        // A report during a port-mod of ours may predate it.
        let by_hand = up && bridge == Bridge::Edge && self.switches.verdicts.is_settled(sent);
        if status.reason == PortStatus::DELETE {
            session.remove_port(number);
        } else {
            let known = session.ports.get(&number);
            let turned = known.is_some_and(|p| (p.config ^ status.port.config) & PORT_DOWN != 0);
            let interface = status.port;
            session.set_port(interface);
            if by_hand && turned {
                self.follow_interface(switch, &interface);
            }
        }
        if up {
            match bridge {
                Bridge::Edge => drop(self.switches.update_edge(&mut self.server, switch)),
                // A recreated patch port has no configuration.
                Bridge::Virt => {
                    self.switches.refresh_patch_config(&self.server, number);
                    if status.reason == PortStatus::ADD {
                        self.switches.require_version10(SwitchSet::of(switch));
                    }
                }
            }
        }
        self.announce_ports(None);
    }

    /// Follows an external change of an interface: as on one bridge, it changes the port's configuration.
    fn follow_interface(&mut self, switch: SwitchIndex, interface: &openflow13::Port) {
        let name = interface.name_str();
        let delivers = |p: &VirtualPort| {
            let location = p.delivery();
            location.switch == switch && location.interface == name
        };
        let Some(port) = self.server.ports.iter_mut().find(|p| delivers(p)) else {
            return;
        };
        port.config = (port.config & !PORT_DOWN) | (interface.config & PORT_DOWN);
        self.switches.refresh_paths(&mut self.server);
    }
}
