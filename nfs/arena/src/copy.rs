//! Copies an arena while its owner keeps writing: dirty blocks out, blocks in, and a digest of the whole.

use std::sync::atomic::Ordering;

use xxhash_rust::xxh3::Xxh3;

use crate::{
    arena::{Arena, Region},
    memory::Memory,
    BLOCK_WORDS,
};

impl Region {
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.0.dirty.len()
    }

    /// Counts the blocks written since they were last taken.
    #[must_use]
    pub fn dirty_blocks(&self) -> usize {
        self.0
            .dirty
            .iter()
            .filter(|mark| mark.load(Ordering::Relaxed) != 0)
            .count()
    }

    /// Marks every block dirty, to start a new copy.
    pub fn touch_all(&self) {
        self.0
            .dirty
            .iter()
            .for_each(|mark| mark.store(1, Ordering::Release));
    }

    /// Clears a block's dirty mark and copies the block if it was marked. A concurrent write may be copied in part; it marks the
    /// block again, so the last round, with all writers stopped, is consistent.
    pub fn take_block(&self, block: usize, into: &mut Vec<u64>) -> bool {
        // A load first: the swap would take the cache line from the writers, and most blocks are clean.
        let mark = self.0.dirty.of(block);
        if mark.load(Ordering::Relaxed) == 0 || mark.swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        into.clear();
        into.extend(
            self.block_words(block)
                .iter()
                .map(|word| word.load(Ordering::Relaxed)),
        );
        true
    }

    /// Overwrites a block with a copy from elsewhere. Returns false, without writing, if this region has no such block or its size differs.
    #[must_use]
    pub fn put_block(&self, block: usize, content: &[u64]) -> bool {
        if block >= self.blocks() || self.block_words(block).len() != content.len() {
            return false;
        }
        self.block_words(block)
            .iter()
            .zip(content)
            .for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
        true
    }

    fn block_words(&self, block: usize) -> &[std::sync::atomic::AtomicU64] {
        let words = self.words();
        let start = block * BLOCK_WORDS;
        &words[start..words.len().min(start + BLOCK_WORDS)]
    }
}

impl Arena {
    /// Computes a digest of every word of every region. Writers must be stopped. Processes some gigabytes a second.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut hash = Xxh3::new();
        let mut buffer = [0_u64; BLOCK_WORDS];
        for region in self.regions() {
            for chunk in region.words().chunks(BLOCK_WORDS) {
                chunk
                    .iter()
                    .zip(&mut buffer)
                    .for_each(|(word, value)| *value = word.load(Ordering::Relaxed).to_le());
                hash.update(bytemuck::cast_slice(&buffer[..chunk.len()]));
            }
        }
        hash.digest128()
    }
}
