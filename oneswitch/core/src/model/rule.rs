//! One virtual rule as the controller wrote it, and its identity.

use crate::model::facts::Facts;
use openflow13::{CanonicalMatch, FlowMod, FlowStats, Instructions, Match};
use std::time::{Duration, Instant};

/// Flags that a rule has and statistics show (Open vSwitch, OFPUTIL_FF_STATE).
const KEPT_FLAGS: u16 =
    FlowMod::SEND_FLOW_REM | FlowMod::NO_PKT_COUNTS | FlowMod::NO_BYT_COUNTS | MESSAGE_FLAGS;
/// The subset of flags that matter only while a rule is added; a copy that is added later must not carry them.
pub const MESSAGE_FLAGS: u16 = FlowMod::CHECK_OVERLAP | FlowMod::RESET_COUNTS;

/// The mask of a cookie in a message that adds a rule again, to change its cookie: to the virtual tables it is a modification.
pub const CHANGED_COOKIE: u64 = u64::MAX;

/// The identity of a rule (OpenFlow 1.3.5, 6.4): table, priority and match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleKey {
    pub table: u8,
    pub priority: u16,
    pub matching: CanonicalMatch,
}

impl RuleKey {
    pub fn of_flow_mod(message: &FlowMod, matching: CanonicalMatch) -> Self {
        Self {
            table: message.table_id,
            priority: message.priority,
            matching,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub packets: u64,
    pub bytes: u64,
}

impl Counters {
    pub fn add(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.wrapping_add(packets);
        self.bytes = self.bytes.wrapping_add(bytes);
    }
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub key: RuleKey,
    /// The match as the controller spelled it.
    pub matching: Match,
    pub instructions: Instructions,
    pub facts: Facts,
    pub cookie: u64,
    /// Seconds; 0 means never.
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub flags: u16,
    /// Of OpenFlow 1.4; the switches need not know it, because their tables have no limit.
    pub importance: u16,
    pub created: Instant,
    /// Start of the hard timeout: creation, or the last change.
    pub modified: Instant,
    /// Counters of removed copies.
    pub base: Counters,
    /// Whether its switch has made it, by an action of another rule, and runs its timers.
    pub learned: bool,
}

impl Rule {
    pub fn new(key: RuleKey, request: &FlowMod, facts: Facts, now: Instant) -> Self {
        Self {
            key,
            matching: request.matching.clone(),
            instructions: request.instructions.clone(),
            facts,
            cookie: request.cookie,
            idle_timeout: request.idle_timeout,
            hard_timeout: request.hard_timeout,
            flags: request.flags & KEPT_FLAGS,
            importance: request.importance,
            created: now,
            modified: now,
            base: Counters::default(),
            learned: false,
        }
    }

    /// Creates a rule that a switch has learned.
    pub fn learned(key: RuleKey, found: &FlowStats, facts: Facts, now: Instant) -> Self {
        let age = Duration::new(found.duration_sec.into(), found.duration_nsec);
        let created = now.checked_sub(age).unwrap_or(now);
        Self {
            key,
            matching: found.matching.clone(),
            instructions: found.instructions.clone(),
            facts,
            cookie: found.cookie,
            idle_timeout: found.idle_timeout,
            hard_timeout: found.hard_timeout,
            flags: found.flags & KEPT_FLAGS,
            created,
            modified: created,
            base: Counters::default(),
            importance: 0,
            learned: true,
        }
    }

    /// Distinguishes rules of the same key from successive messages, which can arrive in the same instant.
    pub fn identity(&self) -> (RuleKey, Instant, u64, u16) {
        (self.key.clone(), self.created, self.cookie, self.flags)
    }

    /// Tells whether its copies report their end: rules that controllers are notified of, and those with a timeout.
    pub fn copies_report(&self) -> bool {
        let flags = match self.learned {
            true => self.flags,
            false => copy_flags(self.flags, self.idle_timeout, self.hard_timeout),
        };
        flags & FlowMod::SEND_FLOW_REM != 0
    }

    /// Returns its timeouts at a switch that reports these: `fin_timeout` may have shortened them.
    pub fn timeouts_at(&self, idle: u16, hard: u16) -> (u16, u16) {
        let sooner = |there: u16, written: u16| match self.facts.learns() {
            true if there != 0 && (written == 0 || there < written) => there,
            _ => written,
        };
        (
            sooner(idle, self.idle_timeout),
            sooner(hard, self.hard_timeout),
        )
    }

    pub fn in_port(&self) -> Option<u32> {
        self.matching.in_port()
    }

    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.created)
    }

    /// Returns the remaining seconds of the hard timeout, for a copy installed now; at least 1, because 0 means never.
    pub fn hard_timeout_left(&self, now: Instant) -> u16 {
        if self.hard_timeout == 0 || self.learned {
            // Learning a rule again restarts its timeout, and only the switch knows when it did.
            return self.hard_timeout;
        }
        let gone = now.saturating_duration_since(self.modified).as_secs();
        u64::from(self.hard_timeout)
            .saturating_sub(gone)
            .clamp(1, u64::from(u16::MAX)) as u16
    }
}

/// Returns the flags of a copy, which make the switch report its expiry.
pub fn copy_flags(flags: u16, idle_timeout: u16, hard_timeout: u16) -> u16 {
    if idle_timeout != 0 || hard_timeout != 0 {
        flags | FlowMod::SEND_FLOW_REM
    } else {
        flags
    }
}

/// Returns the size of the rule's record in a journal.
pub fn size_of_rule(rule: &Rule) -> usize {
    /// Framing and head of a journal record, times and counters, and a flow-mod without match and instructions.
    const FIXED: usize = 12 + 9 + 24 + 48;
    let matching = (rule.matching.as_oxm().len() + 4).next_multiple_of(8);
    FIXED + matching + rule.instructions.as_bytes().len()
}
