//! Rules that lack at some switches what OpenFlow 1.3 cannot say, until a round over another version (rounds.rs) completes them.

use crate::api::SwitchIndex;
use crate::model::rule::RuleKey;
use crate::switch_set::SwitchSet;
use foldhash::HashSet;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Incomplete {
    lacking: BTreeMap<SwitchIndex, HashSet<RuleKey>>,
    /// Those that the current round completes.
    completing: BTreeMap<SwitchIndex, HashSet<RuleKey>>,
}

impl Incomplete {
    pub fn insert(&mut self, switches: SwitchSet, key: &RuleKey) {
        for switch in switches.iter() {
            let lacking = self.lacking.entry(switch).or_default();
            lacking.insert(key.clone());
        }
    }

    /// Tells whether a rule lacks something at a switch.
    pub fn lacks(&self, switch: SwitchIndex, key: &RuleKey) -> bool {
        let rules = [&self.lacking, &self.completing].map(|rules| rules.get(&switch));
        let mut rules = rules.into_iter().flatten();
        rules.any(|keys| keys.contains(key))
    }

    /// Returns the rules that a round is to complete.
    pub fn begin(&mut self, switch: SwitchIndex) -> HashSet<RuleKey> {
        let keys = self.lacking.remove(&switch).unwrap_or_default();
        self.completing.insert(switch, keys.clone());
        keys
    }

    pub fn end(&mut self, switch: SwitchIndex) {
        self.completing.remove(&switch);
    }

    /// Ends a round without an answer.
    pub fn link_down(&mut self, switch: SwitchIndex) {
        let unconfirmed = self.completing.remove(&switch).unwrap_or_default();
        self.lacking.entry(switch).or_default().extend(unconfirmed);
    }
}
