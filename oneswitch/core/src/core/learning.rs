//! Rules that a switch makes or changes by itself become virtual rules.
//!
//! All ports execute at that switch as long as some rule, group or packet-out makes it do so (moves/gather.rs), and it knows best which rules
//! there are. The virtual tables follow it, so that such rules survive restarts and moves as others do.

use crate::api::SwitchIndex;
use crate::core::Core;
use crate::layout::messages::key_of;
use crate::layout::spelling::{same_instructions, spelled_instructions};
use crate::layout::translate::{copy_of, instructions_with_floods};
use crate::model::facts::Facts;
use crate::model::hidden::HiddenGroups;
use crate::model::rule::{Rule, RuleKey};
use crate::model::truth::Request;
use crate::switch_set::SwitchSet;
use crate::switches::learning::Later;
use foldhash::HashSet;
use openflow13::flow_watch::{self, FlowUpdate, Update};
use openflow13::openflow10::without_inconsistent;
use openflow13::{Experimenter, FlowMod, FlowStats, Instructions};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long a switch can learn because of a rule that is gone: its cached flows learn as long as they are counted.
const REST: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct Learning {
    /// The last time at which something learned.
    used: Option<Instant>,
    /// Switches to compare, because messages in flight changed what they learned.
    unsure: SwitchSet,
    /// Whether switches were made to tell what they had not told, after its last use.
    is_told: bool,
}

impl Learning {
    fn use_at(&mut self, now: Instant) {
        (self.used, self.is_told) = (Some(now), false);
    }
}

impl Core {
    /// Lets the executors tell of the rules that they change, before a message that makes them do so.
    pub(in crate::core) fn begin_learning(&mut self, facts: &Facts, now: Instant) {
        if facts.learns() {
            self.learning.use_at(now);
            self.switches.watch_rules(self.server.executors.all());
        }
    }

    /// Does the same for a switch that has connected, if rules that make it do so, or that it made, exist.
    pub(in crate::core) fn resume_learning(&mut self, switch: SwitchIndex, now: Instant) {
        let is_executor = self.server.executors.all().contains(switch);
        if is_executor && (self.truth.learns() || self.truth.tables.learned() > 0) {
            self.learning.used.get_or_insert(now);
            self.switches.watch_new(switch);
        }
    }

    /// Follows what a switch tells of its rules. Returns false if it is not about that.
    pub(in crate::core) fn rules_changed(
        &mut self,
        switch: SwitchIndex,
        reply: &Experimenter,
        now: Instant,
    ) -> bool {
        let updates = match flow_watch::updates(reply) {
            None => return false,
            Some(Ok(updates)) => updates,
            Some(Err(refusal)) => {
                warn!(target: "southbound", switch = %self.switches.list[switch].name, detail = %refusal, "cannot read what it tells of its rules");
                self.learning.unsure.insert(switch);
                return true;
            }
        };
        for update in updates {
            match update {
                Update::Own(xid) => self.switches.verdicts.executed(xid, switch),
                Update::Rule(rule) if self.switches.is_watched(switch) => {
                    self.rule_changed(switch, rule, now)
                }
                Update::Rule(_) => {}
            }
        }
        true
    }

    fn rule_changed(&mut self, switch: SwitchIndex, update: FlowUpdate, now: Instant) {
        let Ok(matching) = update.matching.canonical() else {
            self.learning.unsure.insert(switch);
            return;
        };
        let key = RuleKey {
            table: update.table_id,
            priority: update.priority,
            matching,
        };
        match update.removed {
            None => self.switches.read_rule(switch, key, update),
            // It is the predecessor of the one that the virtual tables have.
            Some(_) if self.switches.verdicts.will_write(switch, &key) => {}
            Some(reason) => self.with_expiry(now, |expiry, below| {
                expiry
                    .removals
                    .removed_by_switch(below, switch, &key, reason);
            }),
        }
    }

    /// Enters rules that a switch has written, as far as they are still there.
    pub(in crate::core) fn learned_rules_read(
        &mut self,
        switch: SwitchIndex,
        keys: &HashSet<RuleKey>,
        since: u64,
        flows: impl Iterator<Item = FlowStats>,
        now: Instant,
    ) {
        if self.switches.is_watched(switch) {
            for flow in flows {
                if let Some(key) = key_of(&flow).filter(|key| keys.contains(key)) {
                    self.enter_learned(switch, &key, &flow, since, now);
                }
            }
        }
        self.switches.rules_were_read(switch);
    }

    /// Enters rules that a comparison has found.
    pub(in crate::core) fn enter_found(
        &mut self,
        switch: SwitchIndex,
        found: &[FlowStats],
        since: u64,
        now: Instant,
    ) {
        for flow in found {
            if let Some(key) = key_of(flow) {
                self.enter_learned(switch, &key, flow, since, now);
            }
        }
    }

    fn enter_learned(
        &mut self,
        switch: SwitchIndex,
        key: &RuleKey,
        found: &FlowStats,
        since: u64,
        now: Instant,
    ) {
        let (known, hidden) = (self.truth.tables.get(key), &self.server.hidden);
        let rule = match known {
            None => {
                let facts = Facts::of_instructions(&found.instructions);
                Rule::learned(key.clone(), found, facts, now)
            }
            Some(known) if is_complete(known, found, hidden) => return,
            Some(known) => rewritten(known, found, hidden, now),
        };
        match self.switches.verdicts.later(switch, since, &rule) {
            Later::Nothing => self.put_rule(rule, now),
            Later::Ends => {}
            Later::Changes => self.learning.unsure.insert(switch),
        }
    }

    /// Enters a rule that its switch has already. This is an operation, to keep its place among the messages in flight.
    fn put_rule(&mut self, rule: Rule, now: Instant) {
        if rule.facts.moves_in_port {
            self.enter_everywhere(now);
        }
        let request = Request::Rule(Arc::new(rule));
        let changes = self.truth.apply(&request, now);
        let verdicts = &mut self.switches.verdicts;
        verdicts.push(None, None, request, changes, SwitchSet::EMPTY, now);
    }

    /// Treats rules that their switch had learned, and gets back, as any others.
    pub(in crate::core) fn restored(&mut self, rules: Vec<Arc<Rule>>, now: Instant) {
        for rule in rules {
            let rule = Rule {
                learned: false,
                modified: now,
                ..Arc::unwrap_or_clone(rule)
            };
            self.put_rule(rule, now);
        }
    }

    /// Compares switches that have learned while messages changed their rules, once that can be done.
    pub(in crate::core) fn advance_learning(&mut self, now: Instant) {
        if self.learning.used.is_none() {
            return;
        }
        if self.truth.learns() {
            self.learning.use_at(now);
            self.switches.watch_rules(self.server.executors.all());
        }
        if !self.learning.unsure.is_empty() && !self.switches.verdicts.changes_in_flight() {
            for switch in std::mem::take(&mut self.learning.unsure).iter() {
                self.switches
                    .request_resync(switch, crate::api::Bridge::Virt, now);
            }
        }
    }

    pub(in crate::core) fn learning_deadline(&self) -> Option<Instant> {
        let is_over = |_: &Instant| !self.truth.learns();
        let is_quiet = |_: &Instant| {
            !self.switches.verdicts.changes_in_flight() && !self.switches.reads_rules()
        };
        let used = self.learning.used.filter(is_over).filter(is_quiet);
        used.map(|used| used + REST)
    }

    /// Ends learning, some time after its last use: what was learned is an ordinary rule from now on, whose copies report their end.
    pub(in crate::core) fn end_learning(&mut self, now: Instant) {
        if self.learning_deadline().is_none_or(|end| end > now) {
            return;
        }
        if !std::mem::replace(&mut self.learning.is_told, true) {
            return self.switches.make_tell(now);
        }
        let Some(used) = self.learning.used.take() else {
            return;
        };
        let learned = self.truth.tables.iter().filter(|rule| rule.learned);
        let learned: Vec<Rule> = learned.map(|rule| Rule::clone(rule)).collect();
        info!(target: "core", rules = learned.len(), "nothing learns any more; what was learned stays as it is");
        for rule in learned {
            let rule = Rule {
                learned: false,
                modified: rule.modified.max(used),
                ..rule
            };
            let is_silent = rule.flags & FlowMod::SEND_FLOW_REM == 0 && rule.copies_report();
            if is_silent {
                let copies = self.server.executors.of_rule(&rule);
                let copy = copy_of(&rule, copies.len(), &self.server.hidden, now);
                self.switches.send_own_flow(copy, copies, now);
            }
            self.put_rule(rule, now);
        }
        self.switches.stop_watching();
    }
}

/// Tells whether a switch has found a rule as it should be after a change over OpenFlow 1.0 (switches/version10.rs).
fn is_complete(known: &Rule, found: &FlowStats, hidden: &HiddenGroups) -> bool {
    let is_lenient = without_inconsistent(&known.matching, &known.instructions).is_some();
    is_lenient && found.cookie == known.cookie && does_the_same(known, found, hidden)
}

/// Tells whether a switch has found the instructions of a rule, perhaps spelled otherwise.
fn does_the_same(known: &Rule, found: &FlowStats, hidden: &HiddenGroups) -> bool {
    let copy = copy_of(known, 1, hidden, known.modified);
    // The switch names the field of a port by the protocol that the rule matches on.
    let spelled = spelled_instructions(&copy.instructions, &copy.matching);
    same_instructions(&found.instructions, &spelled)
}

/// Returns a known rule as a switch has changed it.
fn rewritten(known: &Arc<Rule>, found: &FlowStats, hidden: &HiddenGroups, now: Instant) -> Rule {
    let instructions = if does_the_same(known, found, hidden) {
        known.instructions.clone()
    } else {
        let bytes = instructions_with_floods(
            found.instructions.as_bytes(),
            known.instructions.as_bytes(),
            hidden,
        );
        Instructions::from_bytes(bytes).unwrap_or_else(|_| found.instructions.clone())
    };
    Rule {
        cookie: found.cookie,
        facts: Facts::of_instructions(&instructions),
        instructions,
        modified: now,
        ..Rule::clone(known)
    }
}
