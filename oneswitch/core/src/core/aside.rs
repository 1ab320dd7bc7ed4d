//! Hidden groups step aside when a controller names their numbers.
//!
//! The message waits, with all others, until nothing else is under way. Then the switches get these groups with other numbers, and what names
//! them is written again. When no data path can use the old numbers any more, the groups that have them go, and the message goes on.
//! A group of a controller that is written again counts from 0: its counters so far are read just before, and kept.

use crate::api::Bridge;
use crate::controllers::Incoming;
use crate::core::Core;
use crate::layout::messages::{flood_groups, group_removal, messages_of_group, physical_group};
use crate::layout::translate::{copy_of, physical_instructions};
use crate::model::facts::{self, groups_of_actions, groups_of_buckets};
use crate::model::hidden::{Hidden, HiddenGroups};
use crate::switches::reads::Purpose;
use openflow13::{FlowMod, GroupMod, GroupModCommand, Message, MultipartRequest, PacketOut};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tracing::info;

/// The time for which data paths may use old flows: that of a client's move.
const GRACE: Duration = Duration::from_millis(500);

/// The numbers that hidden groups give up.
#[derive(Debug)]
pub struct Aside {
    numbers: BTreeSet<u32>,
    /// All numbers that the message names, which no hidden group may have afterwards.
    named: BTreeSet<u32>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Other messages, and answers with counters, are under way.
    Waiting,
    /// The batch of what names the groups by their new numbers, and whether some rule or group does.
    Writing(u64, bool),
    /// Data paths may use old flows until then.
    Quiescing(Instant),
}

impl Core {
    /// Holds a message that names hidden groups until these have stepped aside. Returns false if it can be handled now.
    pub(in crate::core) fn holds_until_aside(
        &mut self,
        incoming: Incoming<'_>,
        named: &[u32],
        now: Instant,
    ) -> bool {
        if self.aside.is_some() {
            return true; // another part of the same message
        }
        let hidden = &self.server.hidden;
        let numbers = named.iter().copied().filter(|id| hidden.contain(*id));
        let numbers: BTreeSet<u32> = numbers.collect();
        if numbers.is_empty() || self.commit.is_some() {
            return false;
        }
        self.held
            .put((incoming.origin.controller, incoming.sent.into()));
        self.switches.verdicts.current_batch();
        self.aside = Some(Aside {
            numbers,
            named: named.iter().copied().collect(),
            stage: Stage::Waiting,
        });
        self.advance_aside(now);
        true
    }

    /// Continues what [`Self::holds_until_aside`] has begun.
    pub(in crate::core) fn advance_aside(&mut self, now: Instant) {
        let Some(aside) = &self.aside else { return };
        let switches = &self.switches;
        let next = match aside.stage {
            Stage::Waiting if switches.verdicts.in_flight() == 0 && !switches.counts_copies() => {
                let (numbers, named) = (aside.numbers.clone(), aside.named.clone());
                self.write_aside(&numbers, &named, now)
            }
            Stage::Writing(batch, is_used)
                if switches.verdicts.is_settled(batch) && switches.all_confirmed(Bridge::Virt) =>
            {
                let grace = if is_used { GRACE } else { Duration::ZERO };
                Stage::Quiescing(now + grace)
            }
            Stage::Quiescing(until) if until <= now => return self.end_aside(),
            _ => return,
        };
        if let Some(aside) = &mut self.aside {
            aside.stage = next;
        }
        self.advance_aside(now);
    }

    /// Gives the hidden groups other numbers, and writes again what names them.
    fn write_aside(
        &mut self,
        numbers: &BTreeSet<u32>,
        named: &BTreeSet<u32>,
        now: Instant,
    ) -> Stage {
        let before = self.server.hidden.clone();
        let truth = &self.truth;
        for number in numbers {
            let is_taken = |id| named.contains(&id) || truth.names_group(id);
            if let Some(instead) = self.server.hidden.step_aside(*number, is_taken) {
                let (number, instead) = (format!("{number:#x}"), format!("{instead:#x}"));
                info!(target: "core", number, instead, "a hidden group gets another number: a controller names its own");
            }
        }
        self.server.unsettled = true;
        self.send_moved(&before);
        let is_used = self.rewrite_rules(&before, now) | self.rewrite_groups(&before, now);
        Stage::Writing(self.switches.verdicts.current_batch(), is_used)
    }

    /// Sends the hidden groups with new numbers, and those that name them.
    fn send_moved(&mut self, before: &HiddenGroups) {
        let server = &self.server;
        for switch in self.switches.up().iter() {
            let floods = flood_groups(&server.hidden, server.flood.of_senders(), switch);
            for group in floods {
                if !before.contain(group.group_id) {
                    let command = GroupModCommand::AddOrModify;
                    self.switches
                        .send_hidden(switch, GroupMod { command, ..group });
                }
            }
        }
        let has_moved = |hidden| before.number_of(hidden) != server.hidden.number_of(hidden);
        let mut changed: Vec<(Hidden, u32)> = server.hidden.iter().map(|(n, h)| (h, n)).collect();
        changed.retain(|(hidden, number)| match hidden {
            Hidden::Both((port, _)) if has_moved(Hidden::Port(*port)) => true,
            _ => !before.contain(*number),
        });
        // A group of both names that of the port.
        changed.sort_unstable();
        for (hidden, number) in changed {
            self.switches.send_watching(server, hidden, number);
        }
    }

    fn rewrite_rules(&mut self, before: &HiddenGroups, now: Instant) -> bool {
        let (hidden, executors) = (&self.server.hidden, &self.server.executors);
        let mut is_used = false;
        for rule in self.truth.tables.iter().filter(|rule| rule.facts.floods) {
            if physical_instructions(rule, before) != physical_instructions(rule, hidden) {
                is_used = true;
                let targets = executors.of_rule(rule);
                let copy = copy_of(rule, targets.len(), hidden, now);
                self.switches.send_own_flow(copy, targets, now);
            }
        }
        is_used
    }

    fn rewrite_groups(&mut self, before: &HiddenGroups, now: Instant) -> bool {
        let executors = self.server.executors.all().intersection(self.switches.up());
        let mut is_used = false;
        for group in self.truth.groups.values() {
            let there = physical_group(group, before);
            let wanted = physical_group(group, &self.server.hidden);
            if there.buckets == wanted.buckets || executors.is_empty() {
                continue;
            }
            is_used = true;
            let counters = MultipartRequest::Group { group: group.id };
            let purpose = Purpose::FoldCounters(None);
            self.switches
                .read(purpose, Bridge::Virt, executors, counters);
            let command = GroupModCommand::Modify;
            for message in messages_of_group(GroupMod { command, ..wanted }) {
                let message = Message::GroupMod(message);
                self.switches.send_own(&message, executors, now);
            }
        }
        if is_used {
            self.switches.require_properties(executors);
        }
        is_used
    }

    /// Leaves the numbers to controllers.
    fn end_aside(&mut self) {
        let numbers = self.aside.take().map(|aside| aside.numbers);
        for number in numbers.into_iter().flatten() {
            self.server.hidden.has_stepped_aside(number);
            for switch in self.switches.up().iter() {
                self.switches.send_hidden(switch, group_removal(number));
            }
        }
        self.hold_behind_operation();
    }

    pub(in crate::core) fn aside_deadline(&self) -> Option<Instant> {
        match self.aside.as_ref()?.stage {
            Stage::Quiescing(until) => Some(until),
            _ => None,
        }
    }
}

/// Returns the groups that a group-mod names.
pub(in crate::core) fn named_by_group(message: &GroupMod) -> Vec<u32> {
    let mut named = vec![message.group_id];
    groups_of_buckets(&message.buckets, &mut |id| named.push(id));
    named
}

pub(in crate::core) fn named_by_rule(message: &FlowMod) -> Vec<u32> {
    let mut named = Vec::new();
    facts::groups(&message.instructions, |id| named.push(id));
    named
}

pub(in crate::core) fn named_by_packet(message: &PacketOut) -> Vec<u32> {
    let mut named = Vec::new();
    groups_of_actions(message.actions.as_actions(), &mut |id| named.push(id));
    named
}
