//! The rules of a session, and what their entries do.

use std::collections::{BTreeMap, HashMap};

use nf_offload::{CounterId, FlowKey, RuleId, TargetId};

use super::{operations::Work, rows::Rows};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has, or will have, an entry.
    Carries,
    /// Its entry is being deleted.
    Leaves,
    /// Its entry is gone; packets may be on their way.
    Fades,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    flow: FlowKey,
    target: TargetId,
    counter: CounterId,
    port: u16,
    state: State,
}

/// All rules. The function asks for no second one of a flow until the first is effectively gone.
#[derive(Default)]
pub struct Rules {
    rules: HashMap<RuleId, Rule>,
    flows: HashMap<FlowKey, RuleId>,
    /// Rules that fade, by the number of the barrier that ends it.
    fading: BTreeMap<u64, Vec<RuleId>>,
}

impl Rules {
    pub fn add(
        &mut self,
        rule: RuleId,
        flow: FlowKey,
        target: TargetId,
        counter: CounterId,
        port: u16,
    ) {
        self.flows.insert(flow, rule);
        self.rules.insert(
            rule,
            Rule {
                flow,
                target,
                counter,
                port,
                state: State::Carries,
            },
        );
    }

    /// Returns the flow of a rule that carries it.
    pub fn flow_of(&self, rule: RuleId) -> Option<FlowKey> {
        let known = self.rules.get(&rule)?;
        (known.state == State::Carries).then_some(known.flow)
    }

    pub fn rule_of(&self, flow: &FlowKey) -> Option<RuleId> {
        self.flows.get(flow).copied()
    }

    pub fn is_leaving(&self, rule: RuleId) -> bool {
        self.rules
            .get(&rule)
            .is_some_and(|rule| rule.state != State::Carries)
    }

    /// Notes that a rule's entry is being deleted.
    pub fn remove(&mut self, rule: RuleId) {
        if let Some(rule) = self.rules.get_mut(&rule) {
            rule.state = State::Leaves;
        }
    }

    /// Returns the rule whose entry was inserted.
    pub fn installed(&self, flow: &FlowKey) -> Option<RuleId> {
        self.rule_of(flow).filter(|rule| !self.is_leaving(*rule))
    }

    /// Forgets the rule of a flow that has no entry; returns it, unless its removal was asked for, whose end is told.
    pub fn refused(&mut self, flow: &FlowKey) -> Option<RuleId> {
        let rule = self.installed(flow)?;
        self.rules.remove(&rule);
        self.flows.remove(flow);
        Some(rule)
    }

    /// Notes that the entry of a flow was deleted; the rule is effectively gone with this barrier.
    pub fn deleted(&mut self, flow: &FlowKey, barrier: u64) {
        self.fade(flow, barrier, State::Leaves);
    }

    /// Notes that the entry of a flow gave its place to another one. If its removal was asked for, the end of that counts.
    pub fn evicted(&mut self, flow: &FlowKey, barrier: u64) {
        self.fade(flow, barrier, State::Carries);
    }

    fn fade(&mut self, flow: &FlowKey, barrier: u64, from: State) {
        let Some(id) = self.rule_of(flow) else {
            return;
        };
        if let Some(rule) = self.rules.get_mut(&id).filter(|rule| rule.state == from) {
            rule.state = State::Fades;
            self.fading.entry(barrier).or_default().push(id);
        }
    }

    /// Tells whether an operation, which was done or not, must be done again.
    pub fn wants(&self, work: &Work) -> bool {
        let (Work::Insert(flow, ..) | Work::Delete(flow)) = work;
        let rule = self.rule_of(flow).and_then(|rule| self.rules.get(&rule));
        let state = rule.map(|rule| rule.state);
        match work {
            Work::Insert(..) => state == Some(State::Carries),
            Work::Delete(_) => state == Some(State::Leaves),
        }
    }

    /// Tells whether rules wait for this barrier.
    pub fn has_fading(&self, barrier: u64) -> bool {
        self.fading.contains_key(&barrier)
    }

    /// Forgets the rules that are effectively gone, because this barrier has passed, and returns them.
    pub fn faded(&mut self, passed: u64) -> impl Iterator<Item = RuleId> + use<> {
        let rest = self.fading.split_off(&(passed + 1));
        let gone: Vec<RuleId> = std::mem::replace(&mut self.fading, rest)
            .into_values()
            .flatten()
            .collect();
        for id in &gone {
            if let Some(rule) = self.rules.remove(id) {
                self.flows.remove(&rule.flow);
            }
        }
        gone.into_iter()
    }

    /// Returns the flows of a target, with their row and port, whose entries have another port than the target.
    pub fn with_other_port(&mut self, id: TargetId, rows: &Rows) -> Vec<(FlowKey, u16, u16)> {
        let Some(port) = rows.port_of(id) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for rule in self.rules.values_mut() {
            if rule.target == id && rule.port != port && rule.state == State::Carries {
                rule.port = port;
                found.push((rule.flow, rule.counter.0, port));
            }
        }
        found
    }
}
