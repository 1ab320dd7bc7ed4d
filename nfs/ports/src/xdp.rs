//! AF_XDP: frames bypass the kernel's own stack on receiving, and its queueing disciplines on sending.
//!
//! A program on the interface redirects every frame of a receive queue to the queue's socket. The kernel copies frames into and out of shared
//! memory (or avoids the copies where the driver can). When the process ends, for whatever reason, the program is detached. `beside` serves
//! queues that the interface gets later.

mod assembly;
mod beside;
mod bpf;
mod marking;
mod memory;
mod program;
mod ring;

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use libc::{c_int, sockaddr_xdp, xdp_mmap_offsets, xdp_statistics, xdp_umem_reg};

use crate::{
    checksum,
    error::{system, PortError},
    frame::Frame,
    interface::Interface,
    matching::Matcher,
    packet::{Packet, MAX_FRAME},
    packet_socket::sockets,
    queue::{Backend, Event, Events, Port, Queue},
    segment::finish,
    system::{bind, check, get_option, set_option, socket, zeroed, Plain},
};
use beside::Beside;
use marking::{Marking, Progress};
use memory::Memory;
use program::{attach, Attached};
use ring::{Consumer, Place, Producer, Watcher};

/// The capacity of the receive rings in frames: some milliseconds of a busy port. A power of two.
const RECEIVE: u32 = 4096;
/// The capacity of the transmit rings in frames. A power of two.
const TRANSMIT: u32 = 1024;
/// The space that the kernel keeps free in front of a received frame (XDP_PACKET_HEADROOM).
const KERNEL_HEADROOM: u32 = 256;
/// The length of an Ethernet header with two VLAN tags.
const LINK_HEADER: u32 = 22;
/// Attempts to make the kernel send before frames are dropped; each attempt sends 32.
const KICKS: usize = 256;
/// The time for which a terminated process may still occupy a queue.
const RELEASE: Duration = Duration::from_secs(2);
/// Drivers of virtual interfaces. The peer may leave checksums to a network card that does not exist, and AF_XDP does not report it.
const VIRTUAL: [&str; 3] = ["veth", "tun", "virtio_net"];

// SAFETY: integers only.
unsafe impl Plain for sockaddr_xdp {}
// SAFETY: integers only.
unsafe impl Plain for xdp_mmap_offsets {}
// SAFETY: integers only.
unsafe impl Plain for xdp_statistics {}
// SAFETY: integers only.
unsafe impl Plain for xdp_umem_reg {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}

/// One socket with its rings and its memory: chunks 0..RECEIVE are for receiving, the others for sending.
struct XdpQueue {
    socket: Arc<OwnedFd>,
    /// Keeps the program attached as long as a queue exists.
    _attached: Arc<Attached>,
    beside: Beside,
    memory: Memory,
    chunk: u32,
    fill: Producer,
    received: Consumer,
    /// The number of received frames that were processed, for another thread.
    processed: Arc<AtomicU32>,
    /// Whether a mark is in front of each frame.
    has_marks: bool,
    transmit: Producer,
    completed: Consumer,
    /// Chunks for sending that are neither in the ring nor in transmission.
    free: Vec<u64>,
    port: usize,
    completes_checksums: bool,
    events: Arc<Events>,
    /// Memory for segments.
    buffer: Vec<u8>,
}

/// Opens an interface with this many queues. `matches`: the number of flows whose frames can get a mark.
pub(crate) fn open(
    interface: &Interface,
    port: usize,
    queues: usize,
    matches: Option<u32>,
) -> Result<Port, PortError> {
    let name = &interface.name;
    let chunk = chunk_size(interface)?;
    if interface.queues as usize != queues {
        let reason = format!(
            "it has {} receive queue(s) for {queues} workers, but AF_XDP needs one per worker: ethtool -L {name} combined {queues} \
             (veth: rx {queues} tx {queues}), or --workers {}",
            interface.queues, interface.queues
        );
        return Err(PortError::Unfit {
            interface: name.clone(),
            reason,
        });
    }
    let fail = |what| system(name, what);
    let marks = matches.map(marking::marks).transpose();
    let marks = marks
        .map_err(fail("cannot make a BPF map of flows"))?
        .map(Arc::new);
    let mut opened = (0..queues as u32)
        .map(|queue| Opened::new(interface, queue, chunk))
        .collect::<Result<Vec<_>, _>>()?;
    let sockets: Vec<Arc<OwnedFd>> = opened.iter().map(|each| Arc::clone(&each.socket)).collect();
    let program = attach(interface, &sockets, marks.as_deref())?;
    let rings = opened.iter_mut().filter_map(Opened::progress).collect();
    let matcher = marks
        .zip(matches)
        .map(|(marks, flows)| Marking::new(marks, flows, rings));
    let matcher = matcher
        .transpose()
        .map_err(fail("cannot make a BPF map of maps"))?;
    let copies = opened.iter().any(|each| !each.without_copies);
    let how = format!(
        "{}, {}, {queues} queue(s)",
        program.mode,
        if copies { "copy mode" } else { "zero copy" }
    );
    let completes_checksums = !program.is_native || VIRTUAL.contains(&interface.driver.as_str());
    let attached = Arc::new(program);
    // After the program is attached, so that frames it redirects do not arrive here. These sockets also make the interface accept all addresses.
    let beside = sockets::open(interface, queues, &[])?;
    let events: Vec<Arc<Events>> = opened.iter().map(|_| Arc::default()).collect();
    let each = opened.into_iter().zip(&events).zip(&beside);
    let queues = each.map(|((each, events), beside)| {
        let queue = XdpQueue {
            socket: each.socket,
            _attached: Arc::clone(&attached),
            beside: Beside::new(beside, port, events),
            memory: each.memory,
            chunk,
            fill: each.fill,
            received: each.received,
            processed: each.processed,
            has_marks: matcher.is_some(),
            transmit: each.transmit,
            completed: each.completed,
            free: (RECEIVE..RECEIVE + TRANSMIT)
                .map(|index| u64::from(index) * u64::from(chunk))
                .collect(),
            port,
            completes_checksums,
            events: Arc::clone(events),
            buffer: Vec::new(),
        };
        Box::new(queue) as Box<dyn Queue>
    });
    let queues = queues.collect();
    let lost_beside = sockets::overruns(beside);
    Ok(Port {
        name: name.clone(),
        backend: Backend::Xdp,
        how,
        notes: vec![format!(
            "{name}: frames sent by AF_XDP bypass queueing disciplines (tc)"
        )],
        mac: interface.mac,
        state: interface.watch(),
        queues,
        matcher: matcher.map(|matcher| Box::new(matcher) as Box<dyn Matcher>),
        events,
        overruns: Box::new(move || {
            let lost: u64 = sockets.iter().map(|socket| lost(socket.as_fd())).sum();
            lost + lost_beside()
        }),
    })
}

/// Returns the size of a chunk, which must hold the longest frame of the interface.
fn chunk_size(interface: &Interface) -> Result<u32, PortError> {
    let longest = interface.mtu + LINK_HEADER + KERNEL_HEADROOM;
    [2048, 4096]
        .into_iter()
        .find(|size| *size >= longest)
        .ok_or_else(|| PortError::Unfit {
            interface: interface.name.clone(),
            reason: format!(
                "its MTU is {}, but AF_XDP takes at most {} here: ip link set {} mtu {1}",
                interface.mtu,
                4096 - LINK_HEADER - KERNEL_HEADROOM,
                interface.name,
            ),
        })
}

fn lost(socket: BorrowedFd<'_>) -> u64 {
    let statistics = get_option::<xdp_statistics>(socket, libc::SOL_XDP, libc::XDP_STATISTICS);
    statistics.map_or(0, |counts| counts.rx_dropped + counts.rx_ring_full)
}

/// A socket bound to a receive queue, before any frame arrives.
struct Opened {
    socket: Arc<OwnedFd>,
    memory: Memory,
    fill: Producer,
    received: Consumer,
    /// Taken by [`progress`](Self::progress).
    arrived: Option<Watcher>,
    processed: Arc<AtomicU32>,
    transmit: Producer,
    completed: Consumer,
    without_copies: bool,
}

impl Opened {
    fn new(interface: &Interface, queue: u32, chunk: u32) -> Result<Self, PortError> {
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
    fn progress(&mut self) -> Option<Progress> {
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

impl XdpQueue {
    /// Reclaims chunks that have been sent.
    fn reclaim(&mut self) {
        while let Some((address, _)) = self.completed.pop() {
            self.free.push(address);
        }
        self.completed.release();
    }

    /// Makes the kernel send the frames in the ring; returns an error if it persists.
    fn kick(&mut self) -> io::Result<()> {
        for _ in 0..KICKS {
            if self.transmit.is_empty() {
                return Ok(());
            }
            // SAFETY: no memory is passed.
            let sent = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            match check(sent as c_int) {
                // One call sends only a part.
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {
                        self.reclaim()
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// The result of putting a frame into the transmit ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Put {
    Taken,
    /// It is too long, empty, or has offloads that do not fit it.
    Refused,
    /// No frame can leave now.
    Full,
}

impl XdpQueue {
    #[inline]
    fn put(&mut self, frame: &[u8]) -> Put {
        if self.free.is_empty() {
            self.transmit.submit();
            // Frames that cannot leave now are counted by `transmit`, with those that found no chunk.
            let _ = self.kick();
            self.reclaim();
        }
        if frame.len() > self.chunk as usize || frame.is_empty() {
            return Put::Refused;
        }
        let Some(address) = self.free.pop() else {
            return Put::Full;
        };
        self.memory.write(address, frame);
        self.transmit.push(address, frame.len() as u32);
        Put::Taken
    }

    /// Puts a frame into the ring after completing its checksum and splitting it: AF_XDP has no offloads.
    fn put_finished(&mut self, frame: Frame<'_>) -> Put {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut put = Put::Taken;
        let finished = finish(frame, &mut buffer, |segment| {
            if put == Put::Taken {
                put = self.put(segment);
            }
        });
        self.buffer = buffer;
        if finished.is_ok() {
            put
        } else {
            Put::Refused
        }
    }
}

impl Queue for XdpQueue {
    fn receive(&mut self, into: &mut [Packet]) -> io::Result<usize> {
        let mut kept = 0;
        // The worker processes all frames of a call before the next one.
        self.processed
            .store(self.received.read(), Ordering::Release);
        while kept < into.len() {
            let Some((address, length)) = self.received.pop() else {
                break;
            };
            let length = length as usize;
            let packet = &mut into[kept];
            if length <= MAX_FRAME {
                self.memory.read(address, &mut packet.space()[..length]);
                packet.received(self.port, length);
                if self.has_marks {
                    let mut mark = [0; marking::BYTES];
                    let at = address.saturating_sub(marking::BYTES as u64);
                    self.memory.read(at, &mut mark);
                    packet.set_mark(marking::mark_of(mark));
                }
                if self.completes_checksums && checksum::complete_if_partial(packet.bytes_mut()) {
                    self.events.add(Event::ChecksumCompleted, 1);
                }
                kept += 1;
            } else {
                self.events.add(Event::TooLong, 1);
            }
            // The kernel returns the position of the frame; the chunk begins before it.
            self.fill.push(address - address % u64::from(self.chunk), 0);
        }
        self.received.release();
        self.fill.submit();
        if self.fill.needs_wakeup() {
            // SAFETY: no memory is passed.
            unsafe {
                libc::recvfrom(
                    self.socket.as_raw_fd(),
                    std::ptr::null_mut(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                )
            };
        }
        Ok(kept + self.beside.receive(&mut into[kept..]))
    }

    fn transmit(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut taken = 0;
        for frame in frames {
            let put = if frame.offloads.is_none() {
                self.put(frame.bytes)
            } else {
                self.put_finished(*frame)
            };
            match put {
                Put::Taken => taken += 1,
                Put::Refused => {}
                Put::Full => break,
            }
        }
        self.transmit.submit();
        // An interface that is down keeps the frames in the ring until it is up.
        let _ = self.kick();
        self.reclaim();
        self.events
            .add(Event::NotSent, (frames.len() - taken) as u64);
        taken
    }

    fn flush(&mut self) -> bool {
        let _ = self.kick();
        self.reclaim();
        self.free.len() == TRANSMIT as usize
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn second_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.beside.descriptor()
    }
}
