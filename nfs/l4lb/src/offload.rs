//! Offload: a faster table carries the heavy connections (LB-NIC, section 3.3; docs/offload.md).
//!
//! Packets are only sampled here, and consult [`Pins`]: a flow that a rule may still carry keeps its backend. Everything else happens on a thread of
//! its own, in [`Desk`].

mod desk;
mod memory;
mod pins;
mod samples;
mod targets;

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nf_offload::{Direction, Rows, Table};
use nf_runtime::{state::StateBuilder, CounterSink, Refusal};
use serde_json::Value;

use crate::config::Tables;
use desk::Desk;
pub use desk::Surroundings;
use memory::Memory;
use pins::Pins;
pub use samples::Sampler;
use samples::{Marked, Samples};

/// Bytes of a frame before the IP packet. Rules count frames, the load balancer IP packets.
const ETHERNET: u64 = 14;

/// The offload of one load balancer.
pub struct Offload {
    memory: Arc<Memory>,
    pub(crate) pins: Pins,
    samples: Samples,
    marked: Marked,
    desk: Mutex<Option<Desk>>,
}

impl Offload {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(tables: &Tables, state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self {
            memory: Arc::new(Memory::declare(tables, state)?),
            pins: Pins::default(),
            samples: Samples::default(),
            marked: Marked::default(),
            desk: Mutex::default(),
        })
    }

    fn desk(&self) -> MutexGuard<'_, Option<Desk>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the state.
    pub fn resume(&self) {
        let mut desk = self.desk();
        let rows = &self.memory.ledger;
        rows.begin_life(|| RandomState::new().build_hasher().finish());
        *desk = None;
        self.pins.clear();
        let all = (0..rows.len()).map(|row| rows.get(row));
        for row in all.filter(|row| row.may_act()) {
            self.pins.add(&row.flow(), row.backend());
        }
    }

    /// Exchanges requests and events with the table, and decides.
    pub fn turn(&self, around: &Surroundings<'_>, table: &mut dyn Table) {
        let mut desk = self.desk();
        let desk = desk.get_or_insert_with(|| Desk::new(Arc::clone(&self.memory)));
        desk.turn(around, table, &self.pins, &self.samples, &self.marked);
    }

    /// Leaves the table: the state may belong to another instance soon.
    pub fn leave(&self) {
        if let Some(desk) = self.desk().as_mut() {
            desk.leave();
        }
        self.samples.want(0);
    }

    /// Counts packets and bytes that were sent by their mark.
    pub fn count_marked(&self, more: [u64; 2]) {
        self.marked.add(more);
    }

    /// Returns the worker's sampling.
    #[inline]
    pub fn sampler(&self, worker: usize) -> Sampler<'_> {
        Sampler::new(&self.samples, worker)
    }

    /// Tells whether a rule may still lead to a backend: its number must not be given to another one.
    pub fn names(&self, backend: u16) -> bool {
        self.pins.names(backend)
    }

    /// Returns the packets and bytes that rules have carried to the backend of a row, or from it.
    pub fn carried(&self, row: usize, direction: Direction) -> [u64; 2] {
        let [packets, bytes] = self.memory.carried(row, direction);
        [packets, bytes.saturating_sub(packets * ETHERNET)]
    }

    /// Moves a removed backend's counts to another row. The backend's number is about to be reused: its counters' totals go on, and what they grow by
    /// from now on belongs to its next backend.
    pub fn fold(&self, from: usize, into: usize) {
        self.memory.fold(from, into);
    }

    /// Returns the status; null: the instance has no table.
    pub fn status(&self) -> Value {
        let desk = self.desk();
        let Some(desk) = desk.as_ref() else {
            return Value::Null;
        };
        desk.status()
    }

    /// Adds its counters.
    pub fn report(&self, out: &mut CounterSink) {
        let desk = self.desk();
        let Some(desk) = desk.as_ref() else {
            return;
        };
        let (flows, totals) = desk.report();
        out.offload(flows, &totals);
    }
}
