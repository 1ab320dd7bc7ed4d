//! Statistics of rules from several switches, as of the time of the request.

use crate::api::SwitchIndex;
use crate::controllers::merge::{seconds, Answers};
use crate::controllers::sources::is_filtered_here;
use crate::controllers::View;
use crate::layout::messages::key_of;
use crate::layout::translate::instructions_with_floods;
use crate::model::hidden::HiddenGroups;
use crate::model::rule::{Counters, Rule, RuleKey};
use crate::model::tables::Place;
use crate::switch_set::SwitchSet;
use crate::switches::reads::{Parts, Shown};
use foldhash::HashMap;
use openflow13::{port_no, FlowStats, FlowStatsRequest, Instructions, MultipartReply};
use std::sync::Arc;
use std::time::Instant;

impl View<'_> {
    pub fn merge_flows(
        &self,
        filter: &FlowStatsRequest,
        answers: Answers,
        now: Instant,
    ) -> Vec<FlowStats> {
        let Answers {
            parts,
            steady,
            since,
            shown,
            ..
        } = answers;
        let hidden = &self.server.hidden;
        let tables = self.truth.tables.as_of(since);
        let floods = matches!(filter.out_port, port_no::FLOOD | port_no::ALL);
        let incomplete = filter.matching.lacks_prerequisite();
        let asked = incomplete
            .then(|| filter.matching.canonical().ok())
            .flatten();
        let answered: SwitchSet = parts.iter().map(|(switch, _)| *switch).collect();
        let learns = self.only_learner(answered);
        let mut merged: Vec<FlowStats> = Vec::new();
        let mut copies = Copies::default();
        let mut place = Place::default();
        for (switch, mut flow) in flows_by_switch(parts) {
            if let Some(place) = copies.next_of(switch, &flow, &merged) {
                add_counters(&mut merged[place], &flow);
                continue;
            }
            let next = match asked {
                None => tables.next(&flow, &mut place),
                Some(_) => None,
            };
            let rule = match next {
                Some(rule) => rule,
                None => {
                    let key = key_of(&flow);
                    let is_other =
                        |key: &RuleKey| asked.as_ref().is_some_and(|a| !a.covers(&key.matching));
                    if key.as_ref().is_some_and(is_other) {
                        continue;
                    }
                    let find = |key| tables.find(key, &mut place);
                    let Some(rule) = key.as_ref().and_then(find) else {
                        if learns {
                            shown.apply_learned(&mut flow, key.as_ref());
                            merged.push(flow);
                        }
                        continue;
                    };
                    rule
                }
            };
            if floods && !crate::model::facts::outputs_to(&rule.instructions, filter.out_port) {
                continue;
            }
            if answered.len() == 1 || steady && self.server.executors.of_rule(rule).len() == 1 {
                merged.push(match learns {
                    true => as_changed(flow, rule, &shown, hidden, now),
                    false => as_virtual(flow, rule, &shown, hidden, now),
                });
                continue;
            }
            match copies.find(rule) {
                Some(place) => add_counters(&mut merged[place], &flow),
                None => {
                    copies.list(rule, merged.len());
                    merged.push(as_virtual(flow, rule, &shown, hidden, now));
                }
            }
        }
        if self.some_executor_is_down() {
            let chosen = tables.select(filter);
            self.add_unreachable(&chosen, answered, &shown, &mut merged, now);
        }
        merged
    }

    /// Tells whether one switch has answered that makes and changes rules by itself, so it knows best which there are.
    fn only_learner(&self, answered: SwitchSet) -> bool {
        let only = answered.only();
        only.is_some_and(|switch| self.switches.is_watched(switch))
    }

    fn some_executor_is_down(&self) -> bool {
        !self
            .server
            .executors
            .all()
            .minus(self.switches.up())
            .is_empty()
    }

    /// Adds rules whose switches are all disconnected, because they exist nevertheless.
    fn add_unreachable(
        &self,
        chosen: &[Arc<Rule>],
        answered: SwitchSet,
        shown: &Shown,
        merged: &mut Vec<FlowStats>,
        now: Instant,
    ) {
        let reachable = self.switches.up().union(answered);
        for rule in chosen {
            if self
                .server
                .executors
                .of_rule(rule)
                .intersection(reachable)
                .is_empty()
            {
                merged.push(from_truth(rule, shown, now));
            }
        }
    }

    pub fn merge_aggregate(
        &self,
        filter: &FlowStatsRequest,
        answers: Answers,
        now: Instant,
    ) -> MultipartReply {
        let chosen = self.truth.tables.as_of(answers.since).select(filter);
        let mut counters = Counters::default();
        let answered: SwitchSet = answers.parts.iter().map(|(switch, _)| *switch).collect();
        let mut flow_count = chosen.len() as u32;
        if is_filtered_here(filter) {
            let flows = self.merge_flows(filter, answers, now);
            let count = |f: &FlowStats| counters.add(f.packet_count, f.byte_count);
            flows.iter().for_each(count);
            if self.only_learner(answered) {
                flow_count = flows.len() as u32;
            }
        } else {
            chosen
                .iter()
                .for_each(|rule| counters.add(rule.base.packets, rule.base.bytes));
            for (_, part) in answers.parts {
                if let MultipartReply::Aggregate {
                    packet_count,
                    byte_count,
                    flow_count: there,
                } = part
                {
                    counters.add(packet_count, byte_count);
                    if self.only_learner(answered) {
                        flow_count = there;
                    }
                }
            }
        }
        MultipartReply::Aggregate {
            packet_count: counters.packets,
            byte_count: counters.bytes,
            flow_count,
        }
    }
}

/// The rules of a merged answer of which several switches may have copies.
#[derive(Default)]
struct Copies {
    /// Their places in the answer, in the order of the first switch.
    listed: Vec<(*const Rule, usize)>,
    /// Indexes into `listed`, of its first `indexed` rules. By the rule's address: it stays where it is meanwhile, and its key takes long
    /// to hash and to copy.
    indexes: HashMap<*const Rule, usize>,
    indexed: usize,
    switch: Option<SwitchIndex>,
    is_first: bool,
    /// The index of the rule that the present switch is expected to tell next.
    next: usize,
}

impl Copies {
    /// Returns the place of a rule if `switch` tells it in its turn: Open vSwitch lists the rules of a table and a mask in the order of
    /// their additions, so most switches' lists are in the same order, and comparing is much cheaper than looking up.
    fn next_of(
        &mut self,
        switch: SwitchIndex,
        flow: &FlowStats,
        merged: &[FlowStats],
    ) -> Option<usize> {
        if self.switch != Some(switch) {
            self.is_first = self.switch.is_none();
            self.switch = Some(switch);
            self.next = 0;
        }
        let (_, place) = *self.listed.get(self.next)?;
        let there = merged.get(place)?;
        let key = |flow: &FlowStats| (flow.table_id, flow.priority);
        let is_next = key(there) == key(flow) && there.matching == flow.matching;
        is_next.then(|| {
            self.next += 1;
            place
        })
    }

    /// Returns the place of a rule that an earlier switch has told. No switch tells a rule twice.
    fn find(&mut self, rule: &Rule) -> Option<usize> {
        if self.is_first {
            return None;
        }
        for (index, (rule, _)) in self.listed.iter().enumerate().skip(self.indexed) {
            self.indexes.insert(*rule, index);
        }
        self.indexed = self.listed.len();
        let index = *self.indexes.get(&std::ptr::from_ref(rule))?;
        self.next = index + 1;
        self.listed.get(index).map(|(_, place)| *place)
    }

    fn list(&mut self, rule: &Rule, place: usize) {
        self.listed.push((std::ptr::from_ref(rule), place));
        if self.is_first {
            self.next = self.listed.len();
        }
    }
}

fn add_counters(sum: &mut FlowStats, flow: &FlowStats) {
    sum.packet_count = sum.packet_count.wrapping_add(flow.packet_count);
    sum.byte_count = sum.byte_count.wrapping_add(flow.byte_count);
}

/// Iterates over the flow statistics of one switch after the other.
fn flows_by_switch(mut parts: Parts) -> impl Iterator<Item = (SwitchIndex, FlowStats)> {
    // Stable: the parts of a switch stay in order.
    parts.sort_by_key(|(switch, _)| *switch);
    parts.into_iter().flat_map(|(switch, part)| {
        let flows = match part {
            MultipartReply::Flow(flows) => flows,
            _ => Vec::new(),
        };
        flows.into_iter().map(move |flow| (switch, flow))
    })
}

/// Converts a copy's statistics to those of the virtual rule.
fn as_virtual(
    flow: FlowStats,
    rule: &Rule,
    shown: &Shown,
    hidden: &HiddenGroups,
    now: Instant,
) -> FlowStats {
    let (duration_sec, duration_nsec) = seconds(rule.age(now));
    let mut virtual_flow = FlowStats {
        duration_sec,
        duration_nsec,
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        flags: rule.flags,
        importance: 0,
        idle_age: 0,
        cookie: rule.cookie,
        packet_count: flow.packet_count.wrapping_add(rule.base.packets),
        byte_count: flow.byte_count.wrapping_add(rule.base.bytes),
        instructions: if rule.facts.floods {
            let bytes = instructions_with_floods(
                flow.instructions.as_bytes(),
                rule.instructions.as_bytes(),
                hidden,
            );
            Instructions::from_bytes(bytes).unwrap_or_else(|_| rule.instructions.clone())
        } else {
            flow.instructions
        },
        ..flow
    };
    shown.apply(&mut virtual_flow, rule, now);
    virtual_flow
}

/// Does the same for a copy that its switch may have changed by itself.
fn as_changed(
    flow: FlowStats,
    rule: &Rule,
    shown: &Shown,
    hidden: &HiddenGroups,
    now: Instant,
) -> FlowStats {
    let cookie = flow.cookie;
    let (idle_timeout, hard_timeout) = rule.timeouts_at(flow.idle_timeout, flow.hard_timeout);
    FlowStats {
        cookie,
        idle_timeout,
        hard_timeout,
        ..as_virtual(flow, rule, shown, hidden, now)
    }
}

fn from_truth(rule: &Rule, shown: &Shown, now: Instant) -> FlowStats {
    let (duration_sec, duration_nsec) = seconds(rule.age(now));
    let mut flow = FlowStats {
        table_id: rule.key.table,
        duration_sec,
        duration_nsec,
        priority: rule.key.priority,
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        flags: rule.flags,
        importance: 0,
        idle_age: 0,
        cookie: rule.cookie,
        packet_count: rule.base.packets,
        byte_count: rule.base.bytes,
        matching: rule.matching.clone(),
        instructions: rule.instructions.clone(),
    };
    shown.apply(&mut flow, rule, now);
    flow
}
