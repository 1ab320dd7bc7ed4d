//! The virtual flow tables, from which the switches' rules are derived.
//!
//! A message's changes are applied when it is sent, before the switches' verdict; each application returns its changes so that a refused
//! message can be undone (verdict.rs).

use crate::model::facts::{self, Facts};
use crate::model::rule::{size_of_rule, Counters, Rule, RuleKey, CHANGED_COOKIE};
use crate::model::rule_set::{RuleSet, Totals};
use foldhash::{HashMap, HashMapExt};
use openflow13::{
    group_no, port_no, CanonicalMatch, FlowMod, FlowModCommand, FlowStats, FlowStatsRequest,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// OFPTT_ALL.
pub const ALL_TABLES: u8 = 0xff;

/// One rule before and after; `None` where it did not or does not exist.
#[derive(Clone, Debug)]
pub struct Change {
    pub before: Option<Arc<Rule>>,
    pub after: Option<Arc<Rule>>,
}

/// Selects rules as flow-mods and statistics requests do (OpenFlow 1.3.5, 6.4 and 7.3.5.2).
#[derive(Clone, Debug)]
pub struct Filter {
    pub table: u8,
    pub matching: CanonicalMatch,
    /// Only rules with exactly `matching` and this priority.
    pub strict: Option<u16>,
    pub cookie: u64,
    pub cookie_mask: u64,
    pub out_port: u32,
    pub out_group: u32,
}

impl Filter {
    pub fn of_flow_mod(request: &FlowMod, matching: CanonicalMatch) -> Self {
        let strict = matches!(
            request.command,
            FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict
        );
        let deletes = matches!(
            request.command,
            FlowModCommand::Delete | FlowModCommand::DeleteStrict
        );
        Self {
            table: request.table_id,
            matching,
            strict: strict.then_some(request.priority),
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            out_port: if deletes {
                request.out_port
            } else {
                port_no::ANY
            },
            out_group: if deletes {
                request.out_group
            } else {
                group_no::ANY
            },
        }
    }

    /// Returns `None` for an unreadable match; such a request was refused on arrival.
    pub fn of_statistics(request: &FlowStatsRequest) -> Option<Self> {
        Some(Self {
            table: request.table_id,
            matching: request.matching.canonical().ok()?,
            strict: None,
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            out_port: request.out_port,
            out_group: request.out_group,
        })
    }

    /// Tells whether a non-strict filter selects `rule`.
    pub fn selects(&self, rule: &Rule) -> bool {
        (self.table == ALL_TABLES || self.table == rule.key.table)
            && self.matching.covers(&rule.key.matching)
            && self.admits(rule)
    }

    /// Tells whether it selects all rules of a table, so that none need be examined: each costs a cache miss.
    fn is_every_rule_of_a_table(&self) -> bool {
        self.strict.is_none()
            && self.cookie_mask == 0
            && self.out_port == port_no::ANY
            && self.out_group == group_no::ANY
            && self.matching.is_any()
    }

    /// Checks everything but the match, which `select` checks first.
    fn admits(&self, rule: &Rule) -> bool {
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && (self.out_port == port_no::ANY
                || facts::outputs_to(&rule.instructions, self.out_port))
            && (self.out_group == group_no::ANY
                || facts::uses_group(&rule.instructions, self.out_group))
    }
}

#[derive(Debug, Default)]
pub struct FlowTables {
    tables: BTreeMap<u8, RuleSet>,
    past: Past,
}

/// Earlier versions of rules, kept while answers as of an earlier time are pending.
#[derive(Debug, Default)]
struct Past {
    readers: usize,
    /// Changes since the first of them.
    changes: Vec<(RuleKey, Option<Arc<Rule>>)>,
    /// Estimate of their bytes.
    size: usize,
    /// Number of `changes[0]`.
    first: u64,
}

/// Limit of bytes for kept changes; answers that take longer reflect a later time.
const PAST: usize = 64 << 20;

impl Past {
    fn note(&mut self, key: &RuleKey, before: Option<&Arc<Rule>>) {
        if self.readers > 0 && self.size < PAST {
            self.size += std::mem::size_of::<Rule>() + before.map_or(0, |rule| size_of_rule(rule));
            self.changes.push((key.clone(), before.cloned()));
        }
    }

    /// Corrects the versions before later changes, because this one is undone.
    fn forget(&mut self, change: &Change) {
        let Some(after) = &change.after else { return };
        for (_, version) in &mut self.changes {
            if version.as_ref().is_some_and(|v| Arc::ptr_eq(v, after)) {
                version.clone_from(&change.before);
            }
        }
    }
}

/// The tables as of an earlier time.
pub struct AsOf<'a> {
    tables: &'a FlowTables,
    changed: HashMap<&'a RuleKey, Option<&'a Arc<Rule>>>,
}

/// The place behind a rule that was found, where the next one is looked for.
#[derive(Debug, Default)]
pub struct Place {
    table: u8,
    next: usize,
}

impl AsOf<'_> {
    /// Returns the rule of a switch's statistics if it stands shortly behind the one before and is spelled as the controller spelled it:
    /// switches list most rules in the order of their additions, and looking one up means computing its key and some cache misses.
    pub fn next(&self, flow: &FlowStats, place: &mut Place) -> Option<&Arc<Rule>> {
        if !self.changed.is_empty() || place.table != flow.table_id {
            return None;
        }
        let rules = self.tables.tables.get(&place.table)?;
        let (found, rule) = rules.near(place.next, |rule| {
            rule.key.priority == flow.priority && rule.matching == flow.matching
        })?;
        place.next = found + 1;
        Some(rule)
    }

    /// Returns the rule with a key, and keeps its place.
    pub fn find(&self, key: &RuleKey, place: &mut Place) -> Option<&Arc<Rule>> {
        if let Some(before) = self.changed.get(key) {
            return *before;
        }
        let rules = self.tables.tables.get(&key.table)?;
        let next = match place.table == key.table {
            true => rules.near(place.next, |rule| rule.key == *key),
            false => None,
        };
        let (found, rule) = next.or_else(|| rules.find(key))?;
        *place = Place {
            table: key.table,
            next: found + 1,
        };
        Some(rule)
    }

    pub fn select(&self, request: &FlowStatsRequest) -> Vec<Arc<Rule>> {
        let Some(filter) = Filter::of_statistics(request) else {
            return Vec::new();
        };
        let mut chosen = self.tables.select(&filter);
        chosen.retain(|r| !self.changed.contains_key(&r.key));
        let before = self.changed.values().flatten();
        chosen.extend(before.filter(|r| filter.selects(r)).map(|r| Arc::clone(r)));
        chosen
    }
}

impl AsOf<'_> {
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        let now = self.tables.iter().map(Arc::as_ref);
        let unchanged = now.filter(|rule| !self.changed.contains_key(&rule.key));
        let before = self.changed.values().flatten();
        unchanged.chain(before.map(|rule| rule.as_ref()))
    }

    pub fn count_by_table(&self) -> BTreeMap<u8, usize> {
        let now = self.tables.tables.iter();
        let mut counts: BTreeMap<u8, usize> = now.map(|(at, rules)| (*at, rules.len())).collect();
        for (key, before) in &self.changed {
            let count = counts.entry(key.table).or_default();
            *count += usize::from(before.is_some());
            *count -= usize::from(self.tables.get(key).is_some());
        }
        counts.retain(|_, count| *count > 0);
        counts
    }

    /// Counts the references of rules to each group; Open vSwitch counts a rule that names it twice twice.
    pub fn references_to_groups(&self) -> HashMap<u32, u32> {
        let mut counts = HashMap::new();
        for rule in self.rules().filter(|rule| rule.facts.has_group) {
            facts::groups(&rule.instructions, |id| *counts.entry(id).or_default() += 1);
        }
        counts
    }

    /// Counts the rules that use each meter.
    pub fn rules_using_meters(&self) -> HashMap<u32, u32> {
        let mut counts = HashMap::new();
        for rule in self.rules().filter(|rule| rule.facts.has_meter) {
            let meters: BTreeSet<u32> = facts::meters(&rule.instructions).collect();
            meters
                .into_iter()
                .for_each(|id| *counts.entry(id).or_default() += 1);
        }
        counts
    }
}

impl FlowTables {
    /// Starts keeping changes, until [`Self::end_reading`]; returns the time for [`Self::as_of`].
    pub fn begin_reading(&mut self) -> u64 {
        self.past.readers += 1;
        self.past.first + self.past.changes.len() as u64
    }

    pub fn end_reading(&mut self) {
        self.past.readers = self.past.readers.saturating_sub(1);
        if self.past.readers == 0 {
            self.past.first += self.past.changes.len() as u64;
            self.past.changes = Vec::new();
            self.past.size = 0;
        }
    }

    pub fn as_of(&self, time: u64) -> AsOf<'_> {
        let skipped = usize::try_from(time.saturating_sub(self.past.first)).unwrap_or(usize::MAX);
        let mut changed = HashMap::new();
        for (key, before) in self.past.changes.iter().skip(skipped) {
            changed.entry(key).or_insert(before.as_ref());
        }
        AsOf {
            tables: self,
            changed,
        }
    }

    pub fn len(&self) -> usize {
        self.totals().rules
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.tables
            .values()
            .for_each(|rules| totals.add(rules.totals()));
        totals
    }

    /// Tells whether copies of some rule report their end.
    pub fn reports(&self) -> bool {
        self.totals().reporting > 0
    }

    /// Counts the rules whose actions change in_port.
    pub fn in_port_movers(&self) -> usize {
        self.totals().in_port_movers
    }

    /// Counts the rules with state that one switch would share between all ports.
    pub fn stateful(&self) -> usize {
        self.totals().stateful
    }

    /// Counts the rules that make a switch change rules.
    pub fn learning(&self) -> usize {
        self.totals().learning
    }

    /// Counts the rules that a switch has learned.
    pub fn learned(&self) -> usize {
        self.totals().learned
    }

    pub fn journal_size(&self) -> usize {
        self.totals().journal_size
    }

    pub fn get(&self, key: &RuleKey) -> Option<&Arc<Rule>> {
        self.tables.get(&key.table)?.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.tables.values().flat_map(RuleSet::iter)
    }

    pub fn count(&self, table: u8) -> usize {
        self.tables.get(&table).map_or(0, RuleSet::len)
    }

    pub fn select(&self, filter: &Filter) -> Vec<Arc<Rule>> {
        let tables = match filter.table {
            ALL_TABLES => self.tables.range(..),
            one => self.tables.range(one..=one),
        };
        let mut found = Vec::new();
        for (table, rules) in tables {
            match filter.strict {
                Some(priority) => {
                    let key = RuleKey {
                        table: *table,
                        priority,
                        matching: filter.matching.clone(),
                    };
                    found.extend(rules.get(&key).filter(|r| filter.admits(r)).cloned());
                }
                None => found.extend(
                    rules
                        .iter()
                        .filter(|r| filter.matching.covers(&r.key.matching) && filter.admits(r))
                        .cloned(),
                ),
            }
        }
        found
    }

    /// Returns the rules that make CHECK_OVERLAP refuse `key`; replacing an identical rule is not an overlap (Open vSwitch,
    /// add_flow_start()).
    pub fn overlapping<'a>(&'a self, key: &'a RuleKey) -> impl Iterator<Item = &'a Arc<Rule>> {
        let rules = self.tables.get(&key.table).filter(|r| r.get(key).is_none());
        rules
            .into_iter()
            .flat_map(RuleSet::iter)
            .filter(|r| r.key.priority == key.priority && r.key.matching.overlaps(&key.matching))
    }

    /// Applies a flow-mod that the switches will accept, and returns its changes.
    pub fn apply(
        &mut self,
        request: &FlowMod,
        matching: &CanonicalMatch,
        facts: Facts,
        now: Instant,
    ) -> Vec<Change> {
        match request.command {
            FlowModCommand::Add => self.add(request, matching, facts, now),
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                self.modify(request, matching, facts, now)
            }
            FlowModCommand::Delete => {
                self.remove_all(&Filter::of_flow_mod(request, matching.clone()))
            }
            FlowModCommand::DeleteStrict => {
                let doomed = self.select(&Filter::of_flow_mod(request, matching.clone()));
                doomed
                    .into_iter()
                    .filter_map(|rule| self.remove(&rule.key))
                    .collect()
            }
        }
    }

    fn add(
        &mut self,
        request: &FlowMod,
        matching: &CanonicalMatch,
        facts: Facts,
        now: Instant,
    ) -> Vec<Change> {
        if request.table_id == ALL_TABLES {
            return Vec::new(); // refused by every switch: OFPFMFC_BAD_TABLE_ID
        }
        let key = RuleKey::of_flow_mod(request, matching.clone());
        let mut rule = Rule::new(key, request, facts, now);
        if request.cookie_mask == CHANGED_COOKIE {
            if let Some(old) = self.get(&rule.key) {
                (rule.created, rule.flags) = (old.created, old.flags);
            }
        }
        let mut change = self.put(Arc::new(rule));
        // Open vSwitch keeps the counters of a rule that is added again, unless asked to reset them.
        let kept = match &change.before {
            Some(old) if request.flags & FlowMod::RESET_COUNTS == 0 => old.base,
            _ => Counters::default(),
        };
        if kept != Counters::default() {
            if let Some(rule) = change.after.take() {
                let mut rule = Arc::unwrap_or_clone(rule);
                rule.base = kept;
                change.after = self.put(Arc::new(rule)).after;
            }
        }
        vec![change]
    }

    fn modify(
        &mut self,
        request: &FlowMod,
        matching: &CanonicalMatch,
        facts: Facts,
        now: Instant,
    ) -> Vec<Change> {
        let chosen = self.select(&Filter::of_flow_mod(request, matching.clone()));
        chosen
            .into_iter()
            .map(|old| {
                let mut rule = Rule::clone(&old);
                rule.instructions = request.instructions.clone();
                rule.facts = facts;
                rule.modified = now;
                if request.flags & FlowMod::RESET_COUNTS != 0 {
                    rule.base = Default::default();
                }
                self.put(Arc::new(rule))
            })
            .collect()
    }

    pub fn put(&mut self, rule: Arc<Rule>) -> Change {
        let change = self.replace(rule);
        if let Some(after) = &change.after {
            self.past.note(&after.key, change.before.as_ref());
        }
        change
    }

    fn replace(&mut self, rule: Arc<Rule>) -> Change {
        let table = self.tables.entry(rule.key.table).or_default();
        let before = table.replace(Arc::clone(&rule));
        Change {
            before,
            after: Some(rule),
        }
    }

    pub fn remove(&mut self, key: &RuleKey) -> Option<Change> {
        let table = self.tables.get_mut(&key.table)?;
        let rule = table.remove(key)?;
        if table.len() == 0 {
            self.tables.remove(&key.table);
        }
        Some(self.removed(rule))
    }

    /// Removes what a non-strict filter selects.
    fn remove_all(&mut self, filter: &Filter) -> Vec<Change> {
        let range = match filter.table {
            ALL_TABLES => 0..=u8::MAX,
            one => one..=one,
        };
        let mut taken = Vec::new();
        for (_, rules) in self.tables.range_mut(range) {
            if filter.is_every_rule_of_a_table() {
                taken.extend(std::mem::take(rules));
            } else {
                taken.extend(rules.take(|rule| filter.selects(rule)));
            }
        }
        self.tables.retain(|_, rules| rules.len() > 0);
        taken.into_iter().map(|rule| self.removed(rule)).collect()
    }

    /// Records a removed rule.
    fn removed(&mut self, rule: Arc<Rule>) -> Change {
        if self.past.readers > 0 {
            self.past.note(&rule.key, Some(&rule));
        }
        Change {
            before: Some(rule),
            after: None,
        }
    }

    /// Undoes `changes`, which must be the latest ones, also for pending answers: they never were.
    pub fn revert(&mut self, changes: Vec<Change>) {
        let readers = std::mem::take(&mut self.past.readers);
        for change in changes.into_iter().rev() {
            self.past.forget(&change);
            match (change.before, change.after) {
                (Some(before), _) => {
                    self.put(before);
                }
                (None, Some(after)) => {
                    self.remove(&after.key);
                }
                (None, None) => {}
            }
        }
        self.past.readers = readers;
    }

    /// Adds a removed copy's counters; pending answers learn of it separately (fold.rs).
    pub fn fold(&mut self, key: &RuleKey, packets: u64, bytes: u64) {
        if let Some(old) = self.get(key) {
            let mut rule = Rule::clone(old);
            rule.base.add(packets, bytes);
            self.replace(Arc::new(rule));
        }
    }
}

#[cfg(test)]
mod tests;
