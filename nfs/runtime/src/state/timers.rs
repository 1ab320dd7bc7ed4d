//! Timers: a deadline per number.
//!
//! A deadline is one word; hierarchical wheels find those that have passed. A timer is *queued* in a bucket that opens at its deadline or earlier:
//! moving the deadline later leaves it there, and when the bucket opens, the timer is queued again for its deadline of that moment. So packets
//! renew an idle timer with one word.
//!
//! Invariants, which the wheel's lock and the order of two words keep:
//!
//! 1. `set` stores the deadline and then reads the place in the queue; `expire` clears the place and then reads the deadline. So one of them
//!    sees the other's write and queues the timer.
//! 2. A passed deadline is marked as *firing* until its call has returned: after a kill meanwhile, the next owner calls again.
//! 3. The deadlines are the truth: the wheels can be built again from them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use nf_arena::{Memory, Region};

use self::wheel::{Wheel, DEADLINE, ENTRY, FIRING, QUEUED};
use super::spin::{self, Lock};

mod wheel;

#[cfg(test)]
mod tests;

/// The number of wheels, each for a range of timers with a lock of its own: a slab's slots of one worker are neighbours.
const WHEELS: usize = 16;
/// The resolution in nanoseconds: a worker's tick.
const TICK: u64 = 10_000_000;
/// The most timers that a lock is held for.
const BATCH: usize = 32;

/// A timer for each number below a capacity, such as the slots of a slab. Times are nanoseconds of the state's clock.
pub struct Timers<M = Region> {
    memory: M,
    capacity: usize,
    /// The wheel at which the next call of `expire` starts.
    first: AtomicUsize,
}

/// The passed deadlines of a batch.
struct Due {
    timers: [(u32, u64); BATCH],
    count: usize,
    /// The number of timers looked at.
    examined: usize,
    /// Whether none is left.
    is_last: bool,
}

impl<M: Memory> Timers<M> {
    pub(super) fn layout(capacity: usize) -> String {
        format!("timers v1, {capacity}")
    }

    /// Returns the size in words.
    pub(super) fn words(capacity: usize) -> usize {
        WHEELS * wheel::WORDS + capacity * ENTRY
    }

    pub(super) fn open(memory: M, capacity: usize) -> Self {
        Self {
            memory,
            capacity,
            first: AtomicUsize::new(0),
        }
    }

    /// Repairs the wheels after a kill.
    pub(super) fn repair(&self) {
        for index in 0..WHEELS {
            let wheel = self.wheel(index);
            wheel.clear();
            for id in self.range(index) {
                let entry = wheel.entry(id);
                let deadline = self.word(entry + DEADLINE).load(Ordering::Relaxed) & !FIRING;
                self.store(entry + DEADLINE, deadline);
                self.store(entry + QUEUED, 0);
                if deadline != 0 {
                    wheel.link(id, deadline);
                }
            }
            spin::free(&self.memory, index * wheel::WORDS);
        }
    }

    /// Returns the number of timers.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets a timer, or moves its deadline. Ignores a number that is not below the capacity.
    #[inline]
    pub fn set(&self, id: u32, deadline: u64) {
        let Some(entry) = self.entry(id) else {
            return;
        };
        // Never early: deadlines are rounded up. 0 means that there is none.
        let tick = deadline.div_ceil(TICK).max(1);
        let word = self.word(entry + DEADLINE);
        if word.load(Ordering::Relaxed) == tick {
            return;
        }
        word.store(tick, Ordering::SeqCst);
        self.memory.touch(entry + DEADLINE);
        if !wheel::opens_by(self.word(entry + QUEUED).load(Ordering::SeqCst), tick) {
            self.queue(id, entry);
        }
    }

    /// Ends a timer. Its call, if it has just begun on another thread, still happens.
    #[inline]
    pub fn cancel(&self, id: u32) {
        if let Some(entry) = self.entry(id) {
            self.store(entry + DEADLINE, 0);
        }
    }

    /// Returns the time at which a timer's call is due: its deadline, rounded up to 10 ms. None: it is not set, or its call has begun.
    #[inline]
    #[must_use]
    pub fn deadline(&self, id: u32) -> Option<u64> {
        let tick = self
            .word(self.entry(id)? + DEADLINE)
            .load(Ordering::Acquire);
        (tick != 0 && tick & FIRING == 0).then(|| tick.saturating_mul(TICK))
    }

    /// Calls `passed` for timers whose deadline has passed, which ends them; `passed` may set them again. It looks at no more than `limit`
    /// timers; true: some may be left for the next call. After a kill, a call is made again.
    ///
    /// Another worker may set a timer at the moment of its call: [`deadline`](Self::deadline) then has it.
    pub fn expire(&self, now: u64, limit: usize, mut passed: impl FnMut(u32)) -> bool {
        let now = now / TICK;
        let first = self.first.load(Ordering::Relaxed);
        let mut left = limit;
        for index in (first..first + WHEELS).map(|turn| turn % WHEELS) {
            while !self.wheel(index).is_empty() {
                if left == 0 {
                    self.first.store(index, Ordering::Relaxed);
                    return true;
                }
                let due = self.due(index, now, left.min(BATCH));
                left -= due.examined;
                for (id, deadline) in &due.timers[..due.count] {
                    self.fire(*id, *deadline, &mut passed);
                }
                if due.is_last {
                    break;
                }
            }
        }
        false
    }

    /// Takes timers out of the wheel's buckets that have opened: queues again those with a later deadline, and marks the others as firing.
    fn due(&self, index: usize, now: u64, limit: usize) -> Due {
        let wheel = self.wheel(index);
        let _lock = Lock::take(&self.memory, index * wheel::WORDS);
        let mut due = Due {
            timers: [(0, 0); BATCH],
            count: 0,
            examined: 0,
            is_last: false,
        };
        while due.examined < limit {
            let Some(id) = wheel.pop(now) else {
                due.is_last = true;
                break;
            };
            due.examined += 1;
            let word = self.word(wheel.entry(id) + DEADLINE);
            let mut deadline = word.load(Ordering::SeqCst);
            while deadline != 0 && deadline & FIRING == 0 {
                if deadline > now {
                    wheel.link(id, deadline);
                    break;
                }
                let firing = deadline | FIRING;
                match word.compare_exchange(deadline, firing, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => {
                        self.memory.touch(wheel.entry(id) + DEADLINE);
                        due.timers[due.count] = (id as u32, firing);
                        due.count += 1;
                        break;
                    }
                    Err(other) => deadline = other,
                }
            }
        }
        due
    }

    fn fire(&self, id: u32, firing: u64, passed: &mut impl FnMut(u32)) {
        let Some(entry) = self.entry(id) else {
            return;
        };
        let word = self.word(entry + DEADLINE);
        // Otherwise another thread has set or cancelled it since.
        if word.load(Ordering::Acquire) == firing {
            passed(id);
            let ended = word.compare_exchange(firing, 0, Ordering::AcqRel, Ordering::Relaxed);
            if ended.is_ok() {
                self.memory.touch(entry + DEADLINE);
            }
        }
    }

    /// Queues a timer whose place is too late for its deadline, or that has none.
    #[cold]
    fn queue(&self, id: u32, entry: usize) {
        let id = id as usize;
        let index = id / self.range(0).len();
        let wheel = self.wheel(index);
        let _lock = Lock::take(&self.memory, index * wheel::WORDS);
        let deadline = self.word(entry + DEADLINE).load(Ordering::SeqCst);
        let queued = self.word(entry + QUEUED).load(Ordering::SeqCst);
        if deadline == 0 || deadline & FIRING != 0 || wheel::opens_by(queued, deadline) {
            return;
        }
        if queued != 0 {
            wheel.unlink(id);
        }
        wheel.link(id, deadline);
    }

    /// Stores a word if it changes.
    #[inline]
    fn store(&self, index: usize, value: u64) {
        let word = self.word(index);
        if word.load(Ordering::Relaxed) != value {
            word.store(value, Ordering::SeqCst);
            self.memory.touch(index);
        }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.memory.words()[index]
    }

    fn wheel(&self, index: usize) -> Wheel<'_, M> {
        Wheel::new(&self.memory, index * wheel::WORDS, WHEELS * wheel::WORDS)
    }

    #[inline]
    fn entry(&self, id: u32) -> Option<usize> {
        let id = id as usize;
        (id < self.capacity).then_some(WHEELS * wheel::WORDS + id * ENTRY)
    }

    /// Returns the timers of a wheel.
    fn range(&self, index: usize) -> std::ops::Range<usize> {
        let size = self.capacity.div_ceil(WHEELS);
        (index * size).min(self.capacity)..((index + 1) * size).min(self.capacity)
    }
}
