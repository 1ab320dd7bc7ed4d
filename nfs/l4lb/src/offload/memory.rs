//! The ledger's memory in the arena, which moves with the instance.

use std::{
    collections::HashMap,
    sync::{
        atomic::{compiler_fence, Ordering},
        Arc,
    },
};

use bytemuck::{Pod, Zeroable};
use nf_balancing::cells::{Array, Gauges};
use nf_offload::{Addition, CounterId, Direction, Row, Rows, Tally, Writer};
use nf_packet::MacAddress;
use nf_runtime::{state::StateBuilder, Refusal};

use crate::config::Tables;

/// Words of the life: the instance's identity, two words, its epoch, and whether it has a baseline.
const EPOCH: usize = 2;
const BASELINE: usize = 3;
const LIFE: usize = 4;
/// The most targets of answers.
const STATIONS: usize = 2048;

/// Rows, totals and the writer's identity.
pub struct Memory {
    rows: Array<Row>,
    addition: Gauges,
    /// Two for each row of the traffic: what rules carry to its backend, and from it.
    tallies: Array<Tally>,
    life: Gauges,
    /// The meanings of the targets of answers: adopted rules refer to them.
    stations: Array<Station>,
}

/// The VIP and station of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct Station {
    /// The VIP's row, from 1 on; 0: none.
    vip: u64,
    mac: u64,
}

impl Station {
    pub fn new(vip_row: usize, mac: MacAddress) -> Self {
        Self {
            vip: vip_row as u64 + 1,
            mac: mac.to_bits(),
        }
    }
}

impl Memory {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(tables: &Tables, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let rows = tables.backends + tables.vips + 1;
        Ok(Self {
            rows: Array::declare(state, "offloaded", tables.offload)?,
            addition: Gauges::declare(state, "offload-addition", Addition::WORDS)?,
            tallies: Array::declare(state, "offload-tallies", 2 * rows)?,
            life: Gauges::declare(state, "offload-life", LIFE)?,
            stations: Array::declare(state, "offload-stations", STATIONS)?,
        })
    }

    /// Begins a life: the next epoch of the instance, or the first of a new one, whose rule numbers no earlier instance has used lately.
    pub fn begin_life(&self, random: impl Fn() -> u64) {
        if self.life.get(EPOCH) == 0 {
            self.life.set(0, random());
            self.life.set(1, random());
            self.life.set(EPOCH, 1 + random() % (1 << 20));
        } else {
            self.life.set(EPOCH, self.life.get(EPOCH) + 1);
        }
    }

    /// Returns who this life is.
    #[must_use]
    pub fn writer(&self) -> Writer {
        Writer {
            instance: u128::from(self.life.get(0)) << 64 | u128::from(self.life.get(1)),
            epoch: self.life.get(EPOCH),
        }
    }

    /// Returns the packets and bytes that rules have carried to the backend of a row, or from it.
    #[must_use]
    pub fn carried(&self, row: usize, direction: Direction) -> [u64; 2] {
        self.tallies.get(place(row, direction)).carried
    }

    /// Adds a backend's counts to another row and clears them.
    pub fn fold(&self, from: usize, into: usize) {
        for direction in [Direction::ToBackend, Direction::ToClient] {
            let (from, into) = (place(from, direction), place(into, direction));
            let (mut old, mut sum) = (self.tallies.get(from), self.tallies.get(into));
            for part in 0..2 {
                sum.carried[part] += std::mem::take(&mut old.carried[part]);
            }
            self.tallies.put(into, &sum);
            self.tallies.put(from, &old);
        }
    }

    /// Returns the stations that have a target, each with its number.
    pub fn stations(&self) -> HashMap<Station, usize> {
        let all = self.stations.iter().enumerate();
        all.filter(|(_, station)| station.vip != 0)
            .map(|(number, station)| (station, number))
            .collect()
    }

    /// Gives a number to a station: a free one, or else one that `is_free` releases.
    pub fn add_station(&self, station: Station, is_free: impl Fn(usize) -> bool) -> Option<usize> {
        let none = |number: &usize| self.stations.get(*number).vip == 0;
        let number = (0..STATIONS)
            .find(none)
            .or_else(|| (0..STATIONS).find(|number| is_free(*number)))?;
        self.stations.put(number, &station);
        Some(number)
    }
}

/// Returns the place of a row's tally: for backends, the number of their counter.
fn place(row: usize, direction: Direction) -> usize {
    2 * row + usize::from(direction == Direction::ToClient)
}

/// The memory in the hands of the ledger.
#[derive(Clone)]
pub struct Shared(pub Arc<Memory>);

impl Rows for Shared {
    fn len(&self) -> usize {
        self.0.rows.len()
    }

    fn get(&self, row: usize) -> Row {
        self.0.rows.get(row)
    }

    fn put(&mut self, row: usize, value: &Row) {
        self.0.rows.put(row, value);
        compiler_fence(Ordering::SeqCst);
    }

    fn addition(&self) -> Addition {
        Addition::of_words(std::array::from_fn(|word| self.0.addition.get(word)))
    }

    fn put_addition(&mut self, value: &Addition) {
        let words = value.words();
        let order: [usize; Addition::WORDS] = match words[0] {
            0 => std::array::from_fn(|word| word),
            _ => std::array::from_fn(|word| Addition::WORDS - 1 - word),
        };
        for word in order {
            self.0.addition.set(word, words[word]);
            // The process may be killed between two writes, so they take effect in this order.
            compiler_fence(Ordering::SeqCst);
        }
    }

    fn counters(&self) -> usize {
        self.0.tallies.len()
    }

    fn tally(&self, counter: CounterId) -> Tally {
        self.0.tallies.get(counter.0.into())
    }

    fn put_tally(&mut self, counter: CounterId, value: &Tally) {
        self.0.tallies.put(counter.0.into(), value);
        compiler_fence(Ordering::SeqCst);
    }

    fn has_baseline(&self) -> bool {
        self.0.life.get(BASELINE) != 0
    }

    fn put_baseline(&mut self) {
        self.0.life.set(BASELINE, 1);
        compiler_fence(Ordering::SeqCst);
    }
}
