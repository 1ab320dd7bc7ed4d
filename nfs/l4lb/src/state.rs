//! Everything that survives a move, as it lies in the arena.

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
    /// By what a backend answers to: what its client sends. With source NAT only.
    pub clients: FlowTable<Tuple, Tuple>,
    pub fragments: FlowTable<FragmentKey, FragmentWay>,
    /// Gateways and backends.
    pub neighbours: FlowTable<Address, Neighbour>,
    /// Others on the links.
    pub stations: FlowTable<Address, Neighbour>,
    pub vips: Records<VipRecord>,
    pub backends: Records<BackendRecord>,
    /// Connections that a backend has.
    pub active: Gauges,
    /// Half-open connections that a VIP has, and how often it chose in turn.
    pub half_open: Gauges,
    pub turns: Gauges,
    /// What `events` and `traffic` had counted of backends that are gone is in their VIP's row.
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
    /// There is no memory, or the state that is adopted has another shape.
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
            // One row more: what belongs to no VIP.
            traffic: Stripes::declare(state, "traffic", backends + vips + 1, traffic::COLUMNS)?,
            events: Stripes::declare(state, "events", vips + 1, EVENT_COLUMNS)?,
            load: Load::declare(state)?,
        })
    }
}

/// Columns of [`State::events`], with some to spare: a new one does not change the shape.
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

/// An address as 16 bytes: IPv4 ones are mapped (RFC 4291, 2.5.5.2).
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

/// What a packet of a connection says: addresses, ports, protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tuple {
    pub source: Address,
    pub destination: Address,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u32,
}

/// What a connection needs beyond its backend: keyed by what the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Session {
    /// Of the load balancer, toward the backend; 0: the client's own.
    pub local_port: u16,
    /// Bytes of the header that is inserted; 0: none.
    pub inserted: u16,
    /// The backend has acknowledged the header.
    pub acknowledged: u16,
    /// The backend has answered the SYN.
    pub answered: u16,
    /// Sequence number of the client's first byte.
    pub start: u32,
    pub reserved: u32,
    /// When its entry in `clients` was renewed.
    pub renewed: u64,
    /// How far the two sides are, in the client's numbers.
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

/// How the first fragment of a packet went; those after it go the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FragmentWay {
    /// What its source became; all zero: nothing else.
    pub source: Address,
    pub destination: Address,
    pub backend: u32,
    /// 1: toward the backend, 2: toward the client.
    pub direction: u32,
}

/// Who has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Neighbour {
    /// 0: not known yet.
    pub mac: u64,
    pub interface: u64,
    pub confirmed: u64,
    pub asked: u64,
    /// A MAC address that another station named, until the owner of `mac` objects; 0: none.
    pub claim: u64,
    pub claimed: u64,
    /// The MAC address before an announcement, whose owner may object; 0: none.
    pub former: u64,
    pub announced: u64,
    /// When an owner objected last.
    pub objected: u64,
}

/// A VIP's row of the gauges and counters, for as long as its identity exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct VipRecord {
    pub address: Address,
    pub port: u16,
    pub protocol: u8,
    pub used: u8,
    pub reserved: u32,
}

/// What a connection's record names: one backend of one VIP.
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
    /// By request; the configuration's own wish is not here.
    pub drained: u8,
    /// [`health`]
    pub health: u8,
    /// When it was retired.
    pub retired: u64,
    pub probe: Probe,
}

/// A record of a backend is not used again before no connection can name it.
pub mod usage {
    pub const FREE: u8 = 0;
    pub const USED: u8 = 1;
    pub const RETIRED: u8 = 2;
}

pub mod health {
    /// Not checked yet: it gets connections.
    pub const UNKNOWN: u8 = 0;
    pub const UP: u8 = 1;
    pub const DOWN: u8 = 2;
}

/// How far a health check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Probe {
    /// [`crate::health::phase`]
    pub phase: u8,
    pub reserved: u8,
    /// Checks in a row that say the opposite of `health`.
    pub streak: u16,
    pub local_port: u16,
    pub status: u16,
    /// Sequence number of our SYN.
    pub sequence: u32,
    /// The next one that we expect.
    pub expected: u32,
    /// When the check has failed; when to send again; when the next one starts.
    pub deadline: u64,
    pub resend: u64,
    pub next: u64,
}

/// Records of plain bytes. Written by one thread at a time.
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

/// Numbers that go up and down, changed by all workers.
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

    /// The value before.
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

    /// Not below zero: a count that was lost elsewhere must not become an enormous one.
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

/// Counters, in one part for each worker, so that counting is a plain addition.
pub struct Stripes {
    region: Region,
    columns: usize,
    /// Words of a part.
    part: usize,
}

impl Stripes {
    /// More workers share parts, with atomic additions.
    pub const PARTS: usize = 16;

    pub(crate) fn declare(
        state: &mut StateBuilder,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<Self, Refusal> {
        let layout = format!("counters v1, {columns} columns");
        // Parts start on cache lines of their own.
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

    /// Adds in a worker's part.
    #[inline]
    pub fn add(&self, worker: Worker, row: usize, column: usize, value: u64) {
        self.add_all(worker, row, column, [value]);
    }

    /// Adds to columns side by side, which must be of one block: eight columns a row are.
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

    /// Adds a row to another and empties it. What workers count meanwhile may be lost.
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

/// Which part of the counters is a worker's.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    part: usize,
    /// Nobody else adds in this part.
    alone: bool,
    /// There is no other worker at all.
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
