//! Timers: a hashed wheel (Varghese and Lauck, SOSP 1987, scheme 6) in the arena.
//!
//! A turn of the wheel takes 4096 ticks of 2^23 ns, 34 s; later timers stay in their slot until their turn. Setting,
//! stopping and firing a timer take constant time.

use std::sync::atomic::Ordering;

use nf_arena::{Memory, Region};

use super::spin::{self, Lock};

/// A tick of 8.4 ms: timers are for events of flows, not of packets.
const TICK_SHIFT: u32 = 23;
const SLOTS: usize = 4096;

/// The words of the region: the lock; the last tick processed; the first free entry; the number of entries ever used; then the
/// wheel's slots; then the entries. An index is stored plus one: 0 is "none", and a region of zeros is an empty wheel.
const LOCK: usize = 0;
const DONE: usize = 8;
const FREE: usize = 9;
const USED: usize = 10;
const WHEEL: usize = 16;
const ENTRIES: usize = WHEEL + SLOTS;

/// The words of an entry: due time (0: free), token, next and previous of its slot, and how often it was set.
const DUE: usize = 0;
const TOKEN: usize = 1;
const NEXT: usize = 2;
const PREVIOUS: usize = 3;
const GENERATION: usize = 4;
const ENTRY_WORDS: usize = 8;

/// A handle of a timer, for stopping it. It may be kept in state; after the timer has fired it stops nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Timer {
    entry: u32,
    generation: u32,
}

/// The timers of one network function.
pub struct Timers {
    region: Region,
    capacity: usize,
}

impl Timers {
    pub(super) const LAYOUT: &'static str = "timers v1";

    pub(super) fn words(capacity: usize) -> usize {
        ENTRIES.saturating_add(capacity.max(1).saturating_mul(ENTRY_WORDS))
    }

    pub(super) fn open(region: Region) -> Self {
        let capacity = (region.words().len() - ENTRIES) / ENTRY_WORDS;
        Self { region, capacity }
    }

    /// Rebuilds the lists from the entries, for [`super::Repairs`].
    pub(super) fn relink(&self) {
        spin::free(&self.region, LOCK);
        let used = (self.get(USED) as usize).min(self.capacity);
        if used == 0 {
            return;
        }
        (0..SLOTS).for_each(|slot| self.put(WHEEL + slot, 0));
        self.put(FREE, 0);
        for entry in (0..used).rev() {
            match self.entry_get(entry, DUE) {
                0 => {
                    self.entry_put(entry, NEXT, self.get(FREE));
                    self.put(FREE, entry as u64 + 1);
                }
                due => self.link(entry, self.slot_of(due)),
            }
        }
    }

    /// Sets a timer: [`fire`](Self::fire) returns `token` at the first tick after `due`, nanoseconds of the arena's clock. None: all
    /// timers are in use.
    pub fn set(&self, due: u64, token: u64) -> Option<Timer> {
        let _lock = Lock::take(&self.region, LOCK);
        let entry = self.allocate()?;
        let generation = (self.entry_get(entry, GENERATION) as u32).wrapping_add(1);
        self.entry_put(entry, GENERATION, u64::from(generation));
        self.entry_put(entry, TOKEN, token);
        self.entry_put(entry, DUE, due.max(1));
        self.link(entry, self.slot_of(due));
        Some(Timer {
            entry: entry as u32,
            generation,
        })
    }

    /// Stops a timer; returns false if it has fired or was stopped.
    pub fn stop(&self, timer: Timer) -> bool {
        let _lock = Lock::take(&self.region, LOCK);
        let entry = timer.entry as usize;
        let is_set = entry < self.capacity
            && self.entry_get(entry, GENERATION) as u32 == timer.generation
            && self.entry_get(entry, DUE) != 0;
        if is_set {
            self.release(entry);
        }
        is_set
    }

    /// Removes due timers, at most `limit` per call, and appends their tokens to `tokens`. True: there are more.
    pub fn fire(&self, now: u64, limit: usize, tokens: &mut Vec<u64>) -> bool {
        let _lock = Lock::take(&self.region, LOCK);
        let tick = now >> TICK_SHIFT;
        let done = self.get(DONE);
        // After a long pause, one turn of the wheel visits every slot.
        let first = (done + 1).max(tick.saturating_sub(SLOTS as u64 - 1));
        let room = tokens.len() + limit;
        for at in first..=tick {
            let mut entry = self.get(WHEEL + at as usize % SLOTS);
            while entry != 0 {
                let index = entry as usize - 1;
                entry = self.entry_get(index, NEXT);
                if self.entry_get(index, DUE) >> TICK_SHIFT >= tick {
                    continue;
                }
                if tokens.len() == room {
                    self.put(DONE, at - 1);
                    return true;
                }
                tokens.push(self.entry_get(index, TOKEN));
                self.release(index);
            }
            // The current tick is processed again, since timers may still be set for it.
            self.put(DONE, at.min(tick.saturating_sub(1)));
        }
        false
    }

    /// Returns the slot processed in the tick after `due`; a due time in the past is processed next.
    fn slot_of(&self, due: u64) -> usize {
        let tick = (due >> TICK_SHIFT) + 1;
        tick.max(self.get(DONE) + 1) as usize % SLOTS
    }

    fn allocate(&self) -> Option<usize> {
        let free = self.get(FREE);
        if free != 0 {
            let entry = free as usize - 1;
            self.put(FREE, self.entry_get(entry, NEXT));
            return Some(entry);
        }
        let used = self.get(USED) as usize;
        (used < self.capacity).then(|| {
            self.put(USED, used as u64 + 1);
            used
        })
    }

    fn link(&self, entry: usize, slot: usize) {
        let head = WHEEL + slot;
        let first = self.get(head);
        self.entry_put(entry, NEXT, first);
        // The head of slot s is stored as "previous" with the top bit, so that removing the first entry finds the head to change.
        self.entry_put(entry, PREVIOUS, slot as u64 | 1 << 63);
        if first != 0 {
            self.entry_put(first as usize - 1, PREVIOUS, entry as u64 + 1);
        }
        self.put(head, entry as u64 + 1);
    }

    fn release(&self, entry: usize) {
        let (next, previous) = (self.entry_get(entry, NEXT), self.entry_get(entry, PREVIOUS));
        if previous >> 63 == 1 {
            self.put(WHEEL + (previous & !(1 << 63)) as usize, next);
        } else {
            self.entry_put(previous as usize - 1, NEXT, next);
        }
        if next != 0 {
            self.entry_put(next as usize - 1, PREVIOUS, previous);
        }
        self.entry_put(entry, DUE, 0);
        self.entry_put(entry, NEXT, self.get(FREE));
        self.put(FREE, entry as u64 + 1);
    }

    fn entry_get(&self, entry: usize, word: usize) -> u64 {
        self.get(ENTRIES + entry * ENTRY_WORDS + word)
    }

    fn entry_put(&self, entry: usize, word: usize, value: u64) {
        self.put(ENTRIES + entry * ENTRY_WORDS + word, value);
    }

    fn get(&self, index: usize) -> u64 {
        self.region.words()[index].load(Ordering::Relaxed)
    }

    fn put(&self, index: usize, value: u64) {
        self.region.words()[index].store(value, Ordering::Relaxed);
        self.region.touch(index);
    }
}
