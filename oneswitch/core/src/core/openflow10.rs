//! Messages of controllers that speak OpenFlow 1.0: they become those of 1.3.

use crate::api::ControllerRole;
use crate::controllers::Incoming;
use crate::core::links::Link;
use crate::core::Core;
use crate::layout::modifications::{goes_back, in_all_tables};
use crate::model::rule::{Rule, CHANGED_COOKIE, MESSAGE_FLAGS};
use crate::model::tables::{Filter, ALL_TABLES};
use crate::wire::wire;
use openflow13::openflow10::{
    self, encode_features, without_inconsistent, Modify, Request, StatsForm,
};
use openflow13::{decode, ErrorCode, FlowMod, FlowModCommand, Message, MultipartRequest};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use tracing::info;

impl Core {
    pub(in crate::core) fn openflow10_message(&mut self, incoming: Incoming<'_>, now: Instant) {
        let Some(controller) = self.controllers.get_mut(incoming.origin.controller) else {
            return;
        };
        let is_slave = controller.role == ControllerRole::Slave;
        if is_slave && openflow10::is_write(incoming.sent) {
            return self.refuse(incoming, ErrorCode::BAD_REQUEST_IS_SLAVE);
        }
        let request = match openflow10::decode(incoming.sent, &controller.formats) {
            Ok((request, form)) => {
                controller.form = form;
                request
            }
            Err(refusal) => {
                info!(target: "northbound", controller = incoming.origin.controller.0, xid = incoming.origin.xid, detail = %refusal.detail, "cannot read a message of OpenFlow 1.0");
                return self.refuse(incoming, refusal.error);
            }
        };
        self.openflow10_request(incoming, request, now);
    }

    /// Handles Nicira's flow-mod of a later version; returns false for another message.
    pub(in crate::core) fn later_flow_mod(&mut self, incoming: Incoming<'_>, now: Instant) -> bool {
        let Some(decoded) = openflow10::decode_later_flow_mod(incoming.sent) else {
            return false;
        };
        let id = incoming.origin.controller;
        let is_slave = self.controllers.role(id) == Some(ControllerRole::Slave);
        match decoded {
            // Open vSwitch checks the length before the role, and that before the content.
            Err(refusal) if refusal.error == ErrorCode::BAD_REQUEST_BAD_LEN => {
                self.refuse(incoming, refusal.error)
            }
            _ if is_slave => self.refuse(incoming, ErrorCode::BAD_REQUEST_IS_SLAVE),
            Ok(request) => self.openflow10_request(incoming, request, now),
            Err(refusal) => {
                info!(target: "northbound", controller = id.0, xid = incoming.origin.xid, detail = %refusal.detail, "cannot take a flow-mod of Nicira's");
                self.refuse(incoming, refusal.error)
            }
        }
        true
    }

    pub(in crate::core) fn openflow10_request(
        &mut self,
        incoming: Incoming<'_>,
        request: Request,
        now: Instant,
    ) {
        let flow_mod = match &request {
            Request::Modify(modify) => Some(&modify.flow_mod),
            Request::Message(Message::FlowMod(message)) => Some(message),
            _ => None,
        };
        if flow_mod.is_some_and(|message| is_lenient(incoming, message))
            && self.holds_until_linked(incoming, Link::Version10, now)
        {
            return;
        }
        match request {
            Request::Formats(formats) => {
                if let Some(controller) = self.controllers.get_mut(incoming.origin.controller) {
                    controller.formats = formats;
                }
            }
            Request::Modify(modify) => self.modify_or_add(incoming, modify, now),
            Request::Message(Message::FeaturesRequest) => {
                let ports = self.view().port_descriptions();
                let frame = encode_features(incoming.origin.xid, &self.features(), &ports);
                self.reply_with(incoming, frame.into());
            }
            // Its flags are not those of OpenFlow 1.3.
            Request::Message(message @ Message::SetConfig(_)) => {
                self.dispatch(incoming, message, now)
            }
            // OpenFlow 1.3 cannot say matches that lack prerequisites.
            Request::Message(Message::MultipartRequest(request))
                if matches!(request.body, MultipartRequest::FlowMonitor(_))
                    || self.asks_for_rules(incoming, &request.body) =>
            {
                self.multipart_request(incoming, request, now)
            }
            Request::Message(message) => self.dispatch_translated(incoming, &message, now),
        }
    }

    /// Tells whether a request is for statistics of rules, in the standard's form.
    fn asks_for_rules(&self, incoming: Incoming<'_>, request: &MultipartRequest) -> bool {
        let controller = self.controllers.get(incoming.origin.controller);
        let is_standard = controller.is_some_and(|c| c.form == StatsForm::Standard);
        let is_of_rules = matches!(
            request,
            MultipartRequest::Flow(_) | MultipartRequest::Aggregate(_)
        );
        is_standard && is_of_rules
    }

    /// Handles a message of OpenFlow 1.3 in place of the one that the controller sent.
    fn dispatch_translated(&mut self, incoming: Incoming<'_>, message: &Message, now: Instant) {
        let frame = wire(incoming.origin.xid, message);
        let incoming = Incoming {
            frame: &frame,
            ..incoming
        };
        match decode(&frame) {
            Ok((_, message)) => self.dispatch(incoming, message, now),
            Err(refusal) => {
                info!(target: "northbound", controller = incoming.origin.controller.0, xid = incoming.origin.xid, detail = %refusal.detail, "cannot carry out a message of OpenFlow 1.0");
                self.refuse(incoming, refusal.error)
            }
        }
    }

    /// Modifies rules as OpenFlow 1.0 does: in all tables unless one is named, with a new cookie, and adding a rule if there is none to
    /// modify (Open vSwitch, `modify_flows_start__()`).
    fn modify_or_add(&mut self, incoming: Incoming<'_>, modify: Modify, now: Instant) {
        if self.commit.is_none() && self.switches.verdicts.changes_in_flight() {
            // Whether it adds a rule depends on whether the switches take those before it.
            let batch = self.switches.verdicts.current_batch();
            return self.hold_until_settled(incoming, batch);
        }
        let Modify {
            flow_mod,
            new_cookie,
        } = modify;
        // Open vSwitch reads the whole message before it looks for rules, and reports one error.
        let readable = FlowMod {
            table_id: 0,
            ..flow_mod.clone()
        };
        let read = decode(&wire(incoming.origin.xid, &Message::FlowMod(readable)));
        if let Err(refusal) = read {
            return self.refuse(incoming, refusal.error);
        }
        let matching = match flow_mod.matching.canonical() {
            Ok(matching) => matching,
            Err(refusal) => return self.refuse(incoming, refusal.error),
        };
        let in_table = |table_id| FlowMod {
            table_id,
            ..flow_mod.clone()
        };
        let filter = Filter::of_flow_mod(&flow_mod, matching);
        let chosen = self.truth.tables.select(&filter);
        let is_lenient = is_lenient(incoming, &flow_mod);
        let changes_cookie = |rule: &Rule| new_cookie.is_some_and(|cookie| rule.cookie != cookie);
        let is_rewritten = chosen.iter().any(|rule| is_lenient || changes_cookie(rule));
        let check = (is_rewritten && is_wider(&flow_mod, &chosen)).then(|| {
            let of_any_cookie = Filter {
                cookie_mask: 0,
                ..filter
            };
            checking(&flow_mod, &self.truth.tables.select(&of_any_cookie))
        });
        if let Some(check) = &check {
            let xid = incoming.origin.xid;
            let frame = sayable(incoming, check).unwrap_or_else(|| match goes_back(check) {
                true => wire(xid, &Message::Experimenter(in_all_tables(check, None))),
                false => wire(xid, &Message::FlowMod(check.clone())),
            });
            if self.holds_modification(incoming, &frame, now) {
                return;
            }
        }
        let messages: Vec<FlowMod> = match new_cookie {
            Some(cookie) if chosen.is_empty() && flow_mod.cookie_mask == 0 => {
                vec![FlowMod {
                    command: FlowModCommand::Add,
                    cookie,
                    ..in_table(first_table(&flow_mod))
                }]
            }
            // OpenFlow 1.3 cannot change a cookie but by adding the rule again, which keeps its counters on the switches. Each rule may lack
            // other actions until a switch gets them over OpenFlow 1.0.
            _ if is_rewritten => {
                let changes = chosen
                    .iter()
                    .map(|rule| readdition(&flow_mod, rule, new_cookie.unwrap_or(rule.cookie)));
                check.into_iter().chain(changes).collect()
            }
            // Switches check the actions even if there is nothing to modify.
            _ if chosen.is_empty() => vec![in_table(first_table(&flow_mod))],
            _ => {
                let tables: BTreeSet<u8> = chosen.iter().map(|rule| rule.key.table).collect();
                tables.into_iter().map(in_table).collect()
            }
        };
        let is_of_all = flow_mod.table_id == ALL_TABLES;
        self.switches.verdicts.begin_modification(is_of_all);
        for message in messages {
            self.dispatch_translated(incoming, &Message::FlowMod(message), now);
        }
        self.switches.verdicts.end_modification();
    }
}

/// Returns the message without the actions that only OpenFlow 1.0 allows in a rule with this match, if that is the sender's version.
pub fn sayable(incoming: Incoming<'_>, message: &FlowMod) -> Option<Vec<u8>> {
    if !incoming.is_openflow10() {
        return None;
    }
    let instructions = without_inconsistent(&message.matching, &message.instructions)?;
    let message = FlowMod {
        instructions,
        ..message.clone()
    };
    Some(wire(incoming.origin.xid, &Message::FlowMod(message)))
}

/// Tells whether a message has such actions.
fn is_lenient(incoming: Incoming<'_>, message: &FlowMod) -> bool {
    sayable(incoming, message).is_some()
}

/// Returns the table that a rule is added to if there is none to modify.
fn first_table(flow_mod: &FlowMod) -> u8 {
    match flow_mod.table_id {
        ALL_TABLES => 0,
        table => table,
    }
}

/// Tells whether a modification selects rules whose match says more than its own.
fn is_wider(flow_mod: &FlowMod, chosen: &[Arc<Rule>]) -> bool {
    flow_mod.command == FlowModCommand::Modify
        && chosen.iter().any(|rule| rule.matching != flow_mod.matching)
}

/// Returns a modification that changes none of the rules that its match selects, by a cookie that none has: Open vSwitch checks whether the match says what
/// the actions need.
fn checking(flow_mod: &FlowMod, selected: &[Arc<Rule>]) -> FlowMod {
    let cookies: BTreeSet<u64> = selected.iter().map(|rule| rule.cookie).collect();
    // Open vSwitch's own rules have cookie 0, and may not be modified.
    let unused = (1..).find(|cookie| !cookies.contains(cookie));
    FlowMod {
        table_id: first_table(flow_mod),
        cookie: unused.unwrap_or_default(),
        cookie_mask: u64::MAX,
        ..flow_mod.clone()
    }
}

/// Returns the addition that gives a rule the actions of a modification and a new cookie.
fn readdition(flow_mod: &FlowMod, rule: &Rule, cookie: u64) -> FlowMod {
    FlowMod {
        command: FlowModCommand::Add,
        cookie,
        cookie_mask: CHANGED_COOKIE,
        table_id: rule.key.table,
        priority: rule.key.priority,
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        flags: rule.flags & !MESSAGE_FLAGS | flow_mod.flags & FlowMod::RESET_COUNTS,
        importance: rule.importance,
        matching: rule.matching.clone(),
        ..flow_mod.clone()
    }
}
