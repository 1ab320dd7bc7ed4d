//! Rules that a bundle adds and then changes or deletes.
//!
//! Open vSwitch 3.1 finds a rule by its exact match at once, but by a wider one only after the commit if the rule's mask is new (pvector_insert(),
//! lib/pvector.c). It depends on the other rules of a switch, so switches would differ.

use crate::core::Core;
use crate::layout::modifications::{goes_back, in_all_tables};
use crate::layout::translate::flow_mod_with_flood_group;
use crate::model::facts::Facts;
use crate::model::rule::Rule;
use crate::model::tables::Filter;
use crate::model::truth::{Changes, Request};
use crate::wire::wire;
use openflow13::{decode, CanonicalMatch, FlowMod, FlowModCommand, Message};
use std::sync::Arc;
use std::time::Instant;

impl Core {
    /// Returns messages that change or delete, each by its exact match, the rules that a flow-mod selects and that its bundle has added.
    pub(in crate::core) fn unseen_in_bundle(
        &self,
        message: &FlowMod,
        matching: &CanonicalMatch,
        now: Instant,
    ) -> Vec<(Arc<Rule>, FlowMod)> {
        let command = match message.command {
            FlowModCommand::Modify => FlowModCommand::ModifyStrict,
            FlowModCommand::Delete => FlowModCommand::DeleteStrict,
            _ => return Vec::new(),
        };
        if !self.switches.is_collecting() {
            return Vec::new();
        }
        let filter = Filter::of_flow_mod(message, matching.clone());
        let selected = self.truth.tables.select(&filter).into_iter();
        let added = selected.filter(|rule| rule.created == now);
        let strictly = |rule: Arc<Rule>| {
            let strict = FlowMod {
                command,
                table_id: rule.key.table,
                priority: rule.key.priority,
                matching: rule.matching.clone(),
                ..message.clone()
            };
            (rule, strict)
        };
        added.map(strictly).collect()
    }

    /// Sends what [`Self::unseen_in_bundle`] returned; the virtual tables are changed already.
    pub(in crate::core) fn change_unseen(
        &mut self,
        unseen: Vec<(Arc<Rule>, FlowMod)>,
        facts: &Facts,
        now: Instant,
    ) {
        for (rule, message) in unseen {
            let everywhere = self.switches.verdicts.modifies_all_tables() && goes_back(&message);
            let mut frame = wire(0, &Message::FlowMod(message));
            if facts.floods {
                frame = flow_mod_with_flood_group(&frame, &self.server.hidden);
            }
            if let (true, Ok((_, Message::FlowMod(message)))) = (everywhere, decode(&frame)) {
                frame = wire(0, &Message::Experimenter(in_all_tables(&message, None)));
            }
            let targets = self.server.executors.of_rule(&rule);
            let targets = targets.intersection(self.switches.up());
            let (request, changes) = (Request::Other, Changes::default());
            let verdicts = &mut self.switches.verdicts;
            let xid = verdicts.push(None, None, request, changes, targets, now);
            self.switches.send_operation(&frame, targets, xid);
        }
    }
}
