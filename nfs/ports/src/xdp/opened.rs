//! Sockets bound to receive queues, with their rings and memory, before any frame arrives.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{atomic::AtomicU32, Arc},
    thread,
    time::{Duration, Instant},
};

use libc::{c_int, sockaddr_xdp, xdp_mmap_offsets, xdp_umem_reg};

use super::{
    marking::Progress,
    memory::Memory,
    ring::{Consumer, Place, Producer, Watcher},
};
use crate::{
    error::{system, PortError},
    interface::Interface,
    system::{bind, get_option, set_option, socket, zeroed, Plain},
};

/// The capacity of the receive rings in frames: some milliseconds of a busy port. A power of two.
pub(super) const RECEIVE: u32 = 4096;
/// The capacity of the transmit rings in frames. A power of two.
pub(super) const TRANSMIT: u32 = 1024;
/// The time for which a terminated process may still occupy a queue.
const RELEASE: Duration = Duration::from_secs(2);

// SAFETY: integers only.
unsafe impl Plain for sockaddr_xdp {}
// SAFETY: integers only.
unsafe impl Plain for xdp_mmap_offsets {}
// SAFETY: integers only.
unsafe impl Plain for xdp_umem_reg {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}

/// A socket bound to a receive queue, before any frame arrives.
pub(super) struct Opened {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) memory: Memory,
    pub(super) fill: Producer,
    pub(super) received: Consumer,
    /// Taken by [`progress`](Self::progress).
    pub(super) arrived: Option<Watcher>,
    pub(super) processed: Arc<AtomicU32>,
    pub(super) transmit: Producer,
    pub(super) completed: Consumer,
    pub(super) without_copies: bool,
}

impl Opened {
    pub(super) fn new(interface: &Interface, queue: u32, chunk: u32) -> Result<Self, PortError> {
        let fail = |what| system(&interface.name, what);
        let socket =
            socket(libc::AF_XDP, libc::SOCK_RAW).map_err(fail("cannot make an AF_XDP socket"))?;
        let bytes = (RECEIVE + TRANSMIT) as usize * chunk as usize;
        let memory = Memory::anonymous(bytes).map_err(fail("cannot map memory for frames"))?;
        let mut registration: xdp_umem_reg = zeroed();
        registration.addr = memory.address();
        registration.len = bytes as u64;
        registration.chunk_size = chunk;
        set_option(
            socket.as_fd(),
            libc::SOL_XDP,
            libc::XDP_UMEM_REG,
            &registration,
        )
        .map_err(fail(
            "cannot register memory for frames (ulimit -l, without CAP_IPC_LOCK)",
        ))?;
        for (ring, size) in [
            (libc::XDP_UMEM_FILL_RING, RECEIVE),
            (libc::XDP_UMEM_COMPLETION_RING, TRANSMIT),
            (libc::XDP_RX_RING, RECEIVE),
            (libc::XDP_TX_RING, TRANSMIT),
        ] {
            set_option(socket.as_fd(), libc::SOL_XDP, ring, &size)
                .map_err(fail("cannot make a ring"))?;
        }
        let offsets: xdp_mmap_offsets =
            get_option(socket.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
                .map_err(fail("cannot find the rings"))?;
        let map = |place: Place| place.map(socket.as_fd()).map_err(fail("cannot map a ring"));
        let address = Place::Address;
        let mut fill = Producer::new(map(address(
            libc::XDP_UMEM_PGOFF_FILL_RING,
            offsets.fr,
            RECEIVE,
        ))?);
        let completed = Consumer::new(map(address(
            libc::XDP_UMEM_PGOFF_COMPLETION_RING,
            offsets.cr,
            TRANSMIT,
        ))?);
        let place = || Place::Descriptor(libc::XDP_PGOFF_RX_RING as u64, offsets.rx, RECEIVE);
        let received = Consumer::new(map(place())?);
        let arrived = Some(Watcher::new(map(place())?));
        let transmit = Producer::new(map(Place::Descriptor(
            libc::XDP_PGOFF_TX_RING as u64,
            offsets.tx,
            TRANSMIT,
        ))?);
        for index in 0..RECEIVE {
            fill.push(u64::from(index) * u64::from(chunk), 0);
        }
        fill.submit();
        let mut target: sockaddr_xdp = zeroed();
        target.sxdp_family = libc::AF_XDP as u16;
        target.sxdp_flags = libc::XDP_USE_NEED_WAKEUP;
        target.sxdp_ifindex = interface.index;
        target.sxdp_queue_id = queue;
        bind_when_free(socket.as_fd(), &target).map_err(fail(
            "cannot bind an AF_XDP socket (busy: another socket has this queue)",
        ))?;
        let options: u32 =
            get_option(socket.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS).unwrap_or(0);
        // Frames in transmission count against it; the default is full after 200.
        let _ = set_option(
            socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            &((4 << 20) as c_int),
        );
        Ok(Self {
            socket: Arc::new(socket),
            memory,
            fill,
            received,
            arrived,
            processed: Arc::default(),
            transmit,
            completed,
            without_copies: options & libc::XDP_OPTIONS_ZEROCOPY != 0,
        })
    }
}

impl Opened {
    /// Returns the view of its receive ring for another thread. Only once.
    pub(super) fn progress(&mut self) -> Option<Progress> {
        Some(Progress {
            arrived: self.arrived.take()?,
            processed: Arc::clone(&self.processed),
        })
    }
}

/// Binds a socket, waiting until the kernel has freed the queue of a terminated process.
fn bind_when_free(socket: BorrowedFd<'_>, target: &sockaddr_xdp) -> io::Result<()> {
    let end = Instant::now() + RELEASE;
    loop {
        match bind(socket, target) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}
