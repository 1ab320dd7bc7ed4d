//! Rules that a switch makes or changes by itself, because an action of another rule tells it to (`learn`, `fin_timeout`).
//!
//! The switch tells of such rules (flow monitors of Nicira), in order with its answers to our messages. It does not tell everything about
//! them, so each is read.

use super::session::Switch;
use super::Switches;
use crate::api::{Bridge, SwitchIndex};
use crate::layout::messages::everything;
use crate::model::facts;
use crate::model::rule::{Rule, RuleKey};
use crate::model::tables::{Filter, ALL_TABLES};
use crate::model::truth::Request;
use crate::switch_set::SwitchSet;
use crate::switches::reads::Purpose;
use crate::switches::verdict::Verdicts;
use foldhash::{HashMap, HashSet};
use openflow13::flow_watch::{unwatch, watch, FlowUpdate};
use openflow13::{
    group_no, port_no, FlowMod, FlowModCommand, FlowStatsRequest, GroupModCommand, Match,
    MultipartRequest,
};
use std::time::Instant;

/// The number of our flow monitor on each `virt`.
const MONITOR: u32 = 1;

/// Rules that a switch has written and that were not read yet.
#[derive(Debug, Default)]
pub struct Unread {
    /// Those of the reading that is not answered.
    asked: HashSet<RuleKey>,
    waiting: HashMap<RuleKey, FlowUpdate>,
}

impl Unread {
    pub fn contains(&self, key: &RuleKey) -> bool {
        self.asked.contains(key) || self.waiting.contains_key(key)
    }
}

/// The effect on a learned rule of messages behind its reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    Nothing,
    /// They remove or replace it.
    Ends,
    Changes,
}

impl Switches {
    /// Tells whether `switch` tells of the rules that it changes.
    pub fn is_watched(&self, switch: SwitchIndex) -> bool {
        self.list[switch].virt.is_watched
    }

    pub fn watched(&self) -> SwitchSet {
        (0..self.list.len())
            .filter(|switch| self.is_watched(*switch))
            .collect()
    }

    /// Lets switches tell of the rules that they change, from now on.
    pub fn watch_rules(&mut self, switches: SwitchSet) {
        for switch in switches.iter() {
            let virt = &self.list[switch].virt;
            if !virt.is_down() && !virt.is_watched {
                self.watch_new(switch);
            }
        }
    }

    /// Does the same for a switch that has just connected.
    pub fn watch_new(&mut self, switch: SwitchIndex) {
        self.list[switch].virt.is_watched = true;
        let from = SwitchSet::of(switch);
        self.read(Purpose::Watch, Bridge::Virt, from, watch(MONITOR));
    }

    pub fn stop_watching(&mut self) {
        for switch in self.watched().iter() {
            self.list[switch].virt.is_watched = false;
            self.list[switch].virt.unread = Unread::default();
            self.send_to(switch, Bridge::Virt, &unwatch(MONITOR));
        }
    }

    /// Makes the watched switches tell of what packet-outs have made them learn: Open vSwitch keeps it until the next flow-mod
    /// (`ofmonitor_flush()`, ofproto/connmgr.c). This one deletes nothing.
    pub fn make_tell(&mut self, now: Instant) {
        let nothing = FlowMod {
            // No rule sends there.
            out_group: group_no::ALL,
            out_port: port_no::CONTROLLER,
            cookie: u64::MAX,
            cookie_mask: u64::MAX,
            ..FlowMod::new(FlowModCommand::DeleteStrict, 0, 0, Match::any())
        };
        self.send_own_flow(nothing, self.watched(), now);
    }

    /// Tells whether a switch has written rules that are not read yet.
    pub fn reads_rules(&self) -> bool {
        let unread = |switch: &Switch| !switch.virt.unread.asked.is_empty();
        self.list.iter().any(unread)
    }

    /// Reads a rule that `switch` has written: at once, or with others if it owes an answer.
    pub fn read_rule(&mut self, switch: SwitchIndex, key: RuleKey, update: FlowUpdate) {
        self.list[switch].virt.unread.waiting.insert(key, update);
        self.read_waiting(switch);
    }

    /// Notes that a reading is answered.
    pub fn rules_were_read(&mut self, switch: SwitchIndex) {
        self.list[switch].virt.unread.asked.clear();
        self.read_waiting(switch);
    }

    fn read_waiting(&mut self, switch: SwitchIndex) {
        let unread = &mut self.list[switch].virt.unread;
        if !unread.asked.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut unread.waiting);
        let mut updates = waiting.values();
        let Some(first) = updates.next() else {
            return;
        };
        // Open vSwitch looks at all rules of a table for each request.
        let is_alone = waiting.len() == 1;
        let same_table = updates.all(|update| update.table_id == first.table_id);
        let request = FlowStatsRequest {
            table_id: if same_table {
                first.table_id
            } else {
                ALL_TABLES
            },
            matching: if is_alone {
                first.matching.clone()
            } else {
                Match::any()
            },
            ..everything()
        };
        unread.asked = waiting.into_keys().collect();
        let keys = unread.asked.clone();
        let since = self.verdicts.sequence();
        let purpose = Purpose::Learned { keys, since };
        let request = MultipartRequest::Flow(request);
        self.read(purpose, Bridge::Virt, SwitchSet::of(switch), request);
    }
}

impl Verdicts {
    /// Returns what messages that `switch` got since operation number `since` do to a rule that the virtual tables did not have.
    pub fn later(&self, switch: SwitchIndex, since: u64, rule: &Rule) -> Later {
        let mut later = Later::Nothing;
        for request in self.requests_since(switch, since) {
            match concerns(request, rule) {
                Later::Ends => return Later::Ends,
                Later::Changes => later = Later::Changes,
                Later::Nothing => {}
            }
        }
        later
    }
}

fn concerns(request: &Request, rule: &Rule) -> Later {
    match request {
        Request::Flow {
            message, matching, ..
        } => {
            let filter = Filter::of_flow_mod(message, matching.clone());
            // OpenFlow 1.0 names all tables in strict messages, too.
            let is_in_table = message.table_id == ALL_TABLES || message.table_id == rule.key.table;
            let is_it = || {
                let is_like = message.priority == rule.key.priority;
                is_in_table && is_like && *matching == rule.key.matching
            };
            match message.command {
                FlowModCommand::Add if is_it() => Later::Ends,
                FlowModCommand::Delete if filter.selects(rule) => Later::Ends,
                FlowModCommand::DeleteStrict if is_it() && filter.selects(rule) => Later::Ends,
                FlowModCommand::Modify if filter.selects(rule) => Later::Changes,
                FlowModCommand::ModifyStrict if is_it() && filter.selects(rule) => Later::Changes,
                _ => Later::Nothing,
            }
        }
        Request::Group { message, .. } if message.command == GroupModCommand::Delete => {
            let names = |id| facts::uses_group(&rule.instructions, id);
            match message.group_id == group_no::ALL && rule.facts.has_group
                || names(message.group_id)
            {
                true => Later::Ends,
                false => Later::Nothing,
            }
        }
        _ => Later::Nothing,
    }
}
