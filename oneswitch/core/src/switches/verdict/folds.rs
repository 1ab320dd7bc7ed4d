//! Counters that are folded into rules, groups and meters while messages about those are in flight.
//!
//! Counts of a vanished copy belong to its rule, whatever the verdict on a message is. So they are added to what each message in flight would
//! be taken back to, too. Where such a message makes the rule, or resets its counters, they are counters since then: they are added again when
//! that message is applied again, and the journal is told of them behind it.

use super::{Operation, Verdicts};
use crate::journal::records::Journal;
use crate::model::groups::add_to_group;
use crate::model::rule::{Counters, Rule, RuleKey};
use crate::model::tables::Change;
use crate::model::truth::{add_to_meter, Request, Truth};
use foldhash::HashMap;
use openflow13::{FlowMod, MultipartReply};
use std::sync::Arc;

/// The counts of copies of rules.
pub type CountedRules = HashMap<RuleKey, (Arc<Rule>, Counters)>;

/// Counters of vanished copies.
#[derive(Clone, Debug)]
pub enum Vanished {
    Rule(Arc<Rule>, Counters),
    /// Statistics of one group, or of one meter.
    Counted(MultipartReply),
}

impl Vanished {
    pub fn add_to(&self, truth: &mut Truth) {
        match self {
            Self::Rule(rule, more) => truth.tables.fold(&rule.key, more.packets, more.bytes),
            Self::Counted(part) => truth.fold_counted(part.clone()),
        }
    }

    pub fn tell(self, journal: &mut Journal) {
        match self {
            Self::Rule(rule, more) => journal.folded(&rule, more),
            Self::Counted(part) => journal.counted(part),
        }
    }
}

/// Statistics of one group or meter each.
pub fn each_counted(reply: MultipartReply) -> Vec<MultipartReply> {
    match reply {
        MultipartReply::Group(groups) => {
            let groups = groups.into_iter();
            groups.map(|g| MultipartReply::Group(vec![g])).collect()
        }
        MultipartReply::Meter(meters) => {
            let meters = meters.into_iter();
            meters.map(|m| MultipartReply::Meter(vec![m])).collect()
        }
        _ => Vec::new(),
    }
}

impl Verdicts {
    /// Adds counters to what messages in flight would be taken back to; returns what the journal may be told of now.
    pub fn fold_rules(&mut self, mut counted: CountedRules) -> Vec<Vanished> {
        let mut told_later = CountedRules::default();
        for operation in self.operations.iter_mut().rev() {
            let resets = operation.resets_counters();
            for change in operation.changes.flows.iter_mut().rev() {
                let Some(rule) = change.before.as_ref().or(change.after.as_ref()) else {
                    continue;
                };
                let key = &rule.key;
                let found = counted.get(key).or_else(|| told_later.get(key)).cloned();
                let Some((rule, more)) = found else {
                    continue;
                };
                if (resets || change.before.is_none()) && counted.remove(&rule.key).is_some() {
                    operation
                        .folded
                        .push(Vanished::Rule(Arc::clone(&rule), more));
                    told_later.insert(rule.key.clone(), (Arc::clone(&rule), more));
                }
                if !add_before(change, more) {
                    // It made the rule: older messages are about another one.
                    told_later.remove(&rule.key);
                }
            }
        }
        let now = counted.into_values();
        now.map(|(rule, more)| Vanished::Rule(rule, more)).collect()
    }

    /// As [`Self::fold_rules`], for one group or meter. Each message about one resets its counters.
    pub fn fold_counted(&mut self, part: &MultipartReply) -> Option<Vanished> {
        let mut told_later = false;
        for operation in self.operations.iter_mut().rev() {
            let Some(was_there) = operation.add_counted_before(part) else {
                continue;
            };
            if !told_later {
                operation.folded.push(Vanished::Counted(part.clone()));
                told_later = true;
            }
            if !was_there {
                break;
            }
        }
        (!told_later).then(|| Vanished::Counted(part.clone()))
    }
}

/// False if there was no rule before.
fn add_before(change: &mut Change, more: Counters) -> bool {
    let Some(before) = &mut change.before else {
        return false;
    };
    Arc::make_mut(before).base.add(more.packets, more.bytes);
    true
}

impl Operation {
    fn resets_counters(&self) -> bool {
        matches!(&self.request, Request::Flow { message, .. } if message.flags & FlowMod::RESET_COUNTS != 0)
    }

    /// `None`: it is not about that group or meter; else whether that was there before.
    fn add_counted_before(&mut self, part: &MultipartReply) -> Option<bool> {
        match part {
            MultipartReply::Group(groups) => {
                let stats = groups.first()?;
                let changes = &mut self.changes.groups;
                let (_, before) = changes.iter_mut().find(|(id, _)| *id == stats.group_id)?;
                if let Some(group) = before.as_mut() {
                    add_to_group(group, stats);
                }
                Some(before.is_some())
            }
            MultipartReply::Meter(meters) => {
                let stats = meters.first()?;
                let changes = &mut self.changes.meters;
                let (_, before) = changes.iter_mut().find(|(id, _)| *id == stats.meter_id)?;
                if let Some(meter) = before.as_mut() {
                    add_to_meter(meter, stats);
                }
                Some(before.is_some())
            }
            _ => None,
        }
    }
}
