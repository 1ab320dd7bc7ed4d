//! Messages of Nicira and the ONF, of controllers of any version.

use crate::controllers::Incoming;
use crate::core::Core;
use crate::model::truth::Request;
use openflow13::extension::{self, role_reply, Extension};
use openflow13::Experimenter;
use std::time::Instant;
use tracing::info;

impl Core {
    pub(in crate::core) fn extension(
        &mut self,
        incoming: Incoming<'_>,
        message: &Experimenter,
        now: Instant,
    ) {
        let id = incoming.origin.controller;
        let Some(controller) = self.controllers.get_mut(id) else {
            return;
        };
        match extension::decode(message, controller.asynchronous) {
            Ok(Extension::PacketInFormat(format)) => controller.formats.packet_in = format,
            Ok(Extension::AsyncMasks(masks)) => self.controllers.set_async(id, masks),
            Ok(Extension::ControllerId(chosen)) => controller.packet_ins_of = chosen,
            Ok(Extension::Role(role)) => {
                if let Some(taken) = self.controllers.take_role(id, role) {
                    self.reply(incoming, role_reply(taken.role));
                }
            }
            Ok(Extension::FlushConnections) => {
                let targets = self.server.executors.all();
                self.operate(incoming, None, Request::Other, targets, now);
            }
            Ok(Extension::Nothing) => {}
            Err(refusal) => {
                info!(target: "northbound", controller = id.0, detail = %refusal.detail, "cannot take a vendor's message");
                self.refuse(incoming, refusal.error)
            }
        }
    }
}
