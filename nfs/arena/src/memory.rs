//! Memory for tables: the interface, and private memory.

use std::sync::{atomic::AtomicU64, Arc};

use crate::{
    mapping::Mapping,
    prefetch::{prefetch, prefetch_level, FIRST_LEVEL, SECOND_LEVEL},
    ArenaError,
};

/// Words that threads share.
pub trait Memory: Send + Sync + 'static {
    /// Returns all words; initially zero. The first word is aligned to a cache line.
    fn words(&self) -> &[AtomicU64];

    /// Marks a word's block dirty. Call it after the write, so that a running copy takes the block again.
    fn touch(&self, index: usize);

    /// Prefetches the cache line of a word. An index beyond the end is harmless.
    #[inline]
    fn prefetch(&self, index: usize) {
        match prefetch_level() {
            SECOND_LEVEL => prefetch::<SECOND_LEVEL>(self.words(), index),
            _ => prefetch::<FIRST_LEVEL>(self.words(), index),
        }
    }
}

/// Private memory for benchmarks, tests and models, which never move.
pub struct Heap {
    mapping: Mapping,
}

impl Heap {
    /// # Errors
    /// If the system is out of memory.
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
}

/// Shared memory of several owners.
impl<M: Memory> Memory for Arc<M> {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }

    #[inline]
    fn touch(&self, index: usize) {
        (**self).touch(index);
    }
}
