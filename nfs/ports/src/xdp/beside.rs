//! Receive queues that the interface got after the port was opened (`ethtool -L`). No AF_XDP socket is bound to them, so the program lets their
//! frames pass to the kernel's stack, where AF_PACKET sees them, and no others.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
};

use crate::{
    packet::Packet,
    packet_socket::PacketQueue,
    queue::{Event, Events, Queue},
};

/// Looking costs a system call: while nothing comes, one call to receive of so many looks.
const SELDOM: u32 = 32;
/// Calls that look each time after something came.
const ALERT: u32 = 4096;

/// One worker's share of these frames.
pub(super) struct Beside {
    queue: PacketQueue,
    events: Arc<Events>,
    /// Calls until the next look, while nothing comes.
    until_look: u32,
    /// Calls that still look each time.
    alert: u32,
}

impl Beside {
    /// On a socket of `packet_socket::sockets`.
    pub(super) fn new(socket: &Arc<OwnedFd>, port: usize, events: &Arc<Events>) -> Self {
        Self {
            queue: PacketQueue::new(socket, port, events),
            events: Arc::clone(events),
            until_look: 0,
            alert: 0,
        }
    }

    /// Fills packets with what has come in; how many.
    pub(super) fn receive(&mut self, into: &mut [Packet]) -> usize {
        if into.is_empty() || !self.is_due() {
            return 0;
        }
        // That an interface is down or gone is in the port's state.
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
