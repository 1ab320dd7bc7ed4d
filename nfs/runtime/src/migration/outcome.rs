//! The outcome of another thread's work.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// The outcome of a thread, once it is known.
pub(super) struct Outcome<T>(Arc<Inner<T>>);

struct Inner<T> {
    settled: Mutex<Option<Result<T, String>>>,
    changed: Condvar,
}

impl<T> Clone for Outcome<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Outcome<T> {
    fn default() -> Self {
        Self(Arc::new(Inner {
            settled: Mutex::new(None),
            changed: Condvar::new(),
        }))
    }
}

impl<T: Clone> Outcome<T> {
    /// Sets the outcome; only the first call counts.
    pub(super) fn settle(&self, outcome: Result<T, String>) {
        let mut settled = self
            .0
            .settled
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        settled.get_or_insert(outcome);
        self.0.changed.notify_all();
    }

    /// Waits for the outcome; None: the time is over.
    pub(super) fn wait(&self, longest: Duration) -> Option<Result<T, String>> {
        let settled = self
            .0
            .settled
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .0
            .changed
            .wait_timeout_while(settled, longest, |settled| settled.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}
