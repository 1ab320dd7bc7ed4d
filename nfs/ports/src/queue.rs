//! The interface of a port: queues for workers, and status for the rest of the program.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
};

use crate::{
    frame::Frame,
    matching::Matcher,
    packet::{Mac, Packet},
};

/// One queue of a port. It belongs to one worker, which also sends by it.
pub trait Queue: Send {
    /// Receives frames into packets, from the first on, without waiting; returns their number. Only large packets get frames with offloads.
    ///
    /// # Errors
    /// If the interface is down or gone; it may come back.
    fn receive(&mut self, into: &mut [Packet]) -> io::Result<usize>;

    /// Sends frames in this order, with what their offloads say; returns the number taken. The others are lost and counted in the queue's [`Events`].
    fn transmit(&mut self, frames: &[Frame<'_>]) -> usize;

    /// Tells whether every taken frame has left. The caller repeats it until it returns true.
    fn flush(&mut self) -> bool {
        true
    }

    /// Returns a descriptor that is readable while there are frames to receive.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Returns a second such descriptor, for frames that arrive another way.
    fn second_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// An event of a frame at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Dropped: longer than a packet can be.
    TooLong,
    /// Dropped: several segments in one, which a network card was meant to split.
    Unsegmented,
    /// Its sender left the checksum to a network card. The frame was completed and passed on.
    ChecksumCompleted,
    /// The interface did not take it.
    NotSent,
    /// It arrived by a receive queue without an AF_XDP socket. The frame was passed on, at a higher cost.
    Unbound,
    /// Several segments in one, passed on as such.
    Merged,
}

impl Event {
    const ALL: [(Self, &'static str); 6] = [
        (Self::TooLong, "receive_too_long"),
        (Self::Unsegmented, "receive_unsegmented"),
        (Self::ChecksumCompleted, "receive_checksums_completed"),
        (Self::NotSent, "transmit_lost"),
        (Self::Unbound, "receive_unbound_queues"),
        (Self::Merged, "receive_merged"),
    ];
}

/// The event counts of a queue, written by its worker and read by any thread.
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

    /// Iterates over all counts by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Event::ALL
            .iter()
            .map(|(event, name)| (*name, self.get(*event)))
    }
}

/// The back end of a port.
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

/// An open port.
pub struct Port {
    /// The interface's name.
    pub name: String,
    pub backend: Backend,
    /// The mode of the back end, and the reason: "copy mode, native; chosen because ...".
    pub how: String,
    /// Notes for the operator: settings of the interface that cost packets.
    pub notes: Vec<String>,
    pub mac: Mac,
    /// Returns the interface's state: `up`, `no carrier`, `down`, or `gone`. After `gone` the instance must be restarted once the interface is back.
    pub state: Box<dyn Fn() -> &'static str + Send + Sync>,
    /// One queue per worker.
    pub queues: Vec<Box<dyn Queue>>,
    /// The matches that mark its frames, if they were wanted and the back end has them.
    pub matcher: Option<Box<dyn Matcher>>,
    /// The events of each queue.
    pub events: Vec<Arc<Events>>,
    /// Returns the number of frames that the kernel dropped because a queue was full, since the port was opened.
    pub overruns: Box<dyn Fn() -> u64 + Send + Sync>,
}
