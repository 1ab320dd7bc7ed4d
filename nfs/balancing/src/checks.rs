//! The lock of the backends' records, and the news of their health.

use std::sync::{
    atomic::{AtomicBool, Ordering},
    Mutex, MutexGuard, PoisonError,
};

/// The lock of the backends' records, which the tick, packets and requests change.
#[derive(Default)]
pub struct Checks {
    writing: Mutex<()>,
    changed: AtomicBool,
}

impl Checks {
    /// Locks the backends' records.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a backend has come up or gone down.
    pub fn note_change(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Tells whether a backend has come up or gone down since the last call.
    pub fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }
}
