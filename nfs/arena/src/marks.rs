//! The marks of dirty blocks, one byte each.

use std::sync::atomic::{AtomicU8, Ordering};

/// The number of neighbouring blocks whose marks are apart.
const APART: usize = 64;
/// A cache line, and the one that processors prefetch with it.
const LINES: usize = 128;

/// One byte per block: set if the block was written since it was last copied.
///
/// Marks of neighbouring blocks are on different cache lines. Workers write to parts of a region that are near each other, as counters are, and would
/// otherwise take the same line of marks from each other with every packet.
pub(crate) struct Marks {
    bytes: Box<[AtomicU8]>,
    blocks: usize,
    /// The distance between the marks of neighbours.
    distance: usize,
}

impl Marks {
    /// Creates marks that are all set.
    pub(crate) fn set(blocks: usize) -> Self {
        let distance = blocks.div_ceil(APART).next_multiple_of(LINES);
        Self {
            bytes: (0..APART * distance).map(|_| AtomicU8::new(1)).collect(),
            blocks,
            distance,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks
    }

    #[inline]
    pub(crate) fn of(&self, block: usize) -> &AtomicU8 {
        &self.bytes[block % APART * self.distance + block / APART]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &AtomicU8> {
        (0..self.blocks).map(|block| self.of(block))
    }

    #[inline]
    pub(crate) fn mark(&self, block: usize) {
        // Always stores, without a load first: otherwise a writer could see the old mark, which the copier then clears, and its write would be lost.
        self.of(block).store(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_block_has_a_mark_of_its_own_away_from_its_neighbours() {
        for blocks in [1, 63, 64, 65, 8192, 8193, 100_000] {
            let marks = Marks::set(blocks);
            let start = marks.of(0) as *const _ as usize;
            let places: Vec<usize> = marks
                .iter()
                .map(|mark| mark as *const _ as usize - start)
                .collect();
            assert_eq!(places.iter().collect::<HashSet<_>>().len(), blocks);
            let apart = |pair: &[usize]| pair[0].abs_diff(pair[1]) + 1 >= LINES;
            assert!(places.windows(2).all(apart), "{blocks} blocks");
        }
    }
}
