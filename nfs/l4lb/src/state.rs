//! The state that survives a move, as laid out in the arena. `records` has the rest of it: the connections and their sessions.

use bytemuck::{Pod, Zeroable};
use nf_balancing::{tables::Neighbours, tuple::Address};
use nf_runtime::{
    state::{FlowTable, StateBuilder},
    Refusal,
};

use crate::{
    cells::{Array, Gauges, Stripes},
    config::Tables,
    events::Event,
    load::Load,
};

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

/// The phase of a health check.
pub mod phase {
    pub const IDLE: u8 = 0;
    pub const SYN_SENT: u8 = 1;
    pub const REQUEST_SENT: u8 = 2;
}

/// The progress of a health check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Probe {
    /// [`phase`]
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
