//! Offload: rules of the switch carry decided connections past the firewall, or drop them (docs/firewall.md, "Offload").
//!
//! Packets are only sampled here, and consult [`Carried`]: as long as a rule may act, no other treatment can be chosen for its connection. Everything else
//! happens on a thread of its own, in [`Desk`].

mod carry;
mod desk;

use std::{
    collections::{hash_map::RandomState, HashMap},
    hash::{BuildHasher, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nf_offload::{CounterId, Direction, FlowKey, Rows};
use nf_runtime::{
    state::{LedgerMemory, StateBuilder},
    Refusal,
};

use crate::{key::Key, live::Live, state::State};
pub use carry::{Carry, Deciding};
pub use desk::{Desk, Surroundings};

/// The most flows with a rule: fewer if there are fewer connections. A connection has two: of its packets, and of the answers.
const FLOWS: usize = 16_384;
/// The numbers of backends, in the ledger's words: rows of rules, and rows whose flows are dropped.
const BACKENDS: u16 = 2 * DENIED;
const DENIED: u16 = crate::rows::ROWS as u16;
/// Bytes of a frame before the IP packet. Rules of the switch count frames, those of the firewall IP packets.
const ETHERNET: u64 = 14;
/// The time after which the switch has no rules of a function that does not use the table: oneswitchd takes 5 seconds.
const ALONE: u64 = 10_000_000_000;
/// Samples that are kept until they are fetched.
const KEPT: usize = 4096;

/// The flows that a rule may carry, for the packet path.
#[derive(Default)]
pub struct Carried {
    flows: HashMap<FlowKey, Carry>,
    /// Every packet of this number is sampled; 0: none.
    every: u32,
    countdown: u32,
    samples: Vec<FlowKey>,
    /// The time since which this life has no table, until it has one.
    alone_since: Option<u64>,
}

impl Carried {
    /// Returns what a rule may do to packets of a connection.
    pub fn of(&self, key: &Key) -> Option<Carry> {
        if self.flows.is_empty() {
            return None;
        }
        let carry = |sender| self.flows.get(&flow_of(key, sender)).copied();
        carry(0).or_else(|| carry(1))
    }

    /// Tells whether a rule may count for a row: it must not get another meaning.
    pub fn names(&self, row: u16) -> bool {
        self.flows.values().any(|carry| carry.row == row)
    }

    /// Forgets the rules of an earlier life if this one has no table.
    pub fn age(&mut self, now: u64) {
        if self.alone_since.is_some_and(|since| now > since + ALONE) {
            self.flows.clear();
            self.alone_since = None;
        }
    }

    /// Samples nothing from now on.
    pub fn rest(&mut self) {
        self.every = 0;
    }

    /// Counts a packet of a decided connection. `client`: the end that opened it.
    #[inline]
    pub fn sample(&mut self, key: &Key, client: u8) {
        if self.every == 0 {
            return;
        }
        self.countdown = self.countdown.saturating_sub(1);
        if self.countdown == 0 {
            self.countdown = self.every;
            if self.samples.len() < KEPT {
                self.samples.push(flow_of(key, client));
            }
        }
    }
}

/// The offload of a firewall.
pub struct Offload {
    pub memory: LedgerMemory,
    desk: Mutex<Desk>,
}

impl Offload {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(flows: usize, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let memory = LedgerMemory::declare(state, FLOWS.min(2 * flows), 2 * usize::from(BACKENDS))?;
        Ok(Self {
            desk: Mutex::new(Desk::new(&memory)),
            memory,
        })
    }

    pub fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the state, with the rules that may act.
    pub fn resume(&self, desk: &mut Desk, carried: &mut Carried, now: u64) {
        self.memory
            .begin_life(|| RandomState::new().build_hasher().finish());
        *desk = Desk::new(&self.memory);
        let rows = (0..self.memory.len()).map(|row| self.memory.get(row));
        let acting = rows.filter(|row| row.may_act());
        *carried = Carried {
            flows: acting
                .map(|row| (row.flow(), Carry::of_backend(row.backend())))
                .collect(),
            alone_since: Some(now),
            ..Carried::default()
        };
    }

    /// Returns the packets and bytes that rules have carried for a row.
    pub fn carried(&self, row: u16) -> [u64; 2] {
        let all = counters_of(row).map(|counter| self.memory.carried(counter));
        all.into_iter().fold([0; 2], |sum, [packets, bytes]| {
            let bytes = bytes.saturating_sub(packets * ETHERNET);
            [sum[0] + packets, sum[1] + bytes]
        })
    }

    /// Gives the rules of a configuration their rows; none that a rule of the switch still counts for gets another meaning.
    pub fn assign(&self, state: &State, live: &mut Live, carried: &Carried) {
        let is_named = |row| carried.names(row);
        let clear = |row| {
            for counter in counters_of(row) {
                self.memory.take_carried(counter);
            }
        };
        live.take_rows(&state.rows, is_named, clear);
    }
}

/// Returns the counters that count for a row.
fn counters_of(row: u16) -> [CounterId; 4] {
    let counter =
        |backend: u16, direction| CounterId::of(backend, direction).unwrap_or(CounterId(0));
    [
        counter(row, Direction::ToBackend),
        counter(row, Direction::ToClient),
        counter(row + DENIED, Direction::ToBackend),
        counter(row + DENIED, Direction::ToClient),
    ]
}

/// Returns the flow of the packets that an end of a connection sends.
pub fn flow_of(key: &Key, sender: u8) -> FlowKey {
    let (low, high) = ((key.low, key.low_port), (key.high, key.high_port));
    let (source, destination) = if sender == 0 {
        (low, high)
    } else {
        (high, low)
    };
    FlowKey {
        source: source.0,
        destination: destination.0,
        source_port: source.1,
        destination_port: destination.1,
        protocol: key.protocol.into(),
    }
}

/// Returns the connection of a flow, and the end that sends it.
fn connection_of(flow: &FlowKey) -> (Key, u8) {
    let (source, destination) = (
        (flow.source, flow.source_port),
        (flow.destination, flow.destination_port),
    );
    let is_low = source <= destination;
    let (low, high) = if is_low {
        (source, destination)
    } else {
        (destination, source)
    };
    let key = Key {
        low: low.0,
        high: high.0,
        low_port: low.1,
        high_port: high.1,
        vlan: 0,
        protocol: flow.protocol as u8,
        reserved: 0,
    };
    (key, u8::from(!is_low))
}
