//! Numbered slots that are taken and given back, in constant time.
//!
//! Each slot has a *generation*, which is odd while the slot is in use. A number is a slot with its generation, so an old number never means the next
//! content of its slot. The generations are the truth: the lists of free slots can be built again from them, after a kill.
//!
//! There are several lists, each for a range of slots with a lock of its own. Threads start at different lists, and a slot returns to the list of
//! its range: so threads rarely meet, and a thread's slots are neighbours.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

use nf_arena::Memory;

use crate::Refusal;

use super::{
    spin::{self, Lock},
    words::{get, put, LINE},
};

const LISTS: usize = 16;
/// The words of a list, on a cache line: its lock, its first free slot plus 1, the slots of its range that were ever in use, those in use now.
const FIRST: usize = 1;
const TOUCHED: usize = 2;
const USED: usize = 3;
/// The words before all slots.
pub(super) const WORDS: usize = LISTS * LINE;

/// The words at the start of a slot's header: the generation, and the next free slot plus 1.
const GENERATION: usize = 0;
const NEXT: usize = 1;
pub(super) const HEADER: usize = 2;

/// A number's bits for the slot; the others are for the generation.
const SLOT_BITS: u32 = 24;
const MAX_SLOTS: usize = 1 << SLOT_BITS;
const GENERATIONS: u64 = 1 << (64 - SLOT_BITS);

/// Checks the capacity of a structure, at least 1.
///
/// # Errors
/// If it is above [`MAX_SLOTS`].
pub(super) fn checked(name: &str, capacity: usize) -> Result<usize, Refusal> {
    if capacity > MAX_SLOTS {
        let reason = format!("is {capacity}; expected at most {MAX_SLOTS}");
        return Err(Refusal::configuration(name, reason));
    }
    Ok(capacity.max(1))
}

/// The slot of a number.
pub(super) const fn slot_of(number: u64) -> usize {
    (number & (MAX_SLOTS as u64 - 1)) as usize
}

/// The slots of a structure whose memory starts with their [`WORDS`].
pub(super) struct Slots {
    capacity: usize,
    /// The first slot's header, and the words from one header to the next.
    headers: usize,
    stride: usize,
    /// The list in which threads with this home last found a free slot.
    hints: [Hint; LISTS],
}

#[repr(align(64))]
struct Hint(AtomicUsize);

impl Slots {
    pub(super) fn new(capacity: usize, headers: usize, stride: usize) -> Self {
        Self {
            capacity,
            headers,
            stride,
            hints: std::array::from_fn(|list| Hint(AtomicUsize::new(list))),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the first word of a slot's header.
    #[inline]
    pub(super) fn header(&self, slot: usize) -> usize {
        self.headers + slot * self.stride
    }

    /// Reserves a slot, which is not in use yet. None: all are in use.
    #[inline]
    pub(super) fn reserve(&self, memory: &impl Memory) -> Option<usize> {
        let hint = &self.hints[home()].0;
        let first = hint.load(Ordering::Relaxed);
        (0..LISTS).find_map(|turn| {
            let list = (first + turn) % LISTS;
            let slot = self.pop(memory, list)?;
            if turn > 0 {
                hint.store(list, Ordering::Relaxed);
            }
            Some(slot)
        })
    }

    /// Brings a reserved slot into use, after all writes to it; returns its number.
    #[inline]
    pub(super) fn publish(&self, memory: &impl Memory, slot: usize) -> u64 {
        let index = self.header(slot) + GENERATION;
        let generation = (get(memory, index) + 1) % GENERATIONS;
        memory.words()[index].store(generation, Ordering::Release);
        memory.touch(index);
        generation << SLOT_BITS | slot as u64
    }

    /// Frees a slot. False: this number's use had ended before.
    #[inline]
    pub(super) fn release(&self, memory: &impl Memory, number: u64) -> bool {
        let is_released = self.retire(memory, number);
        if is_released {
            self.push(memory, slot_of(number));
        }
        is_released
    }

    /// Ends a number's use, without freeing its slot: see [`repair`](Self::repair).
    #[inline]
    pub(super) fn retire(&self, memory: &impl Memory, number: u64) -> bool {
        if !self.is_used(memory, number) {
            return false;
        }
        let index = self.header(slot_of(number)) + GENERATION;
        let generation = number >> SLOT_BITS;
        // Of several threads that end it, one succeeds.
        let ended = memory.words()[index].compare_exchange(
            generation,
            (generation + 1) % GENERATIONS,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        memory.touch(index);
        ended.is_ok()
    }

    /// Tells whether this number is in use.
    #[inline]
    pub(super) fn is_used(&self, memory: &impl Memory, number: u64) -> bool {
        self.number(memory, slot_of(number)) == Some(number)
    }

    /// Returns the number of a slot in use.
    #[inline]
    pub(super) fn number(&self, memory: &impl Memory, slot: usize) -> Option<u64> {
        if slot >= self.capacity {
            return None;
        }
        let generation = memory.words()[self.header(slot) + GENERATION].load(Ordering::Acquire);
        (generation % 2 == 1).then_some(generation << SLOT_BITS | slot as u64)
    }

    /// Returns the numbers in use, in the order of their slots.
    pub(super) fn numbers<'a>(&'a self, memory: &'a impl Memory) -> impl Iterator<Item = u64> + 'a {
        (0..LISTS).flat_map(move |list| {
            let start = self.start(list);
            let touched = get(memory, list * LINE + TOUCHED) as usize;
            (start..start + touched).filter_map(|slot| self.number(memory, slot))
        })
    }

    /// Counts the slots in use.
    pub(super) fn used(&self, memory: &impl Memory) -> usize {
        let used = (0..LISTS).map(|list| get(memory, list * LINE + USED) as usize);
        used.sum()
    }

    /// Repairs the lists after a kill: a slot is in use, or free again.
    pub(super) fn repair(&self, memory: &impl Memory) {
        for list in 0..LISTS {
            let line = list * LINE;
            spin::free(memory, line);
            let start = self.start(list);
            let slots = start..start + get(memory, line + TOUCHED) as usize;
            let used = slots
                .clone()
                .filter(|slot| self.number(memory, *slot).is_some());
            put(memory, line + USED, used.count() as u64);
            let mut first = 0;
            for slot in slots
                .rev()
                .filter(|slot| self.number(memory, *slot).is_none())
            {
                put(memory, self.header(slot) + NEXT, first);
                first = slot as u64 + 1;
            }
            put(memory, line + FIRST, first);
        }
    }

    fn pop(&self, memory: &impl Memory, list: usize) -> Option<usize> {
        let line = list * LINE;
        let start = self.start(list);
        let size = self.start(list + 1) - start;
        let is_empty =
            || get(memory, line + FIRST) == 0 && get(memory, line + TOUCHED) as usize >= size;
        if is_empty() {
            return None;
        }
        let _lock = Lock::take(memory, line);
        if is_empty() {
            return None;
        }
        let first = get(memory, line + FIRST);
        let slot = if first == 0 {
            let touched = get(memory, line + TOUCHED);
            put(memory, line + TOUCHED, touched + 1);
            start + touched as usize
        } else {
            let slot = first as usize - 1;
            put(memory, line + FIRST, get(memory, self.header(slot) + NEXT));
            slot
        };
        put(memory, line + USED, get(memory, line + USED) + 1);
        Some(slot)
    }

    fn push(&self, memory: &impl Memory, slot: usize) {
        let line = slot / self.range() * LINE;
        let _lock = Lock::take(memory, line);
        put(memory, self.header(slot) + NEXT, get(memory, line + FIRST));
        put(memory, line + FIRST, slot as u64 + 1);
        put(
            memory,
            line + USED,
            get(memory, line + USED).wrapping_sub(1),
        );
    }

    /// Returns the number of slots per list; the last lists may have fewer.
    fn range(&self) -> usize {
        self.capacity.div_ceil(LISTS)
    }

    fn start(&self, list: usize) -> usize {
        (list * self.range()).min(self.capacity)
    }
}

/// Returns the list at which this thread starts. Threads that start after each other start far apart.
#[inline]
fn home() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HOME: Cell<usize> = Cell::new(spread(THREADS.fetch_add(1, Ordering::Relaxed)));
    }
    // A thread that is ending may have lost its home already.
    HOME.try_with(Cell::get).unwrap_or(0)
}

/// Reverses the bits of a list's number.
fn spread(thread: usize) -> usize {
    (thread % LISTS).reverse_bits() >> (usize::BITS - LISTS.ilog2())
}
