//! A spin lock in a word of the arena.

use std::sync::atomic::{fence, Ordering};

use nf_arena::Memory;

/// A held lock: for some nanoseconds, by threads that do not sleep meanwhile.
///
/// A process that dies while holding the lock leaves it locked in the arena, and the protected data half changed: see [`super::Repairs`].
pub(super) struct Lock<'a, M: Memory> {
    memory: &'a M,
    index: usize,
}

impl<'a, M: Memory> Lock<'a, M> {
    pub(super) fn take(memory: &'a M, index: usize) -> Self {
        Self::take_as(memory, index, 1)
    }

    /// Takes the lock with a word, not 0, that tells the next owner of the state what was locked.
    #[inline]
    pub(super) fn take_as(memory: &'a M, index: usize, holder: u64) -> Self {
        let word = &memory.words()[index];
        let mut turns = 0_u32;
        while word
            .compare_exchange_weak(0, holder, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            turns += 1;
            // On a single core, the holder needs the core to continue.
            if turns % 64 == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Self { memory, index }
    }

    /// Changes the holder's word, before all writes that follow.
    #[inline]
    pub(super) fn mark(&self, holder: u64) {
        self.memory.words()[self.index].store(holder, Ordering::Relaxed);
        fence(Ordering::Release);
    }
}

/// Frees a lock whose owner died.
pub(super) fn free(memory: &impl Memory, index: usize) {
    memory.words()[index].store(0, Ordering::Release);
    memory.touch(index);
}

impl<M: Memory> Drop for Lock<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.memory.words()[self.index].store(0, Ordering::Release);
        // A copy made meanwhile contains the lock as held.
        self.memory.touch(self.index);
    }
}

#[cfg(test)]
mod tests {
    use nf_arena::ArenaBuilder;

    use super::*;

    #[test]
    fn a_lock_copied_while_held_is_copied_again() {
        let mut builder = ArenaBuilder::fresh("test", 1).unwrap();
        let region = builder.region("lock", "u64", 1).unwrap();
        let mut words = Vec::new();
        let lock = Lock::take_as(&region, 0, 7);
        region.touch_all();
        assert!(region.take_block(0, &mut words));
        assert_eq!(words, [7]);
        lock.mark(8);
        region.touch_all();
        assert!(region.take_block(0, &mut words));
        assert_eq!(words, [8]);
        drop(lock);
        assert!(region.take_block(0, &mut words));
        assert_eq!(words, [0]);
    }
}
