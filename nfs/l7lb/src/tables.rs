//! The state that survives a move, as laid out in the arena.

use std::{collections::HashSet, sync::atomic::Ordering};

use nf_arena::{Memory, Region};
use nf_balancing::{cells::Array, tables::Neighbours, tuple::Tuple};
use nf_runtime::{
    state::{ChunkPool, FlowTable, Slab, SlabId, StateBuilder, Timers},
    CounterSink, Refusal,
};
use nf_splice::cookie::Secrets;

use crate::{
    backends::Backends,
    config::Limits,
    idle_legs::IdleLegs,
    metrics::Routes,
    record::{phase, Connection},
    texts::Text,
    tls,
};

/// Entries of the index live as long as their connection.
pub const FOREVER: u64 = u64::MAX / 4;

/// The state of one load balancer.
pub struct Tables {
    pub connections: Slab<Connection>,
    /// Connections by the tuple of the client's packets.
    pub clients: FlowTable<Tuple, SlabId>,
    /// Connections by the tuple of a backend's packets.
    pub answers: FlowTable<Tuple, SlabId>,
    pub idle_legs: IdleLegs,
    pub chunks: ChunkPool,
    pub timers: Timers,
    pub neighbours: Neighbours,
    pub backends: Backends,
    pub routes: Routes,
    /// Descriptions of requests by the slots of their connections, if there is an access log.
    pub texts: Array<Text>,
    pub tls: tls::Tables,
    secrets: Region,
    events: Region,
}

impl Tables {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(limits: &Limits, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let connections = limits.connections;
        let layout = "period, keys, v1";
        let tables = Self {
            connections: state.slab("connections", connections)?,
            clients: state.flow_table("clients", connections)?,
            answers: state.flow_table("answers", connections * 2)?,
            idle_legs: IdleLegs::declare(connections, limits.backends, state)?,
            chunks: state.chunk_pool("chunks", limits.chunks, 2048)?,
            timers: state.timers("timers", connections)?,
            neighbours: Neighbours::declare(state, limits.neighbours)?,
            backends: Backends::declare(limits.backends, state)?,
            routes: Routes::declare(limits.routes, state)?,
            texts: Array::declare(state, "texts", connections)?,
            tls: tls::Tables::declare(connections, state)?,
            secrets: state.region("secrets", layout, SECRET_WORDS)?,
            events: state.region("events", "events v1", EVENT_WORDS)?,
        };
        Ok(tables)
    }

    /// Returns the secrets of SYN cookies, with a new key when it is time for one.
    pub fn secrets(&self, now: u64) -> Secrets {
        let mut words = [0_u64; SECRET_WORDS];
        for (word, stored) in words.iter_mut().zip(self.secrets.words()) {
            *word = stored.load(Ordering::Relaxed);
        }
        let secrets: Secrets = bytemuck::cast(words);
        let renewed = if words == [0; SECRET_WORDS] {
            Some(Secrets::new(now, [random(), random()]))
        } else {
            secrets.renewed(now, random)
        };
        let Some(renewed) = renewed else {
            return secrets;
        };
        let words: [u64; SECRET_WORDS] = bytemuck::cast(renewed);
        for (index, word) in words.into_iter().enumerate() {
            self.secrets.words()[index].store(word, Ordering::Relaxed);
            self.secrets.touch(index);
        }
        renewed
    }

    /// Removes a connection and all that belongs to it.
    pub fn remove(&self, id: SlabId) {
        self.timers.cancel(id.slot());
        let Some(mut connection) = self.connections.remove(id) else {
            return;
        };
        // Entries of the indexes never expire by themselves.
        for leg in connection
            .legs
            .iter()
            .filter(|leg| leg.phase != phase::NONE)
        {
            self.answers.remove(&leg.tuple, 0);
            self.backends.closed(leg.row);
        }
        self.clients.remove(&connection.client, 0);
        for half in [&mut connection.requests, &mut connection.answers] {
            half.held.clear(&self.chunks);
            half.outgoing.clear(&self.chunks);
            half.kept.clear(&self.chunks);
        }
    }

    /// Removes connections that a killed process left torn, and gives back chunks that none of the others names.
    pub fn repair(&self) {
        let (mut torn, mut named) = (Vec::new(), HashSet::new());
        self.connections.for_each(|id, connection| {
            let queues = connection.queues();
            if queues.iter().all(|queue| queue.is_whole(&self.chunks)) {
                let chunks = queues.iter().flat_map(|queue| queue.chunks(&self.chunks));
                named.extend(chunks);
            } else {
                torn.push(id);
            }
        });
        for id in torn {
            self.remove(id);
        }
        for id in self.tls.torn(&self.chunks, &mut named) {
            self.tls.remove(id, &self.chunks);
        }
        self.chunks.free_orphans(|_, chunk| named.contains(&chunk));
        self.repair_legs();
    }

    /// Removes all idle legs, one of which may have been on its way to or from a connection, and gives the others back their entries.
    fn repair_legs(&self) {
        for id in self.idle_legs.all(|_| true) {
            if let Some(idle) = self.idle_legs.remove(id) {
                self.answers.remove(&idle.leg.tuple, 0);
            }
        }
        let mut owned = Vec::new();
        self.connections.for_each(|id, connection| {
            let legs = connection.legs.iter();
            let open = legs.filter(|leg| leg.phase != phase::NONE);
            owned.extend(open.map(|leg| (leg.tuple, id)));
        });
        for (tuple, id) in owned {
            let _ = self
                .answers
                .update_or_insert(&tuple, 0, FOREVER, || id, |owner| *owner = id);
        }
    }

    pub fn count(&self, event: Event) {
        add(&self.events, event as usize, 1);
    }

    pub fn report(&self, out: &mut CounterSink) {
        out.gauge("connections", &[], self.connections.len() as f64);
        out.gauge("tls_connections", &[], self.tls.endpoints.len() as f64);
        out.gauge("idle_backend_connections", &[], self.idle_legs.len() as f64);
        for (event, name) in Event::ALL {
            let count = self.events.words()[event as usize].load(Ordering::Relaxed);
            out.counter(name, &[], count);
        }
    }
}

const SECRET_WORDS: usize = size_of::<Secrets>() / 8;
/// With spares, so that a new event does not change the shape.
const EVENT_WORDS: usize = 32;

pub fn random() -> [u64; 2] {
    use std::hash::{BuildHasher, Hasher};
    let one = || std::hash::RandomState::new().build_hasher().finish();
    [one(), one()]
}

fn add(region: &Region, index: usize, count: u64) {
    region.words()[index].fetch_add(count, Ordering::Relaxed);
    region.touch(index);
}

/// Events that the function counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Syn,
    Connection,
    Request,
    /// A TLS connection passes.
    Passed,
    /// No record or no port was free.
    Full,
    /// A segment of no connection was answered with a reset.
    Refused,
    Corrupt,
    Unresolved,
    TimedOut,
    /// Answers of the function itself, by the kind of their status.
    Redirected,
    ClientFault,
    ServerFault,
    TlsHandshake,
    /// A handshake has failed or timed out.
    TlsFailed,
    /// A record could not be opened.
    TlsBroken,
}

impl Event {
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::Syn, "syns"),
        (Self::Connection, "connections_opened"),
        (Self::Request, "requests"),
        (Self::Passed, "passed_connections"),
        (Self::Full, "refused_full"),
        (Self::Refused, "refused_unknown"),
        (Self::Corrupt, "corrupt_segments"),
        (Self::Unresolved, "neighbour_unresolved"),
        (Self::TimedOut, "timed_out"),
        (Self::Redirected, "own_answers"),
        (Self::ClientFault, "own_answers_4xx"),
        (Self::ServerFault, "own_answers_5xx"),
        (Self::TlsHandshake, "tls_handshakes"),
        (Self::TlsFailed, "tls_handshakes_failed"),
        (Self::TlsBroken, "tls_records_refused"),
    ];
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;
    use nf_arena::{Arena, ArenaBuilder};
    use nf_runtime::state::ByteQueue;

    use super::*;

    fn tables() -> (Tables, Arena) {
        let limits = Limits {
            connections: 8,
            chunks: 16,
            ..Limits::default()
        };
        let mut state = StateBuilder::new(ArenaBuilder::fresh("l7lb", 1).unwrap());
        let tables = Tables::declare(&limits, &mut state).unwrap();
        let (arena, ..) = state.finish().unwrap();
        (tables, arena)
    }

    #[test]
    fn repairs_give_back_chunks_that_no_connection_names() {
        let (tables, _arena) = tables();
        let free = tables.chunks.free();
        let mut queue = ByteQueue::new(0);
        queue.append(&tables.chunks, &[7; 5000]);
        let mut connection = Connection::zeroed();
        connection.requests.held = queue;
        let id = tables.connections.insert(connection).unwrap();
        // A process dies between taking a chunk and naming it.
        let _lost = tables.chunks.take(1).unwrap();
        tables.repair();
        assert_eq!(tables.chunks.free(), free - 3);
        tables.remove(id);
        assert_eq!(tables.chunks.free(), free);
        assert!(tables.connections.is_empty());
    }

    #[test]
    fn repairs_remove_connections_that_have_lost_bytes() {
        let (tables, _arena) = tables();
        let mut connection = Connection::zeroed();
        let mut queue = ByteQueue::new(0);
        queue.append(&tables.chunks, &[7; 5000]);
        connection.answers.outgoing = queue;
        // A process dies after consuming bytes, before it writes the record.
        queue.consume(&tables.chunks, 2500);
        tables.connections.insert(connection).unwrap();
        tables.repair();
        assert!(tables.connections.is_empty());
        assert_eq!(tables.chunks.free(), tables.chunks.capacity());
    }
}
