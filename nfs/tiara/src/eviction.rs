//! The choice of a victim in a full place: an idle flow, then the least used one. The paper leaves this open.
//!
//! The NIC's hit bits say which flows were active in a period. The engine takes them over at its end, half a megabit for each million slots, and keeps
//! eight periods for each slot. So an eviction reads nothing from the NIC.

use std::ops::Range;

use crate::table::Slot;

#[cfg(test)]
mod tests;

/// The usage of a flow that is new: one packet, in the newest period.
pub(crate) const FRESH: u8 = 1 << 7;

/// The last eight periods of each slot, one bit each, the newest in the highest bit.
#[derive(Clone, Debug)]
pub struct Usage {
    first: u32,
    /// Eight slots in a word, the first in its lowest byte.
    words: Vec<u64>,
}

impl Usage {
    /// Makes the usage of slots that start at a multiple of 64.
    #[must_use]
    pub fn new(slots: Range<u32>) -> Self {
        Self {
            first: slots.start,
            words: vec![0; slots.len().div_ceil(8)],
        }
    }

    #[inline]
    fn place(&self, slot: Slot) -> (usize, u32) {
        let index = (slot.0 - self.first) as usize;
        (index / 8, (index % 8) as u32 * 8)
    }

    /// Returns a slot's periods.
    #[must_use]
    #[inline]
    pub fn of(&self, slot: Slot) -> u8 {
        let (word, shift) = self.place(slot);
        (self.words[word] >> shift) as u8
    }

    /// A slot has another entry.
    #[inline]
    pub fn set(&mut self, slot: Slot, periods: u8) {
        let (word, shift) = self.place(slot);
        self.words[word] &= !(0xff << shift);
        self.words[word] |= u64::from(periods) << shift;
    }

    /// Ends a period of the 64 slots from `64 * group` on: `marks` says which were hit.
    pub fn end_period(&mut self, group: u32, marks: u64) {
        let start = (group as usize * 64 - self.first as usize) / 8;
        let end = self.words.len().min(start + 8);
        for (index, word) in self.words[start..end].iter_mut().enumerate() {
            let older = *word >> 1 & 0x7f7f_7f7f_7f7f_7f7f;
            *word = older | spread((marks >> (8 * index)) as u8) << 7;
        }
    }

    /// Returns which of these slots gives its place to a flow with `usage`: an idle one, otherwise the least used. None: all are used at least as much.
    #[must_use]
    pub fn victim(&self, slots: &[Slot], usage: u8) -> Option<Slot> {
        let rank = |periods: u8| (periods & FRESH != 0, periods.count_ones(), periods);
        let least = slots
            .iter()
            .copied()
            .min_by_key(|&slot| rank(self.of(slot)))?;
        (rank(self.of(least)) < rank(usage)).then_some(least)
    }
}

/// Moves bit `i` to bit `8 * i`.
fn spread(bits: u8) -> u64 {
    let mut word = u64::from(bits);
    word = (word | word << 28) & 0x0000_000f_0000_000f;
    word = (word | word << 14) & 0x0003_0003_0003_0003;
    (word | word << 7) & 0x0101_0101_0101_0101
}
