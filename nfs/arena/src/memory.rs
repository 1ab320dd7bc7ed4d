//! What a table needs of memory, and memory that no other process sees.

use std::sync::atomic::AtomicU64;

use crate::{mapping::Mapping, ArenaError};

/// Words that threads share.
pub trait Memory: Send + Sync + 'static {
    /// All words; zero at first. The first one begins a cache line.
    fn words(&self) -> &[AtomicU64];

    /// Says that the word was written, after it was: the copier of a running instance takes its block again.
    fn touch(&self, index: usize);

    /// Asks for the cache line of a word. An index beyond the end is ignored.
    #[inline]
    fn prefetch(&self, index: usize) {
        let _ = index;
    }
}

/// Private memory: for benchmarks, tests and models, where nothing moves.
pub struct Heap {
    mapping: Mapping,
}

impl Heap {
    /// # Errors
    /// The system has no such amount of memory.
    pub fn new(words: usize) -> Result<Self, ArenaError> {
        Ok(Self {
            mapping: Mapping::private(words)?,
        })
    }
}

impl Memory for Heap {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    #[inline]
    fn touch(&self, _index: usize) {}

    #[inline]
    fn prefetch(&self, index: usize) {
        self.mapping.prefetch(index);
    }
}
