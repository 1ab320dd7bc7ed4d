//! Idle flows (3.3.3): the NIC signals the first packet of a flow in each period, and the software deletes flows without signals.

use std::time::Duration;

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

/// The reason for which times cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Idle flows must be deleted after 1 to 254 periods.
    Periods { idle: Duration, period: Duration },
    /// The software's record must outlive the entry by a period: a flow whose entry is gone needs it to keep its real server.
    Lifetime { record: Duration, needed: Duration },
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Periods { idle, period } => write!(
                f,
                "entries idle for {idle:?} cannot be found with a period of {period:?}: the time must have 1 to 254 periods"
            ),
            Self::Lifetime { record, needed } => write!(
                f,
                "records live for {record:?}, which is not long enough: they must outlive the entries, which live for up to {needed:?}"
            ),
        }
    }
}

impl std::error::Error for Unusable {}

/// The ages of offloaded flows, at the load balancer, which numbers them densely.
#[derive(Clone, Debug)]
pub struct Aging {
    /// For each flow, the periods until it counts as idle. 0: not offloaded.
    left: Vec<u8>,
    /// Of a flow that has just signalled: the periods of the idle time, and the current one.
    fresh: u8,
}

impl Aging {
    /// Makes ages for flows 0 to `flows - 1`. Flows without signals for `idle` expire. `record` is the lifetime of the software's own records.
    ///
    /// # Errors
    /// If the times do not go together.
    pub fn new(
        flows: usize,
        period: Duration,
        idle: Duration,
        record: Duration,
    ) -> Result<Self, Unusable> {
        let periods = idle.as_nanos().div_ceil(period.as_nanos().max(1));
        let fresh = u8::try_from(periods + 1).ok().filter(|_| periods > 0);
        let fresh = fresh.ok_or(Unusable::Periods { idle, period })?;
        // A signal may come at the beginning of a period, and the last packet at its end.
        let needed = period * (u32::from(fresh) + 1);
        if record <= needed {
            return Err(Unusable::Lifetime { record, needed });
        }
        Ok(Self {
            left: vec![0; flows],
            fresh,
        })
    }

    /// A flow was offloaded.
    #[inline]
    pub fn begin(&mut self, flow: u32) {
        self.left[flow as usize] = self.fresh;
    }

    /// A flow was active. Signals of flows that are not offloaded any more, which were on their way, are ignored.
    #[inline]
    pub fn signal(&mut self, flow: u32) {
        let left = &mut self.left[flow as usize];
        if *left != 0 {
            *left = self.fresh;
        }
    }

    /// A flow's entry was deleted.
    #[inline]
    pub fn forget(&mut self, flow: u32) {
        self.left[flow as usize] = 0;
    }

    /// Ends a period of these flows; passes those that have been idle for so long that their entries must be deleted, once each.
    pub fn end_period(&mut self, flows: std::ops::Range<usize>, expired: &mut dyn FnMut(u32)) {
        let end = flows.end.min(self.left.len());
        for flow in flows.start.min(end)..end {
            match self.left[flow] {
                0 => {}
                1 => {
                    self.left[flow] = 0;
                    expired(flow as u32);
                }
                left => self.left[flow] = left - 1,
            }
        }
    }
}
