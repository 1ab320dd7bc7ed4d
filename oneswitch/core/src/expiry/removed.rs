//! One flow_removed per virtual rule, with the sum of what all its copies counted.

use crate::api::{Bridge, Destination, SwitchIndex};
use crate::controllers::controller::Asynchronous;
use crate::layout::translate::removal_of;
use crate::model::facts::Facts;
use crate::model::rule::{copy_flags, Counters, Rule, RuleKey};
use crate::model::tables::Change;
use crate::model::truth::Request;
use crate::mutants::{mutant, Fault};
use crate::switch_set::SwitchSet;
use crate::wire::wire;
use crate::Core;
use foldhash::HashMap;
use openflow13::{FlowMod, FlowRemoved, Match, Message};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEND_FLOW_REM: u16 = FlowMod::SEND_FLOW_REM;

/// How long copies may take to report. One that was not there, or was removed by somebody else, never does.
const PATIENCE: Duration = Duration::from_secs(5);

/// By how much a switch may count a rule older than we do: it counts in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(10);

/// A removed rule whose copies have not all reported.
#[derive(Clone, Debug)]
struct Pending {
    rule: Arc<Rule>,
    waiting: SwitchSet,
    reported: SwitchSet,
    /// Not told before this batch is settled: what removed it, or wrote it, may be refused.
    after: u64,
    since: Instant,
    counters: Counters,
    /// As the switches spell the match; `None` until the first report.
    matching: Option<Match>,
    reason: Option<u8>,
    /// The reason that controllers mask it by, where that is another one.
    masked_as: Option<u8>,
}

#[derive(Debug, Default)]
pub struct Removals {
    pending: HashMap<RuleKey, Vec<Pending>>,
    /// When to look for copies that do not report.
    next: Option<Instant>,
    /// All copies of some rule have reported, and its batch is not settled.
    held: bool,
}

impl Removals {
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.pending.values_mut().flatten()
    }

    /// Takes out what `done` says, and what nobody is waited for.
    fn take(&mut self, done: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let mut taken = Vec::new();
        for list in self.pending.values_mut() {
            let (over, waiting) = std::mem::take(list).into_iter().partition(&done);
            *list = waiting;
            taken.extend::<Vec<_>>(over);
        }
        self.pending.retain(|_, list| !list.is_empty());
        if self.pending.is_empty() {
            self.next = None;
        }
        taken
    }
}

impl Core {
    /// A message removed these rules: their copies will report, if they carry SEND_FLOW_REM.
    pub(crate) fn expect_removals(&mut self, changes: &[Change], now: Instant) {
        for change in changes {
            let (Some(rule), None) = (&change.before, &change.after) else {
                continue;
            };
            self.expect_removal(Arc::clone(rule), now);
        }
    }

    /// These rules went with their meter. An OpenFlow 1.3 controller has no reason for that: it is told of a deletion, if its mask has
    /// OpenFlow 1.4's bit.
    pub(crate) fn expect_removals_by_meter(&mut self, changes: &[Change], now: Instant) {
        const METER_DELETE: u8 = 4;
        self.expect_removals(changes, now);
        for change in changes {
            let Some(rule) = &change.before else { continue };
            let list = self.removals.pending.get_mut(&rule.key);
            if let Some(latest) = list.and_then(|l| l.last_mut()) {
                latest.masked_as = Some(METER_DELETE);
            }
        }
    }

    pub(crate) fn expect_removal(&mut self, rule: Arc<Rule>, now: Instant) {
        // Those that controllers are not told of too, or they would be taken for reports of a later rule.
        if rule.copies_report() {
            let after = self.verdicts.next_batch();
            let pending = self.pending(rule, after, now);
            self.await_pending(pending, now);
        }
    }

    /// `rule`, of which all copies have to report.
    fn pending(&self, rule: Arc<Rule>, after: u64, now: Instant) -> Pending {
        Pending {
            waiting: self.executors.of_rule(&rule).intersection(self.up()),
            reported: SwitchSet::EMPTY,
            after,
            since: now,
            counters: rule.base,
            matching: None,
            reason: None,
            masked_as: None,
            rule,
        }
    }

    fn await_pending(&mut self, pending: Pending, now: Instant) {
        if pending.waiting.is_empty() && self.verdicts.is_settled(pending.after) {
            return self.tell_removed(&pending, now);
        }
        self.removals.held |= pending.waiting.is_empty();
        self.removals.next.get_or_insert(now + PATIENCE);
        self.removals
            .pending
            .entry(pending.rule.key.clone())
            .or_default()
            .push(pending);
    }

    /// A copy is gone at `switch`: expired there, or removed because we said so.
    pub(crate) fn flow_removed(
        &mut self,
        switch: SwitchIndex,
        message: &FlowRemoved,
        now: Instant,
    ) {
        let Ok(matching) = message.matching.canonical() else {
            return;
        };
        let key = RuleKey {
            table: message.table_id,
            priority: message.priority,
            matching,
        };
        if self.report_removal(switch, &key, message, now) {
            return;
        }
        if matches!(
            message.reason,
            FlowRemoved::IDLE_TIMEOUT | FlowRemoved::HARD_TIMEOUT
        ) {
            self.copy_expired(switch, &key, message, now);
        }
    }

    /// Counts a report that was waited for; false if none was.
    fn report_removal(
        &mut self,
        switch: SwitchIndex,
        key: &RuleKey,
        message: &FlowRemoved,
        now: Instant,
    ) -> bool {
        let Some(list) = self.removals.pending.get_mut(key) else {
            return false;
        };
        // Where the rule was written, removed and written again in one breath, one of them may have been refused.
        let waits = |p: &Pending| p.waiting.contains(switch);
        let is_it = |p: &Pending| waits(p) && p.rule.cookie == message.cookie;
        let Some(index) = list.iter().position(is_it).or(list.iter().position(waits)) else {
            return false;
        };
        list[index].report(switch, message);
        if mutant(Fault::FirstRemovedWins) {
            list[index].waiting = SwitchSet::EMPTY;
        }
        if mutant(Fault::RemovedTwice) && !list[index].waiting.is_empty() {
            let early = list[index].clone();
            self.tell_removed(&early, now);
            return true;
        }
        if !list[index].waiting.is_empty() {
            return true;
        }
        if self.verdicts.is_settled(list[index].after) {
            let done = list.remove(index);
            if list.is_empty() {
                self.removals.pending.remove(key);
            }
            self.tell_removed(&done, now);
        } else {
            self.removals.held = true;
        }
        true
    }

    /// A timer fired at one copy: the virtual rule is over, whatever the other copies' timers say.
    fn copy_expired(
        &mut self,
        switch: SwitchIndex,
        key: &RuleKey,
        message: &FlowRemoved,
        now: Instant,
    ) {
        let Some(rule) = self.truth.tables.get(key).cloned() else {
            return;
        };
        let after = self.verdict_on(&rule);
        let age = Duration::new(message.duration_sec.into(), message.duration_nsec);
        if rule.age(now) < PATIENCE && age > rule.age(now) + ROUNDING {
            // The controller has just written the rule anew; this is the end of the one before, which was older than that.
            let before = Pending {
                waiting: SwitchSet::of(switch),
                counters: Counters::default(),
                ..self.pending(rule, after, now)
            };
            return self.await_pending(before.reported(switch, message), now);
        }
        if self.flipped_away(&rule, switch) {
            // The port has moved on; its rule lives at the new home.
            let more = Counters {
                packets: message.packet_count,
                bytes: message.byte_count,
            };
            self.fold_into_rules([(key.clone(), (rule, more))].into_iter().collect());
            return;
        }
        let mut others = self.executors.of_rule(&rule);
        others.remove(switch);
        self.remove_rule(&rule, others, now);
        let pending = self.pending(rule, after, now).reported(switch, message);
        self.await_pending(pending, now);
    }

    /// The batch that tells whether a rule was accepted.
    fn verdict_on(&mut self, rule: &Rule) -> u64 {
        match self.verdicts.may_be_in_flight(rule.created) {
            true => self.verdicts.current_batch(),
            false => 0,
        }
    }

    /// A timeout that no switch tells of: the idle one of a rule with several copies, or one that passed while nobody listened.
    /// `gone`: where its copy is not any more.
    pub(crate) fn expire(&mut self, key: &RuleKey, reason: u8, gone: SwitchSet, now: Instant) {
        let Some(rule) = self.truth.tables.get(key).cloned() else {
            return;
        };
        let after = self.verdict_on(&rule);
        let copies = self.executors.of_rule(&rule).minus(gone);
        self.remove_rule(&rule, copies, now);
        let pending = Pending {
            waiting: copies.intersection(self.up()),
            reason: Some(reason),
            ..self.pending(rule, after, now)
        };
        self.await_pending(pending, now);
    }

    /// Removes an expired rule from the truth and its copies from `targets`. An operation, so that it keeps its place among the messages
    /// in flight when one of them is refused.
    fn remove_rule(&mut self, rule: &Rule, targets: SwitchSet, now: Instant) {
        let targets = targets.intersection(self.up());
        let removal = removal_of(rule);
        let frame = wire(0, &Message::FlowMod(removal.clone()));
        let request = Request::Flow {
            message: Box::new(removal),
            matching: rule.key.matching.clone(),
            facts: Facts::default(),
        };
        let changes = self.truth.apply(&request, now);
        let xid = self
            .verdicts
            .push(None, None, request, changes, targets, now);
        for switch in targets.iter() {
            self.outbox
                .put_with_xid(Destination::Switch(switch, Bridge::Virt), &frame, xid);
        }
    }

    /// A switch is gone and will not report any more.
    pub(crate) fn forget_removals(&mut self, switch: SwitchIndex, now: Instant) {
        for list in self.removals.pending.values_mut() {
            list.iter_mut().for_each(|p| p.waiting.remove(switch));
        }
        self.removals.held = true;
        self.tell_settled_removals(now);
    }

    /// Tells of rules whose copies have reported before their removal was settled.
    pub(crate) fn tell_settled_removals(&mut self, now: Instant) {
        if !self.removals.held {
            return;
        }
        let verdicts = &self.verdicts;
        let done = |p: &Pending| p.waiting.is_empty() && verdicts.is_settled(p.after);
        let settled = self.removals.take(done);
        let mut left = self.removals.pending.values().flatten();
        self.removals.held = left.any(|p| p.waiting.is_empty());
        for pending in settled {
            self.tell_removed(&pending, now);
        }
    }

    /// Stops waiting for copies that have not reported for long. None is told of before the verdict on what removed or wrote it.
    pub(crate) fn end_overdue_removals(&mut self, now: Instant) {
        if self.removals.next.is_none_or(|next| next > now) {
            return;
        }
        let verdicts = &self.verdicts;
        let is_due = |p: &&mut Pending| p.since + PATIENCE <= now;
        for pending in self.removals.all_mut().filter(is_due) {
            if verdicts.is_settled(pending.after) {
                pending.waiting = SwitchSet::EMPTY;
            } else {
                // A switch that does not answer at all may report as late.
                pending.since = now;
            }
        }
        self.removals.held = true;
        self.tell_settled_removals(now);
        let left = self.removals.pending.values().flatten();
        self.removals.next = left.map(|p| p.since + PATIENCE).min();
    }

    /// Messages were refused: the rules `not_removed` were not removed after all, or never made; those `removed_too` were. What copies
    /// have reported of the former under the same key, was about the latter.
    pub(crate) fn correct_removals(
        &mut self,
        not_removed: &[Arc<Rule>],
        removed_too: Vec<Arc<Rule>>,
        now: Instant,
    ) {
        let mut cancelled = self.cancel_removals(not_removed);
        for rule in removed_too {
            if copy_flags(rule.flags, rule.idle_timeout, rule.hard_timeout) & SEND_FLOW_REM == 0 {
                continue;
            }
            let after = self.verdicts.current_batch();
            let mut pending = self.pending(rule, after, now);
            let same = |p: &Pending| p.rule.key == pending.rule.key;
            if let Some(index) = cancelled.iter().position(same) {
                pending.take_over(cancelled.remove(index));
            }
            self.await_pending(pending, now);
        }
    }

    fn cancel_removals(&mut self, rules: &[Arc<Rule>]) -> Vec<Pending> {
        let mut cancelled = Vec::new();
        for rule in rules {
            let Some(list) = self.removals.pending.get_mut(&rule.key) else {
                continue;
            };
            let is_it = |p: &Pending| p.rule.identity() == rule.identity();
            if let Some(index) = list.iter().rposition(is_it) {
                cancelled.push(list.remove(index));
            }
        }
        if !rules.is_empty() {
            self.removals.take(|_| false);
        }
        cancelled
    }

    fn tell_removed(&mut self, pending: &Pending, now: Instant) {
        let rule = &pending.rule;
        if rule.flags & SEND_FLOW_REM == 0 {
            return;
        }
        let age = rule.age(now);
        let reported = pending.reason.filter(|_| !mutant(Fault::RemovedReason));
        let reason = reported.unwrap_or(FlowRemoved::DELETE);
        let message = Message::FlowRemoved(FlowRemoved {
            cookie: rule.cookie,
            priority: rule.key.priority,
            reason,
            table_id: rule.key.table,
            duration_sec: age.as_secs() as u32,
            duration_nsec: age.subsec_nanos(),
            idle_timeout: rule.idle_timeout,
            hard_timeout: rule.hard_timeout,
            packet_count: pending.counters.packets,
            byte_count: pending.counters.bytes,
            matching: pending
                .matching
                .clone()
                .unwrap_or_else(|| rule.matching.clone()),
        });
        let frame = wire(0, &message);
        for (id, controller) in &self.controllers {
            let masked_as = pending.masked_as.unwrap_or(reason);
            if controller.wants(Asynchronous::FlowRemoved, masked_as) {
                self.outbox.put(Destination::Controller(*id), &frame);
            }
        }
    }
}

impl Pending {
    fn report(&mut self, switch: SwitchIndex, message: &FlowRemoved) {
        self.waiting.remove(switch);
        self.reported.insert(switch);
        self.counters.add(message.packet_count, message.byte_count);
        self.reason.get_or_insert(message.reason);
        self.matching
            .get_or_insert_with(|| message.matching.clone());
    }

    /// What was reported of `other` was about this one.
    fn take_over(&mut self, other: Self) {
        let before = other.rule.base;
        self.counters.add(
            other.counters.packets.wrapping_sub(before.packets),
            other.counters.bytes.wrapping_sub(before.bytes),
        );
        self.waiting = self.waiting.minus(other.reported);
        self.reported = other.reported;
        (self.matching, self.reason) = (other.matching, other.reason);
    }

    fn reported(mut self, switch: SwitchIndex, message: &FlowRemoved) -> Self {
        self.report(switch, message);
        self
    }
}
