//! The sending half of a TCP endpoint: a queue, its retransmissions, and congestion control (RFC 5681, 6298, 6582).

use bytemuck::{Pod, Zeroable};
use nf_runtime::state::{ByteQueue, ChunkPool};
use nf_splice::segment::is_after;

/// The most bytes of the queue that a window may promise.
pub const ROOM: usize = 60 << 10;
/// Retransmissions in a row after which the peer counts as gone.
const ATTEMPTS: u8 = 12;
const MILLISECOND: u64 = 1_000_000;
/// Limits of the retransmission timeout, and the timeout before a round-trip time is known.
const SHORTEST: u64 = 200 * MILLISECOND;
const LONGEST: u64 = 4_000 * MILLISECOND;
const FIRST: u64 = 300 * MILLISECOND;
/// Acknowledgements without news after which a segment counts as lost.
const DUPLICATES: u8 = 3;
/// Segments of the first congestion window (RFC 6928).
const FIRST_WINDOW: u32 = 10;

/// Bytes on their way to the peer, as plain data.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Sender {
    /// The bytes from `una` on.
    queue: ByteQueue,
    /// When to send again; 0: never.
    again_at: u64,
    /// When the byte before `timed` was sent; 0: no measurement.
    timed_at: u64,
    /// The smoothed round-trip time and its variation, in nanoseconds; 0: unknown.
    round_trip: u64,
    variation: u64,
    timed: u32,
    /// The first number that is not acknowledged.
    una: u32,
    /// The number to send next.
    next: u32,
    /// The number after the last one sent.
    top: u32,
    /// The right edge of the peer's window.
    edge: u32,
    /// The congestion window, and where it stops growing fast.
    congestion: u32,
    threshold: u32,
    /// Where fast recovery ends.
    recover: u32,
    mss: u32,
    /// The widest window that the peer has offered.
    widest: u32,
    duplicates: u8,
    attempts: u8,
    is_recovering: u8,
    /// The first segment must be sent again.
    resends: u8,
    /// A FIN follows the queue.
    has_fin: u8,
    /// The FIN is acknowledged.
    is_over: u8,
    reserved: [u8; 2],
}

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub seq: u32,
    /// Where its bytes are in the queue.
    pub skip: usize,
    pub len: usize,
    pub has_fin: bool,
    /// The queue ends with it.
    pub is_last: bool,
    /// It was sent before, so the peer may discard it with its acknowledgement.
    pub is_repeated: bool,
}

/// The worth of a peer's acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    New,
    Nothing,
    /// It acknowledges what was never sent, or is older than a window.
    Implausible,
}

impl Sender {
    pub fn new(owner: u32, first: u32, mss: u32, window: u32) -> Self {
        Self {
            queue: ByteQueue::new(owner),
            una: first,
            next: first,
            top: first,
            recover: first,
            edge: first.wrapping_add(window),
            widest: window,
            mss,
            congestion: mss * FIRST_WINDOW,
            threshold: u32::MAX,
            ..Self::zeroed()
        }
    }

    pub const fn queue(&self) -> &ByteQueue {
        &self.queue
    }

    pub fn queue_mut(&mut self) -> &mut ByteQueue {
        &mut self.queue
    }

    pub fn room(&self) -> usize {
        ROOM.saturating_sub(self.queue.len())
    }

    /// The number after the last one sent: that of a reset.
    pub const fn top(&self) -> u32 {
        self.top
    }

    /// Adds bytes. Returns false if the queue cannot take all of them.
    pub fn push(&mut self, chunks: &ChunkPool, bytes: &[u8]) -> bool {
        self.has_fin == 0 && self.queue.append(chunks, bytes) == bytes.len()
    }

    /// Lets a FIN follow.
    pub fn finish(&mut self) {
        self.has_fin = 1;
    }

    /// Tells whether a FIN follows.
    pub const fn has_fin(&self) -> bool {
        self.has_fin != 0
    }

    /// Tells whether the peer has acknowledged everything and the FIN.
    pub const fn is_over(&self) -> bool {
        self.is_over != 0
    }

    fn flight(&self) -> u32 {
        self.top.wrapping_sub(self.una)
    }

    /// Handles an acknowledgement. `is_bare`: its segment carries nothing else.
    pub fn acknowledged(
        &mut self,
        chunks: &ChunkPool,
        ack: u32,
        window: u32,
        is_bare: bool,
        now: u64,
    ) -> Acknowledged {
        let oldest = self.una.wrapping_sub(self.widest.max(u16::MAX.into()));
        if is_after(ack, self.top) || is_after(oldest, ack) {
            return Acknowledged::Implausible;
        }
        if is_after(self.una, ack) {
            return Acknowledged::Nothing;
        }
        let edge = ack.wrapping_add(window);
        self.widest = self.widest.max(window);
        if window == 0 {
            // The peer lives, and its window may stay closed for long.
            self.attempts = 0;
        }
        if ack == self.una {
            let is_duplicate = is_bare && edge == self.edge && self.flight() > 0;
            self.edge = edge;
            if is_duplicate {
                self.duplicate();
            }
            return Acknowledged::Nothing;
        }
        self.edge = edge;
        self.advance(chunks, ack, now);
        Acknowledged::New
    }

    /// Counts an acknowledgement that repeats the last one.
    fn duplicate(&mut self) {
        self.duplicates = self.duplicates.saturating_add(1);
        if self.is_recovering != 0 {
            self.congestion = self.congestion.saturating_add(self.mss);
        } else if self.duplicates == DUPLICATES {
            self.threshold = (self.flight() / 2).max(2 * self.mss);
            self.congestion = self.threshold + u32::from(DUPLICATES) * self.mss;
            self.is_recovering = 1;
            self.recover = self.top;
            self.resends = 1;
            self.timed_at = 0;
        }
    }

    fn advance(&mut self, chunks: &ChunkPool, ack: u32, now: u64) {
        if self.timed_at != 0 && !is_after(self.timed, ack) {
            self.measure(now.saturating_sub(self.timed_at));
            self.timed_at = 0;
        }
        let covered = ack.wrapping_sub(self.una);
        let queued = self.queue.len();
        self.is_over |= u8::from(covered as usize > queued);
        self.queue.consume(chunks, queued.min(covered as usize));
        self.una = ack;
        if is_after(ack, self.next) {
            self.next = ack;
        }
        self.attempts = 0;
        self.duplicates = 0;
        self.resends = 0;
        if self.is_recovering == 0 {
            self.grow(covered);
        } else if is_after(self.recover, ack) {
            // The next hole (RFC 6582, 3.2).
            self.resends = 1;
            self.congestion = self.congestion.saturating_sub(covered).max(self.mss) + self.mss;
        } else {
            self.is_recovering = 0;
            self.congestion = self.threshold;
        }
        self.again_at = if self.flight() > 0 {
            now + self.timeout()
        } else {
            0
        };
    }

    fn grow(&mut self, covered: u32) {
        let more = if self.congestion < self.threshold {
            covered.min(2 * self.mss)
        } else {
            (u64::from(self.mss) * u64::from(covered) / u64::from(self.congestion.max(1))) as u32
        };
        self.congestion = self.congestion.saturating_add(more);
    }

    fn measure(&mut self, time: u64) {
        if self.round_trip == 0 {
            self.round_trip = time;
            self.variation = time / 2;
        } else {
            let difference = self.round_trip.abs_diff(time);
            self.variation = (3 * self.variation + difference) / 4;
            self.round_trip = (7 * self.round_trip + time) / 8;
        }
    }

    fn timeout(&self) -> u64 {
        let once = if self.round_trip == 0 {
            FIRST
        } else {
            (self.round_trip + 4 * self.variation).max(SHORTEST)
        };
        (once << self.attempts).min(LONGEST)
    }

    /// Takes the next segment to send, of at most `most` bytes.
    pub fn take(&mut self, most: usize, now: u64) -> Option<Piece> {
        let piece = if self.resends != 0 && self.flight() > 0 {
            self.resends = 0;
            self.piece(self.una, most.min(self.mss as usize))
        } else {
            let piece = self.new_piece(most)?;
            let end = piece.end();
            if self.timed_at == 0 && piece.seq == self.top {
                self.timed = end;
                self.timed_at = now;
            }
            self.next = end;
            piece
        };
        if is_after(piece.end(), self.top) {
            self.top = piece.end();
        }
        if self.again_at == 0 {
            self.again_at = now + self.timeout();
        }
        Some(piece)
    }

    fn new_piece(&self, most: usize) -> Option<Piece> {
        let allowed = self.una.wrapping_add(self.congestion);
        let limit = if is_after(self.edge, allowed) {
            allowed
        } else {
            self.edge
        };
        let room = (limit.wrapping_sub(self.next) as i32).max(0) as usize;
        let rest = self.queue.len().saturating_sub(self.offset(self.next));
        if rest == 0 {
            let fin = self.una.wrapping_add(self.queue.len() as u32);
            let is_due = self.has_fin != 0 && self.is_over == 0 && self.next == fin;
            return is_due.then(|| self.piece(self.next, 0));
        }
        let is_short = room < rest && room < self.mss as usize && self.next != self.una;
        if room == 0 || is_short {
            return None;
        }
        let (len, mss) = (room.min(most), self.mss as usize);
        // Whole segments, unless the queue or the window ends.
        let is_partial = len < rest && len > mss;
        let extra = if is_partial { len % mss } else { 0 };
        Some(self.piece(self.next, len - extra))
    }

    fn offset(&self, seq: u32) -> usize {
        seq.wrapping_sub(self.una) as usize
    }

    fn piece(&self, seq: u32, most: usize) -> Piece {
        let skip = self.offset(seq);
        let rest = self.queue.len().saturating_sub(skip);
        let len = rest.min(most);
        let is_last = len == rest;
        Piece {
            seq,
            skip,
            len,
            has_fin: is_last && self.has_fin != 0 && self.is_over == 0,
            is_last,
            is_repeated: is_after(self.top, seq),
        }
    }

    /// Returns a segment without bytes.
    pub const fn empty(&self) -> Piece {
        Piece {
            seq: self.top,
            skip: 0,
            len: 0,
            has_fin: false,
            is_last: false,
            is_repeated: false,
        }
    }

    /// Returns when [`expired`](Self::expired) must be called; 0: never.
    pub fn deadline(&mut self, now: u64) -> u64 {
        let waits = !self.queue.is_empty() || self.has_fin != 0 && self.is_over == 0;
        if !waits {
            self.again_at = 0;
        } else if self.again_at == 0 {
            self.again_at = now + self.timeout();
        }
        self.again_at
    }

    /// Lets everything that is not acknowledged be sent again if its time has come. Returns false if the peer counts as gone.
    pub fn expired(&mut self, now: u64) -> bool {
        if self.again_at == 0 || self.again_at > now {
            return true;
        }
        self.again_at = 0;
        self.attempts += 1;
        if self.attempts > ATTEMPTS {
            return false;
        }
        if self.flight() > 0 {
            self.threshold = (self.flight() / 2).max(2 * self.mss);
            self.congestion = self.mss;
        }
        self.next = self.una;
        self.resends = 0;
        self.is_recovering = 0;
        self.duplicates = 0;
        self.timed_at = 0;
        if !is_after(self.edge, self.una) {
            // A probe of a closed window (RFC 9293, 3.8.6.1).
            self.edge = self.una.wrapping_add(1);
        }
        true
    }
}

impl Piece {
    pub fn end(&self) -> u32 {
        self.seq
            .wrapping_add(self.len as u32 + u32::from(self.has_fin))
    }
}
