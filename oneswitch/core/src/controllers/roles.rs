//! Roles, asynchronous masks and configuration of controllers.

use super::Controllers;
use crate::api::{ControllerId, ControllerRole, Destination};
use crate::wire::wire;
use openflow13::extension::ROLE_STATUS;
use openflow13::openflow10::StatsForm;
use openflow13::{openflow10, openflow14};
use openflow13::{AsyncMasks, ErrorCode, Experimenter, Message, Role, SwitchConfig, ONF_VENDOR};

/// The bits that Open vSwitch keeps of a mask for OpenFlow 1.3; flow_removed has two that only later versions use.
const PACKET_IN_REASONS: u32 = 0x7;
/// The same from OpenFlow 1.4 on.
const PACKET_IN_REASONS_14: u32 = 0x3f;
const PORT_STATUS_REASONS: u32 = 0x7;
const FLOW_REMOVED_REASONS: u32 = 0x3f;

impl Controllers {
    /// Applies a controller's configuration; returns the fragment flags requested for the switches.
    pub fn set_config(&mut self, id: ControllerId, config: SwitchConfig) -> Option<u16> {
        let controller = self.connections.get_mut(&id)?;
        controller.miss_send_len = config.miss_send_len;
        if controller.version == openflow10::VERSION {
            controller
                .report_invalid_ttl(config.flags & SwitchConfig::INVALID_TTL_TO_CONTROLLER != 0);
        }
        let flags = config.flags & SwitchConfig::FRAGMENTS;
        // Open vSwitch cannot reassemble, and keeps its setting without an error.
        let cannot = flags == SwitchConfig::REASSEMBLE;
        let ignored = cannot || controller.role == ControllerRole::Slave;
        (!ignored).then_some(flags)
    }

    /// Returns the reply to a role request, if its sender is still connected.
    ///
    /// # Errors
    /// The answer to a request that is refused.
    pub fn role_request(
        &mut self,
        id: ControllerId,
        request: Role,
    ) -> Result<Option<Role>, ErrorCode> {
        if request.role > Role::SLAVE {
            return Err(ErrorCode::ROLE_REQUEST_FAILED_BAD_ROLE);
        }
        let wanted = role_of(request.role);
        if matches!(wanted, Some(ControllerRole::Master | ControllerRole::Slave)) {
            // Signed distance: generation ids wrap (OpenFlow 1.3.5, 6.3.6).
            let stale = self
                .role_generation
                .is_some_and(|current| (request.generation_id.wrapping_sub(current) as i64) < 0);
            if stale {
                return Err(ErrorCode::ROLE_REQUEST_FAILED_STALE);
            }
            self.role_generation = Some(request.generation_id);
        }
        Ok(self.take_role(id, request.role))
    }

    /// Gives a controller a role without asking for the generation, as Nicira's requests do; returns the reply.
    pub fn take_role(&mut self, id: ControllerId, role: u32) -> Option<Role> {
        let wanted = role_of(role);
        if wanted == Some(ControllerRole::Master) {
            self.demote_masters(id, self.role_generation.unwrap_or(u64::MAX));
        }
        let controller = self.connections.get_mut(&id)?;
        controller.role = wanted.unwrap_or(controller.role);
        let role = match controller.role {
            ControllerRole::Equal => Role::EQUAL,
            ControllerRole::Master => Role::MASTER,
            ControllerRole::Slave => Role::SLAVE,
        };
        let generation_id = self.role_generation.unwrap_or(u64::MAX);
        Some(Role {
            role,
            generation_id,
        })
    }

    /// Makes all masters slaves, and notifies them as Open vSwitch does (`ofconn_send_role_status`, ofproto/connmgr.c).
    fn demote_masters(&mut self, new: ControllerId, generation_id: u64) {
        let status = wire(0, &role_status(Role::SLAVE, generation_id));
        for (id, other) in &mut self.connections {
            if *id != new && other.role == ControllerRole::Master {
                other.role = ControllerRole::Slave;
                let frames = other.in_version(&status, StatsForm::Standard);
                self.outbox.put(Destination::Controller(*id), &frames);
            }
        }
    }

    pub fn set_async(&mut self, id: ControllerId, masks: AsyncMasks) {
        if let Some(controller) = self.connections.get_mut(&id) {
            controller.expect_asynchronous();
            let packet_in_reasons = match controller.version {
                openflow14::VERSION.. => PACKET_IN_REASONS_14,
                _ => PACKET_IN_REASONS,
            };
            controller.asynchronous = AsyncMasks {
                packet_in: masks.packet_in.map(|mask| mask & packet_in_reasons),
                port_status: masks.port_status.map(|mask| mask & PORT_STATUS_REASONS),
                flow_removed: masks.flow_removed.map(|mask| mask & FLOW_REMOVED_REASONS),
                ..masks
            };
        }
    }
}

/// Converts the role of a request; `None` leaves it as it is.
fn role_of(role: u32) -> Option<ControllerRole> {
    match role {
        Role::EQUAL => Some(ControllerRole::Equal),
        Role::MASTER => Some(ControllerRole::Master),
        Role::SLAVE => Some(ControllerRole::Slave),
        _ => None,
    }
}

/// The Open Networking Foundation's extension 191 to OpenFlow 1.3: role, reason (another one asked to be master), generation.
fn role_status(role: u32, generation_id: u64) -> Message {
    const MASTER_REQUEST: [u8; 4] = [0; 4];
    let mut data = role.to_be_bytes().to_vec();
    data.extend(MASTER_REQUEST);
    data.extend(generation_id.to_be_bytes());
    Message::Experimenter(Experimenter {
        vendor: ONF_VENDOR,
        subtype: ROLE_STATUS,
        body: data.into(),
    })
}
