//! Receive queues added to the interface after the port was opened (`ethtool -L`). They have no AF_XDP socket, so the program passes their
//! frames to the kernel's stack, where AF_PACKET receives them, and no others.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
};

use crate::{
    packet::Packet,
    packet_socket::PacketQueue,
    queue::{Event, Events, Queue},
};

/// While nothing comes, only one in this many calls looks, since a look costs a system call.
const SELDOM: u32 = 32;
/// The number of calls that look every time after a frame came.
const ALERT: u32 = 4096;

/// One worker's share of these frames.
pub(super) struct Beside {
    queue: PacketQueue,
    events: Arc<Events>,
    /// Calls left until the next look, while nothing comes.
    until_look: u32,
    /// Calls left that look every time.
    alert: u32,
}

impl Beside {
    /// Receives from a socket of `packet_socket::sockets`.
    pub(super) fn new(socket: &Arc<OwnedFd>, port: usize, events: &Arc<Events>) -> Self {
        Self {
            queue: PacketQueue::new(socket, port, events),
            events: Arc::clone(events),
            until_look: 0,
            alert: 0,
        }
    }

    /// Receives frames into packets; returns their number.
    pub(super) fn receive(&mut self, into: &mut [Packet]) -> usize {
        if into.is_empty() || !self.is_due() {
            return 0;
        }
        // The port's state reports an interface that is down or gone.
        let count = self.queue.receive(into).unwrap_or(0);
        if count > 0 {
            self.alert = ALERT;
            self.events.add(Event::Unbound, count as u64);
        }
        count
    }

    fn is_due(&mut self) -> bool {
        if self.alert > 0 {
            self.alert -= 1;
            return true;
        }
        self.until_look = self.until_look.checked_sub(1).unwrap_or(SELDOM - 1);
        self.until_look == 0
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.queue.descriptor()
    }
}
