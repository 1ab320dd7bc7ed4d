//! Sums of offload rules, asked for together with the counters of interfaces that a controller wants.

use crate::offload::flows::Counted;
use foldhash::HashMap;
use std::collections::BTreeMap;

/// The offloaded packets that were delivered to a port, and those that left as if it had sent them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub delivered: Counted,
    pub sent: Counted,
}

/// The offloaded packets of some ports.
pub type Sums = BTreeMap<u32, Carried>;

/// Adds packets for a port, which left as `leaves` says, if they left.
pub fn add(sums: &mut Sums, number: u32, leaves: Option<u32>, counted: Counted) {
    let carried = sums.entry(number).or_default();
    carried.delivered = carried.delivered.plus(counted);
    if let Some(number) = leaves {
        let carried = sums.entry(number).or_default();
        carried.sent = carried.sent.plus(counted);
    }
}

#[derive(Debug, Default)]
pub struct OpenSums {
    questions: HashMap<u64, Sums>,
    last: u64,
}

impl OpenSums {
    /// Starts a question with the counts of rules that were gone when it was asked; returns its number.
    pub fn begin(&mut self, gone: Sums) -> u64 {
        self.last += 1;
        self.questions.insert(self.last, gone);
        self.last
    }

    /// Adds a switch's answer.
    pub fn add(&mut self, question: u64, number: u32, leaves: Option<u32>, counted: Counted) {
        if let Some(sums) = self.questions.get_mut(&question) {
            add(sums, number, leaves, counted);
        }
    }

    pub fn end(&mut self, question: u64) -> Sums {
        self.questions.remove(&question).unwrap_or_default()
    }
}
