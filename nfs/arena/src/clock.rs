//! The clock for times in state.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{clock_gettime, ClockId};

use crate::arena::Arena;

/// CLOCK_MONOTONIC plus an offset kept in the state, so that it continues evenly when the state moves to another machine.
#[derive(Clone)]
pub struct Clock {
    arena: Arena,
}

impl Clock {
    #[must_use]
    pub fn of(arena: &Arena) -> Self {
        Self {
            arena: arena.clone(),
        }
    }

    /// Returns nanoseconds. Takes about 20 ns: call it once a batch.
    #[must_use]
    pub fn now(&self) -> u64 {
        monotonic().wrapping_add(self.offset().load(Ordering::Relaxed))
    }

    /// Continues from `now`, the time last read by the instance that the state comes from.
    pub fn resume(&self, now: u64) {
        self.offset()
            .store(now.wrapping_sub(monotonic()), Ordering::Relaxed);
    }

    fn offset(&self) -> &AtomicU64 {
        self.arena.clock_offset()
    }
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}
