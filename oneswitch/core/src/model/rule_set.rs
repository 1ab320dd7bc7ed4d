//! The rules of one table, found by their keys.

use crate::model::rule::{size_of_rule, Rule, RuleKey};
use foldhash::fast::RandomState;
use hashbrown::hash_table::{Entry, HashTable};
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

/// The rules in the order of their additions, as Open vSwitch lists them.
///
/// Each is found by its hash, which is kept, so that a growing index need not access all rules: they are scattered in memory.
#[derive(Debug, Default)]
pub struct RuleSet {
    hasher: RandomState,
    /// The hash of each rule, and its place in `rules`.
    index: HashTable<(u64, usize)>,
    /// `None`: removed. At most half of them and [`FEW`] are.
    rules: Vec<Option<Arc<Rule>>>,
    totals: Totals,
}

/// Removed rules whose places are not worth closing the gaps.
const FEW: usize = 64;
/// The number of places that [`RuleSet::near`] examines: as many kinds of rules may alternate.
const NEAR: usize = 4;

impl RuleSet {
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().flatten()
    }

    pub fn get(&self, key: &RuleKey) -> Option<&Arc<Rule>> {
        self.find(key).map(|(_, rule)| rule)
    }

    /// Returns a rule and its place, which later changes of the set may change.
    pub fn find(&self, key: &RuleKey) -> Option<(usize, &Arc<Rule>)> {
        let hash = self.hasher.hash_one(key);
        let (_, place) = *self.index.find(hash, is(&self.rules, hash, key))?;
        Some((place, self.rules.get(place)?.as_ref()?))
    }

    /// Returns the rule that `is_wanted`, and its place, if it stands at place `from` or shortly behind it.
    pub fn near(
        &self,
        from: usize,
        is_wanted: impl Fn(&Rule) -> bool,
    ) -> Option<(usize, &Arc<Rule>)> {
        let places = (from..).zip(self.rules.get(from..)?).take(NEAR);
        let mut rules = places.filter_map(|(place, rule)| Some((place, rule.as_ref()?)));
        rules.find(|(_, rule)| is_wanted(rule))
    }

    /// Puts a rule in the place of the one with the same key, which it returns, or behind all others.
    pub fn replace(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        let hash = self.hasher.hash_one(&rule.key);
        self.totals.add(Totals::of(&rule));
        let there = is(&self.rules, hash, &rule.key);
        match self.index.entry(hash, there, |(hash, _)| *hash) {
            Entry::Occupied(there) => {
                let (_, place) = *there.get();
                let old = self.rules.get_mut(place)?.replace(rule)?;
                self.totals.subtract(Totals::of(&old));
                Some(old)
            }
            Entry::Vacant(vacant) => {
                vacant.insert((hash, self.rules.len()));
                self.rules.push(Some(rule));
                None
            }
        }
    }

    pub fn remove(&mut self, key: &RuleKey) -> Option<Arc<Rule>> {
        let hash = self.hasher.hash_one(key);
        let found = self.index.find_entry(hash, is(&self.rules, hash, key));
        let (_, place) = found.ok()?.remove().0;
        let rule = self.rules.get_mut(place)?.take()?;
        self.totals.subtract(Totals::of(&rule));
        self.close_gaps();
        Some(rule)
    }

    /// Removes the rules that `is_chosen` names, in one pass, because looking up many rules again would dominate.
    pub fn take(&mut self, is_chosen: impl Fn(&Rule) -> bool) -> Vec<Arc<Rule>> {
        let places = self.rules.iter_mut();
        let chosen = places.filter_map(|place| place.take_if(|rule| is_chosen(rule)));
        let taken: Vec<_> = chosen.collect();
        if !taken.is_empty() {
            let rules = &self.rules;
            self.index
                .retain(|(_, place)| rules.get(*place).is_some_and(Option::is_some));
            for rule in &taken {
                self.totals.subtract(Totals::of(rule));
            }
            self.close_gaps();
        }
        taken
    }

    /// Gives the rules new places if most are empty; an addition or a removal costs a constant time on average.
    fn close_gaps(&mut self) {
        if self.rules.len() <= 2 * self.index.len() + FEW {
            return;
        }
        let mut next = 0;
        let mut places = vec![0; self.rules.len()];
        for (place, rule) in places.iter_mut().zip(&self.rules) {
            *place = next;
            next += usize::from(rule.is_some());
        }
        for (_, place) in self.index.iter_mut() {
            *place = places.get(*place).copied().unwrap_or_default();
        }
        self.rules.retain(Option::is_some);
        self.rules.shrink_to(2 * next);
    }
}

impl IntoIterator for RuleSet {
    type Item = Arc<Rule>;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Option<Arc<Rule>>>>;

    /// Does not examine any rule.
    fn into_iter(self) -> Self::IntoIter {
        self.rules.into_iter().flatten()
    }
}

fn is<'a>(
    rules: &'a [Option<Arc<Rule>>],
    hash: u64,
    key: &'a RuleKey,
) -> impl Fn(&(u64, usize)) -> bool + 'a {
    move |(other, place)| {
        let rule = || rules.get(*place).and_then(Option::as_ref);
        *other == hash && rule().is_some_and(|rule| rule.key == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::Facts;
    use openflow13::{FlowMod, FlowModCommand, Match};
    use std::time::Instant;

    fn rule(in_port: u32, cookie: u64) -> Arc<Rule> {
        let matching = Match::any().with_in_port(in_port);
        let message = FlowMod {
            cookie,
            ..FlowMod::new(FlowModCommand::Add, 0, 1, matching)
        };
        let matching = message.matching.canonical().unwrap();
        let key = RuleKey::of_flow_mod(&message, matching);
        Arc::new(Rule::new(key, &message, Facts::default(), Instant::now()))
    }

    fn with_rules(numbers: std::ops::Range<u32>) -> RuleSet {
        let mut set = RuleSet::default();
        for number in numbers {
            assert!(set.replace(rule(number, 0)).is_none());
        }
        set
    }

    fn in_ports(set: &RuleSet) -> Vec<u32> {
        set.iter().filter_map(|rule| rule.in_port()).collect()
    }

    #[test]
    fn rules_keep_the_order_of_their_additions() {
        let mut set = with_rules(1..6);
        assert_eq!(set.replace(rule(2, 7)).map(|old| old.cookie), Some(0));
        assert!(set.remove(&rule(3, 0).key).is_some());
        assert!(set.remove(&rule(3, 0).key).is_none());
        set.replace(rule(3, 0));
        assert_eq!(in_ports(&set), [1, 2, 4, 5, 3]);
        assert_eq!(set.get(&rule(2, 0).key).map(|rule| rule.cookie), Some(7));
        assert_eq!((set.len(), set.totals().rules), (5, 5));
    }

    #[test]
    fn every_rule_is_found_after_gaps_are_closed() {
        let mut set = with_rules(0..1_000);
        for number in (0..1_000).filter(|number| number % 10 != 0) {
            assert!(set.remove(&rule(number, 0).key).is_some());
        }
        let taken = set.take(|rule| rule.in_port() < Some(500));
        assert_eq!((taken.len(), set.len(), set.totals().rules), (50, 50, 50));
        assert!(set.rules.len() <= 2 * set.len() + FEW, "gaps remain");
        let left: Vec<u32> = (500..1_000).step_by(10).collect();
        assert_eq!(in_ports(&set), left);
        for number in 0..1_000 {
            let found = set.find(&rule(number, 0).key);
            assert_eq!(found.is_some(), left.contains(&number), "{number}");
            assert!(found.is_none_or(|(_, rule)| rule.in_port() == Some(number)));
        }
    }

    #[test]
    fn near_looks_a_few_places_ahead_and_over_gaps() {
        let mut set = with_rules(0..10);
        set.remove(&rule(3, 0).key);
        let near = |from, port| {
            let found = set.near(from, |rule: &Rule| rule.in_port() == Some(port));
            found.map(|(place, _)| place)
        };
        assert_eq!(near(2, 2), Some(2));
        assert_eq!(near(2, 5), Some(5));
        assert_eq!(near(2, 6), None, "too far ahead");
        assert_eq!(near(2, 1), None, "before it");
        assert_eq!(near(2, 3), None, "removed");
        assert_eq!(near(10, 1), None);
    }
}
