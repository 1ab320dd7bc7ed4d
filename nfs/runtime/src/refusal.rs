//! Refusals: why a network function does not do what was requested.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use nf_arena::ArenaError;

/// A refused request, configuration or state. Nothing has changed.
///
/// `code` is for programs and stable across versions; `detail` names the thing, its value, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: &'static str,
    pub detail: String,
}

impl Refusal {
    #[must_use]
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }

    /// Refuses a configuration; `path` is the place of the fault: `"vips[2].backends[0].address"`.
    #[must_use]
    pub fn configuration(path: &str, reason: impl std::fmt::Display) -> Self {
        Self::new("configuration", format!("{path}: {reason}"))
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Refusal {}

impl From<ArenaError> for Refusal {
    fn from(error: ArenaError) -> Self {
        let code = match error {
            ArenaError::Schema { .. } => "schema",
            ArenaError::NotAnArena { .. } => "not-an-arena",
            ArenaError::Refused { .. } => "configuration",
            _ => "system",
        };
        Self::new(code, error.to_string())
    }
}

/// Counts of refusals that have no requester to tell, by reason.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<BTreeMap<&'static str, u64>>);

impl Refused {
    pub(crate) fn count(&self, reason: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(reason).or_insert(0) += 1;
    }

    /// Returns the counts, in the order of the reasons.
    pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|(reason, count)| (*reason, *count))
            .collect()
    }
}
