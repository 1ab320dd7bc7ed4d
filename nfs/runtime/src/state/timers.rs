//! Calls at a time: a hashed wheel (Varghese and Lauck, SOSP 1987, scheme 6) in the arena.
//!
//! A turn of the wheel takes 4096 ticks of 2^23 ns, 34 s; what is due later stays in its slot until its turn comes. Setting,
//! stopping and firing a timer take constant time.

use std::sync::atomic::Ordering;

use nf_arena::{Memory, Region};

use super::spin::{self, Lock};

/// 8.4 ms: timers are for what happens to flows, not to packets.
const TICK_SHIFT: u32 = 23;
const SLOTS: usize = 4096;

/// Words of the region: the lock; the tick that was looked at last; the first free entry; how many were used ever; then the
/// wheel's slots; then the entries. An index is stored plus one: 0 is "none", and a region of zeros is an empty wheel.
const LOCK: usize = 0;
const DONE: usize = 8;
const FREE: usize = 9;
const USED: usize = 10;
const WHEEL: usize = 16;
const ENTRIES: usize = WHEEL + SLOTS;

/// Words of an entry: when (0: free), what for, next and previous of its slot, how often it was set.
const DUE: usize = 0;
const TOKEN: usize = 1;
const NEXT: usize = 2;
const PREVIOUS: usize = 3;
const GENERATION: usize = 4;
const ENTRY_WORDS: usize = 8;

/// A timer that was set, to stop it by. May be kept in state; one that has fired stops nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Timer {
    entry: u32,
    generation: u32,
}

/// Timers of one network function.
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

    /// For [`super::Repairs`]: makes the lists anew from the entries.
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

    /// Sets a timer: [`fire`](Self::fire) gives `token` at the first tick after `due`, nanoseconds of the arena's clock. None: there are as
    /// many as there can be.
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

    /// Stops a timer; false if it has fired or was stopped.
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

    /// Takes out what is due, at most `limit` at a time, and appends the tokens to `tokens`. True: there is more.
    pub fn fire(&self, now: u64, limit: usize, tokens: &mut Vec<u64>) -> bool {
        let _lock = Lock::take(&self.region, LOCK);
        let tick = now >> TICK_SHIFT;
        let done = self.get(DONE);
        // After a long pause one turn of the wheel sees every slot.
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
            // The tick that is under way is looked at again: what is set for it now has to fire too.
            self.put(DONE, at.min(tick.saturating_sub(1)));
        }
        false
    }

    /// The slot that is looked at in the tick after `due`; one that is past already comes with the next look.
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
        // The head of slot s is stored as "previous" with the top bit, so that taking the first out knows whose head to change.
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
