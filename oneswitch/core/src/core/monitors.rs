//! Flow monitors of controllers: their requests, and the reports of what has come into force.

use crate::controllers::reply::Reply;
use crate::controllers::Incoming;
use crate::core::Core;
use crate::model::happened::Happened;
use crate::model::truth::Changes;
use crate::switches::verdict::MANY;
use openflow13::flow_monitor::{updates_messages, MonitorRequests, Update};
use openflow13::ErrorCode;
use tracing::info;

impl Core {
    /// Holds a message about monitors until everything before it is in force, or refused; returns whether it does.
    pub(in crate::core) fn holds_monitor_message(&mut self, incoming: Incoming<'_>) -> bool {
        let batch = self.switches.verdicts.current_batch();
        let waits = !self.switches.verdicts.is_settled(batch);
        if waits {
            self.hold_until_settled(incoming, batch);
        }
        waits
    }

    pub(in crate::core) fn monitor_request(
        &mut self,
        incoming: Incoming<'_>,
        requests: &MonitorRequests,
    ) {
        match self.change_monitors(incoming, requests) {
            Ok(updates) => {
                let (id, xid) = (incoming.origin.controller, incoming.origin.xid);
                let version = self.controllers.get(id).map_or(0, |c| c.version);
                let size = updates.iter().map(Update::size).sum();
                let reply = Reply::long(updates_messages(version, xid, updates), size);
                self.reply_with(incoming, reply);
            }
            Err(error) => self.refuse(incoming, error),
        }
        self.watch_for_monitors();
    }

    /// Carries out a request; returns the rules that it asks for.
    ///
    /// # Errors
    /// That of the first entry that is refused. The monitors that the entries before it have made are gone, as in Open vSwitch.
    fn change_monitors(
        &mut self,
        incoming: Incoming<'_>,
        requests: &MonitorRequests,
    ) -> Result<Vec<Update>, ErrorCode> {
        let id = incoming.origin.controller;
        let Some(controller) = self.controllers.get_mut(id) else {
            return Ok(Vec::new());
        };
        let monitors = &mut controller.monitors;
        let mut made = Vec::new();
        for request in requests.iter() {
            let changed = request.map_err(|refusal| {
                info!(target: "northbound", controller = id.0, detail = %refusal.detail, "cannot take a flow monitor");
                refusal.error
            });
            match changed.and_then(|request| monitors.change(&request)) {
                Ok(new) => made.extend(new),
                Err(error) => {
                    for id in made {
                        _ = monitors.cancel(id);
                    }
                    return Err(error);
                }
            }
        }
        Ok(monitors.initial(&made, &self.truth.tables))
    }

    pub(in crate::core) fn cancel_monitor(&mut self, incoming: Incoming<'_>, monitor: u32) {
        if self.holds_monitor_message(incoming) {
            return;
        }
        let controller = self.controllers.get_mut(incoming.origin.controller);
        if let Some(Err(error)) = controller.map(|c| c.monitors.cancel(monitor)) {
            self.refuse(incoming, error);
        }
        self.watch_for_monitors();
    }

    /// Keeps what messages in flight change only while a controller monitors it, or a table tells of its vacancy.
    pub(in crate::core) fn watch_for_monitors(&mut self) {
        let tells_vacancy = self.truth.table_configs.watch_vacancy();
        self.switches.verdicts.is_watched = tells_vacancy || self.controllers.monitor();
    }

    /// Tells controllers of the changes by one message: what they monitor, and the vacancy of tables.
    pub(in crate::core) fn tell_changes(&mut self, happened: &[Happened]) {
        let events = self.truth.table_configs.events(happened);
        self.server.unsettled |= !events.is_empty();
        if let Some(first) = happened.first() {
            self.controllers.tell_vacancy(first.number, &events);
        }
        self.controllers.report_changes(happened);
    }

    /// Frees reported changes; many of them later.
    pub(in crate::core) fn discard_happened(&mut self, happened: Vec<Happened>) {
        for one in happened {
            if one.rules.len() >= MANY {
                self.discarded.push(Changes {
                    flows: one.rules,
                    ..Changes::default()
                });
            }
        }
    }
}
