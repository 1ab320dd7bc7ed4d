//! Messages of controllers that speak OpenFlow 1.4: they become those of 1.3.

use crate::api::ControllerRole;
use crate::controllers::Incoming;
use crate::core::Core;
use openflow13::openflow14::{self, encode_table_desc, Request};
use openflow13::ErrorCode;
use std::time::Instant;
use tracing::info;

impl Core {
    pub(in crate::core) fn openflow14_message(&mut self, incoming: Incoming<'_>, now: Instant) {
        let id = incoming.origin.controller;
        let Some(controller) = self.controllers.get(id) else {
            return;
        };
        if controller.role == ControllerRole::Slave && openflow14::is_write(incoming.sent) {
            return self.refuse(incoming, ErrorCode::BAD_REQUEST_IS_SLAVE);
        }
        match openflow14::decode(incoming.sent, controller.asynchronous) {
            Ok(Request::Frame(frame)) => {
                let translated = Incoming {
                    frame: &frame,
                    ..incoming
                };
                self.openflow13_message(translated, now);
            }
            Ok(Request::AsyncMasks(masks)) => self.controllers.set_async(id, masks),
            Ok(Request::TableDesc) => {
                let reply = encode_table_desc(incoming.origin.xid, self.features().n_tables);
                self.reply_with(incoming, reply.into());
            }
            Err(refusal) => {
                info!(target: "northbound", controller = id.0, xid = incoming.origin.xid, detail = %refusal.detail, "cannot take a message of OpenFlow 1.4");
                self.refuse(incoming, refusal.error);
            }
        }
    }
}
