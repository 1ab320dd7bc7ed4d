//! The record of an endpoint: plain data in the arena.

use bytemuck::{Pod, Zeroable};
use nf_balancing::tuple::Tuple;
use nf_runtime::state::{ByteQueue, ChunkPool, SlabId};
use nf_tls::Session;

use super::{receiver::Receiver, sender::Sender};

/// Stages of an endpoint.
pub mod stage {
    /// A thread runs the handshake.
    pub const HANDSHAKE: u8 = 0;
    /// Records carry data.
    pub const OPEN: u8 = 1;
    /// The endpoint sends its queue, and ignores data that arrives.
    pub const CLOSING: u8 = 2;
}

/// The connection of a client that speaks TLS.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Endpoint {
    /// The tuple of the client's packets.
    pub tuple: Tuple,
    /// Records to the client, and from it.
    pub to_client: Sender,
    pub from_client: Receiver,
    /// Plaintext to the engine, and from it.
    pub to_engine: Sender,
    pub from_engine: Receiver,
    pub session: Session,
    /// The part of a record that has arrived; during the handshake, bytes that wait for its thread.
    pub input: ByteQueue,
    /// The engine's connection; none before and after it exists.
    pub connection: SlabId,
    /// The process that runs the handshake.
    pub process: u64,
    /// When the present stage times out; 0: never.
    pub limit_at: u64,
    /// When the handshake's thread is offered bytes again; 0: it is not.
    pub offer_at: u64,
    /// When the connection was opened, and the timestamp of that moment.
    pub began_at: u64,
    pub stamp: u32,
    /// The client's latest timestamp.
    pub recent: u32,
    /// The bytes of a segment to the client.
    pub mss: u16,
    pub scale: u8,
    /// [`options`](crate::record::options) in use.
    pub options: u8,
    pub stage: u8,
    /// A thread has bytes of the handshake.
    pub is_waiting: u8,
    /// The client is reset, and the record removed.
    pub is_gone: u8,
    pub reserved: u8,
}

impl Endpoint {
    pub fn has(&self, option: u8) -> bool {
        self.options & option != 0
    }

    /// Returns all queues of bytes.
    pub fn queues(&self) -> impl Iterator<Item = &ByteQueue> {
        let own = [self.to_client.queue(), self.to_engine.queue(), &self.input];
        let runs = [self.from_client.queues(), self.from_engine.queues()];
        own.into_iter().chain(runs.into_iter().flatten())
    }

    /// Gives back all chunks, and erases the keys.
    pub fn clear(&mut self, chunks: &ChunkPool) {
        self.to_client.queue_mut().clear(chunks);
        self.to_engine.queue_mut().clear(chunks);
        self.input.clear(chunks);
        self.from_client.clear(chunks);
        self.from_engine.clear(chunks);
        self.session = Session::zeroed();
    }

    /// Returns the bytes that the client may send.
    pub fn room_for_client(&self) -> usize {
        self.to_engine.room().saturating_sub(self.input.len())
    }

    /// Returns the bytes that the engine may send.
    pub fn room_for_engine(&self) -> usize {
        self.to_client.room()
    }

    /// Tells whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        let is_closed = self.to_client.is_over() && self.from_client.is_over();
        self.is_gone != 0 || self.connection.is_none() && is_closed
    }

    /// Returns when something is to be done without a segment.
    pub fn deadline(&mut self, now: u64) -> u64 {
        let engine = if self.connection.is_none() {
            0
        } else {
            self.to_engine.deadline(now)
        };
        let all = [
            self.limit_at,
            self.offer_at,
            self.to_client.deadline(now),
            self.from_client.deadline(),
            engine,
            self.from_engine.deadline(),
        ];
        all.into_iter().filter(|at| *at != 0).min().unwrap_or(0)
    }
}
