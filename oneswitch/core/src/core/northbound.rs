//! Messages of controllers.

use crate::api::{ControllerId, ControllerRole, Greeting};
use crate::controllers::controller::{Controller, BUDGET};
use crate::controllers::reply::Reply;
use crate::controllers::Incoming;
use crate::core::{Core, IN_FLIGHT_BYTES, IN_FLIGHT_LIMIT};
use crate::model::truth::Request;
use crate::server::executors::HUB;
use crate::switches::verdict::Origin;
use crate::wire::wire;
use openflow13::openflow14::encode_async_config;
use openflow13::{
    decode, encode_error, fits_kind, kind, port_no, ErrorCode, Features, Header, Message,
    MeterModCommand, Role, SwitchConfig,
};
use openflow13::{openflow10, openflow14, openflow15, without_later_fields};
use std::time::Instant;
use tracing::{debug, info};

/// Open vSwitch 3.1's capabilities, until the hypervisor's own answer is known: FLOW, TABLE, PORT, GROUP and QUEUE statistics.
const CAPABILITIES: u32 = 0x4f;
const TABLES: u8 = 254;

impl Core {
    pub fn controller_up(&mut self, id: ControllerId, greeting: Greeting, _now: Instant) {
        self.controllers.connect(id, greeting);
    }

    /// A controller's connection has ended. Its messages that wait are carried out all the same.
    pub fn controller_down(&mut self, id: ControllerId, _now: Instant) {
        self.controllers.leave(id);
        self.forget_left();
    }

    /// Drops the controllers that have disconnected and have no message that waits.
    pub(in crate::core) fn forget_left(&mut self) {
        for id in self.controllers.left() {
            if self.held.is_empty_of(id) {
                self.controllers.disconnect(id);
                self.switches.forget_answers_for(id);
                self.watch_for_monitors();
                self.choose_packet_in_format();
            }
        }
    }

    /// Reports the unsent bytes of controller `id`'s connection: while they are many, its replies wait. `is_stuck`: its socket takes no more.
    pub fn controller_unsent(&mut self, id: ControllerId, bytes: usize, is_stuck: bool) {
        if let Some(controller) = self.controllers.get_mut(id) {
            controller.set_unsent(bytes, is_stuck);
        }
    }

    /// Tells whether the next message of controller `id` can be taken: none waits, and neither its memory nor the switches' debt is too large.
    pub fn takes_messages_of(&self, id: ControllerId) -> bool {
        !self.is_holding()
            && !self.awaits_collectors()
            && self.kept_for(id) < BUDGET
            && self.in_flight() <= IN_FLIGHT_LIMIT
            && self.switches.verdicts.bytes_in_flight() <= IN_FLIGHT_BYTES
    }

    /// Tells whether replies to controller `id` wait until its connection has sent more.
    pub fn withholds_replies_of(&self, id: ControllerId) -> bool {
        let verdicts = &self.switches.verdicts;
        let controller = self.controllers.get(id);
        controller.is_some_and(|c| c.is_ready(|batch| verdicts.is_settled(batch)))
    }

    /// Tells whether controller `id` is to get more when its connection has sent everything.
    pub fn awaits_silence_of(&self, id: ControllerId) -> bool {
        let controller = self.controllers.get(id);
        controller.is_some_and(|c| c.monitors.is_paused())
    }

    /// Returns the bytes kept for controller `id`: waiting replies, and answers being merged for it.
    pub fn kept_for(&self, id: ControllerId) -> usize {
        self.controllers.get(id).map_or(0, Controller::kept)
    }

    /// Counts the packet-ins that controller `id` lost because it did not read.
    pub fn packet_ins_dropped(&self, id: ControllerId) -> u64 {
        let controller = self.controllers.get(id);
        controller.map_or(0, |c| c.packet_ins_dropped)
    }

    /// Tells whether a controller wants packets that meet no rule, as those of OpenFlow 1.0 do.
    pub fn wants_misses(&self) -> bool {
        self.controllers.want_misses()
    }

    pub fn controller_role(&self, id: ControllerId) -> Option<ControllerRole> {
        self.controllers.role(id)
    }

    /// Handles `frame`, one complete message. Answers an invalid one with an error or a disconnect.
    pub fn controller_message(&mut self, id: ControllerId, frame: &[u8], now: Instant) {
        if self.holds_behind_others(id, frame) {
            return;
        }
        let Some(controller) = self.controllers.get(id) else {
            return;
        };
        let Some(header) = Header::parse(frame) else {
            self.controllers
                .disconnects
                .push((id, "sent a message shorter than its header".into()));
            return;
        };
        let origin = Origin {
            controller: id,
            xid: header.xid,
            place: controller.place(),
        };
        let incoming = Incoming {
            origin,
            frame,
            sent: frame,
        };
        let any_version = matches!(header.kind, kind::HELLO | kind::ERROR);
        if header.version != controller.version && !any_version {
            return self.refuse(incoming, ErrorCode::BAD_REQUEST_BAD_VERSION);
        }
        match header.version {
            openflow10::VERSION => return self.openflow10_message(incoming, now),
            openflow14::VERSION => return self.openflow14_message(incoming, now),
            openflow15::VERSION => return self.openflow15_message(incoming, now),
            _ => {}
        }
        let is_slave = controller.role == ControllerRole::Slave;
        if is_slave && writes(header.kind) {
            let error = match fits_kind(header.kind, header.length) {
                true => ErrorCode::BAD_REQUEST_IS_SLAVE,
                false => ErrorCode::BAD_REQUEST_BAD_LEN,
            };
            return self.refuse(incoming, error);
        }
        match without_later_fields(frame) {
            Some(cleared) => {
                let incoming = Incoming {
                    frame: &cleared,
                    ..incoming
                };
                self.openflow13_message(incoming, now)
            }
            None => self.openflow13_message(incoming, now),
        }
    }

    /// Handles a message that is one of OpenFlow 1.3, or has become one.
    pub(in crate::core) fn openflow13_message(&mut self, incoming: Incoming<'_>, now: Instant) {
        match decode(incoming.frame) {
            Ok((_, message)) => self.dispatch(incoming, message, now),
            Err(refusal) => {
                let (id, kind) = (incoming.origin.controller, incoming.frame.get(1).copied());
                info!(target: "northbound", controller = id.0, kind, xid = incoming.origin.xid, detail = %refusal.detail, "cannot read a message");
                if kind.is_some_and(changes) {
                    self.refuse_malformed(incoming, refusal.error, now);
                } else {
                    self.refuse(incoming, refusal.error);
                }
            }
        }
    }

    pub(in crate::core) fn dispatch(
        &mut self,
        incoming: Incoming<'_>,
        message: Message,
        now: Instant,
    ) {
        match message {
            Message::FlowMod(m) => self.flow_mod(incoming, m, now),
            Message::GroupMod(m) => self.group_mod(incoming, m, now),
            Message::MeterMod(m) => {
                if m.command == MeterModCommand::Add && self.holds_meter(incoming, now) {
                    return;
                }
                let targets = self.server.executors.all();
                self.operate(incoming, None, Request::Meter(m), targets, now);
            }
            Message::TableMod(_) => {
                let targets = self.server.executors.all();
                self.operate(incoming, None, Request::Other, targets, now);
            }
            Message::PacketOut(m) => self.packet_out(incoming, m, now),
            Message::PortMod(m) => self.port_mod(incoming, &m, now),
            Message::MultipartRequest(request) => self.multipart_request(incoming, request, now),
            Message::BarrierRequest => self.reply(incoming, Message::BarrierReply),
            Message::FeaturesRequest => {
                let features = Message::FeaturesReply(self.features());
                self.reply(incoming, features);
            }
            Message::GetConfigRequest => self.get_config(incoming),
            Message::SetConfig(config) => self.set_config(incoming.origin.controller, config),
            Message::RoleRequest(request) => self.role_request(incoming, request),
            Message::GetAsyncRequest => self.get_async(incoming),
            Message::SetAsync(masks) => self
                .controllers
                .set_async(incoming.origin.controller, masks),
            Message::QueueGetConfigRequest { port } => self.queue_config(incoming, port),
            Message::EchoRequest(data) => self.reply(incoming, Message::EchoReply(data)),
            Message::Experimenter(m) => self.extension(incoming, &m, now),
            Message::EchoReply(_) => {}
            Message::Error(error) => {
                debug!(target: "northbound", controller = incoming.origin.controller.0, error = %error.error, "controller reports");
                self.refuse(incoming, ErrorCode::BAD_REQUEST_BAD_TYPE)
            }
            _ => self.refuse(incoming, ErrorCode::BAD_REQUEST_BAD_TYPE),
        }
    }

    /// Answers with an error, after the replies to everything sent before.
    pub(in crate::core) fn refuse(&mut self, incoming: Incoming<'_>, error: ErrorCode) {
        if self.is_refused_part(error) {
            return;
        }
        self.controllers.refused += 1;
        let (origin, kind) = (incoming.origin, incoming.sent.get(1).copied());
        // As Open vSwitch does (ofconn_send_error(), ofproto/connmgr.c).
        info!(target: "northbound", controller = origin.controller.0, kind, xid = origin.xid, %error, "refuses a message");
        let frame = encode_error(origin.xid, error, incoming.sent);
        self.reply_with(incoming, frame.into());
    }

    pub(in crate::core) fn reply(&mut self, incoming: Incoming<'_>, message: Message) {
        let frame = wire(incoming.origin.xid, &message);
        self.reply_with(incoming, frame.into());
    }

    pub(in crate::core) fn reply_with(&mut self, incoming: Incoming<'_>, reply: Reply) {
        let id = incoming.origin.controller;
        if let Some(slot) = self.reserve_reply(id) {
            self.fill_reply(id, slot, reply);
        }
    }

    /// Reserves a place for a pending reply; replies leave in the order of their requests.
    pub(in crate::core) fn reserve_reply(&mut self, id: ControllerId) -> Option<u64> {
        let after = self.switches.verdicts.current_batch();
        let operations = self.switches.verdicts.sequence();
        self.controllers.reserve(id, after, operations)
    }

    pub(in crate::core) fn fill_reply(&mut self, id: ControllerId, slot: u64, reply: Reply) {
        self.controllers.fill(id, slot, reply);
        self.release_replies();
    }

    /// Sends the replies whose turn has come to controllers that read.
    pub(in crate::core) fn release_replies(&mut self) {
        self.controllers.release(self.switches.verdicts.settled());
    }

    pub(in crate::core) fn features(&self) -> Features {
        let hub = self.switches.list[HUB].features.as_ref();
        Features {
            datapath_id: self.datapath_id,
            n_buffers: 0,
            n_tables: hub.map_or(TABLES, |f| f.n_tables),
            auxiliary_id: 0,
            capabilities: hub.map_or(CAPABILITIES, |f| f.capabilities),
            reserved: 0,
        }
    }

    fn get_config(&mut self, incoming: Incoming<'_>) {
        let controller = self.controllers.get(incoming.origin.controller);
        let config = SwitchConfig {
            flags: self.switches.fragment_flags | controller.map_or(0, Controller::config_flags),
            miss_send_len: controller.map_or(0, |c| c.miss_send_len),
        };
        self.reply(incoming, Message::GetConfigReply(config));
    }

    fn set_config(&mut self, id: ControllerId, config: SwitchConfig) {
        if let Some(flags) = self.controllers.set_config(id, config) {
            self.server.unsettled |= self.switches.set_fragments(flags);
        }
    }

    fn role_request(&mut self, incoming: Incoming<'_>, request: Role) {
        let id = incoming.origin.controller;
        match self.controllers.role_request(id, request) {
            Ok(reply) => {
                let reply = reply.map(Message::RoleReply);
                reply.into_iter().for_each(|r| self.reply(incoming, r))
            }
            Err(error) => self.refuse(incoming, error),
        }
    }

    fn get_async(&mut self, incoming: Incoming<'_>) {
        let controller = self.controllers.get(incoming.origin.controller);
        let Some(controller) = controller else {
            return;
        };
        let masks = controller.asynchronous;
        if controller.version < openflow14::VERSION {
            return self.reply(incoming, Message::GetAsyncReply(masks));
        }
        let frame = encode_async_config(incoming.origin.xid, &masks);
        self.reply_with(incoming, frame.into());
    }

    /// Answers that virtual ports have no queues, like an Open vSwitch port without QoS.
    fn queue_config(&mut self, incoming: Incoming<'_>, port: u32) {
        let may_have_queues = matches!(port, port_no::ANY | port_no::LOCAL);
        if !may_have_queues && self.server.ports.get(port).is_none() {
            return self.refuse(incoming, ErrorCode::QUEUE_OP_FAILED_BAD_PORT);
        }
        let queues = Box::default();
        self.reply(incoming, Message::QueueGetConfigReply { port, queues });
    }
}

/// Tells whether Open vSwitch refuses a message to slaves, which it does right after checking its length.
fn writes(message: u8) -> bool {
    message == kind::PORT_MOD || changes(message)
}

/// Tells whether a message goes to the switches.
fn changes(message: u8) -> bool {
    matches!(
        message,
        kind::FLOW_MOD | kind::GROUP_MOD | kind::METER_MOD | kind::TABLE_MOD | kind::PACKET_OUT
    )
}
