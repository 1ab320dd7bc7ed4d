//! The offloaded flows of one virtual port, and the switches that have their rules.

use crate::api::SwitchIndex;
use crate::offload::events::OffloadRefused;
use crate::offload::flows::{Counted, Flow, FlowState, TargetState, Totals};
use crate::offload::requests::{FlowKey, OffloadTarget};
use crate::offload::writers::Writer;
use crate::switch_set::SwitchSet;
use foldhash::HashMap;
use openflow13::ActionList;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

/// The most flows of a port. Those that leave count.
pub const FLOWS: usize = 65_536;
/// The most targets of a port.
pub const TARGETS: usize = 4_096;
/// The most counters of a port at a switch.
pub const COUNTERS: usize = 8_192;
/// Flow-mods and group-mods without a verdict above which the writer is not read.
pub const UNCONFIRMED: usize = 4_096;

/// A switch with rules of a port: its home, or the goal of its move.
#[derive(Debug, Default)]
pub struct Place {
    pub ways: Ways,
    /// The packets that rules here have carried, by their counter, which has a meter here.
    pub metered: BTreeMap<u16, Counted>,
    /// Whether the port has moved away: its rules stay until their cached flows have ended.
    pub is_leaving: bool,
}

/// The last actions of targets at a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// The way on as if the port had sent the packet.
    pub own: ActionList,
    /// The ways on as if another port had sent the packet, for those that targets name and that have an interface here.
    pub peers: BTreeMap<u32, ActionList>,
}

#[derive(Debug, Default)]
pub struct OffloadPort {
    pub writer: Option<Writer>,
    /// Instance and epoch of the last writer.
    pub last: Option<(u128, u64)>,
    /// The time since which no writer is connected.
    pub alone_since: Option<Instant>,
    /// Whether the writer stayed away: all rules are being removed.
    pub is_orphan: bool,
    pub targets: BTreeMap<u16, TargetState>,
    pub flows: HashMap<u64, Flow>,
    keys: HashMap<FlowKey, u64>,
    pub places: BTreeMap<SwitchIndex, Place>,
    /// Switches that it has moved away from and whose counts it has.
    pub left: SwitchSet,
    /// Installs without a verdict, oldest first: batch, xid of the flow-mod, rule.
    pub installing: VecDeque<(u64, u32, u64)>,
    /// Messages without a verdict: batch and number.
    sent: VecDeque<(u64, usize)>,
    pub refused: BTreeMap<OffloadRefused, u64>,
    /// The port as which passed packets leave.
    pub peer: Option<u32>,
    /// Counters of flows whose packets are dropped.
    pub denied: BTreeSet<u16>,
}

impl OffloadPort {
    pub fn is_active(&self) -> bool {
        !self.flows.is_empty() || !self.targets.is_empty()
    }

    /// Returns the port as which the packets of a counter leave; `None`: they are dropped. `number`: this port.
    pub fn leaves_as(&self, number: u32, counter: u16) -> Option<u32> {
        let is_dropped = self.denied.contains(&counter);
        (!is_dropped).then_some(self.peer.unwrap_or(number))
    }

    /// Counts a message to a switch.
    pub fn count_sent(&mut self, batch: u64) {
        match self.sent.back_mut() {
            Some((last, count)) if *last == batch => *count += 1,
            _ => self.sent.push_back((batch, 1)),
        }
    }

    /// Drops settled batches.
    pub fn forget_sent(&mut self, is_settled: impl Fn(u64) -> bool) {
        while self
            .sent
            .front()
            .is_some_and(|(batch, _)| is_settled(*batch))
        {
            self.sent.pop_front();
        }
    }

    /// Tells whether the switches have much of this port to confirm.
    pub fn is_busy(&self) -> bool {
        self.sent.iter().map(|(_, count)| count).sum::<usize>() > UNCONFIRMED
    }

    /// Returns the reason why a rule cannot be installed.
    pub fn refuses(&self, rule: u64, flow: &Flow) -> Option<OffloadRefused> {
        if self.flows.contains_key(&rule) || self.keys.contains_key(&flow.key) {
            return Some(OffloadRefused::Collision);
        }
        let has_counter = |place: &Place| {
            place.metered.len() < COUNTERS || place.metered.contains_key(&flow.counter)
        };
        if self.flows.len() >= FLOWS || !self.places.values().all(has_counter) {
            return Some(OffloadRefused::Full);
        }
        let target = self.targets.get(&flow.target).filter(|t| !t.is_dropped);
        let suits = target.is_some_and(|t| t.target.suits(&flow.key));
        (!suits || !flow.key.is_of_one_version()).then_some(OffloadRefused::Unsupported)
    }

    pub fn refuse(&mut self, reason: OffloadRefused) {
        *self.refused.entry(reason).or_default() += 1;
    }

    pub fn insert(&mut self, rule: u64, flow: Flow) {
        if let Some(target) = self.targets.get_mut(&flow.target) {
            target.users += 1;
            if target.target == OffloadTarget::Deny {
                self.denied.insert(flow.counter);
            }
        }
        self.keys.insert(flow.key, rule);
        self.flows.insert(rule, flow);
    }

    /// Deletes a flow; returns its target's number if that is gone with it.
    pub fn delete(&mut self, rule: u64) -> Option<u16> {
        let flow = self.flows.remove(&rule)?;
        self.keys.remove(&flow.key);
        let target = self.targets.get_mut(&flow.target)?;
        target.users = target.users.saturating_sub(1);
        let is_gone = target.is_dropped && target.users == 0;
        if is_gone {
            self.targets.remove(&flow.target);
        }
        is_gone.then_some(flow.target)
    }

    /// Returns the packets of each counter that has a meter.
    pub fn metered(&self) -> Totals {
        let mut totals = Totals::new();
        for (counter, counted) in self.places.values().flat_map(|place| &place.metered) {
            let total = totals.entry(*counter).or_default();
            *total = total.plus(*counted);
        }
        totals
    }

    /// Returns the rules in a state that `is_chosen`.
    pub fn rules(&self, is_chosen: impl Fn(&Flow) -> bool) -> Vec<u64> {
        let chosen = self.flows.iter().filter(|(_, flow)| is_chosen(flow));
        chosen.map(|(rule, _)| *rule).collect()
    }

    /// Marks rules for removal; returns those that carried.
    pub fn leave(&mut self, rules: &[u64]) -> Vec<u64> {
        let mut leaving = Vec::new();
        for rule in rules {
            if let Some(flow) = self.flows.get_mut(rule).filter(|flow| !flow.is_leaving()) {
                flow.state = FlowState::Leaving;
                leaving.push(*rule);
            }
        }
        leaving
    }

    /// Writes a target. False: there are too many, or flows that name it cannot be rewritten so.
    pub fn put_target(&mut self, number: u16, target: OffloadTarget) -> bool {
        let old = self.targets.get(&number);
        let users = old.map_or(0, |old| old.users);
        let mut flows = self.flows.values().filter(|flow| flow.target == number);
        // Most often the versions are those of the old target, and the flows need not be looked through.
        let suits = users == 0
            || old.is_some_and(|old| old.target.versions() == target.versions())
            || flows.all(|flow| target.suits(&flow.key));
        if !suits || (old.is_none() && self.targets.len() >= TARGETS) {
            return false;
        }
        if let OffloadTarget::Pass(peer) = target {
            self.peer = Some(peer);
        }
        let state = TargetState {
            target,
            users,
            is_dropped: false,
        };
        self.targets.insert(number, state);
        true
    }

    /// Drops a target; returns whether no flow names it.
    pub fn drop_target(&mut self, number: u16) -> bool {
        let Some(target) = self.targets.get_mut(&number) else {
            return false;
        };
        target.is_dropped = true;
        let is_unused = target.users == 0;
        if is_unused {
            self.targets.remove(&number);
        }
        is_unused
    }

    /// Keeps the count of a meter; returns the former one if the switch has lost it.
    pub fn see(&mut self, switch: SwitchIndex, counter: u16, counted: Counted) -> Option<Counted> {
        let place = self.places.get_mut(&switch)?;
        let seen = place.metered.get_mut(&counter)?;
        let before = std::mem::replace(seen, counted);
        (before.packets > counted.packets).then_some(before)
    }

    /// Tells whether a flow that carries names a counter.
    pub fn uses(&self, counter: u16) -> bool {
        let mut flows = self.flows.values();
        flows.any(|flow| flow.counter == counter && !flow.is_leaving())
    }

    /// Drops all targets; returns those that no flow names.
    pub fn drop_targets(&mut self) -> Vec<u16> {
        let numbers: Vec<u16> = self.targets.keys().copied().collect();
        let unused = numbers
            .into_iter()
            .filter(|number| self.drop_target(*number));
        unused.collect()
    }
}
