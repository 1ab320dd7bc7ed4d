//! Idle flows (3.3.3): the NIC signals the first packet of a flow in each period, and the software deletes flows without signals.

use std::{collections::HashMap, time::Duration};

use foldhash::fast::RandomState;
use nf_offload::FlowKey;

#[cfg(test)]
mod tests;

/// When the NIC ends the periods of its slots: not of all at once, which would bring the signals of all flows at once, but evenly over the period.
#[derive(Clone, Debug)]
pub struct Sweep {
    groups: std::ops::Range<u32>,
    period: Duration,
    /// Groups ended since the start.
    ended: u64,
    started: u64,
}

impl Sweep {
    /// Begins at `now`, in nanoseconds, with the slots of an engine.
    #[must_use]
    pub fn new(slots: std::ops::Range<u32>, period: Duration, now: u64) -> Self {
        Self {
            groups: slots.start / 64..slots.end.div_ceil(64),
            period: period.max(Duration::from_nanos(1)),
            ended: 0,
            started: now,
        }
    }

    /// Passes each group of 64 slots whose period ends by `now`: for [`Engine::end_period`](crate::Engine::end_period).
    pub fn advance(&mut self, now: u64, each: &mut dyn FnMut(u32)) {
        let groups = self.groups.len() as u128;
        let passed = u128::from(now.saturating_sub(self.started));
        let due = (passed * groups / self.period.as_nanos()) as u64;
        // After a long pause, the periods of each group end once: nothing is known about those between.
        self.ended = self.ended.max(due.saturating_sub(groups as u64));
        while self.ended < due {
            each(self.groups.start + (self.ended % groups as u64) as u32);
            self.ended += 1;
        }
    }
}

/// The most signals that the NIC sends. A flow whose signal must wait keeps its bit clear, so that its next packet tries again.
#[derive(Clone, Debug)]
pub struct SignalBudget {
    /// Nanoseconds between two signals.
    interval: u64,
    /// The time when the budget is full again.
    full_at: u64,
    burst: u64,
}

impl SignalBudget {
    /// Allows this many signals per second, and as many at once as come in `burst`.
    #[must_use]
    pub fn new(per_s: u32, burst: Duration) -> Self {
        Self {
            interval: 1_000_000_000_u64.div_ceil(per_s.max(1).into()),
            full_at: 0,
            burst: burst.as_nanos() as u64,
        }
    }

    /// Tells whether a signal may be sent at `now`, in nanoseconds, and counts it.
    #[inline]
    pub fn take(&mut self, now: u64) -> bool {
        let full_at = self.full_at.max(now) + self.interval;
        if full_at - now > self.burst.max(self.interval) {
            return false;
        }
        self.full_at = full_at;
        true
    }
}

/// The most periods of the idle time. [`Aging`] takes longer ones if there were more.
const MOST_PERIODS: u32 = 254;

/// The ages of offloaded flows, at the load balancer. Its own records of them must outlive their entries.
#[derive(Clone, Debug)]
pub struct Aging {
    numbers: HashMap<FlowKey, u32, RandomState>,
    /// The flow with each number.
    flows: Vec<FlowKey>,
    /// For each number, the periods until the flow counts as idle. 0: no flow, or one that has been told.
    left: Vec<u8>,
    free: Vec<u32>,
    /// Of a flow that has just signalled: the periods of the idle time, and the current one.
    fresh: u8,
    /// Nanoseconds.
    period: u64,
    /// The start of the current period, and the first number whose period has not ended since.
    started: u64,
    next: usize,
}

impl Aging {
    /// Begins at `now`, in nanoseconds. Flows without signals for `idle` expire; active ones signal once in each `period`.
    #[must_use]
    pub fn new(period: Duration, idle: Duration, now: u64) -> Self {
        let mut aging = Self {
            numbers: HashMap::default(),
            flows: Vec::new(),
            left: Vec::new(),
            free: Vec::new(),
            fresh: 0,
            period: 0,
            started: now,
            next: 0,
        };
        aging.set(period, idle);
        aging
    }

    /// Changes the times.
    pub fn set(&mut self, period: Duration, idle: Duration) {
        let period = period.max(idle / MOST_PERIODS).as_nanos().max(1);
        let periods = idle.as_nanos().div_ceil(period).max(1);
        self.period = u64::try_from(period).unwrap_or(u64::MAX);
        self.fresh = u8::try_from(periods + 1).unwrap_or(u8::MAX);
    }

    /// A flow was offloaded.
    pub fn begin(&mut self, flow: FlowKey) {
        let number = *self.numbers.entry(flow).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.flows.push(flow);
                self.left.push(0);
                self.flows.len() as u32 - 1
            })
        });
        self.flows[number as usize] = flow;
        self.left[number as usize] = self.fresh;
    }

    /// A flow was active. Signals of flows that are not offloaded any more, which were on their way, are ignored.
    #[inline]
    pub fn signal(&mut self, flow: &FlowKey) {
        let Some(number) = self.numbers.get(flow) else {
            return;
        };
        let left = &mut self.left[*number as usize];
        if *left != 0 {
            *left = self.fresh;
        }
    }

    /// A flow's entry was deleted.
    pub fn forget(&mut self, flow: &FlowKey) {
        if let Some(number) = self.numbers.remove(flow) {
            self.left[number as usize] = 0;
            self.free.push(number);
        }
    }

    /// Ends the periods that end by `now`, evenly over the period; passes flows that have been idle for so long that their entries must be deleted, once
    /// each.
    pub fn advance(&mut self, now: u64, expired: &mut dyn FnMut(FlowKey)) {
        if now.saturating_sub(self.started) >= self.period {
            self.end(self.left.len(), expired);
            // After a long pause, each flow's period has ended once: its signals may wait.
            self.started = (self.started + self.period).max(now.saturating_sub(self.period - 1));
            self.next = 0;
        }
        let passed = u128::from(now.saturating_sub(self.started));
        let due = passed * self.left.len() as u128 / u128::from(self.period);
        self.end(due as usize, expired);
    }

    /// Ends the period of the flows up to this number.
    fn end(&mut self, until: usize, expired: &mut dyn FnMut(FlowKey)) {
        for number in self.next..until.min(self.left.len()) {
            let left = &mut self.left[number];
            if *left == 1 {
                expired(self.flows[number]);
            }
            *left = left.saturating_sub(1);
        }
        self.next = self.next.max(until);
    }
}
