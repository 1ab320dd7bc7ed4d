//! Idle legs that no client uses, as laid out in the arena: those of each backend, for any client that comes.

use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::{Pod, Zeroable};
use nf_arena::{Memory, Region};
use nf_runtime::{
    state::{Slab, SlabId, StateBuilder},
    Refusal,
};

use crate::record::Leg;

/// The idle legs of one backend that are kept at most.
const DEPTH: usize = 64;

/// Marks the number of an idle leg where numbers of connections are expected. Generations never reach this bit.
const MARK: u64 = 1 << 63;

/// A connection to a backend that no client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct IdleLeg {
    pub leg: Leg,
    /// The latest timestamp that the backend was sent.
    pub shown: u32,
    pub reserved: u32,
    /// The time at which it is closed.
    pub until: u64,
}

/// All idle legs.
pub struct IdleLegs {
    legs: Slab<IdleLeg>,
    /// A row of numbers for each backend; 0: none.
    slots: Region,
}

impl IdleLegs {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(
        capacity: usize,
        backends: usize,
        state: &mut StateBuilder,
    ) -> Result<Self, Refusal> {
        Ok(Self {
            legs: state.slab("idle legs", capacity)?,
            slots: state.region("idle legs of backends", "idle v1", backends * DEPTH)?,
        })
    }

    fn row(&self, row: u16) -> &[AtomicU64] {
        let begin = usize::from(row) * DEPTH;
        self.slots
            .words()
            .get(begin..begin + DEPTH)
            .unwrap_or_default()
    }

    /// Replaces a number in a row. Returns false if another thread was faster.
    fn replace(&self, row: u16, index: usize, old: u64, new: u64) -> bool {
        let word = &self.row(row)[index];
        let done = word
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if done {
            self.slots.touch(usize::from(row) * DEPTH + index);
        }
        done
    }

    /// Keeps a leg. Returns its marked number; None: the table or the backend's row is full.
    pub fn put(&self, leg: IdleLeg) -> Option<SlabId> {
        let id = self.legs.insert(leg)?;
        let number = bits(id);
        let row = leg.leg.row;
        let free = (0..self.row(row).len()).find(|index| self.replace(row, *index, 0, number));
        if free.is_none() {
            self.legs.remove(id);
            return None;
        }
        Some(from_bits(number | MARK))
    }

    /// Takes a leg of a backend that fits.
    pub fn take(&self, row: u16, fits: impl Fn(&IdleLeg) -> bool) -> Option<IdleLeg> {
        let words = self.row(row);
        (0..words.len()).find_map(|index| {
            let number = words[index].load(Ordering::Acquire);
            if number == 0 {
                return None;
            }
            let id = from_bits(number);
            let fitting = self.legs.look(id).filter(&fits);
            if fitting.is_none() || !self.replace(row, index, number, 0) {
                return None;
            }
            self.legs.remove(id)
        })
    }

    /// Tells whether a number is that of an idle leg.
    pub fn is_marked(id: SlabId) -> bool {
        bits(id) & MARK != 0
    }

    /// Returns the leg with a marked number.
    pub fn look(&self, marked: SlabId) -> Option<IdleLeg> {
        self.legs.look(from_bits(bits(marked) & !MARK))
    }

    /// Removes the leg with this number, marked or not. None: another thread took it.
    pub fn remove(&self, id: SlabId) -> Option<IdleLeg> {
        let number = bits(id) & !MARK;
        let removed = self.legs.remove(from_bits(number))?;
        let row = removed.leg.row;
        for (index, word) in self.row(row).iter().enumerate() {
            if word.load(Ordering::Relaxed) == number {
                self.replace(row, index, number, 0);
            }
        }
        Some(removed)
    }

    /// Lists the legs for which this holds.
    pub fn all(&self, holds: impl Fn(&IdleLeg) -> bool) -> Vec<SlabId> {
        let mut found = Vec::new();
        if !self.legs.is_empty() {
            self.legs.for_each(|id, leg| {
                if holds(leg) {
                    found.push(id);
                }
            });
        }
        found
    }

    pub fn len(&self) -> usize {
        self.legs.len()
    }
}

fn bits(id: SlabId) -> u64 {
    bytemuck::cast(id)
}

fn from_bits(bits: u64) -> SlabId {
    bytemuck::cast(bits)
}
