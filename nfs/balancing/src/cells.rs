//! Arrays, gauges and counters in the arena.

use std::{marker::PhantomData, sync::atomic::Ordering};

use bytemuck::Pod;
use nf_arena::{Memory, Region};
use nf_runtime::{state::StateBuilder, Refusal};

/// An array of plain records, written by one thread at a time.
pub struct Array<T> {
    region: Region,
    of: PhantomData<fn() -> T>,
}

impl<T: Pod> Array<T> {
    const WORDS: usize = size_of::<T>() / 8;

    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(state: &mut StateBuilder, name: &str, count: usize) -> Result<Self, Refusal> {
        const { assert!(size_of::<T>() % 8 == 0) };
        let layout = format!("{name} v1, {} bytes", size_of::<T>());
        Ok(Self {
            region: state.region(name, &layout, count * Self::WORDS)?,
            of: PhantomData,
        })
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.region.words().len() / Self::WORDS
    }

    #[must_use]
    pub fn get(&self, index: usize) -> T {
        let mut record = T::zeroed();
        let words = &self.region.words()[index * Self::WORDS..][..Self::WORDS];
        for (chunk, word) in bytemuck::bytes_of_mut(&mut record).chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        record
    }

    pub fn put(&self, index: usize, record: &T) {
        let start = index * Self::WORDS;
        for (offset, chunk) in bytemuck::bytes_of(record).chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(chunk);
            self.region.words()[start + offset].store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            self.region.touch(start + offset);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// Numbers that all workers raise and lower.
pub struct Gauges {
    region: Region,
}

impl Gauges {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(state: &mut StateBuilder, name: &str, count: usize) -> Result<Self, Refusal> {
        Ok(Self {
            region: state.region(name, "gauges v1", count)?,
        })
    }

    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> u64 {
        self.region.words()[index].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn set(&self, index: usize, value: u64) {
        self.region.words()[index].store(value, Ordering::Relaxed);
        self.region.touch(index);
    }

    /// Adds, and returns the previous value.
    #[inline]
    pub fn add(&self, worker: Worker, index: usize, value: u64) -> u64 {
        let word = &self.region.words()[index];
        let before = if worker.only {
            let before = word.load(Ordering::Relaxed);
            word.store(before.wrapping_add(value), Ordering::Relaxed);
            before
        } else {
            word.fetch_add(value, Ordering::Relaxed)
        };
        self.region.touch(index);
        before
    }

    /// Subtracts, but stops at zero: one lost count must not wrap around to a huge one.
    #[inline]
    pub fn subtract(&self, worker: Worker, index: usize, value: u64) {
        let word = &self.region.words()[index];
        if worker.only {
            let before = word.load(Ordering::Relaxed);
            word.store(before.saturating_sub(value), Ordering::Relaxed);
        } else {
            let less = |old: u64| Some(old.saturating_sub(value));
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        self.region.touch(index);
    }
}

/// Counters, in one part per worker, so that counting is a plain addition.
pub struct Stripes {
    region: Region,
    columns: usize,
    /// The length of a part in words.
    part: usize,
}

impl Stripes {
    /// The number of parts. Additional workers share parts, with atomic additions.
    pub const PARTS: usize = 16;

    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(
        state: &mut StateBuilder,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<Self, Refusal> {
        let layout = format!("counters v1, {columns} columns");
        // Each part starts on its own cache line.
        let part = (rows * columns).next_multiple_of(8);
        Ok(Self {
            region: state.region(name, &layout, part * Self::PARTS)?,
            columns,
            part,
        })
    }

    #[inline]
    fn index(&self, part: usize, row: usize, column: usize) -> usize {
        part * self.part + row * self.columns + column
    }

    /// Adds to a worker's part.
    #[inline]
    pub fn add(&self, worker: Worker, row: usize, column: usize, value: u64) {
        self.add_all(worker, row, column, [value]);
    }

    /// Adds to adjacent columns of one block; the eight columns of a row are in one.
    #[inline]
    pub fn add_all<const N: usize>(
        &self,
        worker: Worker,
        row: usize,
        column: usize,
        values: [u64; N],
    ) {
        let index = self.index(worker.part, row, column);
        for (word, value) in self.region.words()[index..index + N].iter().zip(values) {
            if worker.alone {
                word.store(
                    word.load(Ordering::Relaxed).wrapping_add(value),
                    Ordering::Relaxed,
                );
            } else {
                word.fetch_add(value, Ordering::Relaxed);
            }
        }
        self.region.touch(index);
    }

    #[must_use]
    pub fn sum(&self, row: usize, column: usize) -> u64 {
        (0..Self::PARTS)
            .map(|part| self.region.words()[self.index(part, row, column)].load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }

    pub fn clear(&self, row: usize) {
        for part in 0..Self::PARTS {
            for column in 0..self.columns {
                let index = self.index(part, row, column);
                self.region.words()[index].store(0, Ordering::Relaxed);
                self.region.touch(index);
            }
        }
    }

    /// Adds a row to another and clears it. Concurrent counts may be lost.
    pub fn fold(&self, from: usize, into: usize) {
        for part in 0..Self::PARTS {
            for column in 0..self.columns {
                let index = self.index(part, from, column);
                let value = self.region.words()[index].swap(0, Ordering::Relaxed);
                self.region.touch(index);
                if value > 0 {
                    let into = self.index(part, into, column);
                    self.region.words()[into].fetch_add(value, Ordering::Relaxed);
                    self.region.touch(into);
                }
            }
        }
    }
}

/// A worker's part of the counters.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    part: usize,
    /// No other worker uses this part.
    alone: bool,
    /// There is only one worker.
    only: bool,
}

impl Worker {
    #[must_use]
    #[inline]
    pub fn of(context: &nf_runtime::Context<'_>) -> Self {
        Self {
            part: context.worker() % Stripes::PARTS,
            alone: context.workers() <= Stripes::PARTS,
            only: context.workers() == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use nf_arena::ArenaBuilder;
    use nf_runtime::Context;

    use super::*;

    fn state() -> StateBuilder {
        StateBuilder::new(ArenaBuilder::fresh("cells", 1).unwrap())
    }

    fn worker(number: usize, of: usize) -> Worker {
        Worker::of(&Context::new(0, number, of, &[]))
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut state = state();
        let array = Array::<[u32; 4]>::declare(&mut state, "array", 3).unwrap();
        let _arena = state.finish().unwrap();
        assert_eq!((array.len(), array.is_empty()), (3, false));
        array.put(1, &[1, u32::MAX, 3, 4]);
        let all: Vec<[u32; 4]> = array.iter().collect();
        assert_eq!(all, [[0; 4], [1, u32::MAX, 3, 4], [0; 4]]);
    }

    #[test]
    fn gauges_stop_at_zero() {
        for workers in [1, 2] {
            let mut state = state();
            let gauges = Gauges::declare(&mut state, "gauges", 2).unwrap();
            let _arena = state.finish().unwrap();
            let worker = worker(0, workers);
            assert_eq!(gauges.add(worker, 1, 5), 0);
            assert_eq!(gauges.add(worker, 1, 2), 5);
            gauges.subtract(worker, 1, 3);
            assert_eq!((gauges.get(0), gauges.get(1)), (0, 4));
            gauges.subtract(worker, 1, 9);
            assert_eq!(gauges.get(1), 0);
            gauges.set(1, 8);
            assert_eq!(gauges.get(1), 8);
        }
    }

    #[test]
    fn counters_of_all_workers_are_added_folded_and_cleared() {
        for workers in [1, Stripes::PARTS, Stripes::PARTS + 3] {
            let mut state = state();
            let counters = Stripes::declare(&mut state, "counters", 3, 3).unwrap();
            let _arena = state.finish().unwrap();
            for number in 0..workers {
                counters.add(worker(number, workers), 0, 1, 10);
                counters.add_all(worker(number, workers), 1, 1, [1, 100]);
            }
            let sums = |row| [0, 1, 2].map(|column| counters.sum(row, column));
            let count = workers as u64;
            assert_eq!(
                (sums(0), sums(1)),
                ([0, 10 * count, 0], [0, count, 100 * count])
            );
            counters.fold(0, 1);
            assert_eq!((sums(0), sums(1)), ([0; 3], [0, 11 * count, 100 * count]));
            counters.clear(1);
            assert_eq!((sums(1), sums(2)), ([0; 3], [0; 3]));
        }
    }
}
