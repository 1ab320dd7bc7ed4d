//! One direction of a connection: which bytes may pass, and what was acknowledged.

use nf_packet::tcp_flags;
use nf_runtime::state::ChunkPool;
use nf_splice::{
    segment::{is_after, is_before, length, Expected, Sent, Verdict},
    Map,
};

use crate::{
    record::{framing, Half},
    segments::{Segment, ACK},
};

/// The part of a long body that sequence numbers can express.
const STRETCH: u64 = 1 << 29;

/// A malformed message: its end cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Half {
    /// Starts the stream of a new sender, whose first byte has this number.
    pub fn begin(&mut self, first: u32) {
        self.parse_at = first;
        self.owned = first;
        self.told = first;
        self.limit = first;
        self.seen = first;
        self.has_fin = 0;
    }

    /// Starts the stream to a new receiver, which has acknowledged everything up to this number. Source and destination numbers are the same.
    pub fn restart(&mut self, at: u32) {
        self.map = Map::with_delta(0);
        self.acked = at;
        self.edge = at;
        self.widest = 0;
        self.top = at;
        self.out_at = at;
        self.out_sent = at;
    }

    /// Begins a body at a source number.
    pub fn begin_body(&mut self, at: u32, body: nf_http::Body) {
        self.parse_at = at;
        match body {
            nf_http::Body::None => self.framing = framing::ENDED,
            nf_http::Body::Length(length) => {
                self.remaining = length;
                self.framing = framing::LENGTH;
                self.stretch();
            }
            nf_http::Body::Chunked => {
                self.chunks = bytemuck::Zeroable::zeroed();
                self.framing = framing::CHUNKED;
            }
        }
    }

    /// Moves `parse_at` over bytes of a body of known length.
    fn stretch(&mut self) {
        let part = self.remaining.min(STRETCH);
        self.parse_at = self.parse_at.wrapping_add(part as u32);
        self.remaining -= part;
        if self.remaining == 0 {
            self.framing = framing::ENDED;
        }
    }

    /// Follows a body over bytes that begin at a source number. Returns how many of them belong to it; bytes beyond a hole in the framing do not.
    pub fn follow(&mut self, begin: u32, bytes: &[u8]) -> Result<usize, Malformed> {
        if self.framing == framing::OPAQUE {
            return Ok(bytes.len());
        }
        let known = self.parse_at.wrapping_sub(begin) as i32;
        if known < 0 {
            return Ok(0);
        }
        let mut used = (known as usize).min(bytes.len());
        while used < bytes.len() {
            match self.framing {
                framing::LENGTH => {
                    self.stretch();
                    used = (self.parse_at.wrapping_sub(begin) as usize).min(bytes.len());
                }
                framing::CHUNKED => {
                    let progress = self.chunks.advance(&bytes[used..]).map_err(|_| Malformed)?;
                    used += progress.consumed;
                    self.parse_at = begin.wrapping_add(used as u32);
                    if progress.ended {
                        self.framing = framing::ENDED;
                    } else {
                        let certain = self.chunks.certain().min(STRETCH);
                        self.chunks.skip(certain);
                        self.parse_at = self.parse_at.wrapping_add(certain as u32);
                    }
                }
                _ => break,
            }
        }
        Ok(used)
    }

    /// Discards bytes at the front of those held. The receiver has acknowledged all that it was sent.
    pub fn discard(&mut self, chunks: &ChunkPool, count: usize) {
        self.held.consume(chunks, count);
        self.searched = 0;
        self.parse_at = self.owned.wrapping_sub(self.held.len() as u32);
        self.map = Map::between(self.parse_at, self.acked);
    }

    /// Discards everything held, and takes all up to `owned`.
    pub fn discard_all(&mut self, chunks: &ChunkPool) {
        let count = self.held.len();
        self.discard(chunks, count);
        self.drop_kept(chunks);
        self.saw(self.owned);
    }

    /// Tells whether the whole message has been seen.
    pub fn is_over(&self) -> bool {
        self.framing == framing::ENDED && !is_after(self.parse_at, self.seen)
    }

    /// Tells whether the receiver has acknowledged the whole message.
    pub fn is_delivered(&self) -> bool {
        self.framing == framing::ENDED && !is_after(self.parse_at, self.map.back(self.acked))
    }

    /// Notes the acknowledgement and the right edge of the window that the sender is told.
    pub fn tell(&mut self, ack: u32, window: u32) {
        self.told = ack;
        let edge = ack.wrapping_add(window);
        if is_after(edge, self.limit) {
            self.limit = edge;
        }
    }

    /// Judges a segment of the sender by what it was told.
    pub fn judge(&self, segment: &Segment) -> Verdict {
        let has_rst = segment.has(tcp_flags::RST);
        if has_rst && segment.seq == self.seen {
            // The receiver has not acknowledged the last bytes yet.
            return Verdict::Reset;
        }
        let expected = Expected {
            next: self.told,
            window: self.limit.wrapping_sub(self.told),
        };
        let numbers = length(segment.flags, segment.len as u32);
        expected.judge(segment.flags, segment.seq, numbers)
    }

    /// Tells whether a segment of the receiver acknowledges what it can have got (RFC 5961, 5.2).
    pub fn is_plausible(&self, segment: &Segment) -> bool {
        let sent = Sent {
            unacknowledged: self.acked,
            next: self.top,
            window: self.widest,
        };
        segment.has(ACK) && sent.accepts(segment.ack)
    }

    /// Tells whether an unacceptable segment only asks for an answer: a keep-alive probe, or one of a closed window.
    pub fn is_probe(&self, segment: &Segment) -> bool {
        let odd = tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST;
        let is_old = segment.len == 0 && is_before(segment.seq, self.told);
        let is_beyond = segment.seq == self.told && self.limit == self.told;
        segment.flags & odd == 0 && (is_old || is_beyond)
    }

    /// Tells whether a segment repeats what its sender need not send any more.
    pub fn is_repeated(&self, segment: &Segment, has_fin: bool) -> bool {
        let end = segment.end().wrapping_add(u32::from(has_fin));
        !is_after(end, self.acknowledgement())
    }

    /// Notes that bytes up to a source number have been seen.
    pub fn saw(&mut self, end: u32) {
        if is_after(end, self.seen) {
            self.seen = end;
        }
    }

    /// Notes an acknowledgement of the receiver with its window in bytes. Returns whether it acknowledges something new.
    pub fn acknowledged(&mut self, chunks: &ChunkPool, ack: u32, window: u32) -> bool {
        if is_after(self.acked, ack) || is_after(ack, self.top) {
            return false;
        }
        let is_new = ack != self.acked;
        self.acked = ack;
        self.edge = ack.wrapping_add(window);
        self.widest = self.widest.max(window);
        if is_new {
            self.attempts = 0;
            let covered = ack.wrapping_sub(self.out_at) as i32;
            if covered > 0 {
                let covered = (covered as usize).min(self.outgoing.len());
                self.outgoing.consume(chunks, covered);
                self.out_at = self.out_at.wrapping_add(covered as u32);
                if is_after(self.out_at, self.out_sent) {
                    self.out_sent = self.out_at;
                }
            }
            self.map.settle(ack);
        }
        is_new
    }

    /// Returns the acknowledgement for the sender: all bytes that the receiver has acknowledged, and after them those that the function has taken.
    pub fn acknowledgement(&self) -> u32 {
        let mut at = self.map.back(self.acked);
        for region in self.map.regions() {
            let end = region.from.wrapping_add(region.taken);
            if !is_after(region.from, at) && is_after(end, at) {
                at = end;
            }
        }
        let held_from = self.owned.wrapping_sub(self.held.len() as u32);
        if !is_after(held_from, at) && is_after(self.owned, at) {
            at = self.owned;
        }
        // Bytes of the function itself that the receiver has acknowledged are none of the sender's.
        if is_after(at, self.seen) {
            self.seen
        } else {
            at
        }
    }

    /// Returns how many of the bytes at a source number the function has taken, and, if that is none, how many follow that it has not.
    pub fn owner(&self, begin: u32, length: usize) -> (usize, usize) {
        let Some(part) = self.map.parts(begin, length as u32).next() else {
            return (0, 0);
        };
        let free = part.length as usize;
        let held_from = self.owned.wrapping_sub(self.held.len() as u32);
        if part.to.is_none() {
            (free, 0)
        } else if self.held.is_empty() {
            (0, free)
        } else if is_after(held_from, begin) {
            (0, free.min(held_from.wrapping_sub(begin) as usize))
        } else if is_after(self.owned, begin) {
            (length.min(self.owned.wrapping_sub(begin) as usize), 0)
        } else {
            (0, free)
        }
    }

    /// Returns how many bytes from a source number on the receiver has room for; everything if it has none, so that probes of a closed window pass.
    pub fn room(&self, begin: u32) -> usize {
        let room = self.edge.wrapping_sub(self.map.forward(begin)) as i32;
        if room > 0 {
            room as usize
        } else {
            usize::MAX
        }
    }

    /// Tells whether the function has taken some of these bytes.
    pub fn owns(&self, begin: u32, length: usize) -> bool {
        self.owner(begin, length) != (0, length)
    }

    /// Tells whether everything sent to the receiver was acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.acked == self.top && self.outgoing.is_empty()
    }

    /// Tells whether bytes of the function still wait for their first transmission.
    pub fn is_behind(&self) -> bool {
        self.out_sent != self.out_at.wrapping_add(self.outgoing.len() as u32)
    }

    /// Notes that the receiver was sent everything up to a destination number.
    pub fn sent(&mut self, end: u32) {
        if is_after(end, self.top) {
            self.top = end;
        }
    }

    /// Translates the number of a segment that goes to the receiver.
    pub fn pass(&mut self, segment: &Segment, has_fin: bool) -> u32 {
        let length = segment.len as u32 + u32::from(has_fin);
        if length > 0 {
            let seq = self.map.forward(segment.seq);
            self.sent(seq.wrapping_add(length));
            return seq;
        }
        // The sender may count bytes that the function holds; the receiver has seen none of them.
        let seq = self.map.forward_empty(segment.seq, self.out_sent);
        if is_after(seq, self.top) {
            self.top
        } else {
            seq
        }
    }

    /// Queues the function's own bytes after the last byte sent. Returns false if the pool has no room.
    pub fn say(&mut self, chunks: &ChunkPool, bytes: &[u8]) -> bool {
        if self.outgoing.is_empty() {
            self.out_at = self.top;
            self.out_sent = self.top;
        }
        self.outgoing.append(chunks, bytes) == bytes.len()
    }
}
