//! The interface between the table's algorithm and its words.

use std::sync::atomic::{AtomicU64, Ordering};

use nf_arena::Memory;

use super::lines;

/// Shared words. Production uses [`View`]; models use words whose every interleaving is tried.
pub(crate) trait Words: Copy {
    fn load(self, index: usize, order: Ordering) -> u64;
    /// Returns `count` words from `index` on, for reading.
    fn window(self, index: usize, count: usize) -> Self;
    /// Stores with release order.
    fn store(self, index: usize, value: u64);
    /// Exchanges with acquire and release order; the error is the word found instead.
    fn exchange(self, index: usize, current: u64, new: u64) -> Result<(), u64>;
    /// Adds with wrap-around and relaxed order; returns the previous word.
    fn add(self, index: usize, value: u64) -> u64;
    /// Prefetches the line of a word into a level of the cache.
    fn prefetch<const LEVEL: u8>(self, index: usize);
    /// Returns the header's count line of this thread.
    fn count_line(self) -> usize;
    /// Waits for another thread to progress, for the `turn`th time.
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
        // A single bounds check, after which the compiler knows the length.
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
    fn prefetch<const LEVEL: u8>(self, index: usize) {
        nf_arena::prefetch::<LEVEL>(self.words, index);
    }

    #[inline]
    fn count_line(self) -> usize {
        lines::line_of_thread()
    }

    fn wait(self, turn: u32) {
        // A lock is held for tens of nanoseconds, unless its holder was preempted.
        if turn < 100 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
