//! The shape of a table, and the places where a flow may be.

use nf_tables::Key;

use crate::hash::Hashes;

use super::error::TableError;

/// The most columns: as many as a port has pairs of memory channels in the paper, twice.
pub(crate) const MAX_WIDTH: usize = 8;
/// The most partitions, and thus engines.
const MAX_PARTITIONS: u32 = 64;

/// The place of an entry: its index times the width, plus its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// The rule that gives a flow's index in each column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hashing {
    /// All columns have one index, and a flow whose chain is full is not inserted (3.3.1).
    Chained,
    /// Each column has an index of its own, in the same partition, and entries move to make room. A lookup reads as many slots from as many
    /// memory channels as with chains.
    Skewed,
}

/// Depth (indexes) and width (columns) of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    depth: u32,
    width: u32,
    hashing: Hashing,
}

impl Shape {
    /// # Errors
    /// If the depth is not a power of two, the width is not 1 to 8, or there are more than 2^31 slots.
    pub fn new(depth: u32, width: u32, hashing: Hashing) -> Result<Self, TableError> {
        let fits = depth.is_power_of_two()
            && (1..=MAX_WIDTH as u32).contains(&width)
            && u64::from(depth) * u64::from(width) <= 1 << 31;
        fits.then_some(Self {
            depth,
            width,
            hashing,
        })
        .ok_or(TableError::Shape { depth, width })
    }

    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    #[must_use]
    pub fn hashing(&self) -> Hashing {
        self.hashing
    }

    #[must_use]
    pub fn slots(&self) -> usize {
        self.depth as usize * self.width as usize
    }

    /// Returns the number of partitions, and thus the most engines. All places of a flow are in one of them, and each belongs to one engine. It has at
    /// least 64 indexes, so that engines share no word of the accessing bitmap.
    #[must_use]
    #[inline]
    pub fn partitions(&self) -> u32 {
        (self.depth / 64).clamp(1, MAX_PARTITIONS)
    }

    /// Returns the engine, out of `engines`, that inserts and deletes a flow.
    #[must_use]
    #[inline]
    pub fn engine_of<K: Key>(&self, key: &K, engines: u32) -> u32 {
        let index = Hashes::of(key, false).first & (self.depth - 1);
        let partition = index / (self.depth / self.partitions());
        // `engine` owns the partitions from ceil(engine * partitions / engines) on.
        partition * engines / self.partitions()
    }

    /// Returns the slots of an engine, out of `engines`: the places of the flows that `engine_of` gives it.
    #[must_use]
    pub fn slots_of(&self, engine: u32, engines: u32) -> std::ops::Range<u32> {
        let slots = self.depth / self.partitions() * self.width;
        let first = |engine: u32| (engine * self.partitions()).div_ceil(engines) * slots;
        first(engine)..first(engine + 1)
    }

    /// Returns the places of a flow, one in each column.
    #[inline]
    pub(crate) fn places<K: Key>(&self, key: &K) -> Places {
        let hashes = Hashes::of(key, self.hashing == Hashing::Skewed);
        let first = hashes.first & (self.depth - 1);
        // The bits of the index inside a partition.
        let inner = self.depth / self.partitions() - 1;
        let mut slots = [Slot(0); MAX_WIDTH];
        for (column, slot) in slots.iter_mut().take(self.width as usize).enumerate() {
            let column = column as u32;
            let moved = first.wrapping_add(column.wrapping_mul(hashes.second));
            let index = (first & !inner) | (moved & inner);
            *slot = Slot(index * self.width + column);
        }
        Places {
            slots,
            width: self.width as usize,
        }
    }
}

/// The places of a flow.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    slots: [Slot; MAX_WIDTH],
    width: usize,
}

impl Places {
    #[inline]
    pub fn slots(&self) -> &[Slot] {
        &self.slots[..self.width]
    }
}
