//! AF_XDP: frames bypass the kernel's own stack on receiving, and its queueing disciplines on sending.
//!
//! A program on the interface redirects every frame of a receive queue to the queue's socket. The kernel copies frames into and out of shared
//! memory (or avoids the copies where the driver can). When the process ends, for whatever reason, the program is detached. `beside` serves
//! queues that the interface gets later.

mod assembly;
mod beside;
mod bpf;
mod card;
mod marking;
mod memory;
mod opened;
mod program;
mod ring;
mod steered;

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc,
    },
};

use libc::{c_int, xdp_statistics};

use crate::{
    checksum,
    error::{system, PortError},
    frame::Frame,
    interface::Interface,
    matching::Matcher,
    ntuple::Rules,
    packet::{Packet, MAX_FRAME},
    packet_socket::sockets,
    queue::{Backend, Event, Events, Port, Queue},
    segment::finish,
    system::{check, get_option, Plain},
    wanted::Matching,
};
use beside::Beside;
use card::Card;
use marking::{Marking, Marks, Progress};
use memory::Memory;
use opened::{Opened, RECEIVE, TRANSMIT};
use program::{attach, Attached};
use ring::{Consumer, Producer};
use steered::{QueueMarks, Steered};

/// The space that the kernel keeps free in front of a received frame (XDP_PACKET_HEADROOM).
const KERNEL_HEADROOM: u32 = 256;
/// The length of an Ethernet header with two VLAN tags.
const LINK_HEADER: u32 = 22;
/// Attempts to make the kernel send before frames are dropped; each attempt sends 32.
const KICKS: usize = 256;
/// Drivers of virtual interfaces. The peer may leave checksums to a network card that does not exist, and AF_XDP does not report it.
const VIRTUAL: [&str; 3] = ["veth", "tun", "virtio_net"];

// SAFETY: integers only.
unsafe impl Plain for xdp_statistics {}

/// One socket with its rings and its memory: chunks 0..RECEIVE are for receiving, the others for sending.
struct XdpQueue {
    socket: Arc<OwnedFd>,
    /// Keeps the program attached as long as a queue exists.
    _attached: Arc<Attached>,
    /// Of the first queue of a worker.
    beside: Option<Beside>,
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

/// Opens an interface with this many queues, each for a worker.
pub(crate) fn open(
    interface: &Interface,
    port: usize,
    queues: usize,
    matching: Matching,
) -> Result<Port, PortError> {
    let name = &interface.name;
    let fail = |what| system(name, what);
    let chunk = chunk_size(interface)?;
    let received = match matching {
        Matching::Card => card::queues(interface, queues)?,
        _ => own_queues(interface, queues)?,
    };
    let marks = match matching {
        Matching::Program(flows) => {
            let marks = marking::marks(flows).map_err(fail("cannot make a BPF map of flows"))?;
            Some(Arc::new(marks))
        }
        _ => None,
    };
    let mut opened = (0..received)
        .map(|queue| Opened::new(interface, queue, chunk))
        .collect::<Result<Vec<_>, _>>()?;
    let sockets: Vec<Arc<OwnedFd>> = opened.iter().map(|each| Arc::clone(&each.socket)).collect();
    let program = attach(interface, &sockets, marks.as_deref())?;
    let rings: Vec<Progress> = opened.iter_mut().filter_map(Opened::progress).collect();
    let copies = opened.iter().any(|each| !each.without_copies);
    let how = format!(
        "{}, {}, {received} queue(s)",
        program.mode,
        if copies { "copy mode" } else { "zero copy" }
    );
    let completes_checksums = !program.is_native || VIRTUAL.contains(&interface.driver.as_str());
    let attached = Arc::new(program);
    // After the program is attached, so that frames it redirects do not arrive here. These sockets also make the interface accept all addresses.
    let beside = sockets::open(interface, queues, &[])?;
    let events: Vec<Arc<Events>> = (0..queues).map(|_| Arc::default()).collect();
    let queue = |(at, each): (usize, Opened)| XdpQueue {
        socket: each.socket,
        _attached: Arc::clone(&attached),
        beside: beside
            .get(at)
            .map(|beside| Beside::new(beside, port, &events[at])),
        memory: each.memory,
        chunk,
        fill: each.fill,
        received: each.received,
        processed: each.processed,
        has_marks: marks.is_some(),
        transmit: each.transmit,
        completed: each.completed,
        free: (RECEIVE..RECEIVE + TRANSMIT)
            .map(|index| u64::from(index) * u64::from(chunk))
            .collect(),
        port,
        completes_checksums,
        events: Arc::clone(&events[at.min(queues - 1)]),
        buffer: Vec::new(),
    };
    let boxed = |each| Box::new(queue(each)) as Box<dyn Queue>;
    let all = opened.into_iter().enumerate().map(boxed).collect();
    let (queues, matcher) = matched(interface, all, matching, marks, rings)?;
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
        matcher,
        events,
        overruns: Box::new(move || {
            let lost: u64 = sockets.iter().map(|socket| lost(socket.as_fd())).sum();
            lost + lost_beside()
        }),
    })
}

/// Checks that the interface has a receive queue for each worker.
fn own_queues(interface: &Interface, queues: usize) -> Result<u32, PortError> {
    let name = &interface.name;
    if interface.queues as usize == queues {
        return Ok(interface.queues);
    }
    let reason = format!(
        "it has {} receive queue(s) for {queues} workers, but AF_XDP needs one per worker: ethtool -L {name} combined {queues} \
         (veth: rx {queues} tx {queues}), or --workers {}",
        interface.queues, interface.queues
    );
    Err(PortError::Unfit {
        interface: name.clone(),
        reason,
    })
}

type Matched = (Vec<Box<dyn Queue>>, Option<Box<dyn Matcher>>);

/// Returns the workers' queues, and the matches that mark their frames.
fn matched(
    interface: &Interface,
    all: Vec<Box<dyn Queue>>,
    matching: Matching,
    marks: Option<Arc<Marks>>,
    rings: Vec<Progress>,
) -> Result<Matched, PortError> {
    let fail = |what| system(&interface.name, what);
    let matcher: Option<Box<dyn Matcher>> = match (matching, marks) {
        (Matching::Program(flows), Some(marks)) => {
            let marking = Marking::new(marks, flows, rings);
            Some(Box::new(
                marking.map_err(fail("cannot make a BPF map of maps"))?,
            ))
        }
        (Matching::Card, _) => {
            let marks = Arc::new(QueueMarks::new(all.len()));
            let card = Rules::new(&interface.name)
                .and_then(|rules| Card::new(rules, Arc::clone(&marks), rings));
            let card = card.map_err(fail("its driver has no rules for flows (ethtool -N)"))?;
            let steered = Steered::new(all, marks).map_err(fail("cannot wait for its queues"))?;
            return Ok((vec![Box::new(steered)], Some(Box::new(card))));
        }
        _ => None,
    };
    Ok((all, matcher))
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
        let beside = self.beside.as_mut();
        Ok(kept + beside.map_or(0, |beside| beside.receive(&mut into[kept..])))
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
        self.beside.as_ref()?.descriptor()
    }
}
