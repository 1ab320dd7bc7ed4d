//! Plain values as words of the arena.

use std::sync::atomic::Ordering;

use nf_arena::Memory;

/// Copies words from `start` on into `bytes`; ignores the rest of the last word.
#[inline]
pub(super) fn read_words(memory: &impl Memory, start: usize, bytes: &mut [u8]) {
    let words = &memory.words()[start..start + bytes.len().div_ceil(8)];
    for (chunk, word) in bytes.chunks_mut(8).zip(words) {
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..chunk.len()]);
    }
}

/// Copies `bytes` into words, the opposite of [`read_words`]; the rest of the last word becomes zero.
#[inline]
pub(super) fn write_words(memory: &impl Memory, start: usize, bytes: &[u8]) {
    let words = &memory.words()[start..start + bytes.len().div_ceil(8)];
    for (offset, (chunk, word)) in bytes.chunks(8).zip(words).enumerate() {
        let mut whole = [0; 8];
        whole[..chunk.len()].copy_from_slice(chunk);
        let value = u64::from_le_bytes(whole);
        if word.load(Ordering::Relaxed) != value {
            word.store(value, Ordering::Relaxed);
            memory.touch(start + offset);
        }
    }
}
