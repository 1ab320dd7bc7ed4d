//! Notifications to controllers, and the order of their replies.

use super::Controllers;
use crate::api::{ControllerId, ControllerRole, Destination, Greeting};
use crate::controllers::controller::{Admission, Asynchronous, Controller, WINDOW};
use crate::controllers::reply::Reply;
use crate::layout::spelling::spelled_buckets;
use crate::model::happened::Happened;
use crate::server::port_views::Announced;
use crate::switches::verdict::{Forwarded, Origin, Refused};
use crate::wire::wire;
use openflow13::flow_monitor::{encode_paused, encode_resumed, updates_messages};
use openflow13::openflow10::StatsForm;
use openflow13::openflow14::{encode_table_status, Table, VacancyEvent};
use openflow13::{
    continuation, encode_error, extension, set_xid, GroupMod, Message, PacketIn, Port, PortStatus,
};
use openflow13::{openflow10, openflow14, openflow15};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// Returns the offset of ofp_flow_removed.reason in versions that have all reasons.
fn flow_removed_reason(version: u8) -> Option<usize> {
    match version {
        openflow14::VERSION => Some(18),
        openflow15::VERSION => Some(9),
        _ => None,
    }
}

/// The controllers that a switch's packet-in is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearers {
    All,
    /// Those of OpenFlow 1.4 and later, which has more reasons.
    WithAllReasons,
    WithoutAllReasons,
}

impl Hearers {
    fn include(self, controller: &Controller) -> bool {
        match self {
            Self::All => true,
            Self::WithAllReasons => controller.has_all_reasons(),
            Self::WithoutAllReasons => !controller.has_all_reasons(),
        }
    }
}

impl Controllers {
    pub fn connect(&mut self, id: ControllerId, greeting: Greeting) {
        self.connections.insert(id, Controller::new(greeting));
    }

    pub fn disconnect(&mut self, id: ControllerId) {
        self.connections.remove(&id);
        self.outbox.discard(Destination::Controller(id));
    }

    /// Records that a controller has disconnected whose messages wait to be handled.
    pub fn leave(&mut self, id: ControllerId) {
        if let Some(controller) = self.connections.get_mut(&id) {
            controller.has_left = true;
            controller.unsent = 0;
        }
    }

    /// Returns the controllers that have disconnected and still have messages.
    pub fn left(&self) -> Vec<ControllerId> {
        let connections = self.connections.iter();
        let left = connections.filter(|(_, controller)| controller.has_left);
        left.map(|(id, _)| *id).collect()
    }

    /// Returns the bytes to write now, to controllers that are connected.
    pub fn take_outputs(&mut self) -> Vec<(Destination, Vec<u8>)> {
        let mut outputs = self.outbox.take();
        for left in self.left() {
            outputs.retain(|(to, _)| *to != Destination::Controller(left));
        }
        outputs
    }

    pub fn get(&self, id: ControllerId) -> Option<&Controller> {
        self.connections.get(&id)
    }

    pub fn get_mut(&mut self, id: ControllerId) -> Option<&mut Controller> {
        self.connections.get_mut(&id)
    }

    pub fn role(&self, id: ControllerId) -> Option<ControllerRole> {
        self.get(id).map(|c| c.role)
    }

    pub fn next_given_up(&self) -> Option<Instant> {
        let controllers = self.connections.values();
        controllers.filter_map(Controller::next_given_up).min()
    }

    /// See [`Controller::give_up_partials`].
    pub fn give_up_partials(&mut self, now: Instant) -> Vec<(ControllerId, u32, Box<[u8]>)> {
        let mut given_up = Vec::new();
        for (id, controller) in &mut self.connections {
            let late = controller.give_up_partials(now).into_iter();
            given_up.extend(late.map(|(xid, frame)| (*id, xid, frame)));
        }
        given_up
    }

    /// Counts `bytes` of an answer being merged for a controller; returns whether it is still connected.
    pub fn pay(&mut self, id: ControllerId, bytes: usize) -> bool {
        let controller = self.connections.get_mut(&id);
        controller.map(|c| c.reserve_bytes(bytes)).is_some()
    }

    /// Reserves a place for a pending reply; replies leave in the order of their requests, each when the batch `after` is settled. `operations`: their
    /// number so far.
    pub fn reserve(&mut self, id: ControllerId, after: u64, operations: u64) -> Option<u64> {
        let controller = self.connections.get_mut(&id);
        controller.map(|c| c.reserve(after, operations))
    }

    pub fn fill(&mut self, id: ControllerId, slot: u64, reply: Reply) {
        if let Some(controller) = self.connections.get_mut(&id) {
            controller.fill(slot, reply);
        }
    }

    /// Sends the replies whose turn has come to controllers that read. All batches up to `settled` are settled.
    pub fn release(&mut self, settled: u64) {
        for (id, controller) in &mut self.connections {
            let to = Destination::Controller(*id);
            resume_monitors(controller);
            while controller.unsent + self.outbox.pending(to) < WINDOW {
                match controller.pop_ready(|batch| batch <= settled) {
                    Some(message) => self.outbox.put(to, &message),
                    None => break,
                }
            }
        }
    }

    /// Tells whether some controller has flow monitors.
    pub fn monitor(&self) -> bool {
        self.connections.values().any(|c| !c.monitors.is_empty())
    }

    /// Tells of events about the vacancy of tables, which an operation has caused.
    pub fn tell_vacancy(&mut self, operation: u64, events: &[(VacancyEvent, Table)]) {
        for (event, table) in events {
            let reason = *event as u8;
            for controller in self.connections.values_mut() {
                let version = controller.version;
                let has_events = version >= openflow14::VERSION;
                if has_events && controller.wants(Asynchronous::TableStatus, reason) {
                    let frame = encode_table_status(version, *event, table);
                    controller.report(operation, frame, false);
                }
            }
        }
    }

    /// Reports the changes by one message to the controllers that monitor them.
    pub fn report_changes(&mut self, happened: &[Happened]) {
        let Some(first) = happened.first() else {
            return;
        };
        for (id, controller) in &mut self.connections {
            if controller.monitors.is_empty() {
                continue;
            }
            let updates = controller.monitors.report(*id, happened);
            if !updates.is_empty() {
                for frame in updates_messages(controller.version, 0, updates) {
                    controller.report(first.number, frame, true);
                }
            }
            if controller.monitors.pauses() {
                let frame = encode_paused(controller.version);
                controller.report(first.number, frame, true);
            }
        }
    }

    /// Removes a part of a bundle that the switches cannot read.
    pub fn strike_part(&mut self, id: ControllerId, part: u64) {
        if let Some(controller) = self.connections.get_mut(&id) {
            controller.bundles.strike(part);
        }
    }

    /// Returns when the next bundle times out.
    pub fn bundle_deadline(&self) -> Option<Instant> {
        let controllers = self.connections.values();
        controllers.filter_map(|c| c.bundles.deadline()).min()
    }

    /// Gives bundles the time back for which messages were held.
    pub fn extend_bundles(&mut self, held: Duration, now: Instant) {
        for controller in self.connections.values_mut() {
            controller.bundles.extend(held, now);
        }
    }

    /// Removes the bundles that have been idle for too long; returns the messages that opened them.
    pub fn take_idle_bundles(&mut self, now: Instant) -> Vec<(ControllerId, Box<[u8]>)> {
        let mut idle = Vec::new();
        for (id, controller) in &mut self.connections {
            let openers = controller.bundles.timed_out(now).into_iter();
            idle.extend(openers.map(|opener| (*id, opener)));
        }
        idle
    }

    /// Sends the error for a message that the switches refused.
    pub fn report_refusal(&mut self, refused: Refused) {
        let Some(origin) = refused.origin else {
            return;
        };
        self.refused += 1;
        if let Some(controller) = self.connections.get_mut(&origin.controller) {
            let mut message = refused.message;
            set_xid(&mut message, origin.xid);
            let error = encode_error(origin.xid, refused.error, &message);
            controller.refuse(origin.place, refused.number, error);
        }
    }

    /// Returns the ids of packet-ins that controllers have chosen; 0, the default, only for those that want to know all reasons.
    pub fn chosen_ids(&self) -> BTreeSet<u16> {
        let controllers = self.connections.values();
        let counts = |c: &&Controller| {
            c.packet_ins_of != 0 || c.has_all_reasons() && c.wants_some_packet_ins()
        };
        controllers
            .filter(counts)
            .map(|c| c.packet_ins_of)
            .collect()
    }

    /// Tells whether some controller speaks this version.
    pub fn speak(&self, version: u8) -> bool {
        self.connections.values().any(|c| c.version == version)
    }

    /// Tells whether a controller wants packets that meet no rule.
    pub fn want_misses(&self) -> bool {
        self.connections.values().any(Controller::wants_misses)
    }

    /// Tells whether some controller has chosen packet-ins that can be continued.
    pub fn wants_continuations(&self) -> bool {
        self.connections.values().any(Controller::continues_packets)
    }

    /// Relays a packet-in of an action with this `id`: in `virt`, port numbers, cookies and tables are the virtual ones. In the format that
    /// a controller has chosen it stays as it is.
    pub fn relay_packet_in(&mut self, frame: &[u8], id_of_action: u16, to: Hearers) {
        /// Offset of ofp_packet_in.reason.
        const REASON: usize = 14;
        let standard = match continuation::properties_of(frame).map(continuation::packet_in) {
            None => Cow::Borrowed(frame),
            Some(Ok(packet)) => Cow::Owned(wire(0, &Message::PacketIn(packet))),
            Some(Err(refusal)) => {
                return error!(target: "southbound", detail = %refusal, "cannot read a packet-in; left out");
            }
        };
        let is_continued = matches!(standard, Cow::Owned(_));
        let reason = standard.get(REASON).copied().unwrap_or(0);
        for (id, controller) in &mut self.connections {
            let is_meant = controller.packet_ins_of == id_of_action && to.include(controller);
            if !is_meant || !controller.wants(Asynchronous::PacketIn, reason) {
                continue;
            }
            let destination = Destination::Controller(*id);
            let unsent = controller.unsent + self.outbox.pending(destination);
            match controller.admit_packet_in(unsent, frame.len()) {
                Admission::Send => {}
                Admission::Drop => continue,
                Admission::DropFirst => {
                    let dropped = controller.packet_ins_dropped;
                    warn!(target: "northbound", controller = id.0, unsent, dropped, "drops packet-ins: the controller reads them too slowly");
                    continue;
                }
            }
            if is_continued && controller.continues_packets() {
                let frame = match controller.version {
                    openflow15::VERSION => openflow15::packet_in_in_version(frame),
                    version => continuation::in_version(frame, version),
                };
                self.outbox.put(destination, &frame);
                continue;
            }
            match controller.in_version(&standard, StatsForm::Standard) {
                Cow::Borrowed(frame) => {
                    let sent = self.outbox.put_with_xid(destination, frame, 0);
                    if let Some(slot) = sent.get_mut(REASON) {
                        *slot = PacketIn::reason_in(controller.version, reason);
                    }
                }
                Cow::Owned(translated) => self.outbox.put(destination, &translated),
            }
        }
    }

    /// Reports a port, except to `except`, the controller that requested the change (Open vSwitch does not echo a port-mod before OpenFlow
    /// 1.5).
    ///
    /// A change that a version cannot say is not reported over it (`connmgr_send_port_status`).
    pub fn tell_port_status(&mut self, announced: &Announced, except: Option<ControllerId>) {
        let reason = announced.reason;
        /// With all bits of the configuration, and with those that OpenFlow 1.3 has.
        type Frames = [Vec<u8>; 2];
        let status = |port: Port| wire(0, &Message::PortStatus(PortStatus { reason, port }));
        let both = |port: Port| [status(port), status(port.in_openflow13())];
        let (frames, before) = (both(announced.port), announced.before.map(both));
        for (id, controller) in &self.connections {
            let is_excepted = Some(*id) == except && controller.version < openflow15::VERSION;
            if is_excepted || !controller.wants(Asynchronous::PortStatus, reason) {
                continue;
            }
            let form = |frames: &'_ Frames| {
                let [all, known] = frames;
                let frame = match controller.version {
                    openflow10::VERSION => all,
                    _ => known,
                };
                controller
                    .in_version(frame, StatsForm::Standard)
                    .into_owned()
            };
            let said = form(&frames);
            if before.as_ref().map(form) != Some(said.clone()) {
                self.outbox.put(Destination::Controller(*id), &said);
            }
        }
    }

    /// Tells other controllers of a change of groups or meters that one has made.
    pub fn forward_request(&mut self, origin: Origin, forwarded: &Forwarded) {
        let Forwarded { request, whole } = forwarded;
        let reason = u8::from(matches!(request, Message::MeterMod(_)));
        let encode = |request, is_openflow10| {
            let spelled = spelled_request(request, is_openflow10);
            wire(0, &extension::request_forward(&wire(origin.xid, &spelled)))
        };
        // Nicira's group-mods over OpenFlow 1.0 are those of 1.5.
        let (oldest, newest) = (encode(request, true), encode(request, false));
        let others = whole.as_ref().map(|whole| encode(whole, false));
        let in_version = |version| match (version, &others) {
            (openflow10::VERSION, _) => &oldest[..],
            (openflow15::VERSION, _) | (_, None) => &newest,
            (_, Some(others)) => others,
        };
        let source = Some(origin.controller);
        self.tell_each(Asynchronous::RequestForward, reason, in_version, source);
    }

    /// Sends an asynchronous message to all controllers that want it.
    pub fn tell(
        &mut self,
        kind: Asynchronous,
        reason: u8,
        frame: &[u8],
        except: Option<ControllerId>,
    ) {
        self.tell_each(kind, reason, |_| frame, except);
    }

    /// As [`Self::tell`], with a message for each version.
    fn tell_each<'a>(
        &mut self,
        kind: Asynchronous,
        reason: u8,
        frame_of: impl Fn(u8) -> &'a [u8],
        except: Option<ControllerId>,
    ) {
        for (id, controller) in &self.connections {
            if Some(*id) != except && controller.wants(kind, reason) {
                let frame = frame_of(controller.version);
                let mut frames = controller.in_version(frame, StatsForm::Standard);
                let of_reason = flow_removed_reason(controller.version);
                if let (Asynchronous::FlowRemoved, Some(at)) = (kind, of_reason) {
                    // The reason that masks use; OpenFlow 1.3 may lack it.
                    if let Some(slot) = frames.to_mut().get_mut(at) {
                        *slot = reason;
                    }
                }
                self.outbox.put(Destination::Controller(*id), &frames);
            }
        }
    }
}

/// Returns a change of groups or meters as Open vSwitch spells it.
fn spelled_request(request: &Message, is_openflow10: bool) -> Message {
    match request {
        Message::GroupMod(group) => Message::GroupMod(GroupMod {
            buckets: spelled_buckets(&group.buckets, is_openflow10),
            selection: group.selection.clone(),
            ..*group
        }),
        other => other.clone(),
    }
}

/// Reports what a controller's monitors have missed, once it has read everything.
fn resume_monitors(controller: &mut Controller) {
    let Some(missed) = controller.monitors.resume() else {
        return;
    };
    let last = controller.monitors.last;
    let updates = match missed.is_empty() {
        true => None,
        false => Some(updates_messages(controller.version, 0, missed)),
    };
    for frame in updates.into_iter().flatten() {
        controller.report(last, frame, false);
    }
    controller.report(last, encode_resumed(controller.version), false);
}
