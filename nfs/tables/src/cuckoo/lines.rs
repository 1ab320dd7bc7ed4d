//! The count lines of the header, and which thread writes which.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of count lines.
pub(super) const COUNT_LINES: usize = 14;
/// The line shared by threads without their own.
pub(super) const SHARED_LINE: usize = COUNT_LINES - 1;

/// The lines taken by threads of this process, as bits.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A thread's line for its lifetime: its own, or the shared one if all were taken.
struct Line(usize);

impl Line {
    fn take() -> Self {
        let free = |taken: u64| {
            let line = taken.trailing_ones();
            (line < SHARED_LINE as u32).then_some(taken | 1 << line)
        };
        // Acquire: the line's previous owner has finished its writes.
        let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, free);
        Self(taken.map_or(SHARED_LINE, |taken| taken.trailing_ones() as usize))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.0 != SHARED_LINE {
            TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

#[inline]
pub(super) fn line_of_thread() -> usize {
    thread_local! {
        static LINE: Line = Line::take();
    }
    // A thread that is ending may have lost its line already.
    LINE.try_with(|line| line.0).unwrap_or(SHARED_LINE)
}
