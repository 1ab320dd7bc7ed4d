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

/// A listed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadListed {
    pub rule: u64,
    pub is_removed: bool,
    pub key: FlowKey,
    pub target: u16,
    pub counted: Counted,
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
    Counted(Vec<(u64, Counted)>),
    Removed(Vec<(u64, Counted)>),
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

    /// Reports removals that are effective.
    pub fn removed(&mut self, to: WriterId, rules: Vec<(u64, Counted)>) {
        let effective = rules.iter().map(|(rule, _)| *rule).collect();
        self.put(to, OffloadEvent::Removed(rules));
        self.put(to, OffloadEvent::Effective(effective));
    }

    pub fn error(&mut self, to: WriterId, code: &'static str, detail: String) {
        let error = OffloadError { code, detail };
        self.put(to, OffloadEvent::Error(error));
    }

    pub fn take(&mut self) -> Vec<(WriterId, OffloadEvent)> {
        std::mem::take(&mut self.0)
    }
}
