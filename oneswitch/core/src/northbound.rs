//! What controllers say.

use crate::api::{Bridge, ControllerId, ControllerRole, Destination};
use crate::controller::Controller;
use crate::executors::{Executors, HUB};
use crate::facts::{Facts, Stateful};
use crate::flood::FLOOD_GROUP;
use crate::rule::RuleKey;
use crate::switch_set::SwitchSet;
use crate::sync::group_removal;
use crate::tables::Filter;
use crate::translate::{
    actions_with_flood_group, copy_flags, flow_mod_with_flood_group, group_mod_with_flood_group,
    patch_added, removal_of,
};
use crate::truth::Request;
use crate::verdict::Origin;
use crate::{wire, Core};
use openflow13::{
    decode, encode_error, group_no, port_no, ActionList, AsyncMasks, ErrorCode, Features, FlowMod,
    FlowModCommand, GroupMod, GroupModCommand, Header, Message, PacketOut, PortMod, Role,
    SwitchConfig,
};
use std::time::Instant;
use tracing::debug;

/// OFPCR_ROLE_*.
mod role {
    pub const NO_CHANGE: u32 = 0;
    pub const EQUAL: u32 = 1;
    pub const MASTER: u32 = 2;
    pub const SLAVE: u32 = 3;
}

/// What Open vSwitch 3.1 reports, until the hypervisor's own answer is known: FLOW, TABLE, PORT, GROUP and QUEUE statistics.
const CAPABILITIES: u32 = 0x4f;
const TABLES: u8 = 254;

impl Core {
    pub fn controller_up(&mut self, id: ControllerId, _now: Instant) {
        self.controllers.insert(id, Controller::default());
    }

    pub fn controller_down(&mut self, id: ControllerId, _now: Instant) {
        self.controllers.remove(&id);
        self.outbox.discard(Destination::Controller(id));
    }

    pub fn controller_role(&self, id: ControllerId) -> Option<ControllerRole> {
        self.controllers.get(&id).map(|c| c.role)
    }

    /// `frame` is one whole message. A message that cannot be trusted is answered with an error or a disconnect.
    pub fn controller_message(&mut self, id: ControllerId, frame: &[u8], now: Instant) {
        if !self.controllers.contains_key(&id) {
            return;
        }
        let Some(header) = Header::parse(frame) else {
            self.disconnects
                .push((id, "sent a message shorter than its header".into()));
            return;
        };
        let origin = Origin::new(id, header.xid, frame);
        match decode(frame) {
            Ok((_, message)) => self.dispatch(origin, frame, message, now),
            Err(refusal) => {
                debug!(target: "northbound", controller = id.0, kind = header.kind, error = %refusal.error, detail = %refusal.detail, "malformed");
                self.refuse(&origin, refusal.error);
            }
        }
    }

    fn dispatch(&mut self, origin: Origin, frame: &[u8], message: Message, now: Instant) {
        let slave = self.controller_role(origin.controller) == Some(ControllerRole::Slave);
        let writes = matches!(
            message,
            Message::FlowMod(_)
                | Message::GroupMod(_)
                | Message::MeterMod(_)
                | Message::PortMod(_)
                | Message::TableMod(_)
                | Message::PacketOut(_)
        );
        if slave && writes {
            return self.refuse(&origin, ErrorCode::BAD_REQUEST_IS_SLAVE);
        }
        match message {
            Message::FlowMod(m) => self.flow_mod(origin, frame, m, now),
            Message::GroupMod(m) => self.group_mod(origin, frame, m, now),
            Message::MeterMod(m) => {
                let targets = self.executors.all();
                self.operate(origin, frame, Request::Meter(m), targets, now);
            }
            Message::TableMod(_) => {
                let targets = self.executors.all();
                self.operate(origin, frame, Request::Other, targets, now);
            }
            Message::PacketOut(m) => self.packet_out(origin, frame, m, now),
            Message::PortMod(m) => self.port_mod(&origin, &m),
            Message::MultipartRequest(request) => self.multipart_request(&origin, request, now),
            Message::BarrierRequest => self.reply(&origin, Message::BarrierReply),
            Message::FeaturesRequest => {
                let features = Message::FeaturesReply(self.features());
                self.reply(&origin, features);
            }
            Message::GetConfigRequest => {
                let miss_send_len = self
                    .controllers
                    .get(&origin.controller)
                    .map_or(0, |c| c.miss_send_len);
                self.reply(
                    &origin,
                    Message::GetConfigReply(SwitchConfig {
                        flags: self.fragment_flags,
                        miss_send_len,
                    }),
                );
            }
            Message::SetConfig(config) => self.set_config(&origin, config),
            Message::RoleRequest(request) => self.role_request(&origin, request),
            Message::GetAsyncRequest => {
                if let Some(masks) = self
                    .controllers
                    .get(&origin.controller)
                    .map(|c| c.asynchronous)
                {
                    self.reply(&origin, Message::GetAsyncReply(masks));
                }
            }
            Message::SetAsync(masks) => self.set_async(&origin, masks),
            Message::QueueGetConfigRequest { port } => self.queue_config(&origin, port),
            Message::EchoRequest(data) => self.reply(&origin, Message::EchoReply(data)),
            Message::Experimenter(_) => {
                self.refuse(&origin, ErrorCode::BAD_REQUEST_BAD_EXPERIMENTER)
            }
            Message::EchoReply(_) | Message::Hello(_) => {}
            Message::Error(error) => {
                debug!(target: "northbound", controller = origin.controller.0, error = %error.error, "controller reports")
            }
            _ => self.refuse(&origin, ErrorCode::BAD_REQUEST_BAD_TYPE),
        }
    }

    /// Answers with an error, after everything the controller sent before.
    pub(crate) fn refuse(&mut self, origin: &Origin, error: ErrorCode) {
        self.refused += 1;
        let frame = encode_error(origin.xid, error, &origin.head);
        self.reply_frames(origin, frame);
    }

    pub(crate) fn reply(&mut self, origin: &Origin, message: Message) {
        let frame = wire(origin.xid, &message);
        self.reply_frames(origin, frame);
    }

    pub(crate) fn reply_frames(&mut self, origin: &Origin, frames: Vec<u8>) {
        if let Some(slot) = self.reserve_reply(origin.controller) {
            self.fill_reply(origin.controller, slot, frames);
        }
    }

    /// A place for a reply that is not there yet; replies leave in the order of their requests.
    pub(crate) fn reserve_reply(&mut self, id: ControllerId) -> Option<u64> {
        let after = self.verdicts.current_batch();
        self.controllers.get_mut(&id).map(|c| c.reserve(after))
    }

    pub(crate) fn fill_reply(&mut self, id: ControllerId, slot: u64, frames: Vec<u8>) {
        if let Some(controller) = self.controllers.get_mut(&id) {
            controller.fill(slot, frames);
        }
        self.release_replies();
    }

    /// Sends the replies whose turn has come.
    pub(crate) fn release_replies(&mut self) {
        let verdicts = &self.verdicts;
        for (id, controller) in &mut self.controllers {
            while let Some(frames) = controller.pop_ready(|batch| verdicts.is_settled(batch)) {
                self.outbox.put(Destination::Controller(*id), &frames);
            }
        }
    }

    /// Sends a controller's message to `targets` and applies it to the truth; the verdict follows.
    fn operate(
        &mut self,
        origin: Origin,
        frame: &[u8],
        request: Request,
        targets: SwitchSet,
        now: Instant,
    ) {
        let targets = targets.intersection(self.up());
        let changes = self.truth.apply(&request, now);
        self.expect_removals(&changes.flows, now);
        let xid = self
            .verdicts
            .push(Some(origin), request, changes, targets, now);
        for switch in targets.iter() {
            self.outbox
                .put_with_xid(Destination::Switch(switch, Bridge::Virt), frame, xid);
        }
    }

    fn flow_mod(&mut self, origin: Origin, frame: &[u8], message: FlowMod, now: Instant) {
        let matching = match message.matching.canonical() {
            Ok(matching) => matching,
            Err(refusal) => return self.refuse(&origin, refusal.error),
        };
        let facts = Facts::of_instructions(&message.instructions);
        if let Some(error) = self.refuse_stateful(&facts) {
            return self.refuse(&origin, error);
        }
        if facts.moves_in_port {
            self.enter_everywhere(now);
        }
        let in_port = message.matching.in_port();
        let mut targets = self.executors.of_in_port(in_port);
        let add = message.command == FlowModCommand::Add;
        if add && message.flags & FlowMod::CHECK_OVERLAP != 0 {
            let key = RuleKey {
                table: message.table_id,
                priority: message.priority,
                matching: matching.clone(),
            };
            if let Some(other) = self.truth.tables.overlapping(&key) {
                // Only a switch that has the other rule can refuse; none may accept.
                let holders = self.executors.of_rule(other).intersection(self.up());
                targets = holders
                    .iter()
                    .next()
                    .map_or(SwitchSet::EMPTY, SwitchSet::of);
                if targets.is_empty() {
                    return self.refuse(&origin, ErrorCode::FLOW_MOD_FAILED_OVERLAP);
                }
            }
        }
        if filters_on_flood(&message) {
            return self.delete_by_truth(origin, message, matching, facts, now);
        }
        let frame = if facts.floods {
            &flow_mod_with_flood_group(frame)
        } else {
            frame
        };
        let timers = add && (message.idle_timeout != 0 || message.hard_timeout != 0);
        if timers {
            let mut copy = frame.to_vec();
            let idle = if targets.len() > 1 {
                0
            } else {
                message.idle_timeout
            };
            patch_added(
                &mut copy,
                idle,
                copy_flags(message.flags, message.idle_timeout, message.hard_timeout),
            );
            if targets.len() > 1 && message.idle_timeout != 0 {
                self.idle.start(now);
            }
            self.operate(
                origin,
                &copy,
                Request::Flow {
                    message: Box::new(message),
                    matching,
                    facts,
                },
                targets,
                now,
            );
        } else {
            self.operate(
                origin,
                frame,
                Request::Flow {
                    message: Box::new(message),
                    matching,
                    facts,
                },
                targets,
                now,
            );
        }
    }

    /// A delete filtered by out_port FLOOD or ALL: on the switches those outputs are a group, so the rules are named one by one.
    fn delete_by_truth(
        &mut self,
        origin: Origin,
        message: FlowMod,
        matching: openflow13::CanonicalMatch,
        facts: Facts,
        now: Instant,
    ) {
        for rule in self
            .truth
            .tables
            .select(&Filter::of_flow_mod(&message, matching.clone()))
        {
            self.send_own_flow(removal_of(&rule), self.executors.of_rule(&rule), now);
        }
        let request = Request::Flow {
            message: Box::new(message),
            matching,
            facts,
        };
        let changes = self.truth.apply(&request, now);
        self.expect_removals(&changes.flows, now);
        self.verdicts
            .push(Some(origin), request, changes, SwitchSet::EMPTY, now);
    }

    /// State that would have to be shared by all ports cannot be split over executors.
    fn refuse_stateful(&self, facts: &Facts) -> Option<ErrorCode> {
        if self.switches.len() == 1 {
            return None;
        }
        facts.stateful.map(|kind| match kind {
            Stateful::Normal => ErrorCode::BAD_ACTION_BAD_OUT_PORT,
            Stateful::Learn | Stateful::ConnectionTracking => ErrorCode::BAD_ACTION_BAD_EXP_TYPE,
        })
    }

    /// From now on any rule may apply at any executor.
    fn enter_everywhere(&mut self, now: Instant) {
        if self.executors.is_everywhere() {
            return;
        }
        let old = std::mem::replace(&mut self.executors, Executors::derive(&self.ports, true));
        let new = self.executors.clone();
        self.install_copies(&old, &new, now);
    }

    /// The last rule that changes in_port is gone.
    pub(crate) fn leave_everywhere(&mut self, now: Instant) {
        if !self.executors.is_everywhere()
            || self.truth.moves_in_port()
            || self.verdicts.in_flight() > 0
        {
            return;
        }
        let old = std::mem::replace(&mut self.executors, Executors::derive(&self.ports, false));
        let new = self.executors.clone();
        self.remove_copies(&old, &new, now);
    }

    fn group_mod(&mut self, origin: Origin, frame: &[u8], message: GroupMod, now: Instant) {
        if message.group_id == FLOOD_GROUP {
            return self.refuse(&origin, ErrorCode::GROUP_MOD_FAILED_INVALID_GROUP);
        }
        let facts = Facts::of_buckets(&message.buckets);
        if let Some(error) = self.refuse_stateful(&facts) {
            return self.refuse(&origin, error);
        }
        if facts.moves_in_port {
            self.enter_everywhere(now);
        }
        let targets = self.executors.all();
        if message.command == GroupModCommand::Delete && message.group_id == group_no::ALL {
            // One by one: the flood group stays.
            let ids: Vec<u32> = self.truth.groups.keys().copied().collect();
            ids.into_iter()
                .for_each(|id| self.send_own(&Message::GroupMod(group_removal(id)), targets, now));
            let request = Request::Group { message, facts };
            let changes = self.truth.apply(&request, now);
            self.expect_removals(&changes.flows, now);
            self.verdicts
                .push(Some(origin), request, changes, SwitchSet::EMPTY, now);
            return;
        }
        let frame = if facts.floods {
            &group_mod_with_flood_group(frame)
        } else {
            frame
        };
        self.operate(
            origin,
            frame,
            Request::Group { message, facts },
            targets,
            now,
        );
    }

    fn packet_out(&mut self, origin: Origin, frame: &[u8], message: PacketOut, now: Instant) {
        let facts = Facts::of_actions(message.actions.as_actions());
        if let Some(error) = self.refuse_stateful(&facts) {
            return self.refuse(&origin, error);
        }
        let switch = self.executors.of_packet_out(&self.ports, message.in_port);
        if !self.switches[switch].virt.is_up() {
            debug!(target: "northbound", switch = %self.switches[switch].name, "packet-out for a switch that is not connected");
            return self.refuse(&origin, ErrorCode::BAD_REQUEST_EPERM);
        }
        let targets = SwitchSet::of(switch);
        if facts.floods {
            let actions = actions_with_flood_group(message.actions.as_bytes());
            let translated = PacketOut {
                actions: ActionList::from_bytes(actions).unwrap_or_default(),
                ..message
            };
            let frame = wire(origin.xid, &Message::PacketOut(translated));
            self.operate(origin, &frame, Request::Other, targets, now);
        } else {
            self.operate(origin, frame, Request::Other, targets, now);
        }
    }

    fn port_mod(&mut self, origin: &Origin, message: &PortMod) {
        let Some(port) = self.ports.get_mut(message.port) else {
            return self.refuse(origin, ErrorCode::PORT_MOD_FAILED_BAD_PORT);
        };
        if port.hw_addr.is_some_and(|mac| mac != message.hw_addr) {
            return self.refuse(origin, ErrorCode::PORT_MOD_FAILED_BAD_HW_ADDR);
        }
        port.config = (port.config & !message.mask) | (message.config & message.mask);
        self.apply_port_config(message.port);
        self.announce_ports(Some(origin.controller));
    }

    fn features(&self) -> Features {
        let hub = self.switches[HUB].features.as_ref();
        Features {
            datapath_id: self.datapath_id,
            n_buffers: 0,
            n_tables: hub.map_or(TABLES, |f| f.n_tables),
            auxiliary_id: 0,
            capabilities: hub.map_or(CAPABILITIES, |f| f.capabilities),
            reserved: 0,
        }
    }

    fn set_config(&mut self, origin: &Origin, config: SwitchConfig) {
        if let Some(controller) = self.controllers.get_mut(&origin.controller) {
            controller.miss_send_len = config.miss_send_len;
        }
        if config.flags != self.fragment_flags
            && self.controller_role(origin.controller) != Some(ControllerRole::Slave)
        {
            self.fragment_flags = config.flags;
            for switch in self.up().iter() {
                self.send_to(
                    switch,
                    Bridge::Virt,
                    &Message::SetConfig(SwitchConfig {
                        flags: config.flags,
                        miss_send_len: 0xffff,
                    }),
                );
            }
        }
    }

    fn role_request(&mut self, origin: &Origin, request: Role) {
        let wanted = match request.role {
            role::NO_CHANGE => None,
            role::EQUAL => Some(ControllerRole::Equal),
            role::MASTER => Some(ControllerRole::Master),
            role::SLAVE => Some(ControllerRole::Slave),
            _ => return self.refuse(origin, ErrorCode::ROLE_REQUEST_FAILED_BAD_ROLE),
        };
        if matches!(wanted, Some(ControllerRole::Master | ControllerRole::Slave)) {
            // Signed distance: generation ids wrap (OpenFlow 1.3.5, 6.3.6).
            let stale = self
                .role_generation
                .is_some_and(|current| (request.generation_id.wrapping_sub(current) as i64) < 0);
            if stale {
                return self.refuse(origin, ErrorCode::ROLE_REQUEST_FAILED_STALE);
            }
            self.role_generation = Some(request.generation_id);
        }
        if wanted == Some(ControllerRole::Master) {
            for other in self
                .controllers
                .values_mut()
                .filter(|c| c.role == ControllerRole::Master)
            {
                other.role = ControllerRole::Slave;
            }
        }
        let Some(controller) = self.controllers.get_mut(&origin.controller) else {
            return;
        };
        controller.role = wanted.unwrap_or(controller.role);
        let role = match controller.role {
            ControllerRole::Equal => role::EQUAL,
            ControllerRole::Master => role::MASTER,
            ControllerRole::Slave => role::SLAVE,
        };
        let generation_id = self.role_generation.unwrap_or(u64::MAX);
        self.reply(
            origin,
            Message::RoleReply(Role {
                role,
                generation_id,
            }),
        );
    }

    fn set_async(&mut self, origin: &Origin, masks: AsyncMasks) {
        if let Some(controller) = self.controllers.get_mut(&origin.controller) {
            controller.asynchronous = masks;
        }
    }

    /// No queues are configured on virtual ports, as on an Open vSwitch port without QoS.
    fn queue_config(&mut self, origin: &Origin, port: u32) {
        if port != port_no::ANY && self.ports.get(port).is_none() {
            return self.refuse(origin, ErrorCode::QUEUE_OP_FAILED_BAD_PORT);
        }
        self.reply(
            origin,
            Message::QueueGetConfigReply {
                port,
                queues: Box::default(),
            },
        );
    }
}

fn filters_on_flood(message: &FlowMod) -> bool {
    let deletes = matches!(
        message.command,
        FlowModCommand::Delete | FlowModCommand::DeleteStrict
    );
    deletes && matches!(message.out_port, port_no::FLOOD | port_no::ALL)
}
