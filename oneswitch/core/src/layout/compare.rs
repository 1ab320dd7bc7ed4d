//! Comparing a switch's rules with the wanted ones.

use crate::api::SwitchIndex;
use crate::layout::messages::{key_of, removal, remove_all};
use crate::layout::spelling::same_instructions;
use crate::layout::translate::copy_of;
use crate::model::hidden::HiddenGroups;
use crate::model::in_flight::InFlight;
use crate::model::rule::{copy_flags, Rule, RuleKey, MESSAGE_FLAGS};
use crate::model::truth::Truth;
use crate::server::executors::Executors;
use crate::switch_set::SwitchSet;
use foldhash::{HashMap, HashMapExt};
use openflow13::{FlowMod, FlowRemoved, FlowStats, Instructions};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

/// Time for the switch's own timer to fire, and for its report.
const GRACE: Duration = Duration::from_secs(2);

/// Instructions as written, and as the switch reported them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelling {
    pub written: Instructions,
    pub reported: Instructions,
}

/// State kept from one comparison to the next.
#[derive(Debug, Default)]
pub struct Memory {
    /// Rules missing since a comparison that may have expired: their flow_removed may be in flight.
    pub suspects: HashMap<RuleKey, Instant>,
    /// Rules rewritten because the switch spelled them differently: if it does so again, the spellings are equivalent.
    pub spelled: HashMap<RuleKey, Spelling>,
}

/// A switch whose rules are compared with the wanted ones.
pub struct Comparison<'a> {
    pub truth: &'a Truth,
    pub hidden: &'a HiddenGroups,
    pub executors: &'a Executors,
    pub switch: SwitchIndex,
    /// Whether it was out of reach before, so that missing rules may have expired unseen.
    pub after_gap: bool,
    pub in_flight: &'a InFlight,
    /// Whether it tells of the rules that it changes; those that it has written and that were not read.
    pub learns: bool,
    pub is_unread: &'a dyn Fn(&RuleKey) -> bool,
    /// Whether a rule lacks what OpenFlow 1.3 cannot say, so that its copy differs.
    pub is_incomplete: &'a dyn Fn(&RuleKey) -> bool,
    pub memory: &'a Memory,
    pub now: Instant,
}

impl Comparison<'_> {
    pub fn of_flows(&self, found: &[FlowStats]) -> Repairs {
        let Self {
            switch,
            in_flight,
            memory,
            now,
            ..
        } = *self;
        let suspected = |key: &RuleKey| *memory.suspects.get(key).unwrap_or(&now);
        let needed = self.executors.all().contains(switch);
        let mut repairs = Repairs::default();
        let mut present: HashMap<&RuleKey, &FlowStats> = HashMap::with_capacity(found.len());
        for flow in found {
            let key = key_of(flow);
            let (rule, mended) = match &key {
                Some(key) => in_flight.rules.get(key).map_or_else(
                    || (self.truth.tables.get(key), false),
                    |before| (before.as_ref(), true),
                ),
                None => (None, false),
            };
            let here = |rule: &&Arc<Rule>| self.executors.of_rule(rule).contains(switch);
            match rule.filter(|rule| needed && here(rule)) {
                Some(rule) => drop(present.insert(&rule.key, flow)),
                None if mended => repairs.again = true,
                None if self.learns && needed && key.is_some() => {
                    repairs.learned.push(flow.clone());
                }
                None => repairs.surplus.push(removal(flow)),
            }
        }
        if !found.is_empty() && repairs.surplus.len() == found.len() && in_flight.rules.is_empty() {
            repairs.surplus = vec![remove_all()];
        }
        for (rule, copies) in self.rules_at(switch, self.truth.tables.iter()) {
            let there = present.get(&rule.key);
            let copies = self.sharing(rule, copies, there.copied());
            let is_plain = |there: &&FlowStats| is_plain_copy(there, rule, copies);
            if in_flight.rules.contains_key(&rule.key) || there.is_some_and(is_plain) {
                continue;
            }
            if (self.is_unread)(&rule.key) || there.is_some() && (self.is_incomplete)(&rule.key) {
                continue;
            }
            let copy = copy_of(rule, copies, self.hidden, now);
            if self.learns && (rule.learned || rule.facts.learns()) {
                repairs.compare_learned(rule, there.copied(), copy, found.is_empty(), switch);
                continue;
            }
            let over = time_over(rule, &copy, there.is_some(), found.is_empty(), now);
            match (over, there) {
                (Some(reason), _) if self.after_gap => {
                    let gone = if there.is_none() {
                        SwitchSet::of(switch)
                    } else {
                        SwitchSet::EMPTY
                    };
                    repairs.expired.push((rule.key.clone(), reason, gone));
                }
                (Some(_), None) if suspected(&rule.key) + GRACE > now => {
                    let since = suspected(&rule.key);
                    repairs.memory.suspects.insert(rule.key.clone(), since);
                }
                (_, Some(there)) if is_copy(there, &copy) => {}
                (_, Some(there)) => repairs.rewrite(memory, rule, there, copy),
                (_, None) => repairs.missing.push(copy),
            }
        }
        let before = in_flight.rules.values().flatten();
        repairs.again |= self.rules_at(switch, before).any(|(rule, copies)| {
            let there = present.get(&rule.key);
            let copies = self.sharing(rule, copies, there.copied());
            let copy = copy_of(rule, copies, self.hidden, now);
            !there.is_some_and(|there| is_copy(there, &copy))
        });
        repairs
    }

    /// Returns the rules that `switch` needs, with the number of copies of each.
    fn rules_at<'a>(
        &'a self,
        switch: SwitchIndex,
        rules: impl Iterator<Item = &'a Arc<Rule>> + 'a,
    ) -> impl Iterator<Item = (&'a Arc<Rule>, usize)> + 'a {
        rules.filter_map(move |rule| {
            let copies = self.executors.of_rule(rule);
            copies.contains(switch).then(|| (rule, copies.len()))
        })
    }

    /// Returns how many of a rule's copies share the idle timer of the one that is there: of a moving port's rule, a copy that has its own
    /// keeps it.
    fn sharing(&self, rule: &Rule, copies: usize, there: Option<&FlowStats>) -> usize {
        let keeps = |there: &FlowStats| {
            there.idle_timeout == rule.idle_timeout && !self.executors.share_idle_timer(rule)
        };
        match there.is_some_and(keeps) {
            true => 1,
            false => copies,
        }
    }
}

/// An expired rule, the reason, and the switches that no longer have it.
pub type Expired = (RuleKey, u8, SwitchSet);

/// The result of a comparison.
#[derive(Default)]
pub struct Repairs {
    pub surplus: Vec<FlowMod>,
    pub missing: Vec<FlowMod>,
    /// Copies to write over those that differ.
    pub changed: Vec<FlowMod>,
    /// Rules that the switch has learned, or has changed by itself.
    pub learned: Vec<FlowStats>,
    /// Learned rules that the switch has lost and gets again as ordinary copies.
    pub restored: Vec<Arc<Rule>>,
    /// Rules that expired unobserved, the reasons, and the switches that no longer have them.
    pub expired: Vec<Expired>,
    pub memory: Memory,
    /// Whether a rule was wrong before messages that are in flight.
    pub again: bool,
}

impl Repairs {
    /// Compares a rule that the switch may have made or changed by itself: unless it has lost all its rules, it knows best.
    fn compare_learned(
        &mut self,
        rule: &Arc<Rule>,
        there: Option<&FlowStats>,
        copy: FlowMod,
        lost_everything: bool,
        switch: SwitchIndex,
    ) {
        match there {
            Some(there) => {
                let spelled = [&rule.instructions, &copy.instructions];
                let same =
                    |written: &&Instructions| same_instructions(&there.instructions, written);
                if there.cookie != rule.cookie || !spelled.iter().any(same) {
                    self.learned.push(there.clone());
                }
            }
            None if rule.learned && !lost_everything => {
                let reason = match (rule.hard_timeout, rule.idle_timeout) {
                    (0, 0) => FlowRemoved::DELETE,
                    (0, _) => FlowRemoved::IDLE_TIMEOUT,
                    _ => FlowRemoved::HARD_TIMEOUT,
                };
                let gone = SwitchSet::of(switch);
                self.expired.push((rule.key.clone(), reason, gone));
            }
            None => {
                if rule.learned {
                    self.restored.push(Arc::clone(rule));
                }
                self.missing.push(copy);
            }
        }
    }

    /// Rewrites a copy that differs, unless it was just written and only the switch's spelling differs.
    fn rewrite(&mut self, memory: &Memory, rule: &Rule, there: &FlowStats, copy: FlowMod) {
        let spelling = Spelling {
            written: copy.instructions.clone(),
            reported: there.instructions.clone(),
        };
        let spelled = memory.spelled.get(&rule.key) == Some(&spelling);
        self.memory.spelled.insert(rule.key.clone(), spelling);
        if !(spelled && is_copy_but_for_instructions(there, &copy)) {
            debug!(target: "southbound", cookie = rule.cookie, ?there, ?copy, "differs");
            self.changed.push(copy);
        }
    }
}

/// Returns the reason why `rule` has expired, if it has. An idle timer runs at the switch: it has fired only if the copy is missing and the
/// switch has not lost everything.
fn time_over(
    rule: &Rule,
    copy: &FlowMod,
    there: bool,
    lost_everything: bool,
    now: Instant,
) -> Option<u8> {
    let age = now.saturating_duration_since(rule.modified);
    let over = |timeout: u16, grace: Duration| {
        timeout != 0 && age >= Duration::from_secs(timeout.into()) + grace
    };
    let grace = if there { GRACE } else { Duration::ZERO };
    if over(rule.hard_timeout, grace) {
        return Some(FlowRemoved::HARD_TIMEOUT);
    }
    let idle = !there && !lost_everything && over(copy.idle_timeout, Duration::ZERO);
    idle.then_some(FlowRemoved::IDLE_TIMEOUT)
}

/// Tells whether it needs no closer look, like nearly all copies, of which there may be very many.
fn is_plain_copy(there: &FlowStats, rule: &Rule, copies: usize) -> bool {
    rule.hard_timeout == 0
        && there.hard_timeout == 0
        && !rule.facts.floods
        && there.cookie == rule.cookie
        && there.flags & !MESSAGE_FLAGS
            == copy_flags(rule.flags, rule.idle_timeout, rule.hard_timeout) & !MESSAGE_FLAGS
        && there.idle_timeout == if copies > 1 { 0 } else { rule.idle_timeout }
        && there.instructions == rule.instructions
}

/// Tells whether a reported rule is the copy that we would write. The hard timeout counts down, so only its presence is compared.
fn is_copy(there: &FlowStats, copy: &FlowMod) -> bool {
    is_copy_but_for_instructions(there, copy)
        && same_instructions(&there.instructions, &copy.instructions)
}

fn is_copy_but_for_instructions(there: &FlowStats, copy: &FlowMod) -> bool {
    there.cookie == copy.cookie
        && there.flags & !MESSAGE_FLAGS == copy.flags
        && there.idle_timeout == copy.idle_timeout
        && (there.hard_timeout == 0) == (copy.hard_timeout == 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
