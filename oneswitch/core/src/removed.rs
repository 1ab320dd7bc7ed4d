//! One flow_removed per virtual rule, with the sum of what all its copies counted.

use crate::api::{Destination, SwitchIndex};
use crate::controller::Asynchronous;
use crate::rule::{Counters, Rule, RuleKey};
use crate::switch_set::SwitchSet;
use crate::tables::Change;
use crate::translate::removal_of;
use crate::{wire, Core};
use openflow13::{FlowMod, FlowRemoved, Match, Message};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// A removed rule whose copies have not all reported.
#[derive(Debug)]
struct Pending {
    rule: Arc<Rule>,
    waiting: SwitchSet,
    counters: Counters,
    /// As the switches spell the match; `None` until the first report.
    matching: Option<Match>,
    reason: Option<u8>,
    /// Whether controllers are told in the end.
    tell: bool,
}

#[derive(Debug, Default)]
pub struct Removals {
    pending: HashMap<RuleKey, Vec<Pending>>,
}

impl Core {
    /// A message removed these rules: their copies will report, if they carry SEND_FLOW_REM.
    pub(crate) fn expect_removals(&mut self, changes: &[Change], now: Instant) {
        for change in changes {
            let (Some(rule), None) = (&change.before, &change.after) else {
                continue;
            };
            if rule.flags & FlowMod::SEND_FLOW_REM != 0 {
                let waiting = self.executors.of_rule(rule).intersection(self.up());
                self.await_copies(Arc::clone(rule), waiting, rule.base, None, None, now);
            }
        }
    }

    fn await_copies(
        &mut self,
        rule: Arc<Rule>,
        waiting: SwitchSet,
        counters: Counters,
        reason: Option<u8>,
        matching: Option<Match>,
        now: Instant,
    ) {
        let tell = rule.flags & FlowMod::SEND_FLOW_REM != 0;
        let pending = Pending {
            waiting,
            counters,
            matching,
            reason,
            tell,
            rule,
        };
        if pending.waiting.is_empty() {
            self.tell_removed(&pending, now);
        } else {
            self.removals
                .pending
                .entry(pending.rule.key.clone())
                .or_default()
                .push(pending);
        }
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
        let Some(index) = list.iter().position(|p| p.waiting.contains(switch)) else {
            return false;
        };
        let pending = &mut list[index];
        pending.waiting.remove(switch);
        pending
            .counters
            .add(message.packet_count, message.byte_count);
        pending.reason.get_or_insert(message.reason);
        pending
            .matching
            .get_or_insert_with(|| message.matching.clone());
        if pending.waiting.is_empty() {
            let done = list.remove(index);
            if list.is_empty() {
                self.removals.pending.remove(key);
            }
            self.tell_removed(&done, now);
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
        if self.verdicts.may_be_in_flight(rule.created) {
            // The controller has just written the rule anew; this is the end of the one before.
            let counters = Counters {
                packets: message.packet_count,
                bytes: message.byte_count,
            };
            self.await_copies(
                rule,
                SwitchSet::EMPTY,
                counters,
                Some(message.reason),
                Some(message.matching.clone()),
                now,
            );
            return;
        }
        if self.flipped_away(&rule, switch) {
            // The port has moved on; its rule lives at the new home.
            self.truth
                .tables
                .fold(key, message.packet_count, message.byte_count);
            return;
        }
        self.truth.tables.remove(key);
        let mut others = self.executors.of_rule(&rule).intersection(self.up());
        others.remove(switch);
        self.send_own_flow(removal_of(&rule), others, now);
        let mut counters = rule.base;
        counters.add(message.packet_count, message.byte_count);
        self.await_copies(
            rule,
            others,
            counters,
            Some(message.reason),
            Some(message.matching.clone()),
            now,
        );
    }

    /// The idle timeout of a rule with several copies, which only we can see.
    pub(crate) fn expire_idle(&mut self, key: &RuleKey, now: Instant) {
        let Some(change) = self.truth.tables.remove(key) else {
            return;
        };
        let Some(rule) = change.before else { return };
        let copies = self.executors.of_rule(&rule).intersection(self.up());
        self.send_own_flow(removal_of(&rule), copies, now);
        let base = rule.base;
        self.await_copies(
            rule,
            copies,
            base,
            Some(FlowRemoved::IDLE_TIMEOUT),
            None,
            now,
        );
    }

    /// A switch is gone and will not report any more.
    pub(crate) fn forget_removals(&mut self, switch: SwitchIndex, now: Instant) {
        let mut done = Vec::new();
        for list in self.removals.pending.values_mut() {
            list.iter_mut().for_each(|p| p.waiting.remove(switch));
            let (finished, waiting) = std::mem::take(list)
                .into_iter()
                .partition(|p| p.waiting.is_empty());
            *list = waiting;
            done.extend::<Vec<_>>(finished);
        }
        self.removals.pending.retain(|_, list| !list.is_empty());
        for pending in done {
            self.tell_removed(&pending, now);
        }
    }

    fn tell_removed(&mut self, pending: &Pending, now: Instant) {
        if !pending.tell {
            return;
        }
        let rule = &pending.rule;
        let age = rule.age(now);
        let reason = pending.reason.unwrap_or(FlowRemoved::DELETE);
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
            if controller.wants(Asynchronous::FlowRemoved, reason) {
                self.outbox.put(Destination::Controller(*id), &frame);
            }
        }
    }
}
