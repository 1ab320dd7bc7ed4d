//! The state that survives a move, as laid out in the arena.

use std::{
    marker::PhantomData,
    net::{IpAddr, Ipv6Addr},
    sync::atomic::Ordering,
};

use bytemuck::{Pod, Zeroable};
use nf_arena::{Memory, Region};
use nf_runtime::{
    state::{FlowTable, StateBuilder},
    Refusal,
};
use nf_tables::{Cuckoo, Ipv4Flow, Ipv6Flow};

use crate::{config::Tables, load::Load, stream::Progress};

/// The state of one load balancer.
pub struct State {
    pub connections_ipv4: Cuckoo<Ipv4Flow, Region>,
    pub connections_ipv6: Cuckoo<Ipv6Flow, Region>,
    pub sessions: FlowTable<Tuple, Session>,
    /// Connections with source NAT, by the backend's side: from the tuple of an answer to the tuple of the client.
    pub clients: FlowTable<Tuple, Tuple>,
    pub fragments: FlowTable<FragmentKey, FragmentWay>,
    /// Next hops: gateways and backends.
    pub neighbours: FlowTable<Address, Neighbour>,
    /// Other stations on the links.
    pub stations: FlowTable<Address, Neighbour>,
    pub vips: Records<VipRecord>,
    pub backends: Records<BackendRecord>,
    /// Connections per backend.
    pub active: Gauges,
    /// Half-open connections per VIP, and its round-robin turn.
    pub half_open: Gauges,
    pub turns: Gauges,
    /// Traffic per backend. When a backend is removed, its counts move to its VIP's row.
    pub traffic: Stripes,
    pub events: Stripes,
    pub load: Load,
}

/// Columns of [`State::traffic`].
pub mod traffic {
    pub const PACKETS: usize = 0;
    pub const BYTES: usize = 1;
    pub const ANSWERS: usize = 2;
    pub const ANSWER_BYTES: usize = 3;
    pub const CONNECTIONS: usize = 4;
    pub const COLUMNS: usize = 8;
}

impl State {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(tables: &Tables, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let vips = tables.vips;
        let backends = tables.backends;
        Ok(Self {
            connections_ipv4: connections(state, "connections-ipv4", tables.connections_ipv4)?,
            connections_ipv6: connections(state, "connections-ipv6", tables.connections_ipv6)?,
            sessions: state.flow_table("sessions", tables.sessions)?,
            clients: state.flow_table("clients", tables.sessions)?,
            fragments: state.flow_table("fragments", tables.fragments)?,
            neighbours: state.flow_table("neighbours", tables.neighbours)?,
            stations: state.flow_table("stations", tables.neighbours)?,
            vips: Records::declare(state, "vips", vips)?,
            backends: Records::declare(state, "backends", backends)?,
            active: Gauges::declare(state, "active", backends)?,
            half_open: Gauges::declare(state, "half-open", vips)?,
            turns: Gauges::declare(state, "turns", vips)?,
            // One extra row counts what belongs to no VIP.
            traffic: Stripes::declare(state, "traffic", backends + vips + 1, traffic::COLUMNS)?,
            events: Stripes::declare(state, "events", vips + 1, EVENT_COLUMNS)?,
            load: Load::declare(state)?,
        })
    }
}

/// Columns of [`State::events`], with spares, so that a new event does not change the shape.
const EVENT_COLUMNS: usize = 24;
const _: () = assert!(crate::events::Event::COUNT <= EVENT_COLUMNS);

fn connections<K: nf_tables::Key>(
    state: &mut StateBuilder,
    name: &str,
    capacity: usize,
) -> Result<Cuckoo<K, Region>, Refusal> {
    let refused =
        |reason: nf_tables::TableError| Refusal::configuration(&format!("tables.{name}"), reason);
    let words = Cuckoo::<K, Region>::words(capacity).map_err(refused)?;
    let layout = format!("cuckoo v1, {capacity} flows");
    let region = state.region(name, &layout, words)?;
    Cuckoo::open(region, capacity).map_err(refused)
}

/// An address as 16 bytes; IPv4 addresses are mapped (RFC 4291, 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct Address([u8; 16]);

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        })
    }
}

impl Address {
    #[must_use]
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

/// The addresses, ports and protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tuple {
    pub source: Address,
    pub destination: Address,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u32,
}

/// The session of a connection, keyed by the tuple of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Session {
    /// The load balancer's port toward the backend; 0: the client's own.
    pub local_port: u16,
    /// The length of the inserted header; 0: none.
    pub inserted: u16,
    /// The backend has acknowledged the header.
    pub acknowledged: u16,
    /// The backend has answered the SYN.
    pub answered: u16,
    /// The sequence number of the client's first byte.
    pub start: u32,
    pub reserved: u32,
    /// The last renewal of its entry in `clients`.
    pub renewed: u64,
    /// The progress of both sides, in the client's numbers.
    pub client: Progress,
    pub backend: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FragmentKey {
    pub source: Address,
    pub destination: Address,
    pub id: u32,
    pub protocol: u32,
}

/// The decision for a packet's first fragment; later fragments follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FragmentWay {
    /// The new source; all zero: unchanged.
    pub source: Address,
    pub destination: Address,
    pub backend: u32,
    /// 1: toward the backend, 2: toward the client.
    pub direction: u32,
}

/// A neighbour: a station with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Neighbour {
    /// 0: unknown.
    pub mac: u64,
    pub interface: u64,
    pub confirmed: u64,
    pub asked: u64,
    /// A MAC address that another station claimed, until the owner of `mac` objects; 0: none.
    pub claim: u64,
    pub claimed: u64,
    /// The MAC address before an announcement, whose owner may still object; 0: none.
    pub former: u64,
    pub announced: u64,
    /// The time of the owner's last objection.
    pub objected: u64,
}

/// A VIP's identity, which keeps its row of the gauges and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct VipRecord {
    pub address: Address,
    pub port: u16,
    pub protocol: u8,
    pub used: u8,
    pub reserved: u32,
}

/// A backend of one VIP; connection records refer to it by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BackendRecord {
    pub vip_address: Address,
    pub address: Address,
    pub vip_port: u16,
    pub port: u16,
    pub vip_protocol: u8,
    /// [`usage`]
    pub usage: u8,
    /// Drained by request. The configuration's `drain` is not stored here.
    pub drained: u8,
    /// [`health`]
    pub health: u8,
    /// The time of retirement.
    pub retired: u64,
    pub probe: Probe,
}

/// The use of a backend record. A retired one is reused only when no connection can refer to it.
pub mod usage {
    pub const FREE: u8 = 0;
    pub const USED: u8 = 1;
    pub const RETIRED: u8 = 2;
}

pub mod health {
    /// Not checked yet; the backend takes connections.
    pub const UNKNOWN: u8 = 0;
    pub const UP: u8 = 1;
    pub const DOWN: u8 = 2;
}

/// The progress of a health check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Probe {
    /// [`crate::health::phase`]
    pub phase: u8,
    pub reserved: u8,
    /// Consecutive checks whose result contradicts `health`.
    pub streak: u16,
    pub local_port: u16,
    pub status: u16,
    /// The sequence number of the check's SYN.
    pub sequence: u32,
    /// The next sequence number expected from the backend.
    pub expected: u32,
    /// Three deadlines: the check fails; it retransmits; the next one starts.
    pub deadline: u64,
    pub resend: u64,
    pub next: u64,
}

/// Records of plain bytes, written by one thread at a time.
pub struct Records<T> {
    region: Region,
    of: PhantomData<fn() -> T>,
}

impl<T: Pod> Records<T> {
    const WORDS: usize = size_of::<T>() / 8;

    fn declare(state: &mut StateBuilder, name: &str, count: usize) -> Result<Self, Refusal> {
        const { assert!(size_of::<T>() % 8 == 0) };
        let layout = format!("{name} v1, {} bytes", size_of::<T>());
        Ok(Self {
            region: state.region(name, &layout, count * Self::WORDS)?,
            of: PhantomData,
        })
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
    pub(crate) fn declare(
        state: &mut StateBuilder,
        name: &str,
        count: usize,
    ) -> Result<Self, Refusal> {
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

    pub(crate) fn declare(
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
