//! The words that a table lives in, as its algorithm sees them.

use std::sync::atomic::{AtomicU64, Ordering};

use nf_arena::Memory;

use super::header;

/// Shared words. Production has [`View`]; models have words whose every interleaving is tried.
pub(crate) trait Words: Copy {
    fn load(self, index: usize, order: Ordering) -> u64;
    /// `count` words from `index` on, to be read.
    fn window(self, index: usize, count: usize) -> Self;
    /// A release store.
    fn store(self, index: usize, value: u64);
    /// Acquires and releases; the error is what was there instead.
    fn exchange(self, index: usize, current: u64, new: u64) -> Result<(), u64>;
    /// Adds with wrap-around, in no order with other words; answers what was there.
    fn add(self, index: usize, value: u64) -> u64;
    fn prefetch(self, index: usize);
    /// Which of the counts in the header this thread adds to.
    fn count_line(self) -> usize;
    /// Somebody else has to go on first, the `turn`th time.
    fn wait(self, turn: u32);
}

/// The words of a [`Memory`].
pub(crate) struct View<'a, M> {
    words: &'a [AtomicU64],
    memory: &'a M,
}

impl<M> Clone for View<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for View<'_, M> {}

impl<'a, M: Memory> View<'a, M> {
    #[inline]
    pub(crate) fn new(memory: &'a M) -> Self {
        Self {
            words: memory.words(),
            memory,
        }
    }
}

impl<M: Memory> Words for View<'_, M> {
    #[inline(always)]
    fn load(self, index: usize, order: Ordering) -> u64 {
        self.words[index].load(order)
    }

    #[inline(always)]
    fn window(self, index: usize, count: usize) -> Self {
        // One check of bounds, and the compiler knows the length.
        Self {
            words: &self.words[index..index + count],
            memory: self.memory,
        }
    }

    #[inline]
    fn store(self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Release);
        self.memory.touch(index);
    }

    #[inline]
    fn exchange(self, index: usize, current: u64, new: u64) -> Result<(), u64> {
        self.words[index].compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)?;
        self.memory.touch(index);
        Ok(())
    }

    #[inline]
    fn add(self, index: usize, value: u64) -> u64 {
        let old = self.words[index].fetch_add(value, Ordering::Relaxed);
        self.memory.touch(index);
        old
    }

    #[inline(always)]
    fn prefetch(self, index: usize) {
        self.memory.prefetch(index);
    }

    #[inline]
    fn count_line(self) -> usize {
        header::line_of_thread()
    }

    fn wait(self, turn: u32) {
        // Who holds a lock is done within tens of nanoseconds, unless it lost its core.
        if turn < 100 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
