//! The flows that a rule may still carry, for the packet path: no other backend may be chosen for them.

use std::{
    collections::HashMap,
    sync::{
        atomic::{AtomicU16, Ordering},
        Mutex, MutexGuard, PoisonError,
    },
};

use nf_balancing::tuple::Tuple;
use nf_offload::FlowKey;

use crate::flow::{AnyFlow, Flow};

/// Places of the filter in front of the map, each with the number of its flows: most flows without a rule have an empty place.
const PLACES: usize = 1 << 15;

/// The flows with a rule, each with its backend's number.
pub struct Pins {
    filter: Box<[AtomicU16]>,
    backends: Mutex<HashMap<FlowKey, u16>>,
}

impl Default for Pins {
    fn default() -> Self {
        Self {
            filter: (0..PLACES).map(|_| AtomicU16::new(0)).collect(),
            backends: Mutex::default(),
        }
    }
}

impl Pins {
    fn lock(&self) -> MutexGuard<'_, HashMap<FlowKey, u16>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the backend of a flow that a rule may carry.
    #[inline]
    pub fn backend_of<F: Flow>(&self, flow: &F) -> Option<u16> {
        if self.filter[place(flow.flow_hash())].load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.lock().get(&key_of(&flow.tuple())).copied()
    }

    /// Tells whether a rule may still lead to a backend.
    pub fn names(&self, backend: u16) -> bool {
        self.lock().values().any(|number| *number == backend)
    }

    /// Adds a flow, before its rule is asked for.
    pub fn add(&self, flow: &FlowKey, backend: u16) {
        let Some(hash) = hash(flow) else { return };
        if self.lock().insert(*flow, backend).is_none() {
            self.filter[place(hash)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a flow whose rule cannot carry it any more.
    pub fn remove(&self, flow: &FlowKey) {
        let Some(hash) = hash(flow) else { return };
        if self.lock().remove(flow).is_some() {
            self.filter[place(hash)].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes all flows.
    pub fn clear(&self) {
        let flows: Vec<FlowKey> = self.lock().keys().copied().collect();
        flows.iter().for_each(|flow| self.remove(flow));
    }
}

fn place(hash: u64) -> usize {
    (hash >> 16) as usize % PLACES
}

fn hash(flow: &FlowKey) -> Option<u64> {
    Some(AnyFlow::of_tuple(&tuple_of(flow))?.flow_hash())
}

/// Converts a connection's tuple.
pub fn key_of(tuple: &Tuple) -> FlowKey {
    bytemuck::cast(*tuple)
}

/// Converts a flow's key.
pub fn tuple_of(key: &FlowKey) -> Tuple {
    bytemuck::cast(*key)
}
