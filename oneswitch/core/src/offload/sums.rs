//! Sums of offload rules, asked for together with the counters of interfaces that a controller wants.

use crate::offload::flows::Counted;
use foldhash::HashMap;
use std::collections::BTreeMap;

/// The offloaded packets of some ports.
pub type Sums = BTreeMap<u32, Counted>;

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
    pub fn add(&mut self, question: u64, number: u32, counted: Counted) {
        if let Some(sums) = self.questions.get_mut(&question) {
            let sum = sums.entry(number).or_default();
            *sum = sum.plus(counted);
        }
    }

    pub fn end(&mut self, question: u64) -> Sums {
        self.questions.remove(&question).unwrap_or_default()
    }
}
