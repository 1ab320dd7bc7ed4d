//! Rules on their way out: cached flows of the data path may act for a while after the rule, and their counts come later still.

use crate::api::SwitchIndex;
use crate::switch_set::SwitchSet;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time after which cached flows are taken to have ended, if the switch cannot tell.
pub const SETTLES: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The switches have not confirmed the messages of this batch.
    Confirming(u64),
    /// Cached flows end: until then at the latest, or when these switches say so.
    Ending(Instant, SwitchSet),
    /// The final counts are being read.
    Reading,
}

/// Rules that leave together.
#[derive(Debug)]
pub struct Drain {
    pub port: u32,
    /// `None`: all rules of the port at `switches`, which it has moved away from.
    pub rules: Option<Vec<u64>>,
    pub switches: SwitchSet,
    pub stage: Stage,
}

/// Drains that wait for the cached flows of a switch.
#[derive(Debug, Default)]
struct Wait {
    /// Those whose wait has begun.
    running: Vec<u64>,
    next: Vec<u64>,
}

#[derive(Debug, Default)]
pub struct Drains {
    pub list: BTreeMap<u64, Drain>,
    last: u64,
    waits: BTreeMap<SwitchIndex, Wait>,
    /// Switches to ask for the end of their cached flows.
    orders: Vec<SwitchIndex>,
}

impl Drains {
    pub fn push(&mut self, drain: Drain) {
        self.last += 1;
        self.list.insert(self.last, drain);
    }

    /// Asks `switches` for the end of their present cached flows.
    pub fn await_end(&mut self, id: u64, switches: SwitchSet) {
        for switch in switches.iter() {
            let wait = self.waits.entry(switch).or_default();
            if wait.running.is_empty() {
                wait.running.push(id);
                self.orders.push(switch);
            } else {
                wait.next.push(id);
            }
        }
    }

    pub fn take_orders(&mut self) -> Vec<SwitchIndex> {
        std::mem::take(&mut self.orders)
    }

    /// Records that a switch's cached flows at the time of the last order have ended, or that it does not tell.
    pub fn ended(&mut self, switch: SwitchIndex, has_ended: bool) {
        let Some(wait) = self.waits.get_mut(&switch) else {
            return;
        };
        let ended = std::mem::replace(&mut wait.running, std::mem::take(&mut wait.next));
        if !wait.running.is_empty() {
            self.orders.push(switch);
        }
        for id in ended.into_iter().filter(|_| has_ended) {
            if let Some(Drain {
                stage: Stage::Ending(_, on),
                ..
            }) = self.list.get_mut(&id)
            {
                on.remove(switch);
            }
        }
    }

    /// Returns a drain whose final counts are read; if they were lost, it waits for the switches again.
    pub fn answered(&mut self, id: u64, is_lost: bool, batch: u64) -> Option<Drain> {
        let drain = self.list.get_mut(&id)?;
        if is_lost {
            drain.stage = Stage::Confirming(batch);
            return None;
        }
        self.list.remove(&id)
    }

    pub fn deadline(&self) -> Option<Instant> {
        let stages = self.list.values().map(|drain| drain.stage);
        let deadlines = stages.filter_map(|stage| match stage {
            Stage::Ending(until, _) => Some(until),
            _ => None,
        });
        deadlines.min()
    }

    /// Drops the drains of a deleted port.
    pub fn forget_port(&mut self, number: u32) {
        self.list.retain(|_, drain| drain.port != number);
    }
}
