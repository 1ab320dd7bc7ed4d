//! Messages of Nicira and the ONF, of controllers of any version.

use crate::api::{ControllerRole, SwitchIndex};
use crate::controllers::telling::Hearers;
use crate::controllers::Incoming;
use crate::core::Core;
use crate::model::truth::Request;
use crate::server::executors::HUB;
use crate::switch_set::SwitchSet;
use openflow13::continuation;
use openflow13::extension::{self, role_reply, Extension};
use openflow13::{tlv_table, ErrorCode, Experimenter};
use std::time::Instant;
use tracing::info;

impl Core {
    /// Lets the switches send packet-ins with what continues them as long as a controller wants that.
    pub(in crate::core) fn choose_packet_in_format(&mut self) {
        let wanted = self.controllers.wants_continuations();
        self.switches.set_continues_packets(wanted);
    }

    /// Relays a packet-in of an action with this `id`, and notes where it can be continued.
    pub(in crate::core) fn packet_in(
        &mut self,
        switch: SwitchIndex,
        frame: &[u8],
        id: u16,
        to: Hearers,
    ) {
        let bridge = continuation::properties_of(frame).and_then(continuation::bridge_of);
        let known = &mut self.switches.list[switch].in_continuations;
        if bridge.is_some() && *known != bridge {
            *known = bridge;
            self.server.unsettled = true;
        }
        self.controllers.relay_packet_in(frame, id, to);
    }

    /// Continues a packet at the switch that has sent it; others refuse it.
    fn resume(&mut self, incoming: Incoming<'_>, message: &Experimenter, now: Instant) {
        let bridge = continuation::bridge_of(&message.body);
        let mut switches = self.switches.list.iter();
        let found = bridge.and_then(|_| switches.position(|s| s.in_continuations == bridge));
        let target = SwitchSet::of(found.unwrap_or(HUB));
        if target.intersection(self.switches.up()).is_empty() {
            return self.refuse(incoming, ErrorCode::NX_RESUME_STALE);
        }
        self.operate(incoming, None, Request::PacketOut, target, now);
    }

    pub(in crate::core) fn extension(
        &mut self,
        incoming: Incoming<'_>,
        message: &Experimenter,
        now: Instant,
    ) {
        if self.bundle_message(incoming, message, now).is_some() {
            return;
        }
        if self.later_flow_mod(incoming, now) {
            return;
        }
        let id = incoming.origin.controller;
        let Some(controller) = self.controllers.get_mut(id) else {
            return;
        };
        match extension::decode(controller.version, message, controller.asynchronous) {
            Ok(Extension::PacketInFormat(format)) => {
                controller.formats.packet_in = format;
                self.choose_packet_in_format();
            }
            Ok(Extension::AsyncMasks(masks)) => self.controllers.set_async(id, masks),
            Ok(Extension::ControllerId(chosen)) => {
                controller.packet_ins_of = chosen;
            }
            Ok(Extension::Role(role)) => {
                if let Some(taken) = self.controllers.take_role(id, role) {
                    self.reply(incoming, role_reply(taken.role));
                }
            }
            Ok(Extension::FlushConnections) => {
                let targets = self.server.executors.all();
                self.operate(incoming, None, Request::Other, targets, now);
            }
            Ok(Extension::TlvTableMod(_)) if controller.role == ControllerRole::Slave => {
                self.refuse(incoming, ErrorCode::BAD_REQUEST_IS_SLAVE)
            }
            Ok(Extension::TlvTableMod(message)) => {
                let targets = self.switches.up();
                self.operate(incoming, None, Request::TlvTable(message), targets, now);
            }
            Ok(Extension::TlvTableRequest) => {
                let mappings = self.truth.tlv_table.mappings();
                self.reply(incoming, tlv_table::reply(&mappings));
            }
            Ok(Extension::Resume) => self.resume(incoming, message, now),
            Ok(Extension::CancelMonitor(monitor)) => self.cancel_monitor(incoming, monitor),
            Ok(Extension::Nothing) => {}
            Err(refusal) => {
                info!(target: "northbound", controller = id.0, detail = %refusal.detail, "cannot take a vendor's message");
                self.refuse(incoming, refusal.error)
            }
        }
    }
}
