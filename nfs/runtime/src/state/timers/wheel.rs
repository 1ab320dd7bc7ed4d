//! A hierarchical timing wheel: seven levels of 64 buckets, each a list of timers.
//!
//! A level-0 bucket stands for one tick, a bucket of the next level for 64 of them, and so on; seven levels have room for each time. A timer is at
//! the lowest level at which its tick and the wheel's differ, so it is always in a bucket that is still to come, and the bits of the occupied
//! buckets tell the next one: however far the clock jumps, empty buckets cost nothing.

use std::sync::atomic::Ordering;

use nf_arena::Memory;

use crate::state::words::{get, put};

const LEVELS: u32 = 7;
const BITS: u32 = 6;
const BUCKETS: usize = 1 << BITS;

/// The words of a wheel: its lock, its tick, a word of bits per level for the occupied buckets, and the buckets' first timers.
const ELAPSED: usize = 1;
const OCCUPIED: usize = 2;
const FIRST: usize = 16;
pub(super) const WORDS: usize = FIRST + LEVELS as usize * BUCKETS;

/// The words of a timer: its deadline in ticks (0: none), its place in the queue, and its neighbours there. A fourth is free.
pub(super) const DEADLINE: usize = 0;
pub(super) const QUEUED: usize = 1;
const LINKS: usize = 2;
pub(super) const ENTRY: usize = 4;

/// The mark of a deadline that has passed, and whose call has not returned yet.
pub(super) const FIRING: u64 = 1 << 63;

/// The word of a place: this bit, the tick at which its bucket opens, and the bucket.
const IS_QUEUED: u64 = 1 << 63;
const BUCKET_BITS: u32 = 9;

/// Tells whether a place's bucket opens at this tick or earlier.
#[inline]
pub(super) fn opens_by(queued: u64, tick: u64) -> bool {
    queued != 0 && (queued & !IS_QUEUED) >> BUCKET_BITS <= tick
}

/// A wheel, whose lock the caller holds.
pub(super) struct Wheel<'a, M> {
    memory: &'a M,
    base: usize,
    /// The first word of the first timer, of all wheels.
    entries: usize,
}

impl<'a, M: Memory> Wheel<'a, M> {
    pub(super) fn new(memory: &'a M, base: usize, entries: usize) -> Self {
        Self {
            memory,
            base,
            entries,
        }
    }

    pub(super) fn entry(&self, id: usize) -> usize {
        self.entries + id * ENTRY
    }

    /// Tells whether no timer is queued. Without the lock: whether none was.
    pub(super) fn is_empty(&self) -> bool {
        (0..LEVELS).all(|level| self.occupied(level) == 0)
    }

    /// Empties all buckets, without a look at the timers.
    pub(super) fn clear(&self) {
        let buckets = (OCCUPIED..OCCUPIED + LEVELS as usize).chain(FIRST..WORDS);
        buckets.for_each(|word| put(self.memory, self.base + word, 0));
    }

    /// Queues a timer that is not queued.
    pub(super) fn link(&self, id: usize, tick: u64) {
        let elapsed = self.elapsed();
        let tick = tick.max(elapsed);
        let level = ((elapsed ^ tick) | (BUCKETS as u64 - 1)).ilog2() / BITS;
        let opens = tick >> (BITS * level);
        let bucket = (level as usize) << BITS | (opens as usize % BUCKETS);
        let first = self.base + FIRST + bucket;
        let next = get(self.memory, first);
        if next != 0 {
            self.put_previous(next as usize - 1, id as u64 + 1);
        }
        put(self.memory, self.entry(id) + LINKS, next);
        put(self.memory, first, id as u64 + 1);
        self.set_occupied(bucket, true);
        let opens = opens << (BITS * level);
        self.put_queued(id, IS_QUEUED | opens << BUCKET_BITS | bucket as u64);
    }

    /// Takes a queued timer out of its bucket.
    pub(super) fn unlink(&self, id: usize) {
        let queued = get(self.memory, self.entry(id) + QUEUED);
        let bucket = queued as usize % (1 << BUCKET_BITS);
        let links = get(self.memory, self.entry(id) + LINKS);
        let (previous, next) = (links >> 32, links & u64::from(u32::MAX));
        if previous == 0 {
            put(self.memory, self.base + FIRST + bucket, next);
            self.set_occupied(bucket, next != 0);
        } else {
            let index = self.entry(previous as usize - 1) + LINKS;
            put(
                self.memory,
                index,
                get(self.memory, index) >> 32 << 32 | next,
            );
        }
        if next != 0 {
            self.put_previous(next as usize - 1, previous);
        }
        self.put_queued(id, 0);
    }

    /// Takes a timer out of a bucket that has opened by `now`, the earliest first. None: there is none, and `now` has elapsed.
    pub(super) fn pop(&self, now: u64) -> Option<usize> {
        let next = self.next_bucket().filter(|(opens, _)| *opens <= now);
        let elapsed = next.map_or(now, |(opens, _)| opens);
        if elapsed > self.elapsed() && !self.is_empty() {
            put(self.memory, self.base + ELAPSED, elapsed);
        }
        let (_, bucket) = next?;
        let first = get(self.memory, self.base + FIRST + bucket) as usize;
        let id = first.checked_sub(1)?;
        self.unlink(id);
        Some(id)
    }

    /// Returns the next occupied bucket, with the tick at which it opens.
    fn next_bucket(&self) -> Option<(u64, usize)> {
        let elapsed = self.elapsed();
        let buckets = (0..LEVELS).filter_map(|level| {
            let occupied = self.occupied(level);
            let within = occupied.trailing_zeros();
            let above = elapsed >> (BITS * (level + 1)) << (BITS * (level + 1));
            let opens = above | u64::from(within) << (BITS * level);
            let bucket = (level as usize) << BITS | within as usize;
            (occupied != 0).then_some((opens, bucket))
        });
        buckets.min()
    }

    fn elapsed(&self) -> u64 {
        get(self.memory, self.base + ELAPSED)
    }

    fn occupied(&self, level: u32) -> u64 {
        get(self.memory, self.base + OCCUPIED + level as usize)
    }

    fn set_occupied(&self, bucket: usize, is_occupied: bool) {
        let index = self.base + OCCUPIED + (bucket >> BITS);
        let bit = 1 << (bucket % BUCKETS);
        let bits = get(self.memory, index);
        let bits = if is_occupied { bits | bit } else { bits & !bit };
        put(self.memory, index, bits);
    }

    fn put_previous(&self, id: usize, previous: u64) {
        let index = self.entry(id) + LINKS;
        let next = get(self.memory, index) & u64::from(u32::MAX);
        put(self.memory, index, previous << 32 | next);
    }

    /// Stores a timer's place, before the deadline is read: see the module above.
    fn put_queued(&self, id: usize, queued: u64) {
        let index = self.entry(id) + QUEUED;
        self.memory.words()[index].store(queued, Ordering::SeqCst);
        self.memory.touch(index);
    }
}
