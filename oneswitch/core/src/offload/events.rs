//! Events for writers, collected until the daemon takes them.

use crate::offload::flows::Counted;
use crate::offload::requests::{FlowKey, WriterId};

/// The reason for which an install is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OffloadRefused {
    /// The port has as many flows as it may have.
    Full,
    /// The switch is not connected, or cannot take more now.
    Rate,
    /// The target does not exist, or `edge` cannot match or rewrite this.
    Unsupported,
    /// Another rule has this number or this flow.
    Collision,
}

impl OffloadRefused {
    pub const ALL: [Self; 4] = [Self::Full, Self::Rate, Self::Unsupported, Self::Collision];

    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Rate => "rate",
            Self::Unsupported => "unsupported",
            Self::Collision => "collision",
        }
    }
}

/// A listed rule. Rules that are leaving are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadListed {
    pub rule: u64,
    pub key: FlowKey,
    pub target: u16,
    pub counter: u16,
}

/// The reason for which a writer is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadError {
    pub code: &'static str,
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffloadEvent {
    /// The port is the writer's.
    Welcome,
    Listed(Vec<OffloadListed>),
    Installed(Vec<u64>),
    Refused(Vec<(u64, OffloadRefused)>),
    /// The packets of rules, inexactly.
    Counted(Vec<(u64, u64)>),
    /// The totals of counters.
    Carried(Vec<(u16, Counted)>),
    /// No packet leaves by these rules any more, and their counters' last totals were told before.
    Effective(Vec<u64>),
    Reset,
    Error(OffloadError),
    /// Disconnect the writer after its other events.
    Close,
}

#[derive(Debug, Default)]
pub struct Events(Vec<(WriterId, OffloadEvent)>);

impl Events {
    pub fn put(&mut self, to: WriterId, event: OffloadEvent) {
        self.0.push((to, event));
    }

    pub fn installed(&mut self, to: WriterId, rule: u64) {
        if let Some((last, OffloadEvent::Installed(rules))) = self.0.last_mut() {
            if *last == to {
                return rules.push(rule);
            }
        }
        self.put(to, OffloadEvent::Installed(vec![rule]));
    }

    pub fn refused(&mut self, to: WriterId, rule: u64, reason: OffloadRefused) {
        if let Some((last, OffloadEvent::Refused(rules))) = self.0.last_mut() {
            if *last == to {
                return rules.push((rule, reason));
            }
        }
        self.put(to, OffloadEvent::Refused(vec![(rule, reason)]));
    }

    pub fn error(&mut self, to: WriterId, code: &'static str, detail: String) {
        let error = OffloadError { code, detail };
        self.put(to, OffloadEvent::Error(error));
    }

    pub fn take(&mut self) -> Vec<(WriterId, OffloadEvent)> {
        std::mem::take(&mut self.0)
    }
}
