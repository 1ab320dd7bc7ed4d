//! Messages about groups.

use crate::controllers::Incoming;
use crate::core::aside::named_by_group;
use crate::core::links::Link;
use crate::core::Core;
use crate::layout::messages::group_removal;
use crate::layout::translate::{physical_buckets, removal_of};
use crate::model::facts::Facts;
use crate::model::truth::Request;
use crate::switch_set::SwitchSet;
use crate::wire::wire;
use openflow13::{bucket_no, group_no, Buckets, ErrorCode, GroupMod, GroupModCommand, Message};
use std::time::Instant;

impl Core {
    pub(in crate::core) fn group_mod(
        &mut self,
        incoming: Incoming<'_>,
        message: GroupMod,
        now: Instant,
    ) {
        if message.command == GroupModCommand::Delete {
            if self.server.hidden.contain(message.group_id) {
                // Controllers do not have this group. Deleting nothing is not an error, and is forwarded to controllers that ask for it.
                let facts = Facts::default();
                let request = Request::Group { message, facts };
                return self.operate(incoming, None, request, SwitchSet::EMPTY, now);
            }
            return self.delete_groups(incoming, message, now);
        }
        if self.holds_until_aside(incoming, &named_by_group(&message), now) {
            return;
        }
        let facts = Facts::of_buckets(&message.buckets);
        if self.refuses_meter_inside(incoming, &facts) {
            return;
        }
        if self.holds_until_gathered(incoming, &facts, now) {
            return;
        }
        if message.needs_openflow15() && self.holds_until_alone(incoming, now) {
            return;
        }
        let what = "what only OpenFlow 1.5 says about a group";
        if self.cannot_say(&message) && self.refuses_unlinked(Link::Version15, what) {
            return self.refuse(incoming, ErrorCode::TABLE_FEATURES_FAILED_BAD_ARGUMENT);
        }
        if let Some(error) = self.refuse_by_facts(incoming, "a group", &facts) {
            return self.refuse(incoming, error);
        }
        self.begin_learning(&facts, now);
        if facts.moves_in_port {
            self.enter_everywhere(now);
        }
        self.provide_watched(&message);
        let changed = self.physical_group_mod(incoming, &message, &facts);
        let is_newer = message.needs_openflow15();
        let request = Request::Group { message, facts };
        let targets = self.server.executors.all();
        match is_newer {
            true => self.operate_newer(incoming, changed, request, targets, now),
            false => self.operate(incoming, changed, request, targets, now),
        }
    }

    /// Provides the hidden groups that its buckets watch, which leave the numbers to controllers that they name.
    fn provide_watched(&mut self, message: &GroupMod) {
        let (truth, commit) = (&self.truth, &self.commit);
        let named = named_by_group(message);
        let is_in_bundle = |id| commit.as_ref().is_some_and(|commit| commit.names(id));
        let is_taken = |id| named.contains(&id) || is_in_bundle(id) || truth.names_group(id);
        let server = &mut self.server;
        self.switches
            .watch_ports(server, &message.buckets, is_taken);
    }

    /// Tells whether switches without OpenFlow 1.5 cannot have it at all. Numbers of buckets can come later.
    fn cannot_say(&self, message: &GroupMod) -> bool {
        let changes_buckets = matches!(
            message.command,
            GroupModCommand::InsertBucket(_) | GroupModCommand::RemoveBucket(_)
        );
        let is_lost = message.selection.is_some() || message.buckets.have_meter();
        is_lost || changes_buckets && message.needs_openflow15()
    }

    fn delete_groups(&mut self, incoming: Incoming<'_>, message: GroupMod, now: Instant) {
        // Those of OpenFlow 1.5 may have buckets, which OpenFlow 1.3 refuses.
        let has_buckets = !message.buckets.is_empty();
        let changed = has_buckets.then(|| {
            wire(
                incoming.origin.xid,
                &Message::GroupMod(group_removal(message.group_id)),
            )
        });
        let facts = Facts::default();
        let targets = self.server.executors.all();
        let up = targets.intersection(self.switches.up());
        if self.switches.is_collecting() {
            for rule in self.truth.users_of_group(message.group_id) {
                let removal = Message::FlowMod(removal_of(&rule));
                self.switches.put_to_trial(&removal, up);
            }
        }
        let is_all = message.group_id == group_no::ALL;
        let request = Request::Group { message, facts };
        if !is_all {
            return self.operate(incoming, changed, request, targets, now);
        }
        // One by one, to keep the hidden groups.
        self.switches.verdicts.adopt(up);
        let ids: Vec<u32> = self.truth.groups.keys().copied().collect();
        ids.into_iter().for_each(|id| {
            self.switches
                .send_own(&Message::GroupMod(group_removal(id)), targets, now)
        });
        self.operate(incoming, None, request, SwitchSet::EMPTY, now)
    }

    /// Returns the group-mod for the switches; `None`: unchanged.
    fn physical_group_mod(
        &mut self,
        incoming: Incoming<'_>,
        message: &GroupMod,
        facts: &Facts,
    ) -> Option<Vec<u8>> {
        let is_empty_insertion = message.command == GroupModCommand::InsertBucket(bucket_no::LAST)
            && message.buckets.is_empty();
        if !is_empty_insertion && !facts.is_translated_group() {
            return None;
        }
        let command = match is_empty_insertion {
            // Open vSwitch 3.1 hangs when it moves none behind the others.
            true => GroupModCommand::InsertBucket(bucket_no::FIRST),
            false => message.command,
        };
        let buckets = physical_buckets(message.buckets.as_bytes(), &self.server.hidden);
        let buckets = Buckets::from_bytes(buckets).unwrap_or_else(|_| message.buckets.clone());
        let physical = GroupMod {
            command,
            buckets,
            selection: message.selection.clone(),
            ..*message
        };
        Some(wire(incoming.origin.xid, &Message::GroupMod(physical)))
    }
}
