//! The memory of a ledger of offloaded flows in the arena, which moves with the instance.

use std::sync::{
    atomic::{compiler_fence, Ordering},
    Arc,
};

use bytemuck::Pod;
use nf_arena::{Memory, Region};
use nf_offload::{Addition, CounterId, Row, Rows, Tally, Writer};

use super::StateBuilder;
use crate::Refusal;

/// Words of the life: the instance's identity, two words, its epoch, and whether it has a baseline.
const EPOCH: usize = 2;
const BASELINE: usize = 3;
const LIFE: usize = 4;

/// Rows, totals and the writer's identity. Clones share them.
#[derive(Clone)]
pub struct LedgerMemory(Arc<Regions>);

struct Regions {
    rows: Region,
    addition: Region,
    tallies: Region,
    life: Region,
}

fn words_of<T>() -> usize {
    size_of::<T>() / 8
}

fn get<T: Pod>(region: &Region, index: usize) -> T {
    let mut record = T::zeroed();
    let words = &region.words()[index * words_of::<T>()..][..words_of::<T>()];
    for (chunk, word) in bytemuck::bytes_of_mut(&mut record).chunks_mut(8).zip(words) {
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    record
}

fn put<T: Pod>(region: &Region, index: usize, record: &T) {
    let start = index * words_of::<T>();
    for (offset, chunk) in bytemuck::bytes_of(record).chunks(8).enumerate() {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        put_word(region, start + offset, u64::from_le_bytes(bytes));
    }
    // The process may be killed between two writes, so they take effect in this order.
    compiler_fence(Ordering::SeqCst);
}

fn put_word(region: &Region, at: usize, word: u64) {
    region.words()[at].store(word, Ordering::Relaxed);
    region.touch(at);
}

impl LedgerMemory {
    /// Declares a ledger of this many flows and counters.
    ///
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(
        state: &mut StateBuilder,
        flows: usize,
        counters: usize,
    ) -> Result<Self, Refusal> {
        fn array<T>(state: &mut StateBuilder, name: &str, count: usize) -> Result<Region, Refusal> {
            let layout = format!("{name} v1, {} bytes", size_of::<T>());
            state.region(name, &layout, count * words_of::<T>())
        }
        Ok(Self(Arc::new(Regions {
            rows: array::<Row>(state, "offloaded", flows)?,
            addition: state.region("offload-addition", "gauges v1", Addition::WORDS)?,
            tallies: array::<Tally>(state, "offload-tallies", counters)?,
            life: state.region("offload-life", "gauges v1", LIFE)?,
        })))
    }

    fn life(&self, at: usize) -> u64 {
        self.0.life.words()[at].load(Ordering::Relaxed)
    }

    fn put_life(&self, at: usize, word: u64) {
        put_word(&self.0.life, at, word);
    }

    /// Begins a life: the next epoch of the instance, or the first of a new one, whose rule numbers no earlier instance has used lately.
    pub fn begin_life(&self, random: impl Fn() -> u64) {
        if self.life(EPOCH) == 0 {
            self.put_life(0, random());
            self.put_life(1, random());
            self.put_life(EPOCH, 1 + random() % (1 << 20));
        } else {
            self.put_life(EPOCH, self.life(EPOCH) + 1);
        }
    }

    /// Returns who this life is.
    #[must_use]
    pub fn writer(&self) -> Writer {
        Writer {
            instance: u128::from(self.life(0)) << 64 | u128::from(self.life(1)),
            epoch: self.life(EPOCH),
        }
    }

    /// Returns the packets and bytes that rules have carried for a counter's present meaning.
    #[must_use]
    pub fn carried(&self, counter: CounterId) -> [u64; 2] {
        self.tally(counter).carried
    }

    /// Returns these packets and bytes, and begins again at zero.
    pub fn take_carried(&self, counter: CounterId) -> [u64; 2] {
        let tally = self.tally(counter);
        let carried = [0; 2];
        put(
            &self.0.tallies,
            counter.0.into(),
            &Tally { carried, ..tally },
        );
        tally.carried
    }

    /// Adds packets and bytes to a counter's.
    pub fn add_carried(&self, counter: CounterId, more: [u64; 2]) {
        let mut tally = self.tally(counter);
        for (sum, more) in tally.carried.iter_mut().zip(more) {
            *sum += more;
        }
        put(&self.0.tallies, counter.0.into(), &tally);
    }
}

impl Rows for LedgerMemory {
    fn len(&self) -> usize {
        self.0.rows.words().len() / words_of::<Row>()
    }

    fn get(&self, row: usize) -> Row {
        get(&self.0.rows, row)
    }

    fn put(&mut self, row: usize, value: &Row) {
        put(&self.0.rows, row, value);
    }

    fn addition(&self) -> Addition {
        get(&self.0.addition, 0)
    }

    fn put_addition(&mut self, value: &Addition) {
        let words = value.words();
        let order: [usize; Addition::WORDS] = match words[0] {
            0 => std::array::from_fn(|word| word),
            _ => std::array::from_fn(|word| Addition::WORDS - 1 - word),
        };
        for word in order {
            put_word(&self.0.addition, word, words[word]);
            compiler_fence(Ordering::SeqCst);
        }
    }

    fn counters(&self) -> usize {
        self.0.tallies.words().len() / words_of::<Tally>()
    }

    fn tally(&self, counter: CounterId) -> Tally {
        get(&self.0.tallies, counter.0.into())
    }

    fn put_tally(&mut self, counter: CounterId, value: &Tally) {
        put(&self.0.tallies, counter.0.into(), value);
    }

    fn has_baseline(&self) -> bool {
        self.life(BASELINE) != 0
    }

    fn put_baseline(&mut self) {
        self.put_life(BASELINE, 1);
        compiler_fence(Ordering::SeqCst);
    }
}
