//! The endpoints in the arena.

use std::collections::HashSet;

use nf_balancing::tuple::Tuple;
use nf_runtime::{
    state::{Chunk, ChunkPool, FlowTable, Slab, SlabId, StateBuilder, Timers},
    Refusal,
};

use super::endpoint::Endpoint;

pub struct Tables {
    pub endpoints: Slab<Endpoint>,
    /// Endpoints by the tuple of the client's packets.
    pub clients: FlowTable<Tuple, SlabId>,
    pub timers: Timers,
}

impl Tables {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(count: usize, state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self {
            endpoints: state.slab("tls endpoints", count)?,
            clients: state.flow_table("tls clients", count)?,
            timers: state.timers("tls timers", count)?,
        })
    }

    /// Removes an endpoint with its keys and bytes. The engine's connection is left.
    pub fn remove(&self, id: SlabId, chunks: &ChunkPool) {
        self.timers.cancel(id.slot());
        let tuple = self.endpoints.update(id, |endpoint| {
            endpoint.clear(chunks);
            endpoint.tuple
        });
        if let Some(tuple) = tuple {
            self.clients.remove(&tuple, 0);
        }
        self.endpoints.remove(id);
    }

    /// Returns the endpoints that a killed process left torn, and adds the chunks of the others to `named`.
    pub fn torn(&self, chunks: &ChunkPool, named: &mut HashSet<Chunk>) -> Vec<SlabId> {
        let mut torn = Vec::new();
        self.endpoints.for_each(|id, endpoint| {
            if endpoint.queues().all(|queue| queue.is_whole(chunks)) {
                named.extend(endpoint.queues().flat_map(|queue| queue.chunks(chunks)));
            } else {
                torn.push(id);
            }
        });
        torn
    }
}
