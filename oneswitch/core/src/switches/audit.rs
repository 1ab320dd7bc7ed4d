//! Detects external changes to bridges in service.
//!
//! Reads and compares every bridge (sync.rs), periodically and on request: a dump per bridge, and nothing else if nothing differs.

use crate::api::{Bridge, BridgeState, SwitchIndex};
use crate::layout::findings::Findings;
use crate::switches::session::{Found, SessionState};
use crate::switches::Switches;
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// Time for which findings are reported. A difference that is found twice within it keeps coming back.
const RECENT: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Audit {
    interval: Duration,
    next: Instant,
}

/// The result of an audit for one bridge.
#[derive(Debug)]
pub struct BridgeAudit<'a> {
    pub switch: &'a str,
    pub bridge: Bridge,
    pub state: BridgeState,
    /// Whether it has been compared, and has confirmed its repairs, since the request.
    pub is_audited: bool,
    pub found: Option<&'a Found>,
}

fn is_recent(found: &Found, now: Instant) -> bool {
    now.saturating_duration_since(found.at) < RECENT
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
        if let Some(audit) = self.audit.as_mut().filter(|audit| audit.next <= now) {
            audit.next = now + audit.interval;
            self.request_audit(now);
        }
    }

    /// Starts to read and compare every connected bridge; returns the request for [`Self::audited`].
    pub fn request_audit(&mut self, now: Instant) -> u64 {
        let since = self.questions;
        for (switch, bridge) in self.bridges() {
            self.request_resync(switch, bridge, now);
            let session = self.list[switch].session_mut(bridge);
            session.again |= matches!(session.state, SessionState::Syncing(_));
        }
        since
    }

    /// Returns each bridge's result of a requested audit.
    pub fn audited(&self, since: u64, now: Instant) -> impl Iterator<Item = BridgeAudit<'_>> {
        self.bridges().map(move |(switch, bridge)| {
            let session = self.list[switch].session(bridge);
            let found = session.found.as_ref();
            let compared = session.compared.filter(|(begun, _)| *begun >= since);
            BridgeAudit {
                switch: &self.list[switch].name,
                bridge,
                state: session.view(),
                is_audited: compared
                    .is_some_and(|(_, batch)| !self.verdicts.is_awaited(switch, bridge, batch)),
                found: found.filter(|found| is_recent(found, now)),
            }
        })
    }

    fn bridges(&self) -> impl Iterator<Item = (SwitchIndex, Bridge)> + use<> {
        (0..self.list.len()).flat_map(|at| [(at, Bridge::Virt), (at, Bridge::Edge)])
    }

    /// Counts and logs repaired differences; keeps those of a bridge that had been in service.
    pub fn keep_findings(
        &mut self,
        switch: SwitchIndex,
        bridge: Bridge,
        after_gap: bool,
        changes: Findings,
        now: Instant,
    ) {
        let switch = &mut self.list[switch];
        let (name, count) = (&switch.name, changes.count);
        switch.repairs += count as u64;
        if after_gap {
            info!(target: "southbound", switch = %name, ?bridge, changes = count, "is in sync");
        } else if count == 0 {
            debug!(target: "southbound", switch = %name, ?bridge, "is as it should be");
        } else {
            let named = changes.named.join("; ");
            warn!(target: "southbound", switch = %name, ?bridge, changes = count, %named, "differed from what it should have; repaired");
            let found = &mut switch.session_mut(bridge).found;
            let before = found.take().filter(|found| is_recent(found, now));
            let before = before.map_or_else(Vec::new, |found| found.changes.named);
            let again = changes.named.iter().filter(|name| before.contains(name));
            *found = Some(Found {
                at: now,
                again: again.cloned().collect(),
                changes,
            });
        }
    }
}
