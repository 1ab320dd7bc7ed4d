//! The ledger's memory in the arena, which moves with the instance.

use std::collections::HashMap;

use bytemuck::{Pod, Zeroable};
use nf_balancing::cells::Array;
use nf_offload::{CounterId, Direction};
use nf_packet::MacAddress;
use nf_runtime::{
    state::{LedgerMemory, StateBuilder},
    Refusal,
};

use crate::config::Tables;

/// The most targets of answers.
const STATIONS: usize = 2048;

/// The ledger's memory, and the targets of answers.
pub struct Memory {
    /// It has two counters for each row of the traffic: what rules carry to its backend, and from it.
    pub ledger: LedgerMemory,
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
            ledger: LedgerMemory::declare(state, tables.offload, 2 * rows)?,
            stations: Array::declare(state, "offload-stations", STATIONS)?,
        })
    }

    /// Returns the packets and bytes that rules have carried to the backend of a row, or from it.
    #[must_use]
    pub fn carried(&self, row: usize, direction: Direction) -> [u64; 2] {
        self.ledger.carried(counter(row, direction))
    }

    /// Adds a backend's counts to another row and clears them.
    pub fn fold(&self, from: usize, into: usize) {
        for direction in [Direction::ToBackend, Direction::ToClient] {
            let carried = self.ledger.take_carried(counter(from, direction));
            self.ledger.add_carried(counter(into, direction), carried);
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

/// Returns the counter of a row: for backends, that of their number.
fn counter(row: usize, direction: Direction) -> CounterId {
    CounterId((2 * row + usize::from(direction == Direction::ToClient)) as u16)
}
