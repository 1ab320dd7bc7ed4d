//! What a controller asks of the switch as a whole, and how it wants to be treated.

use crate::api::{Bridge, ControllerId, ControllerRole, Destination};
use crate::core::northbound::Incoming;
use crate::mutants::{mutant, Fault};
use crate::server::executors::HUB;
use crate::switches::sync::WHOLE_PACKET;
use crate::wire::wire;
use crate::Core;
use openflow13::{
    port_no, AsyncMasks, ErrorCode, Experimenter, Features, Message, Role, SwitchConfig,
};

/// What Open vSwitch 3.1 reports, until the hypervisor's own answer is known: FLOW, TABLE, PORT, GROUP and QUEUE statistics.
const CAPABILITIES: u32 = 0x4f;
const TABLES: u8 = 254;

/// Of a mask for OpenFlow 1.3 Open vSwitch keeps these bits; flow_removed has two that only later versions use.
const PACKET_IN_REASONS: u32 = 0x7;
const PORT_STATUS_REASONS: u32 = 0x7;
const FLOW_REMOVED_REASONS: u32 = 0x3f;

impl Core {
    pub(crate) fn features(&self) -> Features {
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

    pub(crate) fn get_config(&mut self, incoming: Incoming<'_>) {
        let controller = self.controllers.get(&incoming.origin.controller);
        let config = SwitchConfig {
            flags: self.fragment_flags,
            miss_send_len: controller.map_or(0, |c| c.miss_send_len),
        };
        self.reply(incoming, Message::GetConfigReply(config));
    }

    pub(crate) fn set_config(&mut self, id: ControllerId, config: SwitchConfig) {
        let Some(controller) = self.controllers.get_mut(&id) else {
            return;
        };
        controller.miss_send_len = config.miss_send_len;
        let flags = config.flags & SwitchConfig::FRAGMENTS;
        // Open vSwitch cannot reassemble, and goes on as it was without an error.
        let cannot = flags == SwitchConfig::REASSEMBLE;
        let ignored = cannot || controller.role == ControllerRole::Slave;
        if flags == self.fragment_flags || ignored {
            return;
        }
        self.fragment_flags = flags;
        self.journal.unsettled = true;
        let physical = Message::SetConfig(SwitchConfig {
            flags,
            miss_send_len: WHOLE_PACKET,
        });
        let all = if mutant(Fault::FragmentsAtOneSwitch) {
            1
        } else {
            usize::MAX
        };
        for switch in self.up().iter().take(all) {
            self.send_to(switch, Bridge::Virt, &physical);
        }
    }

    pub(crate) fn role_request(&mut self, incoming: Incoming<'_>, request: Role) {
        let wanted = match request.role {
            Role::NO_CHANGE => None,
            Role::EQUAL => Some(ControllerRole::Equal),
            Role::MASTER => Some(ControllerRole::Master),
            Role::SLAVE => Some(ControllerRole::Slave),
            _ => return self.refuse(incoming, ErrorCode::ROLE_REQUEST_FAILED_BAD_ROLE),
        };
        if matches!(wanted, Some(ControllerRole::Master | ControllerRole::Slave)) {
            // Signed distance: generation ids wrap (OpenFlow 1.3.5, 6.3.6).
            let stale = self
                .role_generation
                .is_some_and(|current| (request.generation_id.wrapping_sub(current) as i64) < 0);
            if stale {
                return self.refuse(incoming, ErrorCode::ROLE_REQUEST_FAILED_STALE);
            }
            self.role_generation = Some(request.generation_id);
        }
        if wanted == Some(ControllerRole::Master) {
            self.demote_masters(incoming.origin.controller, request.generation_id);
        }
        let Some(controller) = self.controllers.get_mut(&incoming.origin.controller) else {
            return;
        };
        controller.role = wanted.unwrap_or(controller.role);
        let role = match controller.role {
            ControllerRole::Equal => Role::EQUAL,
            ControllerRole::Master => Role::MASTER,
            ControllerRole::Slave => Role::SLAVE,
        };
        let generation_id = self.role_generation.unwrap_or(u64::MAX);
        self.reply(
            incoming,
            Message::RoleReply(Role {
                role,
                generation_id,
            }),
        );
    }

    /// Whoever was master is a slave from now on, and is told so as Open vSwitch does (`ofconn_send_role_status`, ofproto/connmgr.c).
    fn demote_masters(&mut self, new: ControllerId, generation_id: u64) {
        let status = wire(0, &role_status(Role::SLAVE, generation_id));
        for (id, other) in &mut self.controllers {
            if *id != new && other.role == ControllerRole::Master {
                other.role = ControllerRole::Slave;
                self.outbox.put(Destination::Controller(*id), &status);
            }
        }
    }

    pub(crate) fn get_async(&mut self, incoming: Incoming<'_>) {
        let controller = self.controllers.get(&incoming.origin.controller);
        if let Some(masks) = controller.map(|c| c.asynchronous) {
            self.reply(incoming, Message::GetAsyncReply(masks));
        }
    }

    pub(crate) fn set_async(&mut self, id: ControllerId, masks: AsyncMasks) {
        if let Some(controller) = self.controllers.get_mut(&id) {
            controller.asynchronous = AsyncMasks {
                packet_in: masks.packet_in.map(|mask| mask & PACKET_IN_REASONS),
                port_status: masks.port_status.map(|mask| mask & PORT_STATUS_REASONS),
                flow_removed: masks.flow_removed.map(|mask| mask & FLOW_REMOVED_REASONS),
            };
        }
    }

    /// No queues are configured on virtual ports, as on an Open vSwitch port without QoS.
    pub(crate) fn queue_config(&mut self, incoming: Incoming<'_>, port: u32) {
        if port != port_no::ANY && self.ports.get(port).is_none() {
            return self.refuse(incoming, ErrorCode::QUEUE_OP_FAILED_BAD_PORT);
        }
        self.reply(
            incoming,
            Message::QueueGetConfigReply {
                port,
                queues: Box::default(),
            },
        );
    }
}

/// The Open Networking Foundation's extension 191 to OpenFlow 1.3: role, reason (another one asked to be master), generation.
fn role_status(role: u32, generation_id: u64) -> Message {
    const ONF: u32 = 0x4f4e_4600;
    const ROLE_STATUS: u32 = 1911;
    const MASTER_REQUEST: [u8; 4] = [0; 4];
    let mut data = role.to_be_bytes().to_vec();
    data.extend(MASTER_REQUEST);
    data.extend(generation_id.to_be_bytes());
    Message::Experimenter(Experimenter {
        vendor: ONF,
        subtype: ROLE_STATUS,
        body: data.into(),
    })
}
