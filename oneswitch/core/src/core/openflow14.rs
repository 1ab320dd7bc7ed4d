//! Messages of controllers that speak OpenFlow 1.4: they become those of 1.3.

use crate::api::ControllerRole;
use crate::controllers::Incoming;
use crate::core::Core;
use openflow13::openflow14::{self, encode_table_desc, Request, TableChange};
use openflow13::{ErrorCode, Refusal};
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
        let decoded = openflow14::decode(incoming.sent, controller.asynchronous);
        self.openflow14_request(incoming, decoded, now);
    }

    /// Handles a request of OpenFlow 1.4, or one of 1.5 that is the same.
    pub(in crate::core) fn openflow14_request(
        &mut self,
        incoming: Incoming<'_>,
        decoded: Result<Request, Refusal>,
        now: Instant,
    ) {
        let id = incoming.origin.controller;
        match decoded {
            Ok(Request::Frame(frame)) => {
                let translated = Incoming {
                    frame: &frame,
                    ..incoming
                };
                self.openflow13_message(translated, now);
            }
            Ok(Request::AsyncMasks(masks)) => self.controllers.set_async(id, masks),
            Ok(Request::Monitors(request)) => self.multipart_request(incoming, request, now),
            Ok(Request::TableDesc) => {
                let tables = (0..self.features().n_tables).map(|table| self.truth.table(table));
                let reply = encode_table_desc(incoming.origin.xid, tables);
                self.reply_with(incoming, reply.into());
            }
            Ok(Request::TableMod(change)) => self.configure_tables(incoming, &change),
            Err(refusal) => {
                info!(target: "northbound", controller = id.0, xid = incoming.origin.xid, detail = %refusal.detail, "cannot take a message of OpenFlow 1.4 or 1.5");
                self.refuse(incoming, refusal.error);
            }
        }
    }

    /// Configures tables. No switch has to know: a table without a limit does not evict rules, and oneswitchd tells of its vacancy.
    fn configure_tables(&mut self, incoming: Incoming<'_>, change: &TableChange) {
        let watches = change.watches_vacancy() || self.truth.table_configs.watch_vacancy();
        if watches && self.switches.verdicts.in_flight() > 0 {
            // Their changes do not concern it.
            let batch = self.switches.verdicts.current_batch();
            return self.hold_until_settled(incoming, batch);
        }
        let shown = self.features().n_tables;
        let (configs, tables) = (&mut self.truth.table_configs, &self.truth.tables);
        if !configs.change(change, shown, |table| tables.count(table)) {
            return self.refuse(incoming, ErrorCode::TABLE_MOD_FAILED_EPERM);
        }
        self.watch_for_monitors();
        self.server.unsettled = true;
    }
}
