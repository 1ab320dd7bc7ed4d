//! What the switches say.

use crate::api::{Bridge, ControllerId, Destination, SwitchIndex};
use crate::controllers::controller::{Admission, Asynchronous};
use crate::model::truth::{Changes, Request};
use crate::mutants::{mutant, Fault};
use crate::server::ports::VirtualPort;
use crate::switch_set::SwitchSet;
use crate::switches::verdict::{Refused, Settled, NOT_AN_OPERATION};
use crate::wire::wire;
use crate::Core;
use openflow13::config::PORT_DOWN;
use openflow13::{
    decode, encode_error, kind, set_xid, state, ErrorMessage, FlowMod, Header, Message, PortStatus,
};
use std::time::Instant;
use tracing::{debug, error, info, warn};

impl Core {
    /// A bridge's session has finished its OpenFlow handshake.
    pub fn switch_up(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        if !self.switches[switch].session(bridge).is_down() {
            self.switch_down(switch, bridge, now);
        }
        self.synchronise(switch, bridge);
    }

    pub fn switch_down(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        let session = self.switches[switch].session_mut(bridge);
        if session.is_down() {
            return;
        }
        session.end();
        self.doubt(switch, bridge, now);
        self.outbox.discard(Destination::Switch(switch, bridge));
        self.verdicts.forget(switch, bridge);
        self.forget_reads(switch, bridge, now);
        if bridge == Bridge::Virt {
            self.forget_removals(switch, now);
        } else {
            self.switches[switch].installed.clear();
            self.announce_ports(None);
        }
        self.settle(now);
    }

    /// `frame` is one whole message of a bridge.
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
            kind::BARRIER_REPLY => {
                self.verdicts.barrier_reply(header.xid, switch, bridge);
                self.settle(now);
            }
            kind::PACKET_IN if bridge == Bridge::Virt => self.relay_packet_in(frame),
            _ => self.decoded_switch_message(switch, bridge, header, frame, now),
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
                error!(target: "southbound", switch = %self.switches[switch].name, ?bridge, "{reason}");
                self.switch_disconnects.push((switch, bridge, reason));
                return;
            }
        };
        match message {
            Message::Error(error) => self.switch_error(switch, bridge, header.xid, error, now),
            Message::MultipartReply(reply) => self.read_reply(switch, bridge, header, reply, now),
            Message::FlowRemoved(removed) if bridge == Bridge::Virt => {
                self.flow_removed(switch, &removed, now)
            }
            Message::PortStatus(status) => self.switch_port_changed(switch, bridge, status),
            Message::Experimenter(_) => {} // a bundle's progress; its errors come as errors
            Message::FeaturesReply(features) => self.switches[switch].features = Some(features),
            _ => {
                debug!(target: "southbound", switch = %self.switches[switch].name, ?bridge, kind = header.kind, "ignored message")
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
            if !self.verdicts.refuse(xid, switch, message) {
                warn!(target: "southbound", switch = %self.switches[switch].name, %error, xid, "error about an unknown message");
            }
        } else if self.reads.contains_key(&xid) {
            self.read_failed(switch, bridge, xid, error, now);
        } else {
            error!(target: "southbound", switch = %self.switches[switch].name, ?bridge, %error, "refused a message of ours; reading its state anew");
            self.switches[switch].repairs += 1;
            self.switches[switch].session_mut(bridge).refusal = Some(error);
            self.doubt(switch, bridge, now);
            self.request_resync(switch, bridge, now);
        }
    }

    /// The controllers' answers to refused messages, and the repair of switches that disagreed.
    pub(crate) fn report_settled(&mut self, settled: Settled, now: Instant) {
        self.discarded.extend(settled.discarded);
        self.correct_removals(&settled.not_removed, settled.removed_too, now);
        self.tell_settled_removals(now);
        let (ours, theirs): (Vec<_>, Vec<_>) = settled
            .refused
            .into_iter()
            .partition(|refused| refused.origin.is_none());
        for refused in theirs {
            self.report_refusal(refused);
        }
        for switch in settled.repair.intersection(self.up()).iter() {
            warn!(target: "southbound", switch = %self.switches[switch].name, "disagrees with another switch about a message; repairing it");
            self.doubt(switch, Bridge::Virt, now);
            self.request_resync(switch, Bridge::Virt, now);
        }
        for switch in 0..self.switches.len() {
            let refused = ours.iter().filter(|refused| refused.by.contains(switch));
            self.copies_refused(switch, &refused.collect::<Vec<_>>(), now);
        }
    }

    /// Copies of accepted rules, groups or meters were refused: the switch lacks them until it takes them.
    fn copies_refused(&mut self, switch: SwitchIndex, refused: &[&Refused], now: Instant) {
        let Some(first) = refused.first() else {
            return;
        };
        error!(target: "southbound", switch = %self.switches[switch].name, copies = refused.len(), error = %first.error, "refused copies of accepted rules, groups or meters; writing them again");
        self.switches[switch].virt.refusal = Some(first.error);
        self.fail_moves_to(SwitchSet::of(switch), first.error, now);
        self.retry_resync(switch, Bridge::Virt, now);
    }

    fn report_refusal(&mut self, refused: Refused) {
        let by = self.switch_names(refused.by);
        let Some(origin) = refused.origin else {
            return;
        };
        let (controller, kind) = (origin.controller.0, refused.message.get(1).copied());
        info!(target: "northbound", controller, kind, xid = origin.xid, error = %refused.error, by, "refuses a message");
        self.refused += 1;
        if mutant(Fault::ErrorSwallowed) {
            return;
        }
        if let Some(controller) = self.controllers.get_mut(&origin.controller) {
            let mut message = refused.message;
            if !mutant(Fault::ErrorInnerXid) {
                set_xid(&mut message, origin.xid);
            }
            if mutant(Fault::ErrorTruncated) {
                message = message[..message.len().min(64)].into();
            }
            let xid = origin.xid ^ u32::from(mutant(Fault::ErrorXid));
            controller.refuse(origin.place, &encode_error(xid, refused.error, &message));
        }
    }

    pub(crate) fn switch_names(&self, set: SwitchSet) -> String {
        set.iter()
            .map(|s| self.switches[s].name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Byte for byte: in `virt`, port numbers, cookies and tables are the virtual ones.
    fn relay_packet_in(&mut self, frame: &[u8]) {
        /// Offset of ofp_packet_in.reason.
        const REASON: usize = 14;
        let reason = frame.get(REASON).copied().unwrap_or(0);
        for (id, controller) in &mut self.controllers {
            if !controller.wants(Asynchronous::PacketIn, reason) {
                continue;
            }
            let to = Destination::Controller(*id);
            let unsent = controller.unsent + self.outbox.pending(to);
            match controller.admit_packet_in(unsent, frame.len()) {
                Admission::Send => {}
                Admission::Drop => continue,
                Admission::DropFirst => {
                    let dropped = controller.packet_ins_dropped;
                    warn!(target: "northbound", controller = id.0, unsent, dropped, "drops packet-ins: the controller does not read them as fast as they come");
                    continue;
                }
            }
            let copy = self.outbox.put_with_xid(to, frame, 0);
            if mutant(Fault::PacketInCookie) {
                copy[16..24].fill(0xff);
            }
            if mutant(Fault::PacketInEdgePort) {
                // ofp_packet_in.match begins with in_port.
                let number = u32::from_be_bytes([copy[32], copy[33], copy[34], copy[35]]);
                let home = self.ports.get(number).map(|port| &port.home);
                let interface =
                    home.and_then(|l| self.switches[l.switch].edge.number_of(&l.interface));
                copy[32..36].copy_from_slice(&interface.unwrap_or(number).to_be_bytes());
            }
        }
    }

    fn switch_port_changed(&mut self, switch: SwitchIndex, bridge: Bridge, status: PortStatus) {
        let session = self.switches[switch].session_mut(bridge);
        if session.is_down() {
            return;
        }
        let number = status.port.number;
        let up = session.is_up();
        let sent = session.port_mods.get(&number).copied().unwrap_or(0);
        // What is reported while a port-mod of ours is under way may be from before it.
        let by_hand = up && bridge == Bridge::Edge && self.verdicts.is_settled(sent);
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
                Bridge::Edge => drop(self.update_edge(switch)),
                // A patch port that was made anew has no configuration.
                Bridge::Virt => self.refresh_patch_config(number),
            }
        }
        self.announce_ports(None);
    }

    /// Somebody took an interface down or up: as on one bridge, that is a change of the port's configuration.
    fn follow_interface(&mut self, switch: SwitchIndex, interface: &openflow13::Port) {
        let name = interface.name_str();
        let delivers = |p: &VirtualPort| {
            let location = p.delivery();
            location.switch == switch && location.interface == name
        };
        let Some(port) = self.ports.iter_mut().find(|p| delivers(p)) else {
            return;
        };
        port.config = (port.config & !PORT_DOWN) | (interface.config & PORT_DOWN);
        self.refresh_paths();
    }

    /// Tells controllers what changed about the virtual ports, and switches whether those that groups watch are live. `except`: the controller
    /// that asked for it (Open vSwitch does not echo a port-mod to its sender before OpenFlow 1.5).
    pub(crate) fn announce_ports(&mut self, except: Option<ControllerId>) {
        let mut changed = Vec::new();
        let lost = self.out_of_reach();
        for port in self.ports.iter_mut() {
            let location = port.delivery();
            let edge = &self.switches[location.switch].edge;
            let physical = edge.port_named(&location.interface).cloned();
            if edge.is_up() {
                let carrier = |p: &openflow13::Port| p.state & state::LINK_DOWN == 0;
                port.has_carrier = Some(physical.as_ref().is_some_and(carrier));
            }
            if port.hw_addr.is_none() {
                port.hw_addr = physical.as_ref().map(|p| p.hw_addr);
                self.journal.unsettled |= port.hw_addr.is_some();
            }
            let live = |p: &openflow13::Port| p.state & state::LIVE != 0;
            port.awaits_live &= !physical.as_ref().is_some_and(live);
            let cut_off = !port.needs().intersection(lost).is_empty();
            let view = port.view(physical.as_ref(), cut_off);
            if port.announced.as_ref() != Some(&view) {
                let reason = if port.announced.is_some() {
                    PortStatus::MODIFY
                } else {
                    PortStatus::ADD
                };
                port.announced = Some(view);
                changed.push((reason, view));
            }
        }
        for (reason, view) in changed {
            self.tell_port_status(reason, view, except);
        }
        self.refresh_liveness();
    }

    pub(crate) fn tell_port_status(
        &mut self,
        reason: u8,
        port: openflow13::Port,
        except: Option<ControllerId>,
    ) {
        let frame = wire(0, &Message::PortStatus(PortStatus { reason, port }));
        if mutant(Fault::PortStatusLost) {
            return;
        }
        let except = except.filter(|_| !mutant(Fault::PortModEchoed));
        for (id, controller) in &self.controllers {
            if Some(*id) != except && controller.wants(Asynchronous::PortStatus, reason) {
                self.outbox.put(Destination::Controller(*id), &frame);
            }
        }
    }

    /// Sends a message of our own to `virt` of `targets`, as an operation without a controller.
    pub(crate) fn send_own(&mut self, message: &Message, targets: SwitchSet, now: Instant) {
        let targets = targets.intersection(self.up());
        if targets.is_empty() {
            return;
        }
        let xid = self
            .verdicts
            .push(None, None, Request::Other, Changes::default(), targets, now);
        let frame = wire(xid, message);
        for switch in targets.iter() {
            self.switches[switch].own_changes += 1;
            self.outbox
                .put(Destination::Switch(switch, Bridge::Virt), &frame);
        }
    }

    pub(crate) fn send_own_flow(&mut self, message: FlowMod, targets: SwitchSet, now: Instant) {
        self.send_own(&Message::FlowMod(message), targets, now);
    }

    /// Sends a message to one bridge outside of the operations; the batch's barrier covers it.
    pub(crate) fn send_to(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        message: &Message,
    ) -> u32 {
        let xid = self.fresh_xid();
        self.outbox
            .put(Destination::Switch(switch, bridge), &wire(xid, message));
        self.verdicts.touch(switch, bridge);
        xid
    }
}
