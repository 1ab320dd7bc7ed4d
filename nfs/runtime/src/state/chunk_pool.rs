//! A pool of chunks: memory for buffered bytes.
//!
//! A chunk belongs to one record, under whose lock it is read and written; the pool itself locks only its lists of free chunks.

use bytemuck::{Pod, Zeroable};
use nf_arena::{Memory, Region, BLOCK_WORDS};

use crate::Refusal;

use super::{
    slots::{self, Slots},
    words::{get, put, read_bytes, write_bytes, LINE},
};

#[cfg(test)]
mod tests;

/// The words of a chunk's header after the slot's own: its owner, and the next chunk of its chain.
const OWNER: usize = slots::HEADER;
const NEXT: usize = OWNER + 1;
const HEADER: usize = NEXT + 1;

/// The number of a chunk in use. When the chunk is given back, its next use gets another number. Zero is the number of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Chunk(u64);

impl Chunk {
    /// Tells whether it is the number of no chunk.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Chunks of one size in the arena.
pub struct ChunkPool<M = Region> {
    memory: M,
    slots: Slots,
    /// The first word of the first chunk, and the words of each.
    data: usize,
    chunk_words: usize,
}

/// The usual size of a chunk in bytes: a frame of an Ethernet fits.
pub const CHUNK_BYTES: usize = 2048;

impl<M: Memory> ChunkPool<M> {
    /// Checks the size of a chunk.
    ///
    /// # Errors
    /// If it is not a number of whole cache lines.
    pub(super) fn checked(name: &str, chunk_bytes: usize) -> Result<usize, Refusal> {
        if chunk_bytes == 0 || chunk_bytes % (8 * LINE) != 0 {
            let reason =
                format!("chunks of {chunk_bytes} bytes; expected a multiple of 64, at least 64");
            return Err(Refusal::configuration(name, reason));
        }
        Ok(chunk_bytes)
    }

    pub(super) fn layout(capacity: usize, chunk_bytes: usize) -> String {
        format!("chunks v1, {capacity} of {chunk_bytes} bytes")
    }

    /// Returns the size in words, saturated.
    pub(super) fn words(capacity: usize, chunk_bytes: usize) -> usize {
        let chunks = capacity.saturating_mul(chunk_bytes / 8);
        Self::data(capacity).saturating_add(chunks)
    }

    /// Returns the first word of the first chunk: headers are apart from the bytes, which fill whole blocks.
    fn data(capacity: usize) -> usize {
        (slots::WORDS + capacity * HEADER).next_multiple_of(BLOCK_WORDS)
    }

    pub(super) fn open(memory: M, capacity: usize, chunk_bytes: usize) -> Self {
        Self {
            memory,
            slots: Slots::new(capacity, slots::WORDS, HEADER),
            data: Self::data(capacity),
            chunk_words: chunk_bytes / 8,
        }
    }

    /// Repairs the lists of free chunks after a kill.
    pub(super) fn repair(&self) {
        self.slots.repair(&self.memory);
    }

    /// Returns the size of a chunk in bytes.
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        8 * self.chunk_words
    }

    /// Returns the number of all chunks.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns the number of free chunks.
    #[must_use]
    pub fn free(&self) -> usize {
        self.capacity()
            .saturating_sub(self.slots.used(&self.memory))
    }

    /// Takes a chunk for an owner: a number that tells its record. Its content is arbitrary. None: all are in use.
    #[inline]
    pub fn take(&self, owner: u32) -> Option<Chunk> {
        let slot = self.slots.reserve(&self.memory)?;
        let header = self.slots.header(slot);
        put(&self.memory, header + OWNER, owner.into());
        Some(Chunk(self.slots.publish(&self.memory, slot)))
    }

    /// Gives a chunk back. False: it was given back before.
    #[inline]
    pub fn give(&self, chunk: Chunk) -> bool {
        self.slots.release(&self.memory, chunk.0)
    }

    /// Returns the owner of a chunk. None: it is not in use.
    #[inline]
    #[must_use]
    pub fn owner(&self, chunk: Chunk) -> Option<u32> {
        self.header(chunk)
            .map(|header| get(&self.memory, header + OWNER) as u32)
    }

    /// Writes bytes from an offset on. False, without writing: they do not fit, or the chunk is not in use.
    #[inline]
    #[must_use]
    pub fn write(&self, chunk: Chunk, offset: usize, bytes: &[u8]) -> bool {
        let start = self.start(chunk, offset, bytes.len());
        start.is_some_and(|start| {
            write_bytes(&self.memory, start, offset, bytes);
            true
        })
    }

    /// Reads bytes from an offset on. False, without reading: the chunk has fewer, or is not in use.
    #[inline]
    #[must_use]
    pub fn read(&self, chunk: Chunk, offset: usize, into: &mut [u8]) -> bool {
        let start = self.start(chunk, offset, into.len());
        start.is_some_and(|start| {
            read_bytes(&self.memory, start, offset, into);
            true
        })
    }

    /// Gives back the chunks that no record names, which a kill has left; returns their number. `is_named` tells of each owner and chunk in use
    /// whether the record names it. No other thread may use the pool meanwhile.
    pub fn free_orphans(&self, mut is_named: impl FnMut(u32, Chunk) -> bool) -> usize {
        let used = self.slots.numbers(&self.memory).map(Chunk);
        let orphans = used.filter(|chunk| {
            let owner = self.owner(*chunk);
            owner.is_some_and(|owner| !is_named(owner, *chunk)) && self.give(*chunk)
        });
        orphans.count()
    }

    /// Makes a chunk the next one of a chain. False: the last one is not in use.
    #[inline]
    pub(super) fn link(&self, last: Chunk, next: Chunk) -> bool {
        let header = self.header(last);
        header.is_some_and(|header| {
            put(&self.memory, header + NEXT, next.0);
            true
        })
    }

    /// Returns the next chunk of a chain. None: this one is not in use.
    #[inline]
    pub(super) fn next(&self, chunk: Chunk) -> Option<Chunk> {
        self.header(chunk)
            .map(|header| Chunk(get(&self.memory, header + NEXT)))
    }

    /// Returns the header of a chunk in use.
    #[inline]
    fn header(&self, chunk: Chunk) -> Option<usize> {
        self.slots
            .is_used(&self.memory, chunk.0)
            .then(|| self.slots.header(slots::slot_of(chunk.0)))
    }

    /// Returns the first word of a chunk in use that has `length` bytes from `offset` on.
    #[inline]
    fn start(&self, chunk: Chunk, offset: usize, length: usize) -> Option<usize> {
        let end = offset.saturating_add(length);
        (end <= self.chunk_bytes() && self.slots.is_used(&self.memory, chunk.0))
            .then(|| self.data + slots::slot_of(chunk.0) * self.chunk_words)
    }
}
