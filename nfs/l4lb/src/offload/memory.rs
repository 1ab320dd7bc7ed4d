//! The ledger's memory in the arena, which moves with the instance.

use std::{
    collections::HashMap,
    sync::{
        atomic::{compiler_fence, Ordering},
        Arc,
    },
};

use bytemuck::{Pod, Zeroable};
use nf_offload::{Addition, Direction, Row, Rows, Writer};
use nf_packet::MacAddress;
use nf_runtime::{state::StateBuilder, Refusal};

use crate::cells::{Array, Gauges};

/// Words of the life: the instance's identity, two words, and its epoch.
const EPOCH: usize = 2;
const LIFE: usize = 3;
/// The most targets of answers.
const STATIONS: usize = 2048;

/// Rows, counts and the writer's identity.
pub struct Memory {
    rows: Array<Row>,
    addition: Gauges,
    /// Packets and bytes that rules carried: to each backend, then from each.
    carried: Array<[u64; 2]>,
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
    pub fn declare(
        flows: usize,
        backends: usize,
        state: &mut StateBuilder,
    ) -> Result<Self, Refusal> {
        Ok(Self {
            rows: Array::declare(state, "offloaded", flows)?,
            addition: Gauges::declare(state, "offload-addition", Addition::WORDS)?,
            carried: Array::declare(state, "offload-carried", 2 * backends)?,
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

    /// Returns the packets and bytes that rules have carried to a backend, or from it.
    #[must_use]
    pub fn carried(&self, backend: usize, direction: Direction) -> [u64; 2] {
        self.carried.get(self.place(backend, direction))
    }

    /// Adds a backend's counts to another row and clears them.
    pub fn fold(&self, from: usize, into: usize) {
        for direction in [Direction::ToBackend, Direction::ToClient] {
            let (from, into) = (self.place(from, direction), self.place(into, direction));
            let [packets, bytes] = self.carried.get(from);
            let [sum, sum_bytes] = self.carried.get(into);
            self.carried.put(into, &[sum + packets, sum_bytes + bytes]);
            self.carried.put(from, &[0, 0]);
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

    fn place(&self, backend: usize, direction: Direction) -> usize {
        match direction {
            Direction::ToBackend => backend,
            Direction::ToClient => self.carried.len() / 2 + backend,
        }
    }
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

    fn carried(&self, backend: u16, direction: Direction) -> [u64; 2] {
        self.0.carried(backend.into(), direction)
    }

    fn put_carried(&mut self, backend: u16, direction: Direction, counts: [u64; 2]) {
        let place = self.0.place(backend.into(), direction);
        self.0.carried.put(place, &counts);
        compiler_fence(Ordering::SeqCst);
    }
}
