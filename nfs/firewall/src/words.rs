//! Plain records as words of the arena.

use std::sync::atomic::Ordering;

use nf_arena::{Memory, Region};

#[inline]
pub fn get(region: &Region, at: usize) -> u64 {
    region.words()[at].load(Ordering::Relaxed)
}

#[inline]
pub fn put(region: &Region, at: usize, word: u64) {
    region.words()[at].store(word, Ordering::Relaxed);
    region.touch(at);
}

#[inline]
pub fn read<const N: usize>(region: &Region, at: usize) -> [u64; N] {
    let words = &region.words()[at..at + N];
    std::array::from_fn(|index| words[index].load(Ordering::Relaxed))
}

/// Writes words that have changed.
#[inline]
pub fn write<const N: usize>(region: &Region, at: usize, new: &[u64; N]) {
    let words = &region.words()[at..at + N];
    for (index, (word, new)) in words.iter().zip(new).enumerate() {
        if word.load(Ordering::Relaxed) != *new {
            word.store(*new, Ordering::Relaxed);
            region.touch(at + index);
        }
    }
}
