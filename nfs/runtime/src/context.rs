//! The context in which a network function runs.

use std::{sync::Arc, time::SystemTime};

use nf_ports::{Mac, Packet};

use crate::gate::{Gate, Waker};

/// The reason for which [`Context::send_across`] drops a packet.
pub const NOT_ADDRESSED: &str = "not addressed to this port";

/// The context of a batch.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    now: u64,
    worker: usize,
    workers: usize,
    macs: &'a [Mac],
    last_turn: u64,
    gate: Option<&'a Arc<Gate>>,
    is_patient: bool,
}

impl<'a> Context<'a> {
    /// Creates a context, for workers, tests and benchmarks. `macs`: the address of each port.
    #[must_use]
    pub fn new(now: u64, worker: usize, workers: usize, macs: &'a [Mac]) -> Self {
        Self {
            now,
            worker,
            workers,
            macs,
            last_turn: 0,
            gate: None,
            is_patient: false,
        }
    }

    /// Lets the function wait for other programs, since time stands still meanwhile: for replays of capture files.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.is_patient = true;
        self
    }

    /// Tells whether the function may wait for other programs while it processes packets.
    #[must_use]
    pub fn is_patient(&self) -> bool {
        self.is_patient
    }

    pub(crate) fn with_gate(mut self, gate: &'a Arc<Gate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Returns what lets other threads wake the worker that ticks. Without workers, in tests, it does nothing.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.gate.map(Waker::of).unwrap_or_default()
    }

    /// Sets the value of [`last_turn`](Self::last_turn).
    #[must_use]
    pub fn with_last_turn(mut self, nanoseconds: u64) -> Self {
        self.last_turn = nanoseconds;
        self
    }

    /// Returns the nanoseconds of this worker's previous turn that brought packets: receiving, processing and sending.
    #[inline]
    #[must_use]
    pub fn last_turn(&self) -> u64 {
        self.last_turn
    }

    /// Returns the time of the state's clock in nanoseconds, read once per batch.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns seconds since 1970, for logs: the wall clock's while workers run, the state's clock in tests and replays, where it is the packets' time.
    #[must_use]
    pub fn unix_seconds(&self) -> u64 {
        if self.gate.is_none() {
            return self.now / 1_000_000_000;
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default().as_secs()
    }

    /// Returns the index of the calling worker, below [`workers`](Self::workers).
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

    /// Returns the MAC address of a port; zeros if the port does not exist.
    #[inline]
    #[must_use]
    pub fn mac(&self, port: usize) -> Mac {
        self.macs.get(port).copied().unwrap_or_default()
    }

    /// Sends a packet by the other port. With one port, sends it back only if it is addressed to that port, since a switch would flood other
    /// frames again. Returns false if it was dropped.
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

#[cfg(test)]
mod tests {
    use nf_ports::Verdict;

    use super::*;

    const MACS: [Mac; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];

    #[test]
    fn it_returns_what_it_was_created_with() {
        let context = Context::new(5, 6, 7, &MACS).with_last_turn(8);
        let numbers = [context.now(), context.last_turn()];
        assert_eq!(numbers, [5, 8]);
        let counts = [context.worker(), context.workers(), context.ports()];
        assert_eq!(counts, [6, 7, 3]);
        assert_eq!((context.mac(2), context.mac(3)), (MACS[2], [0; 6]));
        assert_eq!(Context::new(5, 6, 7, &MACS).last_turn(), 0);
        assert_eq!(Context::new(1_999_999_999, 0, 1, &MACS).unix_seconds(), 1);
    }

    /// Returns the verdict for a frame to this address that arrived by `port`, one of `ports`.
    fn across(ports: usize, port: usize, to: Mac) -> (bool, Verdict) {
        let mut packet = Packet::new();
        assert!(packet.fill(port, &[&to[..], b"the rest"].concat()));
        let sent = Context::new(0, 0, 1, &MACS[..ports]).send_across(&mut packet);
        (sent, packet.verdict())
    }

    #[test]
    fn packets_leave_by_the_next_port() {
        let other = [2, 9, 9, 9, 9, 9];
        for (ports, port, next) in [(2, 0, 1), (2, 1, 0), (3, 1, 2), (3, 2, 0)] {
            for to in [MACS[port], other] {
                assert_eq!(across(ports, port, to), (true, Verdict::Send(next)));
            }
        }
        assert_eq!(across(1, 0, MACS[0]), (true, Verdict::Send(0)));
        assert_eq!(across(1, 0, other), (false, Verdict::Drop(NOT_ADDRESSED)));
        assert_eq!(across(0, 0, [0; 6]), (true, Verdict::Send(0)));
    }
}
