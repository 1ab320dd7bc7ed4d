//! The state that survives a move, as laid out in the arena. `records` has the rest of it: the connections and their sessions.

use bytemuck::{Pod, Zeroable};
use nf_balancing::{
    cells::{Array, Gauges, Stripes},
    health,
    load::Load,
    tables::Neighbours,
    tuple::Address,
};
use nf_runtime::{
    state::{FlowTable, StateBuilder},
    Refusal,
};

use crate::{config::Tables, events::Event};

/// The state of one load balancer, without its connections.
pub struct State {
    pub fragments: FlowTable<FragmentKey, FragmentWay>,
    pub neighbours: Neighbours,
    pub vips: Array<VipRecord>,
    pub backends: Array<BackendRecord>,
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
            fragments: state.flow_table("fragments", tables.fragments)?,
            neighbours: Neighbours::declare(state, tables.neighbours)?,
            vips: Array::declare(state, "vips", vips)?,
            backends: Array::declare(state, "backends", backends)?,
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
const _: () = assert!(Event::COUNT <= EVENT_COLUMNS);

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
    /// [`UNKNOWN`](health::UNKNOWN), [`UP`](health::UP) or [`DOWN`](health::DOWN).
    pub health: u8,
    /// The time of retirement.
    pub retired: u64,
    pub probe: health::Probe,
}

impl BackendRecord {
    /// Returns the parts that health checks change.
    pub fn checked(&mut self) -> health::Record<'_> {
        health::Record {
            health: &mut self.health,
            probe: &mut self.probe,
        }
    }
}

/// The use of a backend record. A retired one is reused only when no connection can refer to it.
pub mod usage {
    pub const FREE: u8 = 0;
    pub const USED: u8 = 1;
    pub const RETIRED: u8 = 2;
}
