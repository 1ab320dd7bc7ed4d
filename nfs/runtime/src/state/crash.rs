//! Memory that keeps a copy of itself after each write: what a kill at that moment leaves to the next owner.

use std::sync::{
    atomic::{AtomicU64, Ordering},
    Arc, Mutex,
};

use nf_arena::{Heap, Memory};

#[derive(Clone)]
pub(super) struct Recorder(Arc<Inner>);

struct Inner {
    heap: Heap,
    copies: Mutex<Option<Vec<Vec<u64>>>>,
}

impl Recorder {
    pub(super) fn new(words: usize) -> Self {
        Self(Arc::new(Inner {
            heap: Heap::new(words).unwrap(),
            copies: Mutex::default(),
        }))
    }

    pub(super) fn of(content: &[u64]) -> Self {
        let this = Self::new(content.len());
        for (word, value) in this.words().iter().zip(content) {
            word.store(*value, Ordering::Relaxed);
        }
        this
    }

    pub(super) fn content(&self) -> Vec<u64> {
        let words = self.words().iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Returns the number of writes since the start of [`cuts`](Self::cuts).
    pub(super) fn writes(&self) -> usize {
        self.0.copies.lock().unwrap().as_ref().map_or(0, Vec::len)
    }

    /// Returns the memory after each write of `change`, the last included.
    pub(super) fn cuts(&self, change: impl FnOnce()) -> Vec<Vec<u64>> {
        *self.0.copies.lock().unwrap() = Some(Vec::new());
        change();
        self.0.copies.lock().unwrap().take().unwrap()
    }
}

impl Memory for Recorder {
    fn words(&self) -> &[AtomicU64] {
        self.0.heap.words()
    }

    fn touch(&self, _index: usize) {
        if let Some(copies) = self.0.copies.lock().unwrap().as_mut() {
            copies.push(self.content());
        }
    }
}
