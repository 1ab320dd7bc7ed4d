//! The periodic work on the links.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Link;

/// The time between two refreshes of next hops, in nanoseconds.
const REFRESH: u64 = 1_000_000_000;

/// Announces the function's addresses when that is due, and refreshes the next hops once a second; seeks unknown ones in between.
#[derive(Debug, Default)]
pub struct Upkeep {
    /// The time of the last refresh; 0: at once.
    refreshed: AtomicU64,
    is_due: AtomicBool,
    /// Whether the last look found a next hop whose MAC address is unknown.
    is_seeking: AtomicBool,
}

impl Upkeep {
    /// Makes the next tick announce and refresh: after a start, a move, or a new configuration.
    pub fn renew(&self) {
        self.refreshed.store(0, Ordering::Relaxed);
        self.is_due.store(true, Ordering::Relaxed);
    }

    /// Does the work that is due; to be called at each tick. Returns whether it has refreshed the next hops.
    pub fn keep(&self, link: &mut Link<'_>) -> bool {
        if self.is_due.swap(false, Ordering::Relaxed) {
            link.announce();
        }
        let (last, now) = (self.refreshed.load(Ordering::Relaxed), link.context.now());
        let refreshes = last == 0 || now.saturating_sub(last) >= REFRESH;
        if refreshes {
            self.refreshed.store(now, Ordering::Relaxed);
            link.refresh();
        }
        if refreshes || self.is_seeking.load(Ordering::Relaxed) {
            self.is_seeking.store(link.seek(), Ordering::Relaxed);
        }
        refreshes
    }
}
