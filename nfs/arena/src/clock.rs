//! The clock that times in state are measured by.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{clock_gettime, ClockId};

use crate::arena::Arena;

/// CLOCK_MONOTONIC plus an offset that belongs to the state: it goes on evenly where the state moves to another machine.
#[derive(Clone)]
pub struct Clock {
    arena: Arena,
}

impl Clock {
    pub(crate) fn of(arena: &Arena) -> Self {
        Self {
            arena: arena.clone(),
        }
    }

    /// Nanoseconds. Takes some 20 ns: once a batch is enough.
    #[must_use]
    pub fn now(&self) -> u64 {
        monotonic().wrapping_add(self.offset().load(Ordering::Relaxed))
    }

    /// From here on the clock goes on from `now`: what the instance that the state comes from said last.
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
