//! A packet: a frame's bytes with room around them, its port of arrival, and its verdict.

use crate::frame::{Frame, Offloads, MAX_LARGE_FRAME};

/// The minimum room in front of a received frame, for headers that a network function adds.
pub const HEADROOM: usize = 128;

/// The longest frame, from the destination MAC address on, without checksum: somewhat more than 9,216 bytes.
pub const MAX_FRAME: usize = 9472;

/// The position of a received frame: after the headroom and room for a VLAN tag that the kernel removed.
const START: usize = HEADROOM + 64;

/// An odd number of cache lines, so that the packets' headers do not share a few sets of the cache.
const STORAGE: usize = START + MAX_FRAME;
const LARGE_STORAGE: usize = START + MAX_LARGE_FRAME;
const _: () = assert!(STORAGE % 128 == 64 && LARGE_STORAGE % 128 == 64);

/// A MAC address.
pub type Mac = [u8; 6];

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it by the port with this index.
    Send(usize),
    /// Drop it, counted under this reason: a few words, the same for all packets of the kind.
    Drop(&'static str),
}

impl Verdict {
    /// The verdict of an undecided packet.
    pub const NONE: Self = Self::Drop("no verdict");
}

/// A frame in its own buffer, with at least [`HEADROOM`] bytes in front when received.
pub struct Packet {
    storage: Box<[u8]>,
    start: usize,
    end: usize,
    port: usize,
    verdict: Verdict,
    offloads: Offloads,
    /// The value of `start` when `offloads` was set: offsets in it count from there.
    offloads_from: usize,
    mark: Option<u32>,
}

impl Default for Packet {
    fn default() -> Self {
        Self::new()
    }
}

impl Packet {
    /// Creates an empty packet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_storage(STORAGE)
    }

    /// Creates an empty packet that can hold frames of several segments, up to [`MAX_LARGE_FRAME`], and keeps checksums partial.
    #[must_use]
    pub fn large() -> Self {
        Self::with_storage(LARGE_STORAGE)
    }

    fn with_storage(bytes: usize) -> Self {
        Self {
            storage: vec![0; bytes].into_boxed_slice(),
            start: START,
            end: START,
            port: 0,
            verdict: Verdict::NONE,
            offloads: Offloads::None,
            offloads_from: START,
            mark: None,
        }
    }

    /// Tells whether it can hold frames of several segments.
    #[inline]
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.storage.len() == LARGE_STORAGE
    }

    /// Returns the length of the longest frame that it can receive.
    #[inline]
    #[must_use]
    pub fn longest(&self) -> usize {
        self.storage.len() - START
    }

    /// Returns the frame, from the destination MAC address on, without checksum.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.end]
    }

    /// Returns the frame with its offloads.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> Frame<'_> {
        Frame {
            bytes: self.bytes(),
            offloads: self.offloads(),
        }
    }

    /// Returns what the sender left to a network card. Only a [large](Self::large) packet has offloads; a function that adds or removes bytes in front
    /// of the TCP header with [`push_front`](Self::push_front) or [`pop_front`](Self::pop_front) need not adjust them.
    #[inline]
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        let Some(checksum) = self.offloads.checksum() else {
            return Offloads::None;
        };
        let start = usize::from(checksum.start) + self.offloads_from;
        let start = start.checked_sub(self.start).map(u16::try_from);
        match start {
            Some(Ok(start)) => self.offloads.with_start(start),
            // The header is no longer in the frame.
            _ => Offloads::None,
        }
    }

    /// Sets what is left to the output, which completes or splits the frame as this says.
    #[inline]
    pub fn set_offloads(&mut self, offloads: Offloads) {
        self.offloads = offloads;
        self.offloads_from = self.start;
    }

    /// Returns the frame's length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the index of the port by which it arrived.
    #[inline]
    #[must_use]
    pub fn port(&self) -> usize {
        self.port
    }

    /// Returns the number of bytes that [`push_front`](Self::push_front) can still add.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Returns the number of bytes that [`push_back`](Self::push_back) can still add.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.storage.len() - self.end
    }

    /// Extends the frame by `count` bytes in front and returns the whole frame; the content of the new bytes is undefined. Leaves the
    /// frame unchanged and returns None if the buffer has fewer free bytes in front of it.
    #[inline]
    #[must_use]
    pub fn push_front(&mut self, count: usize) -> Option<&mut [u8]> {
        self.start = self.start.checked_sub(count)?;
        Some(self.bytes_mut())
    }

    /// Removes `count` bytes in front and returns the rest. Leaves the frame unchanged and returns None if it is shorter.
    #[inline]
    #[must_use]
    pub fn pop_front(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.len() {
            return None;
        }
        self.start += count;
        Some(self.bytes_mut())
    }

    /// Extends the frame by `count` bytes at its end and returns the whole frame; the content of the new bytes is undefined. Leaves
    /// the frame unchanged and returns None if the buffer has fewer free bytes behind it.
    #[inline]
    #[must_use]
    pub fn push_back(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.tailroom() {
            return None;
        }
        self.end += count;
        Some(self.bytes_mut())
    }

    /// Removes `removed` bytes in front, adds `added` there, and gives the frame a length, all at once; returns the whole frame. The content of new bytes
    /// is undefined. Leaves the frame unchanged and returns None if the buffer is too short for the new one.
    #[inline]
    #[must_use]
    pub fn reframe(&mut self, removed: usize, added: usize, length: usize) -> Option<&mut [u8]> {
        let start = self.start.checked_add(removed)?.checked_sub(added)?;
        let end = start.checked_add(length)?;
        let frame = self.storage.get_mut(start..end)?;
        (self.start, self.end) = (start, end);
        Some(frame)
    }

    /// Truncates the frame to `length` bytes; a shorter frame stays unchanged.
    #[inline]
    pub fn truncate(&mut self, length: usize) {
        self.end = self.end.min(self.start.saturating_add(length));
    }

    #[inline]
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    #[inline]
    pub fn set_verdict(&mut self, verdict: Verdict) {
        self.verdict = verdict;
    }

    /// Sets the verdict to send it by this port.
    #[inline]
    pub fn send(&mut self, port: usize) {
        self.verdict = Verdict::Send(port);
    }

    /// Sets the verdict to drop it for this reason.
    #[inline]
    pub fn drop_for(&mut self, reason: &'static str) {
        self.verdict = Verdict::Drop(reason);
    }

    /// Returns the space for receiving a frame, [`longest`](Self::longest) bytes; call [`received`](Self::received) afterwards.
    #[inline]
    #[must_use]
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.storage[START..]
    }

    /// Makes the first `length` bytes of [`space`](Self::space) a complete frame from the port with this index.
    #[inline]
    pub fn received(&mut self, port: usize, length: usize) {
        self.start = START;
        self.end = START + length.min(self.longest());
        self.port = port;
        self.verdict = Verdict::NONE;
        self.offloads = Offloads::None;
        self.mark = None;
    }

    /// Returns the mark of the flow to which the port matched the frame: see [`Matcher`](crate::Matcher). Copies of the frame have none.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> Option<u32> {
        self.mark
    }

    /// Sets the mark of a received frame.
    #[inline]
    pub fn set_mark(&mut self, mark: Option<u32>) {
        self.mark = mark;
    }

    /// Copies a complete frame as if it had arrived by the port with this index. Returns false, without a change, if it is longer than
    /// [`longest`](Self::longest).
    #[inline]
    #[must_use]
    pub fn fill(&mut self, port: usize, frame: &[u8]) -> bool {
        self.fill_with(port, Frame::from(frame))
    }

    /// Copies a frame with its offloads. Returns false, without a change, if it is longer than [`longest`](Self::longest), or has offloads
    /// and the packet is not [large](Self::large).
    #[inline]
    #[must_use]
    pub fn fill_with(&mut self, port: usize, frame: Frame<'_>) -> bool {
        let length = frame.bytes.len();
        if length > self.longest() || !frame.offloads.is_none() && !self.is_large() {
            return false;
        }
        self.space()[..length].copy_from_slice(frame.bytes);
        self.received(port, length);
        self.set_offloads(frame.offloads);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(frame: &[u8]) -> Packet {
        let mut packet = Packet::new();
        assert!(packet.fill(3, frame));
        packet
    }

    #[test]
    fn a_frame_grows_and_shrinks_at_both_ends() {
        let mut packet = packet(b"payload");
        assert_eq!(
            (packet.port(), packet.verdict()),
            (3, Verdict::Drop("no verdict"))
        );
        packet.push_front(4).unwrap()[..4].copy_from_slice(b"head");
        packet.push_back(4).unwrap()[11..].copy_from_slice(b"tail");
        assert_eq!(packet.bytes(), b"headpayloadtail");
        assert_eq!(packet.pop_front(4).unwrap(), b"payloadtail");
        packet.truncate(7);
        packet.truncate(100);
        packet.truncate(usize::MAX);
        assert_eq!(packet.bytes(), b"payload");
    }

    #[test]
    fn both_ends_of_a_frame_change_at_once() {
        let mut packet = packet(b"headpayload");
        let frame = packet.reframe(4, 6, 6 + 7 + 4).unwrap();
        frame[..6].copy_from_slice(b"longer");
        frame[13..].copy_from_slice(b"tail");
        assert_eq!(packet.bytes(), b"longerpayloadtail");
        assert_eq!(packet.reframe(6, 0, 7).unwrap(), b"payload");
        let (room, longest) = (packet.headroom(), packet.headroom() + packet.tailroom() + 7);
        assert!(packet.reframe(0, room + 1, 7).is_none());
        assert!(packet.reframe(0, room, longest + 1).is_none());
        assert!(packet.reframe(usize::MAX, 0, 0).is_none());
        assert!(packet.reframe(0, 0, usize::MAX).is_none());
        assert_eq!(packet.bytes(), b"payload");
        assert!(packet.reframe(0, room, longest).is_some());
    }

    #[test]
    fn growth_beyond_the_room_is_refused_without_a_change() {
        let mut packet = packet(&[7; MAX_FRAME]);
        assert!(packet.headroom() >= HEADROOM);
        assert_eq!(packet.tailroom(), 0);
        let room = packet.headroom();
        assert!(packet.push_front(room + 1).is_none());
        assert!(packet.push_front(usize::MAX).is_none());
        assert!(packet.push_back(1).is_none());
        assert!(packet.push_back(usize::MAX).is_none());
        assert!(packet.pop_front(MAX_FRAME + 1).is_none());
        assert!(!packet.fill(0, &[0; MAX_FRAME + 1]));
        assert_eq!(packet.bytes(), [7; MAX_FRAME]);
        assert!(packet.push_front(room).is_some());
        assert!(packet.pop_front(room + MAX_FRAME).is_some());
        assert!(packet.is_empty());
    }

    #[test]
    fn a_reused_buffer_has_its_room_again() {
        let mut packet = packet(b"one");
        let room = packet.headroom();
        assert!(packet.push_front(room).is_some());
        packet.send(1);
        packet.set_mark(Some(7));
        assert!(packet.fill(0, b"two"));
        assert_eq!((packet.headroom(), packet.verdict()), (room, Verdict::NONE));
        assert_eq!(packet.mark(), None);
    }

    #[test]
    fn a_large_packet_keeps_offloads_where_the_header_is() {
        use crate::frame::{Network, PartialChecksum, Segments};
        let segments = Segments {
            network: Network::Ipv4,
            size: 1448.try_into().unwrap(),
            is_ecn: false,
        };
        let at = |start| Offloads::Segments(PartialChecksum { start, field: 16 }, segments);
        let bytes = [7; MAX_LARGE_FRAME];
        let frame = Frame {
            bytes: &bytes,
            offloads: at(34),
        };
        let mut large = Packet::large();
        assert!(large.is_large() && !Packet::new().is_large());
        assert!(large.fill_with(1, frame));
        assert_eq!(large.frame(), frame);
        assert!(large.push_front(4).is_some());
        assert_eq!(large.offloads(), at(38));
        assert!(large.pop_front(38).is_some());
        assert_eq!(large.offloads(), at(0));
        assert!(large.pop_front(1).is_some());
        assert_eq!(large.offloads(), Offloads::None);
        large.set_offloads(at(20));
        assert_eq!(large.offloads(), at(20));
        large.received(0, 60);
        assert_eq!(large.offloads(), Offloads::None);
        assert!(!large.fill(0, &[0; MAX_LARGE_FRAME + 1]));
        let short = Frame {
            bytes: &bytes[..60],
            offloads: at(34),
        };
        assert!(!Packet::new().fill_with(0, short));
    }
}
