//! The rules of one table, found by their keys.

use crate::rule::{Rule, RuleKey};
use foldhash::fast::RandomState;
use hashbrown::hash_table::{Entry, HashTable};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Each rule stands beside its hash: a table that grows need not look into all of its rules, which are all over the memory.
#[derive(Debug, Default)]
pub struct RuleSet {
    hasher: RandomState,
    rules: HashTable<(u64, Arc<Rule>)>,
}

impl RuleSet {
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().map(|(_, rule)| rule)
    }

    pub fn get(&self, key: &RuleKey) -> Option<&Arc<Rule>> {
        let hash = self.hasher.hash_one(key);
        let found = self.rules.find(hash, is(hash, key));
        found.map(|(_, rule)| rule)
    }

    /// Returns the rule with the same key that was there.
    pub fn replace(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        let hash = self.hasher.hash_one(&rule.key);
        match self
            .rules
            .entry(hash, is(hash, &rule.key), |(hash, _)| *hash)
        {
            Entry::Occupied(mut there) => Some(std::mem::replace(&mut there.get_mut().1, rule)),
            Entry::Vacant(place) => {
                place.insert((hash, rule));
                None
            }
        }
    }

    pub fn remove(&mut self, key: &RuleKey) -> Option<Arc<Rule>> {
        let hash = self.hasher.hash_one(key);
        let found = self.rules.find_entry(hash, is(hash, key)).ok()?;
        Some(found.remove().0 .1)
    }

    /// Removes the rules that `chosen` names, in one pass: looking each of many up again would cost more than all else.
    pub fn take<'a>(
        &'a mut self,
        chosen: impl Fn(&Rule) -> bool + 'a,
    ) -> impl Iterator<Item = Arc<Rule>> + 'a {
        let taken = self.rules.extract_if(move |(_, rule)| chosen(rule));
        taken.map(|(_, rule)| rule)
    }
}

fn is(hash: u64, key: &RuleKey) -> impl Fn(&(u64, Arc<Rule>)) -> bool + '_ {
    move |(other, rule)| *other == hash && rule.key == *key
}
