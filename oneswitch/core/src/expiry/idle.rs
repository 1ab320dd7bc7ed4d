//! Idle timeouts of rules with several copies: a copy's own timer would fire while another copy is busy, so the copies have none and their
//! counters are compared here.

use crate::api::Bridge;
use crate::layout::messages::{everything, key_of};
use crate::model::rule::{Rule, RuleKey};
use crate::switch_set::SwitchSet;
use crate::switches::reads::Purpose;
use crate::switches::Below;
use foldhash::{HashMap, HashMapExt};
use openflow13::{FlowStats, MultipartRequest};
use std::time::{Duration, Instant};

/// Polling interval of the counters; idle timeouts are in whole seconds.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Seen {
    packets: u64,
    /// When the count last changed.
    since: Instant,
}

impl Seen {
    /// Updates the record of a rule whose copies have counted `packets` by now.
    fn after(last: Option<Self>, rule: &Rule, packets: u64, now: Instant) -> Self {
        let packets = rule.base.packets.wrapping_add(packets);
        let since = match last {
            Some(last) if last.packets == packets => last.since.max(rule.modified),
            _ if packets == 0 => rule.modified,
            _ => now,
        };
        Self { packets, since }
    }
}

#[derive(Debug, Default)]
pub struct IdleWatch {
    next: Option<Instant>,
    /// The counters were requested.
    polling: bool,
    seen: HashMap<RuleKey, Seen>,
}

impl IdleWatch {
    /// Starts watching: a rule with an idle timeout and several copies exists.
    pub fn start(&mut self, now: Instant) {
        if !self.polling {
            self.next.get_or_insert(now + INTERVAL);
        }
    }

    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Requests the counters when they are due.
    pub fn poll(&mut self, below: &mut Below<'_>) {
        if self.next.is_none_or(|next| next > below.now) {
            return;
        }
        self.next = None;
        if !below.truth.tables.iter().any(|r| is_watched(below, r)) {
            self.seen.clear();
            return;
        }
        let from = below
            .server
            .executors
            .all()
            .intersection(below.switches.up());
        if from.is_empty() {
            return self.start(below.now);
        }
        self.polling = true;
        let request = MultipartRequest::Flow(everything());
        below
            .switches
            .read(Purpose::IdlePoll, Bridge::Virt, from, request);
    }

    /// Returns the idle rules. `packets`: counters per rule, over the copies at the switches that were `heard`. A rule with a copy
    /// elsewhere is not judged, because that copy may be busy. If its count is unchanged when all switches answer again, it was idle
    /// meanwhile.
    pub fn polled(
        &mut self,
        below: &mut Below<'_>,
        packets: &HashMap<RuleKey, u64>,
        heard: SwitchSet,
    ) -> Vec<RuleKey> {
        self.polling = false;
        self.start(below.now);
        let mut before = std::mem::take(&mut self.seen);
        let mut expired = Vec::new();
        let mut seen = HashMap::new();
        for rule in below.truth.tables.iter().filter(|r| is_watched(below, r)) {
            let last = before.remove(&rule.key);
            let mut unheard = below.server.executors.of_rule(rule).minus(heard).iter();
            if unheard.any(|switch| !below.switches.is_gone(switch)) {
                seen.extend(last.map(|last| (rule.key.clone(), last)));
                continue;
            }
            let count = packets.get(&rule.key).copied().unwrap_or(0);
            let is = Seen::after(last, rule, count, below.now);
            let idle = below.now.saturating_duration_since(is.since);
            if idle >= Duration::from_secs(rule.idle_timeout.into()) {
                expired.push(rule.key.clone());
            } else {
                seen.insert(rule.key.clone(), is);
            }
        }
        self.seen = seen;
        expired
    }
}

/// Tells whether copies may have no idle timer. Those of a rule that was written while its port moves have none, either.
fn is_watched(below: &Below<'_>, rule: &Rule) -> bool {
    rule.idle_timeout != 0 && below.server.executors.of_rule(rule).len() > 1
}

/// Sums the packets per rule, over all copies.
pub fn count_by_rule(flows: impl Iterator<Item = FlowStats>) -> HashMap<RuleKey, u64> {
    let mut counts = HashMap::new();
    for flow in flows {
        if let Some(key) = key_of(&flow) {
            *counts.entry(key).or_insert(0u64) += flow.packet_count;
        }
    }
    counts
}
