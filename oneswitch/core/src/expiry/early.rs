//! Reports of removed copies that come before it is known which rule was removed.

use crate::api::SwitchIndex;
use crate::model::rule::{Rule, RuleKey};
use foldhash::HashMap;
use openflow13::FlowRemoved;

/// A report that no rule awaits while messages are in flight: the refusal of one of them may show that the removed rule was another one
/// than the virtual tables say.
#[derive(Debug)]
pub struct Early {
    pub switch: SwitchIndex,
    pub message: FlowRemoved,
    /// Whether the rule was learned, unless it turns out to be another one.
    pub was_learned: bool,
    /// The batch that must be settled before it is certain that no such rule comes to light.
    pub until: u64,
}

#[derive(Debug, Default)]
pub struct EarlyReports(HashMap<RuleKey, Vec<Early>>);

impl EarlyReports {
    pub fn keep(&mut self, key: RuleKey, report: Early) {
        self.0.entry(key).or_default().push(report);
    }

    /// Takes out the reports about copies of `rule`.
    pub fn take(&mut self, rule: &Rule) -> Vec<Early> {
        let list = self.0.remove(&rule.key).unwrap_or_default();
        let is_its = |early: &Early| early.message.cookie == rule.cookie;
        let (taken, left): (_, Vec<_>) = list.into_iter().partition(is_its);
        if !left.is_empty() {
            self.0.insert(rule.key.clone(), left);
        }
        taken
    }

    /// Takes out what does not wait for a batch after `settled`.
    pub fn end(&mut self, settled: u64) -> Vec<(RuleKey, Early)> {
        let mut ended = Vec::new();
        self.0.retain(|key, list| {
            let is_over = |early: &Early| early.until <= settled;
            let (over, left): (Vec<_>, _) = std::mem::take(list).into_iter().partition(is_over);
            *list = left;
            ended.extend(over.into_iter().map(|early| (key.clone(), early)));
            !list.is_empty()
        });
        ended
    }
}
