//! Detects external changes to bridges in service.
//!
//! Periodically reads and compares every bridge (sync.rs): a dump per bridge, and nothing else if nothing differs.

use crate::api::{Bridge, SwitchIndex};
use crate::switches::Switches;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

#[derive(Debug)]
pub struct Audit {
    interval: Duration,
    next: Instant,
}

impl Switches {
    /// Compares every bridge with its wanted state, once per `interval`; zero: never.
    pub fn set_audit(&mut self, interval: Duration, now: Instant) {
        self.audit = (!interval.is_zero()).then(|| Audit {
            interval,
            next: now + interval,
        });
    }

    pub fn next_audit(&self) -> Option<Instant> {
        self.audit.as_ref().map(|audit| audit.next)
    }

    pub fn audit_overdue(&mut self, now: Instant) {
        let Some(audit) = self.audit.as_mut().filter(|audit| audit.next <= now) else {
            return;
        };
        audit.next = now + audit.interval;
        for switch in 0..self.list.len() {
            for bridge in [Bridge::Virt, Bridge::Edge] {
                // A bridge that is being read is compared anyway.
                if self.list[switch].session(bridge).resync.is_none() {
                    self.request_resync(switch, bridge, now);
                }
            }
        }
    }

    /// Logs the result of comparing a bridge in service.
    pub fn report_audit(&mut self, switch: SwitchIndex, bridge: Bridge, changes: usize) {
        let name = &self.list[switch].name;
        if changes > 0 {
            warn!(target: "southbound", switch = %name, ?bridge, changes, "differed from what it should have; repaired");
        } else {
            debug!(target: "southbound", switch = %name, ?bridge, "is as it should be");
        }
    }
}
