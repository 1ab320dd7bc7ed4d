//! Plain values as words of the arena.

use std::sync::atomic::{AtomicU64, Ordering};

use nf_arena::{Memory, BLOCK_WORDS};

/// The words of a cache line.
pub(super) const LINE: usize = 8;

/// Stores a word, if it changes, and marks it for copies.
#[inline]
pub(super) fn put(memory: &impl Memory, index: usize, value: u64) {
    let word = &memory.words()[index];
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Relaxed);
        memory.touch(index);
    }
}

#[inline]
pub(super) fn get(memory: &impl Memory, index: usize) -> u64 {
    memory.words()[index].load(Ordering::Relaxed)
}

/// Copies words from `start` on into `bytes`; ignores the rest of the last word.
#[inline]
pub(super) fn read_words(memory: &impl Memory, start: usize, bytes: &mut [u8]) {
    let words = &memory.words()[start..start + bytes.len().div_ceil(8)];
    let (whole, rest) = bytes.split_at_mut(bytes.len() / 8 * 8);
    for (index, word) in words[..whole.len() / 8].iter().enumerate() {
        // An array is one store, a slice a call.
        if let Some(chunk) = whole[8 * index..].first_chunk_mut() {
            *chunk = load(word);
        }
    }
    if let (false, Some(word)) = (rest.is_empty(), words.last()) {
        rest.copy_from_slice(&load(word)[..rest.len()]);
    }
}

#[inline]
fn load(word: &AtomicU64) -> [u8; 8] {
    word.load(Ordering::Relaxed).to_le_bytes()
}

/// Copies `bytes` into words, the opposite of [`read_words`]; the rest of the last word becomes zero.
#[inline]
pub(super) fn write_words(memory: &impl Memory, start: usize, bytes: &[u8]) {
    let mut rest = bytes;
    for index in start..start + bytes.len().div_ceil(8) {
        let (now, later) = rest.split_at(rest.len().min(8));
        put(memory, index, word(now));
        rest = later;
    }
}

/// Writes the words in which `after` differs from `before`, the content read with [`read_words`].
#[inline]
pub(super) fn write_changes(memory: &impl Memory, start: usize, before: &[u8], after: &[u8]) {
    // Most cache lines of a large value stay as they are.
    let (mut before, mut after, mut start) = (before, after, start);
    while let (Some((old, befores)), Some((new, afters))) =
        (before.split_first_chunk(), after.split_first_chunk())
    {
        write_line(memory, start, old, new);
        (before, after, start) = (befores, afters, start + LINE);
    }
    for (offset, (old, new)) in before.chunks(8).zip(after.chunks(8)).enumerate() {
        if old != new {
            put(memory, start + offset, word(new));
        }
    }
}

/// Copies bytes from the `offset`th byte after the word `start` on.
#[inline]
pub(super) fn read_bytes(memory: &impl Memory, start: usize, offset: usize, bytes: &mut [u8]) {
    let mut index = start + offset / 8;
    let skipped = offset % 8;
    let (first, rest) = bytes.split_at_mut(bytes.len().min((8 - skipped) % 8));
    if !first.is_empty() {
        first.copy_from_slice(&load(&memory.words()[index])[skipped..][..first.len()]);
        index += 1;
    }
    read_words(memory, index, rest);
}

/// Copies bytes to where [`read_bytes`] finds them; keeps all others.
#[inline]
pub(super) fn write_bytes(memory: &impl Memory, start: usize, offset: usize, bytes: &[u8]) {
    let Some(last) = bytes.len().checked_sub(1) else {
        return;
    };
    let (from, to) = (start + offset / 8, start + (offset + last) / 8);
    let skipped = offset % 8;
    let (first, rest) = bytes.split_at(bytes.len().min((8 - skipped) % 8));
    let mut words = memory.words()[from..=to].iter();
    if let (false, Some(word)) = (first.is_empty(), words.as_slice().first()) {
        merge(word, skipped, first);
        words.next();
    }
    let mut whole = rest.chunks_exact(8);
    for (chunk, to) in whole.by_ref().zip(words.by_ref()) {
        to.store(word(chunk), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (whole.remainder().is_empty(), words.next()) {
        merge(word, 0, whole.remainder());
    }
    (from..to)
        .step_by(BLOCK_WORDS)
        .chain([to])
        .for_each(|index| memory.touch(index));
}

/// Replaces some bytes of a word.
fn merge(word: &AtomicU64, offset: usize, bytes: &[u8]) {
    let mut whole = load(word);
    whole[offset..][..bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
}

#[inline]
fn write_line(memory: &impl Memory, start: usize, old: &[u8; 8 * LINE], new: &[u8; 8 * LINE]) {
    if old == new {
        return;
    }
    for offset in 0..LINE {
        let new = word(&new[8 * offset..][..8]);
        if word(&old[8 * offset..][..8]) != new {
            put(memory, start + offset, new);
        }
    }
}

/// Returns up to 8 bytes as a word.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Ok(whole) = bytes.try_into() {
        return u64::from_le_bytes(whole);
    }
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

#[cfg(test)]
mod tests {
    use nf_arena::ArenaBuilder;

    use super::*;

    #[test]
    fn only_changed_words_are_written_and_marked() {
        let mut builder = ArenaBuilder::fresh("test", 1).unwrap();
        let region = builder.region("words", "u8", 192).unwrap();
        let before: Vec<u8> = (0..1_003_u16).map(|byte| byte as u8).collect();
        write_words(&region, 3, &before);
        let mut read = vec![0; before.len()];
        read_words(&region, 3, &mut read);
        assert_eq!(read, before);
        let mut block = Vec::new();
        (0..region.blocks()).for_each(|index| {
            region.take_block(index, &mut block);
        });
        // The first byte, and the last, which is alone in its word.
        for changed in [0, 500, 1_002] {
            let mut after = before.clone();
            after[changed] ^= 0xff;
            write_changes(&region, 3, &before, &after);
            read_words(&region, 3, &mut read);
            assert_eq!(read, after);
            let dirty: Vec<_> = (0..region.blocks())
                .filter(|index| region.take_block(*index, &mut block))
                .collect();
            assert_eq!(dirty, [(3 + changed / 8) / nf_arena::BLOCK_WORDS]);
            write_changes(&region, 3, &after, &before);
            (0..region.blocks()).for_each(|index| {
                region.take_block(index, &mut block);
            });
        }
        write_changes(&region, 3, &before, &before);
        write_words(&region, 3, &before);
        assert_eq!(region.dirty_blocks(), 0);
    }
}
