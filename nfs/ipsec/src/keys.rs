//! The state of keys: a row of words for each key that the instance has ever had. Keys themselves are not in it.
//!
//! A key keeps its row when it leaves the configuration, so that it continues, and does not start again, if it ever comes back. Negotiated keys do
//! not come back: their rows become free.

use std::sync::atomic::{AtomicU64, Ordering};

use nf_arena::{Memory, Region, BLOCK_WORDS};
use nf_runtime::{state::StateBuilder, Refusal};

use crate::cipher::Identity;

/// Words that both kinds of rows have.
pub mod both {
    /// And the word after it: the key's identity; zeros: the row is free.
    pub const IDENTITY: usize = 0;
    /// When the key came into the state, by the state's clock.
    pub const SINCE: usize = 2;
    pub const PACKETS: usize = 3;
    pub const BYTES: usize = 4;
    /// 1: the key was negotiated, so it does not come back, and its row is free again when no tunnel has it.
    pub const NEGOTIATED: usize = 11;
}

/// Words of a key that protects packets.
pub mod outbound {
    pub const BASE: usize = 5;
    pub const RESERVED: usize = 6;
    /// The path MTU that a router told, and when.
    pub const PATH_MTU: usize = 7;
    pub const PATH_MTU_AT: usize = 8;
    pub const WORDS: usize = 16;
}

/// Words of a key that opens packets.
pub mod inbound {
    pub const HIGHEST: usize = 5;
    /// 1: the window may be older than the peer's packets, so nothing is accepted.
    pub const DISTRUSTED: usize = 6;
    /// The peer's UDP port as NAT shows it, its address (two words), and the time.
    pub const PEER_PORT: usize = 7;
    pub const PEER_ADDRESS: usize = 8;
    pub const PEER_AT: usize = 10;
    pub const WINDOW: usize = 16;
    /// Words of the window: 4,096 numbers, the word of the highest one, and rounded up to a power of two.
    pub const WINDOW_WORDS: usize = 128;
    pub const WORDS: usize = WINDOW + WINDOW_WORDS;
}

/// The row of a key that opens packets.
pub type InboundRow = [AtomicU64; inbound::WORDS];

/// Rows of words.
pub struct Rows {
    region: Region,
    words: usize,
}

impl Rows {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(
        state: &mut StateBuilder,
        name: &str,
        rows: usize,
        words: usize,
    ) -> Result<Self, Refusal> {
        let layout = format!("{name} v1, {words} words");
        let region = state.region(name, &layout, rows.saturating_mul(words))?;
        Ok(Self { region, words })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.region.words().len() / self.words
    }

    #[inline]
    #[must_use]
    pub fn get(&self, row: usize, word: usize) -> u64 {
        self.region.words()[row * self.words + word].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn set(&self, row: usize, word: usize, value: u64) {
        let index = row * self.words + word;
        self.region.words()[index].store(value, Ordering::Relaxed);
        self.region.touch(index);
    }

    /// Returns the words of a row, if it has this many. After writes to them, call [`touch`](Self::touch), for a copy that runs.
    #[inline]
    #[must_use]
    pub fn row<const WORDS: usize>(&self, row: usize) -> Option<&[AtomicU64; WORDS]> {
        let words = self.region.words().chunks_exact(self.words).nth(row)?;
        words.try_into().ok()
    }

    /// Marks a whole row as written.
    pub fn touch(&self, row: usize) {
        let first = row * self.words;
        let last = first + self.words - 1;
        (first..last)
            .step_by(BLOCK_WORDS)
            .chain([last])
            .for_each(|index| self.region.touch(index));
    }

    /// Adds to both counts of packets.
    #[inline]
    pub fn count(&self, row: usize, packets: u64, bytes: u64) {
        let at = row * self.words;
        let words = self.region.words();
        words[at + both::PACKETS].fetch_add(packets, Ordering::Relaxed);
        words[at + both::BYTES].fetch_add(bytes, Ordering::Relaxed);
        self.region.touch(at + both::PACKETS);
        self.region.touch(at + both::BYTES);
    }

    fn identity(&self, row: usize) -> Identity {
        [0, 1].map(|word| self.get(row, both::IDENTITY + word))
    }

    /// Returns the row of a key.
    #[must_use]
    pub fn find(&self, identity: Identity) -> Option<usize> {
        (0..self.len()).find(|row| self.identity(*row) == identity)
    }

    /// Returns the row of a key, which gets a free one if it has none. None: no row is free.
    #[must_use]
    pub fn claim(&self, identity: Identity, now: u64) -> Option<usize> {
        self.find(identity).or_else(|| {
            let row = self.find([0; 2])?;
            // What a negotiated key has left.
            (0..self.words).for_each(|word| self.set(row, word, 0));
            self.set(row, both::SINCE, now);
            self.set(row, both::IDENTITY + 1, identity[1]);
            self.set(row, both::IDENTITY, identity[0]);
            Some(row)
        })
    }

    /// Frees the rows of negotiated keys that are not kept, and returns these rows.
    pub fn forget(&self, is_kept: impl Fn(Identity) -> bool) -> Vec<usize> {
        let is_over = |row: &usize| {
            let identity = self.identity(*row);
            identity != [0; 2] && self.get(*row, both::NEGOTIATED) == 1 && !is_kept(identity)
        };
        let rows: Vec<usize> = (0..self.len()).filter(is_over).collect();
        for row in &rows {
            self.set(*row, both::IDENTITY, 0);
            self.set(*row, both::IDENTITY + 1, 0);
        }
        rows
    }

    /// Returns how many rows are free.
    #[must_use]
    pub fn free(&self) -> usize {
        (0..self.len())
            .filter(|row| self.identity(*row) == [0; 2])
            .count()
    }
}
