//! A packet: the bytes of a frame with room around them, where it came from, and where it goes.

/// Room in front of a received frame for headers that a network function adds. At least so many bytes.
pub const HEADROOM: usize = 128;

/// The longest frame, from the destination MAC address on, without checksum: 9,216 bytes and some more.
pub const MAX_FRAME: usize = 9472;

/// Where a frame is put: the headroom that is promised, and room for a VLAN tag that the kernel took out.
const START: usize = HEADROOM + 64;

/// An odd number of cache lines, so that the headers of the packets of a batch do not share the same few sets of the cache.
const STORAGE: usize = START + MAX_FRAME;
const _: () = assert!(STORAGE % 128 == 64);

/// A MAC address.
pub type Mac = [u8; 6];

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves by the port of this index.
    Send(usize),
    /// It goes nowhere, and is counted under this reason: a few words, the same for all packets of the kind.
    Drop(&'static str),
}

impl Verdict {
    /// Of a packet that nobody decided about.
    pub const NONE: Self = Self::Drop("no verdict");
}

/// A frame in a buffer of its own, with at least [`HEADROOM`] bytes in front when it was received.
pub struct Packet {
    storage: Box<[u8]>,
    start: usize,
    end: usize,
    port: usize,
    verdict: Verdict,
}

impl Default for Packet {
    fn default() -> Self {
        Self::new()
    }
}

impl Packet {
    /// Without content.
    #[must_use]
    pub fn new() -> Self {
        Self {
            storage: vec![0; STORAGE].into_boxed_slice(),
            start: START,
            end: START,
            port: 0,
            verdict: Verdict::NONE,
        }
    }

    /// The frame, from the destination MAC address on, without checksum.
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

    /// Bytes of the frame.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The index of the port that it came in by.
    #[inline]
    #[must_use]
    pub fn port(&self) -> usize {
        self.port
    }

    /// Bytes that [`push_front`](Self::push_front) can still add.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Bytes that [`push_back`](Self::push_back) can still add.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.storage.len() - self.end
    }

    /// Makes the frame longer by `count` bytes in front and gives the whole frame; what the new bytes hold is undefined. None, and nothing
    /// has changed, where there is no such room.
    #[inline]
    #[must_use]
    pub fn push_front(&mut self, count: usize) -> Option<&mut [u8]> {
        self.start = self.start.checked_sub(count)?;
        Some(self.bytes_mut())
    }

    /// Takes `count` bytes away in front and gives the rest. None, and nothing has changed, where the frame is shorter.
    #[inline]
    #[must_use]
    pub fn pop_front(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.len() {
            return None;
        }
        self.start += count;
        Some(self.bytes_mut())
    }

    /// Makes the frame longer by `count` bytes at its end and gives the whole frame; what the new bytes hold is undefined. None, and
    /// nothing has changed, where there is no such room.
    #[inline]
    #[must_use]
    pub fn push_back(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.tailroom() {
            return None;
        }
        self.end += count;
        Some(self.bytes_mut())
    }

    /// Cuts the frame after `length` bytes; a shorter one stays as it is.
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

    /// It leaves by this port.
    #[inline]
    pub fn send(&mut self, port: usize) {
        self.verdict = Verdict::Send(port);
    }

    /// It goes nowhere, for this reason.
    #[inline]
    pub fn drop_for(&mut self, reason: &'static str) {
        self.verdict = Verdict::Drop(reason);
    }

    /// For whoever receives: the room for a frame, all of [`MAX_FRAME`]; then [`received`](Self::received).
    #[inline]
    #[must_use]
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.storage[START..]
    }

    /// The first `length` bytes of [`space`](Self::space) are a frame from the port of this index; at most [`MAX_FRAME`] of them.
    #[inline]
    pub fn received(&mut self, port: usize, length: usize) {
        self.start = START;
        self.end = START + length.min(MAX_FRAME);
        self.port = port;
        self.verdict = Verdict::NONE;
    }

    /// A copy of a frame, as if it had come in by the port of this index. False, and nothing has changed, when it is longer than [`MAX_FRAME`].
    #[must_use]
    pub fn fill(&mut self, port: usize, frame: &[u8]) -> bool {
        if frame.len() > MAX_FRAME {
            return false;
        }
        self.space()[..frame.len()].copy_from_slice(frame);
        self.received(port, frame.len());
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
    fn what_there_is_no_room_for_is_refused_and_nothing_changes() {
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
    fn a_buffer_that_is_used_again_has_its_room_again() {
        let mut packet = packet(b"one");
        let room = packet.headroom();
        assert!(packet.push_front(room).is_some());
        packet.send(1);
        assert!(packet.fill(0, b"two"));
        assert_eq!((packet.headroom(), packet.verdict()), (room, Verdict::NONE));
    }
}
