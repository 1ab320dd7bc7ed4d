//! Idle timeouts of rules with several copies: a copy's own timer would fire while its twin is busy, so the copies have none and
//! their counters are compared here.

use crate::api::Bridge;
use crate::layout::messages::everything;
use crate::model::rule::{Rule, RuleKey};
use crate::switch_set::SwitchSet;
use crate::switches::reads::Purpose;
use crate::Core;
use foldhash::{HashMap, HashMapExt};
use openflow13::{FlowRemoved, MultipartRequest};
use std::time::{Duration, Instant};

/// How often the counters are looked at; idle timeouts are in whole seconds.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Seen {
    packets: u64,
    /// When the count was last seen to differ.
    since: Instant,
}

impl Seen {
    /// What is to be said of a rule whose copies have counted `packets` by now.
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
    /// The counters were asked for.
    polling: bool,
    seen: HashMap<RuleKey, Seen>,
}

impl IdleWatch {
    /// A rule with an idle timeout and several copies exists.
    pub fn start(&mut self, now: Instant) {
        if !self.polling {
            self.next.get_or_insert(now + INTERVAL);
        }
    }
}

impl Core {
    /// When `tick` next has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let moves = self
            .ports
            .iter()
            .filter_map(|p| p.moving.as_ref()?.deadline);
        moves
            .chain(self.idle.next)
            .chain(self.removals.next())
            .chain(self.next_resync())
            .chain(self.next_lasting_doubt())
            .chain(self.next_audit())
            .chain(self.verdicts.deadline())
            .min()
    }

    pub fn tick(&mut self, now: Instant) {
        self.age_doubts(now);
        self.confirm_retired_ids(now);
        self.advance_flood();
        self.advance_moves(now);
        self.end_overdue_removals(now);
        self.resync_overdue(now);
        self.audit_overdue(now);
        self.verdicts.hurry_overdue(now);
        if self.idle.next.is_some_and(|next| next <= now) {
            self.idle.next = None;
            self.poll_idle(now);
        }
    }

    fn poll_idle(&mut self, now: Instant) {
        if !self.truth.tables.iter().any(|r| self.is_watched(r)) {
            self.idle.seen.clear();
            return;
        }
        let from = self.executors.all().intersection(self.up());
        if from.is_empty() {
            return self.idle.start(now);
        }
        self.idle.polling = true;
        let request = MultipartRequest::Flow(everything());
        self.read(Purpose::IdlePoll, Bridge::Virt, from, request);
    }

    fn is_watched(&self, rule: &Rule) -> bool {
        rule.idle_timeout != 0 && self.executors.share_idle_timer(rule)
    }

    /// Counters per rule, over the copies at the switches that were `heard`. A rule with a copy elsewhere is not judged: that may be the busy
    /// one. If its count is the same when all are heard again, it was idle meanwhile.
    pub(crate) fn idle_polled(
        &mut self,
        packets: &HashMap<RuleKey, u64>,
        heard: SwitchSet,
        now: Instant,
    ) {
        self.idle.polling = false;
        self.idle.start(now);
        let mut before = std::mem::take(&mut self.idle.seen);
        let mut expired = Vec::new();
        let mut seen = HashMap::new();
        for rule in self.truth.tables.iter().filter(|r| self.is_watched(r)) {
            let last = before.remove(&rule.key);
            let mut unheard = self.executors.of_rule(rule).minus(heard).iter();
            if unheard.any(|switch| !self.is_gone(switch)) {
                seen.extend(last.map(|last| (rule.key.clone(), last)));
                continue;
            }
            let count = packets.get(&rule.key).copied().unwrap_or(0);
            let is = Seen::after(last, rule, count, now);
            let idle = now.saturating_duration_since(is.since);
            if idle >= Duration::from_secs(rule.idle_timeout.into()) {
                expired.push(rule.key.clone());
            } else {
                seen.insert(rule.key.clone(), is);
            }
        }
        self.idle.seen = seen;
        for key in expired {
            self.expire(&key, FlowRemoved::IDLE_TIMEOUT, SwitchSet::EMPTY, now);
        }
    }
}
