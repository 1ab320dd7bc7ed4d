//! Messages of controllers that speak OpenFlow 1.5: they become those of 1.3, or are as in 1.4.

use crate::api::ControllerRole;
use crate::controllers::Incoming;
use crate::core::Core;
use openflow13::openflow10::StatsForm;
use openflow13::openflow15::{self, Request};
use openflow13::ErrorCode;
use std::time::Instant;

impl Core {
    pub(in crate::core) fn openflow15_message(&mut self, incoming: Incoming<'_>, now: Instant) {
        let id = incoming.origin.controller;
        let Some(controller) = self.controllers.get_mut(id) else {
            return;
        };
        let is_slave = controller.role == ControllerRole::Slave;
        if is_slave && openflow15::is_write(incoming.sent) {
            return self.refuse(incoming, ErrorCode::BAD_REQUEST_IS_SLAVE);
        }
        controller.form = StatsForm::Standard;
        match openflow15::decode(incoming.sent, controller.asynchronous) {
            Ok(Request::Describe(frame, number)) => {
                controller.form = StatsForm::Only(number);
                let translated = Incoming {
                    frame: &frame,
                    ..incoming
                };
                self.openflow13_message(translated, now);
            }
            Ok(Request::Shared(request)) => self.openflow14_request(incoming, Ok(request), now),
            Err(refusal) => self.openflow14_request(incoming, Err(refusal), now),
        }
    }
}
