//! What a worker sees of a port, and what the rest of the program sees of it.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
};

use crate::packet::{Mac, Packet};

/// One queue of a port. It belongs to one worker; what its worker sends leaves by it as well.
pub trait Queue: Send {
    /// Fills packets from the first on with what has come in, without waiting; how many.
    ///
    /// # Errors
    /// The interface is down or gone; it may come back.
    fn receive(&mut self, into: &mut [Packet]) -> io::Result<usize>;

    /// Sends frames in this order; how many were taken. The others are lost and counted in the queue's [`Events`].
    fn transmit(&mut self, frames: &[&[u8]]) -> usize;

    /// Has everything that was taken left? Asked again until it says so.
    fn flush(&mut self) -> bool {
        true
    }

    /// Readable when there is something to receive.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The same, for what comes in on a second way.
    fn second_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// What can happen to a frame at a port besides going through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is longer than a packet can be.
    TooLong,
    /// It is several segments in one that a network card was meant to take apart.
    Unsegmented,
    /// Its sender left the checksum to a network card; it was completed. The frame went on.
    ChecksumCompleted,
    /// The interface did not take it.
    NotSent,
    /// It came by a receive queue that has no AF_XDP socket. The frame went on, at a higher cost.
    Unbound,
}

impl Event {
    const ALL: [(Self, &'static str); 5] = [
        (Self::TooLong, "receive_too_long"),
        (Self::Unsegmented, "receive_unsegmented"),
        (Self::ChecksumCompleted, "receive_checksums_completed"),
        (Self::NotSent, "transmit_lost"),
        (Self::Unbound, "receive_unbound_queues"),
    ];
}

/// Counts of a queue, written by its worker and read by anybody.
#[derive(Default)]
pub struct Events([AtomicU64; Event::ALL.len()]);

impl Events {
    #[inline]
    pub fn add(&self, event: Event, count: u64) {
        if count > 0 {
            self.0[event as usize].fetch_add(count, Ordering::Relaxed);
        }
    }

    #[must_use]
    pub fn get(&self, event: Event) -> u64 {
        self.0[event as usize].load(Ordering::Relaxed)
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Event::ALL
            .iter()
            .map(|(event, name)| (*name, self.get(*event)))
    }
}

/// What a port runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Xdp,
    Packet,
    Memory,
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Xdp => "AF_XDP",
            Self::Packet => "AF_PACKET",
            Self::Memory => "memory",
        })
    }
}

/// A port that was opened.
pub struct Port {
    /// The interface's.
    pub name: String,
    pub backend: Backend,
    /// How it runs, and why so: "copy mode, native; chosen because ...".
    pub how: String,
    /// What whoever runs it should know: settings of the interface that cost packets.
    pub notes: Vec<String>,
    pub mac: Mac,
    /// What the interface is now: `up`, `no carrier`, `down`, or `gone`; after `gone` the instance has to be restarted when the interface is back.
    pub state: Box<dyn Fn() -> &'static str + Send + Sync>,
    /// One for each worker.
    pub queues: Vec<Box<dyn Queue>>,
    /// One for each queue.
    pub events: Vec<Arc<Events>>,
    /// Frames that the kernel dropped because a queue was full, since the port was opened.
    pub overruns: Box<dyn Fn() -> u64 + Send + Sync>,
}
