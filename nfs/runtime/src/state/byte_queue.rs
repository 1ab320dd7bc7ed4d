//! A queue of bytes in chained chunks, to be a part of a record.

use bytemuck::{Pod, Zeroable};
use nf_arena::Memory;

use super::chunk_pool::{Chunk, ChunkPool};

#[cfg(test)]
mod tests;

/// Bytes in the order of their arrival: plain data, whose chain of chunks is in the pool. All calls must get the same pool.
///
/// A record that is killed after a call and before its own words are written has the queue of before the call. Added bytes are then not in it,
/// and their chunks are orphans; removed ones may have left chunks that are no longer its own: see [`is_whole`](Self::is_whole).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ByteQueue {
    head: Chunk,
    tail: Chunk,
    length: u32,
    /// The offset of the first byte in the first chunk.
    start: u32,
    owner: u32,
    reserved: u32,
}

impl ByteQueue {
    /// The most bytes of a queue: 64 KiB and one usual chunk.
    pub const MAX_BYTES: usize = 66 << 10;

    /// Creates an empty queue, whose chunks belong to `owner`.
    #[must_use]
    pub fn new(owner: u32) -> Self {
        Self {
            owner,
            ..Self::default()
        }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds bytes at the end; returns how many were taken: fewer if the queue or the pool is full.
    pub fn append<M: Memory>(&mut self, pool: &ChunkPool<M>, bytes: &[u8]) -> usize {
        let mut rest = &bytes[..bytes.len().min(Self::MAX_BYTES.saturating_sub(self.len()))];
        let mut taken = 0;
        while !rest.is_empty() {
            let used = (self.start as usize + self.len()) % pool.chunk_bytes();
            // A chunk without room is full, as an empty queue has none.
            if used == 0 && !self.extend(pool) {
                break;
            }
            let (now, later) = rest.split_at(rest.len().min(pool.chunk_bytes() - used));
            if !pool.write(self.tail, used, now) {
                break;
            }
            self.length += now.len() as u32;
            taken += now.len();
            rest = later;
        }
        taken
    }

    /// Adds a chunk to the chain.
    fn extend<M: Memory>(&mut self, pool: &ChunkPool<M>) -> bool {
        let Some(chunk) = pool.take(self.owner) else {
            return false;
        };
        if self.head.is_none() {
            self.head = chunk;
        } else if !pool.link(self.tail, chunk) {
            pool.give(chunk);
            return false;
        }
        self.tail = chunk;
        true
    }

    /// Copies bytes from an offset on; returns how many there were.
    #[must_use]
    pub fn read_at<M: Memory>(&self, pool: &ChunkPool<M>, offset: usize, into: &mut [u8]) -> usize {
        let mut reader = self.reader(pool);
        reader.skip(offset);
        reader.read(into)
    }

    /// Reads its bytes in order, from the first one on.
    #[must_use]
    pub fn reader<'a, M: Memory>(&self, pool: &'a ChunkPool<M>) -> Reader<'a, M> {
        Reader {
            pool,
            chunk: self.head,
            tail: self.tail,
            within: self.start as usize,
            left: self.len(),
        }
    }

    /// Removes up to `count` bytes from the front.
    pub fn consume<M: Memory>(&mut self, pool: &ChunkPool<M>, count: usize) {
        if count >= self.len() {
            self.clear(pool);
            return;
        }
        self.length -= count as u32;
        let mut start = self.start as usize + count;
        while start >= pool.chunk_bytes() {
            let next = pool.next(self.head).unwrap_or_default();
            pool.give(self.head);
            self.head = next;
            start -= pool.chunk_bytes();
        }
        self.start = start as u32;
    }

    /// Removes all bytes.
    pub fn clear<M: Memory>(&mut self, pool: &ChunkPool<M>) {
        let mut chunk = self.head;
        while let Some(next) = pool.next(chunk) {
            pool.give(chunk);
            chunk = if chunk == self.tail {
                Chunk::default()
            } else {
                next
            };
        }
        *self = Self::new(self.owner);
    }

    /// Returns its chunks, for [`ChunkPool::free_orphans`].
    pub fn chunks<'a, M: Memory>(
        &self,
        pool: &'a ChunkPool<M>,
    ) -> impl Iterator<Item = Chunk> + 'a {
        let tail = self.tail;
        let in_use = move |chunk: &Chunk| pool.next(*chunk).is_some();
        std::iter::successors(Some(self.head).filter(in_use), move |chunk| {
            let next = pool.next(*chunk).filter(|_| *chunk != tail)?;
            Some(next).filter(in_use)
        })
    }

    /// Tells whether all its bytes are still there. After a kill, a queue that is not whole has lost bytes: its record cannot continue, only
    /// [`clear`](Self::clear) it.
    #[must_use]
    pub fn is_whole<M: Memory>(&self, pool: &ChunkPool<M>) -> bool {
        self.chunks(pool).last().unwrap_or_default() == self.tail
    }
}

/// A place in a queue, which goes along the chain of chunks once.
#[derive(Clone)]
pub struct Reader<'a, M> {
    pool: &'a ChunkPool<M>,
    chunk: Chunk,
    tail: Chunk,
    /// The offset of the next byte in its chunk.
    within: usize,
    left: usize,
}

impl<M: Memory> Reader<'_, M> {
    /// Copies the next bytes; returns how many there were.
    #[must_use]
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() && self.left > 0 && self.enter() {
            let room = self.pool.chunk_bytes() - self.within;
            let now = room.min(self.left).min(into.len() - done);
            if !self
                .pool
                .read(self.chunk, self.within, &mut into[done..done + now])
            {
                break;
            }
            (self.within, self.left, done) = (self.within + now, self.left - now, done + now);
        }
        done
    }

    /// Returns the number of bytes behind this place.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Passes over bytes.
    pub fn skip(&mut self, count: usize) {
        let count = count.min(self.left);
        (self.within, self.left) = (self.within + count, self.left - count);
    }

    /// Goes to the chunk of the next byte. False: a kill has cut the chain.
    fn enter(&mut self) -> bool {
        while self.within >= self.pool.chunk_bytes() {
            let next = self.pool.next(self.chunk);
            let Some(next) = next.filter(|_| self.chunk != self.tail) else {
                return false;
            };
            self.chunk = next;
            self.within -= self.pool.chunk_bytes();
        }
        true
    }
}
