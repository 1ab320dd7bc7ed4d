//! What a network function knows of where it runs.

use nf_ports::{Mac, Packet};

/// Why [`Context::send_across`] drops a packet.
pub const NOT_ADDRESSED: &str = "not addressed to this port";

/// The same for a whole batch.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    now: u64,
    worker: usize,
    workers: usize,
    macs: &'a [Mac],
    last_turn: u64,
}

impl<'a> Context<'a> {
    /// For workers, tests and benches. `macs`: the address of each port.
    #[must_use]
    pub fn new(now: u64, worker: usize, workers: usize, macs: &'a [Mac]) -> Self {
        Self {
            now,
            worker,
            workers,
            macs,
            last_turn: 0,
        }
    }

    /// What [`last_turn`](Self::last_turn) is to say.
    #[must_use]
    pub fn with_last_turn(mut self, nanoseconds: u64) -> Self {
        self.last_turn = nanoseconds;
        self
    }

    /// Nanoseconds that this worker's turn before this one took, receiving, processing and sending, if it brought packets.
    #[inline]
    #[must_use]
    pub fn last_turn(&self) -> u64 {
        self.last_turn
    }

    /// Nanoseconds of the state's clock, taken once for the batch.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The index of the worker that asks, below [`workers`](Self::workers).
    #[inline]
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker
    }

    #[inline]
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    #[inline]
    #[must_use]
    pub fn ports(&self) -> usize {
        self.macs.len()
    }

    /// The MAC address of a port; zeros where there is no such port.
    #[inline]
    #[must_use]
    pub fn mac(&self, port: usize) -> Mac {
        self.macs.get(port).copied().unwrap_or_default()
    }

    /// Sends a packet on by the other port. With one port that is the one that it came in by, and only what is addressed to it goes back: what a switch
    /// sent to all of its ports it would send to all again. False: it is dropped.
    #[inline]
    pub fn send_across(&self, packet: &mut Packet) -> bool {
        let ports = self.ports();
        let own = self.mac(packet.port());
        if ports == 1 && packet.bytes().first_chunk() != Some(&own) {
            packet.drop_for(NOT_ADDRESSED);
            return false;
        }
        packet.send((packet.port() + 1) % ports.max(1));
        true
    }
}
