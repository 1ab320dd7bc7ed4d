//! Counters of removed copies, which the virtual rule keeps, once.

use crate::api::{Bridge, SwitchIndex};
use crate::journal::records::Journal;
use crate::layout::messages::{everything, key_of};
use crate::model::rule::Counters;
use crate::model::tables::Filter;
use crate::model::truth::Truth;
use crate::server::executors::Executors;
use crate::switch_set::SwitchSet;
use crate::switches::reads::{flows, Parts, Purpose};
use crate::switches::verdict::{each_counted, CountedRules};
use crate::switches::Switches;
use openflow13::{
    group_no, meter_no, FlowStatsRequest, MultipartReply, MultipartRequest, PortStats,
};
use std::sync::Arc;
use std::time::Duration;

/// How often a refused request for statistics that a move needs is repeated.
pub const TRIES: u32 = 3;
/// How long to wait in between if the old home refuses.
pub const PAUSE: Duration = Duration::from_secs(1);

/// Counters of one switch's copies that were added to the virtual rules.
#[derive(Debug)]
pub struct Folded {
    switch: SwitchIndex,
    counters: CountedRules,
}

/// Counters of the copies at `switch` that `new` no longer has.
#[derive(Clone, Debug)]
pub struct LostCopies {
    pub switch: SwitchIndex,
    pub parts: Parts,
    pub old: Executors,
    pub new: Executors,
}

/// Counters to be added to the remaining ones.
#[derive(Clone, Debug)]
pub enum Fold {
    /// Of a port's old interface.
    Port(PortStats),
    /// Of copies of rules at a switch, some of which are to be removed.
    Rules(SwitchIndex, Parts),
    /// Of groups or meters.
    Counted(Parts),
}

impl Switches {
    /// Adds counters of copies of groups or meters.
    pub fn fold_counted(&mut self, truth: &mut Truth, journal: &mut Journal, parts: Parts) {
        let parts = parts.into_iter().map(|(_, part)| part);
        for part in parts.flat_map(each_counted) {
            if let Some(folded) = self.verdicts.fold_counted(&part) {
                folded.tell(journal);
            }
            truth.fold_counted(part);
        }
    }

    /// Adds counters of copies of rules.
    pub fn fold_into_rules(
        &mut self,
        truth: &mut Truth,
        journal: &mut Journal,
        mut counted: CountedRules,
    ) {
        counted.retain(|_, (_, more)| *more != Counters::default());
        for (key, (_, more)) in &counted {
            truth.tables.fold(key, more.packets, more.bytes);
        }
        for folded in self.verdicts.fold_rules(counted) {
            folded.tell(journal);
        }
    }

    /// Requests the counters of the copies that `new` no longer has, ahead of their removal; returns the number of requests. `moving`: the
    /// port whose move waits for the answers.
    pub fn read_lost_counters(
        &mut self,
        truth: &Truth,
        old: &Executors,
        new: &Executors,
        moving: Option<u32>,
    ) -> usize {
        let mut questions = 0;
        for switch in old.all().intersection(self.up()).iter() {
            if !new.all().contains(switch) {
                questions += self.read_groups_and_meters(truth, switch, moving);
            }
            if truth.tables.len() == 0 {
                continue;
            }
            for matching in old.losses(new, switch) {
                let purpose = Purpose::FoldRules {
                    moving,
                    old: old.clone(),
                    new: new.clone(),
                };
                let request = FlowStatsRequest {
                    matching,
                    ..everything()
                };
                let request = MultipartRequest::Flow(request);
                self.read(purpose, Bridge::Virt, SwitchSet::of(switch), request);
                questions += 1;
            }
        }
        questions
    }

    fn read_groups_and_meters(
        &mut self,
        truth: &Truth,
        switch: SwitchIndex,
        moving: Option<u32>,
    ) -> usize {
        let (group, meter) = (group_no::ALL, meter_no::ALL);
        let from = SwitchSet::of(switch);
        let (groups, meters) = (!truth.groups.is_empty(), !truth.meters.is_empty());
        if groups {
            let request = MultipartRequest::Group { group };
            self.read(Purpose::FoldCounters(moving), Bridge::Virt, from, request);
        }
        if meters {
            let request = MultipartRequest::Meter { meter };
            self.read(Purpose::FoldCounters(moving), Bridge::Virt, from, request);
        }
        usize::from(groups) + usize::from(meters)
    }

    /// Adds the counters at `switch` of the rules that `new` no longer gives it. Pending answers to controllers contain the same counters,
    /// if they were requested before request number `before`.
    pub fn fold_rules(
        &mut self,
        truth: &mut Truth,
        journal: &mut Journal,
        lost: LostCopies,
        before: u64,
    ) {
        let LostCopies {
            switch,
            parts,
            old,
            new,
        } = lost;
        let mut counters = CountedRules::default();
        for flow in flows(parts) {
            let Some(rule) = key_of(&flow).and_then(|key| truth.tables.get(&key).cloned()) else {
                continue;
            };
            if !old.of_rule(&rule).contains(switch) || new.of_rule(&rule).contains(switch) {
                continue;
            }
            let more = Counters {
                packets: flow.packet_count,
                bytes: flow.byte_count,
            };
            counters.insert(rule.key.clone(), (rule, more));
        }
        self.fold_into_rules(truth, journal, counters.clone());
        let folded = Arc::new(Folded { switch, counters });
        for early in &mut self.early {
            if early.number < before && early.asked.contains(switch) {
                early.folded.push(Arc::clone(&folded));
            }
        }
        for read in self.reads.values_mut() {
            if read.number < before && read.asked.contains(switch) {
                read.folded.push(Arc::clone(&folded));
            }
        }
    }
}

impl Folded {
    /// Removes from an answer what the rules' own counters already contain.
    pub fn take_from(&self, request: &MultipartRequest, parts: &mut Parts) {
        for (_, part) in parts.iter_mut().filter(|(s, _)| *s == self.switch) {
            match (part, request) {
                (MultipartReply::Flow(flows), _) => {
                    flows.retain(|f| !key_of(f).is_some_and(|k| self.counters.contains_key(&k)));
                }
                (
                    MultipartReply::Aggregate {
                        packet_count,
                        byte_count,
                        ..
                    },
                    MultipartRequest::Aggregate(request),
                ) => {
                    let Some(filter) = Filter::of_statistics(request) else {
                        continue;
                    };
                    let chosen = self.counters.values().filter(|(r, _)| filter.selects(r));
                    for (_, counted) in chosen {
                        *packet_count = packet_count.wrapping_sub(counted.packets);
                        *byte_count = byte_count.wrapping_sub(counted.bytes);
                    }
                }
                _ => {}
            }
        }
    }
}
