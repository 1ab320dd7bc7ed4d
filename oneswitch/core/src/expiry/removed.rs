//! One flow_removed per virtual rule, with the summed counters of all its copies.

use crate::api::SwitchIndex;
use crate::expiry::early::{Early, EarlyReports};
use crate::layout::translate::removal_of;
use crate::model::facts::Facts;
use crate::model::rule::{copy_flags, Counters, Rule, RuleKey};
use crate::model::tables::Change;
use crate::model::truth::Request;
use crate::switch_set::SwitchSet;
use crate::switches::Below;
use crate::wire::wire;
use foldhash::HashMap;
use openflow13::{FlowMod, FlowRemoved, Match, Message};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEND_FLOW_REM: u16 = FlowMod::SEND_FLOW_REM;

/// How long copies may take to report. A copy that was missing, or that others removed, never reports.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much older a switch may consider a rule, because it counts in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(10);

/// A removed rule whose copies have not all reported.
#[derive(Clone, Debug)]
struct Pending {
    rule: Arc<Rule>,
    waiting: SwitchSet,
    reported: SwitchSet,
    /// Not reported before this batch is settled, because the message that removed or wrote it may be refused.
    after: u64,
    since: Instant,
    counters: Counters,
    /// The match as the switches spell it; `None` until the first report.
    matching: Option<Match>,
    reason: Option<u8>,
    /// The timeouts that a copy reported.
    timeouts: (u16, u16),
    /// The reason that controllers' masks use, if it differs.
    masked_as: Option<u8>,
}

/// A FLOW_REMOVED for the controllers that do not mask its reason.
#[derive(Debug)]
pub struct Told {
    pub frame: Vec<u8>,
    pub masked_as: u8,
}

#[derive(Debug, Default)]
pub struct Removals {
    /// Notifications for controllers.
    pub told: Vec<Told>,
    pending: HashMap<RuleKey, Vec<Pending>>,
    early: EarlyReports,
    /// When to check for copies that do not report.
    next: Option<Instant>,
    /// All copies of some rule have reported, but its batch is not settled.
    held: bool,
}

impl Removals {
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.pending.values_mut().flatten()
    }

    /// Takes out the rules selected by `done`, and those without awaited copies.
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

impl Removals {
    /// Expects reports of the copies of removed rules, if they carry SEND_FLOW_REM.
    pub fn expect_removals(&mut self, below: &mut Below<'_>, changes: &[Change]) {
        for change in changes {
            let (Some(rule), None) = (&change.before, &change.after) else {
                continue;
            };
            self.expect_removal(below, Arc::clone(rule));
        }
    }

    /// Expects removals of rules with their meter. OpenFlow 1.3 has no reason for that: controllers get a deletion, if their mask has
    /// OpenFlow 1.4's bit.
    pub fn expect_removals_by_meter(&mut self, below: &mut Below<'_>, changes: &[Change]) {
        const METER_DELETE: u8 = 4;
        self.expect_removals(below, changes);
        for change in changes {
            let Some(rule) = &change.before else { continue };
            let list = self.pending.get_mut(&rule.key);
            if let Some(latest) = list.and_then(|l| l.last_mut()) {
                latest.masked_as = Some(METER_DELETE);
            }
        }
    }

    pub fn expect_removal(&mut self, below: &mut Below<'_>, rule: Arc<Rule>) {
        // Including unreported rules, or their reports would count for a later rule.
        if rule.copies_report() {
            let after = below.switches.verdicts.next_batch();
            let pending = self.pending(below, rule, after);
            self.await_pending(below, pending);
        }
    }

    /// Creates the record of `rule`, all of whose copies must report.
    fn pending(&self, below: &Below<'_>, rule: Arc<Rule>, after: u64) -> Pending {
        Pending {
            waiting: below
                .server
                .executors
                .of_rule(&rule)
                .intersection(below.switches.up()),
            reported: SwitchSet::EMPTY,
            after,
            since: below.now,
            counters: rule.base,
            matching: None,
            reason: None,
            timeouts: (rule.idle_timeout, rule.hard_timeout),
            masked_as: None,
            rule,
        }
    }

    fn await_pending(&mut self, below: &mut Below<'_>, pending: Pending) {
        if pending.waiting.is_empty() && below.switches.verdicts.is_settled(pending.after) {
            return self.tell_removed(below, &pending);
        }
        self.held |= pending.waiting.is_empty();
        self.next.get_or_insert(below.now + PATIENCE);
        self.pending
            .entry(pending.rule.key.clone())
            .or_default()
            .push(pending);
    }

    /// Handles a removed copy at `switch`: expired there, or removed by us.
    pub fn flow_removed(
        &mut self,
        below: &mut Below<'_>,
        switch: SwitchIndex,
        message: &FlowRemoved,
    ) {
        let Ok(matching) = message.matching.canonical() else {
            return;
        };
        let key = RuleKey {
            table: message.table_id,
            priority: message.priority,
            matching,
        };
        let has_expired = matches!(
            message.reason,
            FlowRemoved::IDLE_TIMEOUT | FlowRemoved::HARD_TIMEOUT
        );
        let is_certain = has_expired || !below.switches.verdicts.changes_in_flight();
        if self.report_removal(below, switch, &key, message, is_certain) {
            return;
        }
        // Whether it was learned, and ended before its switch could be asked.
        let was_learned =
            below.switches.is_watched(switch) && below.truth.tables.get(&key).is_none();
        let verdicts = &mut below.switches.verdicts;
        if has_expired && !was_learned {
            self.copy_expired(below, switch, &key, message);
        } else if verdicts.changes_in_flight() {
            let report = Early {
                switch,
                message: message.clone(),
                was_learned,
                until: verdicts.current_batch(),
            };
            self.early.keep(key, report);
        } else if was_learned {
            self.tell_as_told(message);
        }
    }

    /// Counts an awaited report; returns false if none was awaited. `is_certain`: it may be that of a rule with another cookie.
    fn report_removal(
        &mut self,
        below: &mut Below<'_>,
        switch: SwitchIndex,
        key: &RuleKey,
        message: &FlowRemoved,
        is_certain: bool,
    ) -> bool {
        let Some(list) = self.pending.get_mut(key) else {
            return false;
        };
        let waits = |p: &Pending| p.waiting.contains(switch);
        let is_it = |p: &Pending| waits(p) && p.rule.cookie == message.cookie;
        let other = || list.iter().position(|p| waits(p) && is_certain);
        let Some(index) = list.iter().position(is_it).or_else(other) else {
            return false;
        };
        list[index].report(switch, message);
        if !list[index].waiting.is_empty() {
            return true;
        }
        if below.switches.verdicts.is_settled(list[index].after) {
            let done = list.remove(index);
            if list.is_empty() {
                self.pending.remove(key);
            }
            self.tell_removed(below, &done);
        } else {
            self.held = true;
        }
        true
    }

    /// Ends the virtual rule after a timer fired at one copy, whatever the other copies' timers say.
    fn copy_expired(
        &mut self,
        below: &mut Below<'_>,
        switch: SwitchIndex,
        key: &RuleKey,
        message: &FlowRemoved,
    ) {
        let Some(rule) = below.truth.tables.get(key).cloned() else {
            return;
        };
        let after = self.verdict_on(below, &rule);
        let age = Duration::new(message.duration_sec.into(), message.duration_nsec);
        if rule.age(below.now) < PATIENCE && age > rule.age(below.now) + ROUNDING {
            // The controller has just rewritten the rule; this is the end of its older predecessor.
            let before = Pending {
                waiting: SwitchSet::of(switch),
                counters: Counters::default(),
                ..self.pending(below, rule, after)
            };
            return self.await_pending(below, before.reported(switch, message));
        }
        if below.server.flipped_away(&rule, switch) {
            // The port has moved on; its rule lives at the new home.
            let more = Counters {
                packets: message.packet_count,
                bytes: message.byte_count,
            };
            below.switches.fold_into_rules(
                below.truth,
                below.journal,
                [(key.clone(), (rule, more))].into_iter().collect(),
            );
            return;
        }
        let mut others = below.server.executors.of_rule(&rule);
        others.remove(switch);
        self.remove_rule(below, &rule, message.reason, others);
        let pending = self.pending(below, rule, after).reported(switch, message);
        self.await_pending(below, pending);
    }

    fn tell_as_told(&mut self, message: &FlowRemoved) {
        let frame = wire(0, &Message::FlowRemoved(message.clone()));
        let masked_as = message.reason;
        self.told.push(Told { frame, masked_as });
    }

    /// Ends a virtual rule that `switch` has removed by itself. If its copy reports, the counters follow.
    pub fn removed_by_switch(
        &mut self,
        below: &mut Below<'_>,
        switch: SwitchIndex,
        key: &RuleKey,
        reason: u8,
    ) {
        let Some(rule) = below.truth.tables.get(key).cloned() else {
            return;
        };
        if below.server.flipped_away(&rule, switch) {
            return;
        }
        let after = self.verdict_on(below, &rule);
        let reports = rule.copies_report();
        let mut others = below.server.executors.of_rule(&rule);
        others.remove(switch);
        self.remove_rule(below, &rule, reason, others);
        let mut pending = self.pending(below, rule, after);
        pending.reason = Some(reason);
        if !reports {
            pending.waiting = SwitchSet::EMPTY;
        }
        self.await_pending(below, pending);
    }

    /// Returns the batch with the verdict on a rule.
    fn verdict_on(&mut self, below: &mut Below<'_>, rule: &Rule) -> u64 {
        match below.switches.verdicts.may_be_in_flight(rule.created) {
            true => below.switches.verdicts.current_batch(),
            false => 0,
        }
    }

    /// Expires a rule by a timeout that no switch reports: the idle timeout of a rule with several copies, or one that passed unobserved.
    /// `gone`: where its copy no longer exists.
    pub fn expire(&mut self, below: &mut Below<'_>, key: &RuleKey, reason: u8, gone: SwitchSet) {
        let Some(rule) = below.truth.tables.get(key).cloned() else {
            return;
        };
        let after = self.verdict_on(below, &rule);
        let copies = below.server.executors.of_rule(&rule).minus(gone);
        self.remove_rule(below, &rule, reason, copies);
        let pending = Pending {
            waiting: copies.intersection(below.switches.up()),
            reason: Some(reason),
            ..self.pending(below, rule, after)
        };
        self.await_pending(below, pending);
    }

    /// Removes an expired rule from the virtual tables and its copies from `targets`. This is an operation, to keep its place among the
    /// messages in flight when one of them is refused.
    fn remove_rule(&mut self, below: &mut Below<'_>, rule: &Rule, reason: u8, targets: SwitchSet) {
        let targets = targets.intersection(below.switches.up());
        let removal = removal_of(rule);
        let frame = wire(0, &Message::FlowMod(removal.clone()));
        let request = Request::Flow {
            message: Box::new(removal),
            matching: rule.key.matching.clone(),
            facts: Facts::default(),
        };
        let changes = below.truth.apply(&request, below.now);
        let verdicts = &mut below.switches.verdicts;
        let xid = verdicts.push(None, None, request, changes, targets, below.now);
        verdicts.expires(reason);
        below.switches.send_operation(&frame, targets, xid);
    }

    /// Forgets a disconnected switch, which will not report any more.
    pub fn forget_removals(&mut self, below: &mut Below<'_>, switch: SwitchIndex) {
        for list in self.pending.values_mut() {
            list.iter_mut().for_each(|p| p.waiting.remove(switch));
        }
        self.held = true;
        self.tell_settled_removals(below);
    }

    /// Reports rules whose copies had reported before their removal was settled.
    pub fn tell_settled_removals(&mut self, below: &mut Below<'_>) {
        if !self.held {
            return;
        }
        let verdicts = &below.switches.verdicts;
        let done = |p: &Pending| p.waiting.is_empty() && verdicts.is_settled(p.after);
        let settled = self.take(done);
        let mut left = self.pending.values().flatten();
        self.held = left.any(|p| p.waiting.is_empty());
        for pending in settled {
            self.tell_removed(below, &pending);
        }
    }

    /// Stops waiting for overdue copies. Reports none before the verdict on the message that removed or wrote the rule.
    pub fn end_overdue_removals(&mut self, below: &mut Below<'_>) {
        if self.next.is_none_or(|next| next > below.now) {
            return;
        }
        let verdicts = &below.switches.verdicts;
        let is_due = |p: &&mut Pending| p.since + PATIENCE <= below.now;
        for pending in self.all_mut().filter(is_due) {
            if verdicts.is_settled(pending.after) {
                pending.waiting = SwitchSet::EMPTY;
            } else {
                // A switch that does not answer at all may report this late.
                pending.since = below.now;
            }
        }
        self.held = true;
        self.tell_settled_removals(below);
        let left = self.pending.values().flatten();
        self.next = left.map(|p| p.since + PATIENCE).min();
    }

    /// Corrects the records after refused messages: the rules `not_removed` were not removed, or never created; those in `removed_too`
    /// were. Reports of copies of the former under the same key concern the latter.
    pub fn correct_removals(
        &mut self,
        below: &mut Below<'_>,
        not_removed: &[Arc<Rule>],
        removed_too: Vec<Arc<Rule>>,
    ) {
        let mut cancelled = self.cancel_removals(not_removed);
        for rule in removed_too {
            if copy_flags(rule.flags, rule.idle_timeout, rule.hard_timeout) & SEND_FLOW_REM == 0 {
                continue;
            }
            let after = below.switches.verdicts.current_batch();
            let mut pending = self.pending(below, rule, after);
            let same = |p: &Pending| p.rule.key == pending.rule.key;
            if let Some(index) = cancelled.iter().position(same) {
                pending.take_over(cancelled.remove(index));
            }
            for early in self.early.take(&pending.rule) {
                if pending.waiting.contains(early.switch) {
                    pending.report(early.switch, &early.message);
                }
            }
            self.await_pending(below, pending);
        }
        for (key, early) in self.early.end(below.switches.verdicts.settled()) {
            let is_awaited = self.report_removal(below, early.switch, &key, &early.message, true);
            if early.was_learned && !is_awaited {
                self.tell_as_told(&early.message);
            }
        }
    }

    fn cancel_removals(&mut self, rules: &[Arc<Rule>]) -> Vec<Pending> {
        let mut cancelled = Vec::new();
        for rule in rules {
            let Some(list) = self.pending.get_mut(&rule.key) else {
                continue;
            };
            let is_it = |p: &Pending| p.rule.identity() == rule.identity();
            if let Some(index) = list.iter().rposition(is_it) {
                cancelled.push(list.remove(index));
            }
        }
        if !rules.is_empty() {
            self.take(|_| false);
        }
        cancelled
    }

    fn tell_removed(&mut self, below: &mut Below<'_>, pending: &Pending) {
        let rule = &pending.rule;
        if rule.flags & SEND_FLOW_REM == 0 {
            return;
        }
        let age = rule.age(below.now);
        let reason = pending.reason.unwrap_or(FlowRemoved::DELETE);
        let (idle_timeout, hard_timeout) = pending.timeouts;
        let message = Message::FlowRemoved(FlowRemoved {
            cookie: rule.cookie,
            priority: rule.key.priority,
            reason,
            table_id: rule.key.table,
            duration_sec: age.as_secs() as u32,
            duration_nsec: age.subsec_nanos(),
            idle_timeout,
            hard_timeout,
            packet_count: pending.counters.packets,
            byte_count: pending.counters.bytes,
            matching: pending
                .matching
                .clone()
                .unwrap_or_else(|| rule.matching.clone()),
        });
        let frame = wire(0, &message);
        let masked_as = pending.masked_as.unwrap_or(reason);
        self.told.push(Told { frame, masked_as });
    }
}

impl Pending {
    fn report(&mut self, switch: SwitchIndex, message: &FlowRemoved) {
        self.waiting.remove(switch);
        self.reported.insert(switch);
        self.counters.add(message.packet_count, message.byte_count);
        self.reason.get_or_insert(message.reason);
        let (idle, hard) = (message.idle_timeout, message.hard_timeout);
        self.timeouts = self.rule.timeouts_at(idle, hard);
        self.matching
            .get_or_insert_with(|| message.matching.clone());
    }

    /// Takes over the reports for `other`.
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
