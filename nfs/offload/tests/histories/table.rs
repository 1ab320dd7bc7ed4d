//! A table that carries flows, with the delays and refusals of real ones, and two or more writers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use nf_offload::{
    Capabilities, CounterId, Counts, Driver, Event, FlowKey, Listed, Listing, Matches, Refused,
    Request, Rewrites, RuleId, Target, TargetId, Unavailable, Writer,
};

use crate::model::Model;

/// Bytes of a packet.
const BYTES: u64 = 100;

#[derive(Clone, Copy, Debug)]
struct Rule {
    flow: FlowKey,
    target: TargetId,
    counter: CounterId,
    packets: u64,
    /// Removed, and some packets may still take it.
    fades: bool,
}

#[derive(Debug, Default)]
struct Inner {
    writer: Option<Writer>,
    rules: BTreeMap<RuleId, Rule>,
    targets: BTreeMap<TargetId, Target>,
    /// The packets of all rules that ever named a counter.
    totals: BTreeMap<CounterId, u64>,
    waiting: VecDeque<Request>,
    events: VecDeque<Event>,
}

impl Inner {
    fn tell(&mut self, counter: CounterId) {
        let packets = self.totals.get(&counter).copied().unwrap_or_default();
        let event = Event::Carried(counter, packets, packets * BYTES);
        self.events.push_back(event);
    }
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<Inner>>);

/// One writer's access.
pub struct Handle {
    table: Table,
    writer: Writer,
    /// It has asked for the listing, so earlier writers are refused.
    has_begun: bool,
    is_listed: bool,
}

impl Table {
    /// More than this many unworked requests are not taken.
    const QUEUE: usize = 5;

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    fn handle(&self, writer: Writer) -> Handle {
        Handle {
            table: self.clone(),
            writer,
            has_begun: false,
            is_listed: false,
        }
    }

    /// Returns a target's content. (For tests of functions.)
    #[allow(dead_code)]
    pub fn target(&self, id: TargetId) -> Option<Target> {
        self.inner().targets.get(&id).copied()
    }
}

impl Model for Table {
    type Handle = Handle;

    const FLOWS: usize = 6;
    const COUNTS: bool = true;

    fn writer(&self, instance: u128, epoch: u64) -> Handle {
        self.handle(Writer { instance, epoch })
    }

    fn carry(&self, flow: FlowKey, fades_too: bool) -> Option<TargetId> {
        let inner = &mut *self.inner();
        let takes = |rule: &&mut Rule| rule.flow == flow && (fades_too || !rule.fades);
        let rule = inner.rules.values_mut().find(takes)?;
        rule.packets += 1;
        *inner.totals.entry(rule.counter).or_default() += 1;
        Some(rule.target)
    }

    fn work(&self, refuses: Option<Refused>) {
        let inner = &mut *self.inner();
        match inner.waiting.pop_front() {
            None => {}
            Some(Request::PutTarget(id, target)) => {
                inner.targets.insert(id, target);
            }
            Some(Request::DropTarget(id)) => {
                assert!(
                    inner.rules.values().all(|rule| rule.target != id),
                    "{id:?} is dropped under its flows"
                );
                assert!(inner.targets.remove(&id).is_some());
            }
            Some(Request::Install(rule, flow, target, counter, _)) => {
                assert!(inner.targets.contains_key(&target), "{target:?} is missing");
                assert!(
                    inner.rules.values().all(|rule| rule.flow != flow),
                    "a second rule of a flow whose first may act"
                );
                let is_full = inner.rules.len() >= Self::FLOWS;
                let why = refuses.or_else(|| is_full.then_some(Refused::Full));
                if let Some(why) = why {
                    inner.events.push_back(Event::Refused(rule, why));
                    return;
                }
                let carried = Rule {
                    flow,
                    target,
                    counter,
                    packets: 0,
                    fades: false,
                };
                assert!(inner.rules.insert(rule, carried).is_none());
                inner.events.push_back(Event::Installed(rule));
            }
            Some(Request::Remove(id)) => match inner.rules.get_mut(&id) {
                Some(rule) => rule.fades = true,
                None => inner.events.push_back(Event::Effective(id)),
            },
        }
    }

    fn settle(&self) {
        let inner = &mut *self.inner();
        let rules = std::mem::take(&mut inner.rules);
        for (id, rule) in rules {
            if rule.fades {
                inner.tell(rule.counter);
                inner.events.push_back(Event::Effective(id));
            } else {
                inner.rules.insert(id, rule);
            }
        }
    }

    fn count(&self) {
        let inner = &mut *self.inner();
        for (id, rule) in &inner.rules {
            inner.events.push_back(Event::Counted(*id, rule.packets));
        }
        let counters: Vec<CounterId> = inner.totals.keys().copied().collect();
        counters.into_iter().for_each(|counter| inner.tell(counter));
    }

    fn totals(&self) -> BTreeMap<CounterId, u64> {
        self.inner().totals.clone()
    }

    fn lose_totals(&self) {
        let inner = &mut *self.inner();
        let is_report = |event: &Event| matches!(event, Event::Carried(..));
        inner.events.retain(|event| !is_report(event));
        for counter in std::mem::take(&mut inner.totals).into_keys() {
            inner.tell(counter);
        }
    }

    fn reset(&self) {
        let inner = &mut *self.inner();
        inner.rules.clear();
        inner.targets.clear();
        inner.totals.clear();
        inner.waiting.clear();
        inner.events.clear();
        inner.events.push_back(Event::Reset);
    }

    fn acting(&self) -> Vec<(FlowKey, TargetId)> {
        let rules = &self.inner().rules;
        rules
            .values()
            .map(|rule| (rule.flow, rule.target))
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.inner().rules.is_empty()
    }
}

impl nf_offload::Table for Table {
    fn open(&mut self, writer: Writer, _: usize) -> Result<Box<dyn Driver + Send>, Unavailable> {
        Ok(Box::new(self.handle(writer)))
    }
}

impl Handle {
    fn is_replaced(&self, inner: &Inner) -> bool {
        self.has_begun && inner.writer != Some(self.writer)
    }

    /// Takes the table over: requests of earlier writers are void, and the rules of another instance are removed.
    fn begin(&mut self, inner: &mut Inner) {
        self.has_begun = true;
        let former = inner.writer.replace(self.writer);
        match former {
            Some(former) if former.instance == self.writer.instance => {
                assert!(former.epoch <= self.writer.epoch);
            }
            _ => inner.rules.values_mut().for_each(|rule| rule.fades = true),
        }
        inner.waiting.clear();
    }
}

impl Driver for Handle {
    fn capabilities(&self) -> Option<Capabilities> {
        Some(Capabilities {
            flows: Table::FLOWS as u32,
            targets: 4,
            installs_per_s: 1000,
            effective_ms: 500,
            matches: Matches {
                ipv4: true,
                ipv6: true,
                leaves_ends: true,
            },
            rewrites: Rewrites {
                source: true,
                destination: true,
                vxlan: false,
                pass: true,
                deny: true,
            },
            counts: Counts::Exact,
        })
    }

    fn submit(&mut self, requests: &[Request]) -> usize {
        let inner = &mut *self.table.inner();
        // Until it is told of a reset, the writer's requests are void.
        if self.is_replaced(inner) || inner.events.contains(&Event::Reset) {
            return requests.len();
        }
        let room = Table::QUEUE.saturating_sub(inner.waiting.len());
        let taken = requests.len().min(room);
        inner.waiting.extend(&requests[..taken]);
        taken
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        let inner = &mut *self.table.inner();
        if self.is_replaced(inner) {
            events.push(Event::Refused(RuleId(0), Refused::StaleWriter));
        } else if self.is_listed {
            events.extend(inner.events.drain(..));
        }
        Ok(())
    }

    fn list(&mut self) -> Option<Listing> {
        let table = self.table.clone();
        let inner = &mut *table.inner();
        if !self.has_begun {
            self.begin(inner);
        }
        if inner.rules.values().any(|rule| rule.fades) {
            return None;
        }
        self.is_listed = true;
        inner.events.clear();
        let rules = inner.rules.iter().map(|(id, rule)| Listed {
            rule: *id,
            flow: rule.flow,
            target: rule.target,
            counter: rule.counter,
        });
        let totals = inner.totals.iter();
        Some(Listing {
            rules: rules.collect(),
            carried: totals
                .map(|(counter, packets)| (*counter, *packets, packets * BYTES))
                .collect(),
        })
    }
}
