//! Messages of a bundle: their verdict is one.

use super::{Refusal, Verdicts};
use crate::api::SwitchIndex;
use crate::switch_set::SwitchSet;
use openflow13::ErrorCode;
use std::ops::Range;

impl Verdicts {
    /// Makes the next operations those of one bundle. No batch is closed until [`Self::end_joining`], because switches only try the bundle.
    pub fn begin_joining(&mut self) {
        self.joined = Some(self.pushed);
    }

    pub fn is_joining(&self) -> bool {
        self.joined.is_some()
    }

    /// Ends the trial of a bundle; returns the batch that settles its messages.
    pub fn end_joining(&mut self) -> u64 {
        self.joined = None;
        self.current_batch()
    }

    /// Returns the first one of these operations that is refused or should be, and its error.
    pub fn first_refused(&self, numbers: &Range<u64>) -> Option<(u64, ErrorCode)> {
        let first = self.pushed - self.operations.len() as u64;
        let operations = (first..).zip(&self.operations);
        operations
            .filter(|(number, _)| numbers.contains(number))
            .find_map(|(number, operation)| {
                let refusal = operation.refusal.as_ref().map(|refusal| refusal.error);
                Some((number, refusal.or(operation.expected)?))
            })
    }

    /// Takes operations back that the switches have only tried.
    pub fn withdraw(&mut self, numbers: &Range<u64>) {
        self.refuse_joined(numbers, |operation| {
            operation.targets = SwitchSet::EMPTY;
            operation.refused_by = SwitchSet::EMPTY;
        });
    }

    /// Records that a switch has refused all these operations.
    pub fn refuse_all(&mut self, numbers: &Range<u64>, switch: SwitchIndex) {
        self.refuse_joined(numbers, |operation| operation.refused_by.insert(switch));
    }

    /// Refuses operations without reports to their controller, which gets one about the bundle.
    fn refuse_joined(&mut self, numbers: &Range<u64>, mark: impl Fn(&mut super::Operation)) {
        let first = self.pushed - self.operations.len() as u64;
        let operations = (first..).zip(&mut self.operations);
        for (_, operation) in operations.filter(|(number, _)| numbers.contains(number)) {
            mark(operation);
            operation.origin = None;
            operation.refusal = Some(Refusal {
                error: ErrorCode::ONF_BUNDLE_MSG_FAILED,
                data: Box::default(),
            });
        }
    }
}
