//! State that messages without a verdict change.

use crate::model::groups::Group;
use crate::model::rule::{Rule, RuleKey};
use crate::model::tlv_table::TlvTable;
use crate::model::truth::{Changes, Meter};
use foldhash::HashMap;
use std::sync::Arc;

/// Rules, groups and meters changed by messages in flight, as they were before.
#[derive(Debug, Default)]
pub struct InFlight {
    pub rules: HashMap<RuleKey, Option<Arc<Rule>>>,
    pub groups: HashMap<u32, Option<Arc<Group>>>,
    pub meters: HashMap<u32, Option<Arc<Meter>>>,
    pub tlv_table: Option<TlvTable>,
}

impl InFlight {
    pub fn add(&mut self, changes: &Changes) {
        for change in &changes.flows {
            if let Some(rule) = change.after.as_ref().or(change.before.as_ref()) {
                self.rules
                    .entry(rule.key.clone())
                    .or_insert_with(|| change.before.clone());
            }
        }
        if self.tlv_table.is_none() {
            self.tlv_table.clone_from(&changes.tlv_table);
        }
        for (id, before) in &changes.groups {
            self.groups.entry(*id).or_insert_with(|| before.clone());
        }
        for (id, before) in &changes.meters {
            self.meters.entry(*id).or_insert_with(|| before.clone());
        }
    }
}
