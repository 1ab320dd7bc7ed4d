//! Bytes beyond a hole in the framing: their meaning is unknown, so they wait until the hole is filled.
//!
//! They are not acknowledged, but reported in SACK blocks, so that the sender repeats the holes alone. Afterwards they pass as if they had just arrived: if
//! they are lost then, their sender repeats them (RFC 2018 lets a receiver discard what it has reported).
//!
//! A queue of bytes holds them in the order of their arrival, each piece behind a label, so that any number of holes costs no memory in advance.

use nf_runtime::state::{ByteQueue, ChunkPool};
use nf_splice::segment::is_after;

use crate::{
    record::{framing, Half},
    segments::Blocks,
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// The bytes of a piece's label: its first source number, and its length.
const LABEL: usize = 8;

/// A piece of the bytes kept.
#[derive(Clone, Copy, Debug)]
struct Piece {
    begin: u32,
    /// The place of its bytes in the queue, and their number.
    at: usize,
    len: usize,
}

impl Piece {
    fn end(&self) -> u32 {
        self.begin.wrapping_add(self.len as u32)
    }
}

/// Returns the pieces of a queue, in the order of their arrival.
fn pieces<'a>(kept: &'a ByteQueue, chunks: &'a ChunkPool) -> impl Iterator<Item = Piece> + 'a {
    let mut next = 0;
    std::iter::from_fn(move || {
        let mut label = [0; LABEL];
        if kept.read_at(chunks, next, &mut label) < LABEL {
            return None;
        }
        let [a, b, c, d, e, f, g, h] = label;
        let (begin, len) = (
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        );
        let at = next + LABEL;
        // The pool may have ended within the last piece.
        let len = (len as usize).min(kept.len() - at);
        next = at + len;
        Some(Piece { begin, at, len })
    })
}

impl Half {
    /// Keeps bytes if there is room; otherwise their sender repeats them. Heads have precedence: they need half of the pool.
    pub fn keep(&mut self, chunks: &ChunkPool, begin: u32, bytes: &[u8]) {
        let room = ByteQueue::MAX_BYTES.saturating_sub(self.kept.len());
        if chunks.free() < chunks.capacity() / 2 || room < LABEL + bytes.len() {
            return;
        }
        let end = begin.wrapping_add(bytes.len() as u32);
        let is_known = |piece: Piece| !is_after(piece.begin, begin) && !is_after(end, piece.end());
        if bytes.is_empty() || pieces(&self.kept, chunks).any(is_known) {
            return;
        }
        if self.kept.is_empty() || is_after(self.kept_at, begin) {
            self.kept_at = begin;
        }
        let mut label = [0; LABEL];
        label[..4].copy_from_slice(&begin.to_le_bytes());
        label[4..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        if self.kept.append(chunks, &label) == LABEL {
            self.kept.append(chunks, bytes);
        }
    }

    /// Discards the bytes kept; the sender repeats them.
    pub fn drop_kept(&mut self, chunks: &ChunkPool) {
        self.kept.clear(chunks);
        self.owed = 0;
    }

    /// Returns the edges of the bytes kept.
    pub fn kept_blocks(&self, chunks: &ChunkPool) -> Blocks {
        let mut blocks = Blocks::default();
        if self.kept.is_empty() {
            return blocks;
        }
        let mut runs: Vec<(u32, u32)> = pieces(&self.kept, chunks)
            .map(|piece| (piece.begin, piece.end()))
            .collect();
        let Some(&(latest, _)) = runs.last() else {
            return blocks;
        };
        runs.sort_unstable_by_key(|run| run.0.wrapping_sub(self.kept_at));
        runs.dedup_by(|next, run| {
            let touches = !is_after(next.0, run.1);
            if touches && is_after(next.1, run.1) {
                run.1 = next.1;
            }
            touches
        });
        let holds_latest = |run: &(u32, u32)| !is_after(run.0, latest) && is_after(run.1, latest);
        let first = runs.iter().position(holds_latest).unwrap_or(0);
        let (before, from_latest) = runs.split_at(first);
        for run in from_latest.iter().chain(before) {
            blocks.push(*run);
        }
        blocks
    }

    /// Takes a run of the bytes kept and its first number, if the framing has reached it.
    pub fn release(&mut self, chunks: &ChunkPool) -> Option<(u32, Vec<u8>)> {
        let next = self.next_known();
        if self.kept.is_empty() || is_after(self.kept_at, next) {
            return None;
        }
        let mut bytes = vec![0; self.kept.len()];
        let _ = self.kept.read_at(chunks, 0, &mut bytes);
        let mut waiting: Vec<Piece> = pieces(&self.kept, chunks).collect();
        waiting.sort_by_key(|piece| piece.begin.wrapping_sub(self.kept_at));
        let owed = self.owed;
        self.drop_kept(chunks);
        let first = waiting.first()?.begin;
        let (mut run, mut end) = (Vec::new(), first);
        for piece in waiting {
            let part = bytes.get(piece.at..piece.at + piece.len);
            let part = part.unwrap_or_default();
            if is_after(piece.begin, end) {
                self.keep(chunks, piece.begin, part);
                continue;
            }
            let old = end.wrapping_sub(piece.begin) as usize;
            let more = part.get(old..).unwrap_or_default();
            run.extend_from_slice(more);
            end = end.wrapping_add(more.len() as u32);
        }
        if !self.kept.is_empty() {
            self.owed = owed;
        }
        Some((first, run))
    }

    /// Returns the number up to which the framing knows what bytes mean.
    fn next_known(&self) -> u32 {
        if self.held.is_empty() || is_after(self.parse_at, self.owned) {
            self.parse_at
        } else {
            self.owned
        }
    }

    /// Tells whether the meaning of a byte is unknown, because bytes before it are missing.
    pub fn is_beyond_hole(&self, begin: u32) -> bool {
        let parses = matches!(self.framing, framing::CHUNKED | framing::HEAD);
        parses && is_after(begin, self.next_known())
    }

    /// Tells whether a byte belongs to later heads, and bytes before it are missing.
    pub fn is_beyond_head(&self, begin: u32) -> bool {
        self.framing == framing::ENDED && is_after(begin, self.next_known())
    }
}
