//! The rules of one table, found by their keys.

use crate::model::rule::{size_of_rule, Rule, RuleKey};
use foldhash::fast::RandomState;
use hashbrown::hash_table::{Entry, HashTable, IntoIter};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Totals over the rules, known without examining each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub rules: usize,
    /// Rules whose actions change in_port.
    pub in_port_movers: usize,
    /// Rules that keep state which one switch would share between all ports.
    pub stateful: usize,
    /// Rules that make a switch change rules.
    pub learning: usize,
    /// Rules that a switch has learned.
    pub learned: usize,
    /// Rules whose copies report their end.
    pub reporting: usize,
    /// Bytes that the rules take in a journal.
    pub journal_size: usize,
}

impl Totals {
    fn of(rule: &Rule) -> Self {
        Self {
            rules: 1,
            in_port_movers: rule.facts.moves_in_port.into(),
            stateful: rule.facts.stateful.is_some().into(),
            learning: rule.facts.learns().into(),
            learned: rule.learned.into(),
            reporting: rule.copies_report().into(),
            journal_size: size_of_rule(rule),
        }
    }

    fn combine(&mut self, other: Self, combine: fn(usize, usize) -> usize) {
        let Self {
            rules,
            in_port_movers,
            stateful,
            learning,
            learned,
            reporting,
            journal_size,
        } = other;
        for (mine, theirs) in [
            (&mut self.rules, rules),
            (&mut self.in_port_movers, in_port_movers),
            (&mut self.stateful, stateful),
            (&mut self.learning, learning),
            (&mut self.learned, learned),
            (&mut self.reporting, reporting),
            (&mut self.journal_size, journal_size),
        ] {
            *mine = combine(*mine, theirs);
        }
    }

    pub fn add(&mut self, other: Self) {
        self.combine(other, |a, b| a + b);
    }

    pub fn subtract(&mut self, other: Self) {
        self.combine(other, |a, b| a - b);
    }
}

/// Each rule is stored with its hash, so that a growing table need not access all its rules, which are scattered in memory.
#[derive(Debug, Default)]
pub struct RuleSet {
    hasher: RandomState,
    rules: HashTable<(u64, Arc<Rule>)>,
    totals: Totals,
}

impl RuleSet {
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().map(|(_, rule)| rule)
    }

    pub fn get(&self, key: &RuleKey) -> Option<&Arc<Rule>> {
        let hash = self.hasher.hash_one(key);
        let found = self.rules.find(hash, is(hash, key));
        found.map(|(_, rule)| rule)
    }

    /// Returns the previous rule with the same key.
    pub fn replace(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        let hash = self.hasher.hash_one(&rule.key);
        self.totals.add(Totals::of(&rule));
        match self
            .rules
            .entry(hash, is(hash, &rule.key), |(hash, _)| *hash)
        {
            Entry::Occupied(mut there) => {
                let old = std::mem::replace(&mut there.get_mut().1, rule);
                self.totals.subtract(Totals::of(&old));
                Some(old)
            }
            Entry::Vacant(place) => {
                place.insert((hash, rule));
                None
            }
        }
    }

    pub fn remove(&mut self, key: &RuleKey) -> Option<Arc<Rule>> {
        let hash = self.hasher.hash_one(key);
        let found = self.rules.find_entry(hash, is(hash, key)).ok()?;
        let rule = found.remove().0 .1;
        self.totals.subtract(Totals::of(&rule));
        Some(rule)
    }

    /// Removes the rules that `chosen` names, in one pass, because looking up many rules again would dominate.
    pub fn take<'a>(
        &'a mut self,
        chosen: impl Fn(&Rule) -> bool + 'a,
    ) -> impl Iterator<Item = Arc<Rule>> + 'a {
        let (rules, totals) = (&mut self.rules, &mut self.totals);
        let taken = rules.extract_if(move |(_, rule)| chosen(rule));
        taken.map(|(_, rule)| {
            totals.subtract(Totals::of(&rule));
            rule
        })
    }
}

impl IntoIterator for RuleSet {
    type Item = Arc<Rule>;
    type IntoIter = std::iter::Map<IntoIter<(u64, Arc<Rule>)>, fn((u64, Arc<Rule>)) -> Arc<Rule>>;

    /// Does not examine any rule.
    fn into_iter(self) -> Self::IntoIter {
        self.rules.into_iter().map(|(_, rule)| rule)
    }
}

fn is(hash: u64, key: &RuleKey) -> impl Fn(&(u64, Arc<Rule>)) -> bool + '_ {
    move |(other, rule)| *other == hash && rule.key == *key
}
