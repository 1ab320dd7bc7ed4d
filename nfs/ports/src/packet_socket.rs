//! AF_PACKET: works on every interface; the kernel's own stack sees the same frames.
//!
//! It uses plain sockets with many frames per call. Several workers have one socket each in a fanout group, over which the kernel spreads flows (`steering`).

pub(crate) mod sockets;
mod steering;
mod virtio;

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use libc::{c_int, iovec, mmsghdr};

use crate::{
    checksum,
    error::PortError,
    frame::{Frame, Offloads},
    interface::Interface,
    packet::{Packet, MAX_FRAME},
    queue::{Backend, Event, Events, Port, Queue},
    system::{check, ioctl, zeroed, Plain},
    wanted::Wanted,
};
use virtio::VirtioHeader;

/// The maximum of frames per call.
const BURST: usize = 64;
/// The size of the first call: usually few frames wait, and each one requested costs time.
const FIRST_BURST: usize = 4;

/// The room for one `tpacket_auxdata` beside a frame.
const CONTROL: usize = 64;
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// `struct tpacket_auxdata`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Auxiliary {
    status: u32,
    length: u32,
    captured: u32,
    mac: u16,
    net: u16,
    vlan_tci: u16,
    vlan_tpid: u16,
}
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

// SAFETY: integers only.
unsafe impl Plain for Auxiliary {}
// SAFETY: integers and pointers; null pointers are valid values of those.
unsafe impl Plain for mmsghdr {}
// SAFETY: an integer and a pointer, which may be null.
unsafe impl Plain for iovec {}

/// The buffers of a call, reused because setting them up is expensive.
struct Buffers {
    headers: [VirtioHeader; BURST],
    controls: [Control; BURST],
    vectors: [[iovec; 2]; BURST],
    messages: [mmsghdr; BURST],
}

// SAFETY: each call sets the pointers before it uses them; they are meaningless between calls.
unsafe impl Send for Buffers {}

pub(crate) struct PacketQueue {
    socket: Arc<OwnedFd>,
    port: usize,
    burst: usize,
    buffers: Box<Buffers>,
    events: Arc<Events>,
}

/// Opens an interface.
pub(crate) fn open(
    interface: &Interface,
    port: usize,
    wanted: &Wanted<'_>,
) -> Result<Port, PortError> {
    let name = &interface.name;
    let sockets = sockets::open(interface, wanted.queues, wanted.own)?;
    let mut notes = Vec::new();
    if interface.merges && !wanted.large {
        notes.push(format!(
            "{name} merges frames (GRO, LRO), and merged frames above {MAX_FRAME} bytes are dropped: ethtool -K {name} gro off lro off"
        ));
    }
    let buffer = sockets::receive_buffer(&sockets[0]);
    if buffer < sockets::BUFFER {
        notes.push(format!(
            "{name}: a receive buffer of {buffer} bytes, expected {}: run it as root, or raise net.core.rmem_max",
            sockets::BUFFER
        ));
    }
    let events: Vec<Arc<Events>> = sockets.iter().map(|_| Arc::default()).collect();
    let queues = sockets
        .iter()
        .zip(&events)
        .map(|(socket, events)| Box::new(PacketQueue::new(socket, port, events)) as Box<dyn Queue>);
    Ok(Port {
        name: name.clone(),
        backend: Backend::Packet,
        how: format!("{} socket(s)", sockets.len()),
        notes,
        mac: interface.mac,
        state: interface.watch(),
        queues: queues.collect(),
        matcher: None,
        events,
        overruns: sockets::overruns(sockets),
    })
}

impl PacketQueue {
    /// Creates a queue on a socket of [`sockets::open`].
    pub(crate) fn new(socket: &Arc<OwnedFd>, port: usize, events: &Arc<Events>) -> Self {
        Self {
            socket: Arc::clone(socket),
            port,
            burst: FIRST_BURST,
            buffers: Box::new(Buffers {
                headers: [VirtioHeader::COMPLETE; BURST],
                controls: [Control([0; CONTROL]); BURST],
                vectors: [[zeroed(); 2]; BURST],
                messages: [zeroed(); BURST],
            }),
            events: Arc::clone(events),
        }
    }

    /// Receives at most `BURST` frames by one call; returns the number of messages.
    fn receive_messages(&mut self, into: &mut [Packet]) -> io::Result<usize> {
        let buffers = &mut *self.buffers;
        for (index, packet) in into.iter_mut().enumerate() {
            let space = packet.space();
            buffers.vectors[index] = [
                vector(
                    std::ptr::from_mut(&mut buffers.headers[index]).cast(),
                    size_of::<VirtioHeader>(),
                ),
                vector(space.as_mut_ptr().cast(), space.len()),
            ];
            let header = &mut buffers.messages[index].msg_hdr;
            header.msg_iov = buffers.vectors[index].as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = buffers.controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL as _;
        }
        // SAFETY: the first `into.len()` messages, at most BURST, point to buffers of the lengths they state: those of `buffers` and the space of
        // the packets in `into`, all of which outlive the call and are borrowed exclusively.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                buffers.messages.as_mut_ptr(),
                into.len() as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        match check(count) {
            Ok(count) => Ok(count as usize),
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    || error.kind() == io::ErrorKind::Interrupted =>
            {
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a packet of the message with this index. Returns false if it cannot be processed.
    fn accept(&self, index: usize, packet: &mut Packet) -> bool {
        let message = &self.buffers.messages[index];
        let header = self.buffers.headers[index];
        let Some(length) = (message.msg_len as usize).checked_sub(size_of::<VirtioHeader>()) else {
            return false;
        };
        if header.has_segments() && !packet.is_large() {
            self.events.add(Event::Unsegmented, 1);
            return false;
        }
        if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            self.events.add(Event::TooLong, 1);
            return false;
        }
        let Some(offloads) = header.offloads(length) else {
            self.events.add(Event::Unsegmented, 1);
            return false;
        };
        packet.received(self.port, length);
        match offloads {
            Offloads::None => {}
            Offloads::Checksum(checksum) if !packet.is_large() => {
                let (start, field) = (checksum.start.into(), checksum.field.into());
                if checksum::complete(packet.bytes_mut(), start, field) {
                    self.events.add(Event::ChecksumCompleted, 1);
                }
            }
            Offloads::Checksum(_) => packet.set_offloads(offloads),
            Offloads::Segments(..) => {
                packet.set_offloads(offloads);
                self.events.add(Event::Merged, 1);
            }
        }
        if let Some(tag) = self.tag(index) {
            insert_tag(packet, tag);
        }
        true
    }

    /// Returns the VLAN tag that the kernel removed from a frame: EtherType and content.
    fn tag(&self, index: usize) -> Option<[u8; 4]> {
        let control = &self.buffers.controls[index];
        #[allow(clippy::unnecessary_cast)] // With musl it is a u32.
        let used = (self.buffers.messages[index].msg_hdr.msg_controllen as usize).min(CONTROL);
        let data = used.checked_sub(size_of::<libc::cmsghdr>())?;
        if data < size_of::<Auxiliary>() {
            return None;
        }
        // SAFETY: `control` has 64 bytes, aligned to 8: room for a `cmsghdr` at its start, and after it, where CMSG_DATA points on 64-bit Linux, for an `Auxiliary`.
        // Both are plain integers, for which any bytes are valid.
        let (header, auxiliary) = unsafe {
            let header = control.0.as_ptr().cast::<libc::cmsghdr>();
            (header.read(), header.add(1).cast::<Auxiliary>().read())
        };
        let is_auxiliary =
            header.cmsg_level == libc::SOL_PACKET && header.cmsg_type == libc::PACKET_AUXDATA;
        if !is_auxiliary || auxiliary.status & STATUS_VLAN_VALID == 0 {
            return None;
        }
        let ethertype = if auxiliary.status & STATUS_VLAN_TPID_VALID == 0 {
            0x8100
        } else {
            auxiliary.vlan_tpid
        };
        let ([a, b], [c, d]) = (ethertype.to_be_bytes(), auxiliary.vlan_tci.to_be_bytes());
        Some([a, b, c, d])
    }
}

fn vector(base: *mut libc::c_void, length: usize) -> iovec {
    iovec {
        iov_base: base,
        iov_len: length,
    }
}

fn insert_tag(packet: &mut Packet, tag: [u8; 4]) {
    const ADDRESSES: usize = 12;
    if packet.len() < ADDRESSES {
        return;
    }
    // There is reserved room for it besides the headroom.
    if let Some(bytes) = packet.push_front(tag.len()) {
        bytes.copy_within(tag.len()..tag.len() + ADDRESSES, 0);
        bytes[ADDRESSES..ADDRESSES + tag.len()].copy_from_slice(&tag);
    }
}

impl Queue for PacketQueue {
    fn receive(&mut self, into: &mut [Packet]) -> io::Result<usize> {
        let mut kept = 0;
        loop {
            let asked = self.burst.min(into.len() - kept);
            if asked == 0 {
                return Ok(kept);
            }
            let count = match self.receive_messages(&mut into[kept..kept + asked]) {
                Ok(count) => count,
                // If the error persists, the next call reports it.
                Err(_) if kept > 0 => return Ok(kept),
                Err(error) => return Err(error),
            };
            let first = kept;
            for index in 0..count {
                if self.accept(index, &mut into[first + index]) {
                    // Frames that were not accepted leave gaps.
                    into.swap(kept, first + index);
                    kept += 1;
                }
            }
            if count < asked {
                self.burst = FIRST_BURST;
                return Ok(kept);
            }
            self.burst = BURST;
        }
    }

    fn transmit(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut taken = 0;
        for chunk in frames.chunks(BURST) {
            taken += self.transmit_chunk(chunk);
        }
        self.events
            .add(Event::NotSent, (frames.len() - taken) as u64);
        taken
    }

    /// Tells whether all frames have left. Queueing disciplines may delay frames; these count until the driver, or the peer of a veth, has them.
    fn flush(&mut self) -> bool {
        let mut under_way: c_int = 0;
        // If the kernel cannot tell, there is nothing to wait for.
        ioctl(self.socket.as_fd(), libc::TIOCOUTQ, &mut under_way).is_err() || under_way == 0
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

impl PacketQueue {
    /// Sends a chunk. A refused frame (longer than the MTU, for example) is skipped; if nothing can be sent any more, so is the rest.
    fn transmit_chunk(&mut self, frames: &[Frame<'_>]) -> usize {
        let buffers = &mut *self.buffers;
        for (index, frame) in frames.iter().enumerate() {
            let (bytes, header) = (frame.bytes, &mut buffers.headers[index]);
            *header = VirtioHeader::of(frame);
            buffers.vectors[index] = [
                vector(std::ptr::from_mut(header).cast(), size_of::<VirtioHeader>()),
                vector(bytes.as_ptr().cast_mut().cast(), bytes.len()),
            ];
            let header = &mut buffers.messages[index].msg_hdr;
            header.msg_iov = buffers.vectors[index].as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
        }
        let (mut next, mut taken) = (0, 0);
        while next < frames.len() {
            let rest = &mut buffers.messages[next..frames.len()];
            // SAFETY: the messages point to `headers` of the buffers and to the frames, which outlive the call and are only read by the kernel.
            let count = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as u32,
                    libc::MSG_DONTWAIT,
                )
            };
            match check(count) {
                Ok(count) => {
                    next += count as usize;
                    taken += count as usize;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // This frame was refused; others may pass.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL)) =>
                {
                    next += 1
                }
                // The queue is full, or the interface is down.
                Err(_) => break,
            }
        }
        taken
    }
}
