//! A shared value that all workers read and change.

use std::{marker::PhantomData, sync::atomic::Ordering};

use bytemuck::Pod;
use nf_arena::{Memory, Region};

use super::spin::Lock;

/// The value's first word. Word 0 is the lock; the value has its own cache line.
const VALUE: usize = 8;

/// A plain value in the arena.
pub struct Shared<T> {
    region: Region,
    of: PhantomData<fn() -> T>,
}

impl<T: Pod> Shared<T> {
    pub(super) fn layout() -> String {
        format!("shared v1, {} bytes", size_of::<T>())
    }

    pub(super) fn words() -> usize {
        VALUE + size_of::<T>().div_ceil(8)
    }

    pub(super) fn open(region: Region) -> Self {
        Self {
            region,
            of: PhantomData,
        }
    }

    /// Returns a consistent copy of the value.
    #[must_use]
    pub fn get(&self) -> T {
        let _lock = Lock::take(&self.region, 0);
        self.take()
    }

    /// Changes the value while no other worker can read or change it. `change` must not use this value again.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let _lock = Lock::take(&self.region, 0);
        let mut value = self.take();
        let result = change(&mut value);
        self.put(&value);
        result
    }

    fn take(&self) -> T {
        let mut value = T::zeroed();
        read_words(&self.region, VALUE, bytemuck::bytes_of_mut(&mut value));
        value
    }

    fn put(&self, value: &T) {
        write_words(&self.region, VALUE, bytemuck::bytes_of(value));
    }
}

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
