//! A table that carries flows, with the delays and refusals of real ones, and two or more writers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use nf_offload::{
    Capabilities, Counts, Driver, Effect, Event, FlowKey, Listed, Matches, Refused, Request,
    Rewrites, RuleId, Target, TargetId, Unavailable, Writer,
};

/// The state of a rule in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Carries,
    /// Removed, and some packets may still take it.
    Fades,
    /// Removed, effectively; the counts wait to be forgotten.
    Counted,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    flow: FlowKey,
    target: TargetId,
    packets: u64,
    phase: Phase,
}

#[derive(Debug, Default)]
struct Inner {
    epoch: u64,
    rules: BTreeMap<RuleId, Rule>,
    targets: BTreeMap<TargetId, Target>,
    waiting: VecDeque<Request>,
    events: VecDeque<Event>,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<Inner>>);

/// One writer's access.
pub struct Handle {
    table: Table,
    writer: Writer,
}

impl Table {
    pub const FLOWS: usize = 6;
    /// More than this many unworked requests are not taken.
    const QUEUE: usize = 5;

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub fn writer(&self, epoch: u64) -> Handle {
        let writer = Writer { instance: 1, epoch };
        Handle {
            table: self.clone(),
            writer,
        }
    }

    /// Carries a packet; returns the target, or None: it goes to the function. Of rules that fade, any may take it.
    pub fn carry(&self, flow: FlowKey, fades_too: bool) -> Option<TargetId> {
        let mut inner = self.inner();
        let takes = |rule: &&mut Rule| {
            rule.flow == flow
                && (rule.phase == Phase::Carries || (fades_too && rule.phase == Phase::Fades))
        };
        let rule = inner.rules.values_mut().find(takes)?;
        rule.packets += 1;
        Some(rule.target)
    }

    /// Returns a target's content. (For tests of functions.)
    #[allow(dead_code)]
    pub fn target(&self, id: TargetId) -> Option<Target> {
        self.inner().targets.get(&id).copied()
    }

    /// Works on the oldest request. `refuses`: an install gets this answer.
    pub fn work(&self, refuses: Option<Refused>) {
        let inner = &mut *self.inner();
        match inner.waiting.pop_front() {
            None => {}
            Some(Request::PutTarget(id, target)) => {
                inner.targets.insert(id, target);
            }
            Some(Request::DropTarget(id)) => {
                assert!(
                    !inner
                        .rules
                        .values()
                        .any(|rule| rule.target == id && rule.phase != Phase::Counted),
                    "{id:?} is dropped under its flows"
                );
                assert!(inner.targets.remove(&id).is_some());
            }
            Some(Request::Install(rule, flow, target, _)) => {
                assert!(inner.targets.contains_key(&target), "{target:?} is missing");
                let acts = inner
                    .rules
                    .values()
                    .filter(|rule| rule.phase != Phase::Counted);
                assert!(
                    acts.clone().all(|rule| rule.flow != flow),
                    "a second rule of a flow whose first may act"
                );
                let why =
                    refuses.or_else(|| (acts.count() >= Self::FLOWS).then_some(Refused::Full));
                if let Some(why) = why {
                    inner.events.push_back(Event::Refused(rule, why));
                    return;
                }
                let carried = Rule {
                    flow,
                    target,
                    packets: 0,
                    phase: Phase::Carries,
                };
                assert!(inner.rules.insert(rule, carried).is_none());
                inner.events.push_back(Event::Installed(rule));
            }
            Some(Request::Remove(id)) => {
                let Some(rule) = inner.rules.get_mut(&id) else {
                    inner.events.push_back(Event::Removed(id, 0, 0));
                    inner.events.push_back(Event::Effective(id));
                    return;
                };
                let phase = rule.phase;
                if phase == Phase::Carries {
                    rule.phase = Phase::Fades;
                }
                inner
                    .events
                    .push_back(Event::Removed(id, rule.packets, rule.packets * 100));
                if phase == Phase::Counted {
                    inner.events.push_back(Event::Effective(id));
                }
            }
            Some(Request::Forget(id)) => {
                if let Some(rule) = inner.rules.get(&id) {
                    assert_eq!(rule.phase, Phase::Counted, "the counts may still grow");
                    inner.rules.remove(&id);
                }
            }
        }
    }

    /// Ends the fading of all removed rules: packets on the way have left.
    pub fn settle(&self) {
        let inner = &mut *self.inner();
        for (id, rule) in &mut inner.rules {
            if rule.phase == Phase::Fades {
                rule.phase = Phase::Counted;
                inner
                    .events
                    .push_back(Event::Removed(*id, rule.packets, rule.packets * 100));
                inner.events.push_back(Event::Effective(*id));
            }
        }
    }

    /// Tells the counts of all rules that carry.
    pub fn count(&self) {
        let inner = &mut *self.inner();
        for (id, rule) in &inner.rules {
            if rule.phase == Phase::Carries {
                let event = Event::Counted(*id, rule.packets, rule.packets * 100);
                inner.events.push_back(event);
            }
        }
    }

    /// Loses everything; returns the packets whose counts are lost. `told`: the packets that the ledger has added of each rule.
    pub fn reset(&self, told: &BTreeMap<RuleId, u64>) -> u64 {
        let inner = &mut *self.inner();
        // The ledger has added all of a rule that it knows no more.
        let added = |id: &RuleId, packets| told.get(id).copied().unwrap_or(packets);
        let lost: u64 = inner
            .rules
            .iter()
            .map(|(id, rule)| rule.packets - added(id, rule.packets))
            .sum();
        inner.rules.clear();
        inner.targets.clear();
        inner.waiting.clear();
        inner.events.clear();
        inner.events.push_back(Event::Reset);
        lost
    }

    /// Returns the flow and target of each rule that may act.
    pub fn acting(&self) -> Vec<(FlowKey, TargetId)> {
        let inner = self.inner();
        let acts = inner
            .rules
            .values()
            .filter(|rule| rule.phase != Phase::Counted);
        acts.map(|rule| (rule.flow, rule.target)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.inner().rules.is_empty()
    }
}

impl nf_offload::Table for Table {
    fn open(&mut self, writer: Writer) -> Result<Box<dyn Driver + Send>, Unavailable> {
        Ok(Box::new(Handle {
            table: self.clone(),
            writer,
        }))
    }
}

impl Driver for Handle {
    fn capabilities(&self) -> Option<Capabilities> {
        Some(Capabilities {
            flows: Table::FLOWS as u32,
            targets: 4,
            installs_per_s: 1000,
            effect: Effect::Within(500),
            matches: Matches {
                ipv4: true,
                ipv6: true,
                leaves_ends: true,
            },
            rewrites: Rewrites {
                source: true,
                destination: true,
                vxlan: false,
            },
            counts: Counts::Exact,
        })
    }

    fn submit(&mut self, requests: &[Request]) -> usize {
        let inner = &mut *self.table.inner();
        // Until it is told of a reset, the writer's requests are void.
        if self.writer.epoch < inner.epoch || inner.events.contains(&Event::Reset) {
            return requests.len();
        }
        let room = Table::QUEUE.saturating_sub(inner.waiting.len());
        let taken = requests.len().min(room);
        inner.waiting.extend(&requests[..taken]);
        taken
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        let inner = &mut *self.table.inner();
        if self.writer.epoch < inner.epoch {
            events.push(Event::Refused(RuleId(0), Refused::StaleWriter));
            return Ok(());
        }
        events.extend(inner.events.drain(..));
        Ok(())
    }

    fn list(&mut self) -> Option<Vec<Listed>> {
        let inner = &mut *self.table.inner();
        assert!(self.writer.epoch >= inner.epoch);
        inner.epoch = self.writer.epoch;
        inner.waiting.clear();
        inner.events.clear();
        let listed = inner.rules.iter().map(|(id, rule)| Listed {
            rule: *id,
            is_removed: rule.phase != Phase::Carries,
            flow: rule.flow,
            target: rule.target,
            packets: rule.packets,
            bytes: rule.packets * 100,
        });
        Some(listed.collect())
    }
}
