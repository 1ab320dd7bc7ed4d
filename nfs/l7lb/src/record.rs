//! The record of a connection: plain data in the arena.
//!
//! A connection has two directions of bytes, one [`Half`] each: requests (from the client to the backend in use) and answers (back). Numbers of a half's
//! sender are *source* numbers, those of its receiver *destination* numbers; the half's map translates between them.

use std::net::IpAddr;

use bytemuck::{Pod, Zeroable};
use nf_balancing::tuple::{Address, Tuple};
use nf_http::{Body, Chunks};
use nf_runtime::state::{ByteQueue, SlabId};
use nf_splice::{Map, TimestampMap};

/// The legs of one connection: one in use, and idle ones to other backends.
pub const LEGS: usize = 3;

/// The shift of the windows that clients are told.
pub const SCALE: u8 = 7;

/// The index of no leg.
pub const NO_LEG: u8 = u8::MAX;

/// Phases of a half's framing.
pub mod framing {
    /// The next byte begins a head.
    pub const HEAD: u8 = 0;
    /// A body of known length, which ends at `Half::parse_at`.
    pub const LENGTH: u8 = 1;
    pub const CHUNKED: u8 = 2;
    /// Bytes without a structure, up to the FIN.
    pub const OPAQUE: u8 = 3;
    /// The message has ended, and the next one may not begin yet.
    pub const ENDED: u8 = 4;
}

/// One direction.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Half {
    pub map: Map,
    pub chunks: Chunks,
    /// The rest of a body beyond `parse_at`, which sequence numbers cannot express.
    pub remaining: u64,
    /// Bytes that the function has taken and not passed on: a part of a head, or requests that wait. They end at `owned`.
    pub held: ByteQueue,
    /// Bytes that the function sends: destination numbers from `out_at` on.
    pub outgoing: ByteQueue,
    /// Bytes beyond holes in the framing, each piece behind its [label](crate::pieces).
    pub kept: ByteQueue,
    /// The least source number of them.
    pub kept_at: u32,
    pub out_at: u32,
    /// The number after the last byte of `outgoing` that was sent.
    pub out_sent: u32,
    /// The source number at which the framing continues.
    pub parse_at: u32,
    /// The source number after the last byte that the function has taken.
    pub owned: u32,
    /// The source number that the sender was told to be acknowledged.
    pub told: u32,
    /// The right edge of the widest window that the sender was told, a source number.
    pub limit: u32,
    /// The source number after the last byte seen.
    pub seen: u32,
    /// The destination number that the receiver has acknowledged.
    pub acked: u32,
    /// The right edge of the receiver's window, a destination number.
    pub edge: u32,
    /// The bytes of the widest window that the receiver has offered.
    pub widest: u32,
    /// The destination number after the last byte sent to the receiver.
    pub top: u32,
    /// The destination number of the FIN, if `has_fin`.
    pub fin: u32,
    /// The bytes of `held` in which the end of a head was not found.
    pub searched: u32,
    pub framing: u8,
    pub has_fin: u8,
    /// The retransmissions of `outgoing` in a row.
    pub attempts: u8,
    /// The duplicate ACKs for `kept` that the sender gets once everything before is acknowledged.
    pub owed: u8,
    pub reserved: [u8; 4],
}

/// Phases of a leg.
pub mod phase {
    pub const NONE: u8 = 0;
    pub const OPENING: u8 = 1;
    pub const OPEN: u8 = 2;
}

/// A connection to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Leg {
    /// The backend's end, and the function's own: source and destination of the backend's packets.
    pub tuple: Tuple,
    /// The backend's row.
    pub row: u16,
    /// The backend's largest segment without options.
    pub mss: u16,
    pub phase: u8,
    /// The shift of the windows that the backend tells.
    pub scale: u8,
    /// [`options`] that both ends use.
    pub options: u8,
    /// It has got its header of the PROXY protocol.
    pub has_header: u8,
    /// The largest segment that the backend was told.
    pub told_mss: u16,
    /// The shift of the windows that the backend is told, if it has the option.
    pub own_scale: u8,
    /// It has carried a request before, so the backend may be about to close it.
    pub is_old: u8,
    pub reserved: [u8; 4],
    /// The next number toward the backend, and from it; valid while the leg is idle.
    pub next_to: u32,
    pub next_from: u32,
    /// The latest timestamp of the backend.
    pub stamp: u32,
    /// The right edge of the backend's window, valid while the leg is idle.
    pub edge: u32,
}

/// Options of TCP in use.
pub mod options {
    pub const TIMESTAMPS: u8 = 1;
    pub const SACK: u8 = 2;
    pub const SCALE: u8 = 4;
}

/// Stages of a connection.
pub mod stage {
    /// Requests and answers.
    pub const OPEN: u8 = 0;
    /// The function has sent its last answer and its FIN.
    pub const CLOSING: u8 = 1;
}

/// No row of a route or a backend.
pub const NO_ROW: u16 = u16::MAX;

/// The present exchange, as the log and the metrics describe it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Exchange {
    /// When its first byte came.
    pub began: u64,
    /// When the head of its answer came; 0: not yet.
    pub answered_at: u64,
    pub request: Size,
    pub answer: Size,
    /// The slot whose text describes the request, if `has_text`.
    pub slot: u32,
    pub route: u16,
    pub backend: u16,
    pub status: u16,
    pub has_text: u8,
    pub reserved: [u8; 5],
}

impl Exchange {
    /// Creates an exchange whose first byte came at this time.
    pub fn beginning(began: u64) -> Self {
        Self {
            began,
            route: NO_ROW,
            backend: NO_ROW,
            ..Self::zeroed()
        }
    }
}

/// The kinds of knowledge about a message's length.
mod length {
    /// The message has not begun.
    pub const NONE: u32 = 0;
    /// The head tells it.
    pub const KNOWN: u32 = 1;
    /// Sequence numbers tell it.
    pub const COUNTED: u32 = 2;
}

/// The bytes of a message.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Size {
    /// Of its head, and of its body if the head tells it.
    known: u64,
    /// The source number after its head.
    from: u32,
    /// One of [`length`].
    length: u32,
}

impl Size {
    pub fn new(head: usize, body: Body, from: u32) -> Self {
        let length = match body {
            Body::Length(length) => Some(length),
            Body::None => Some(0),
            Body::Chunked => None,
        };
        Self {
            known: (head as u64).saturating_add(length.unwrap_or(0)),
            from,
            length: length.map_or(length::COUNTED, |_| length::KNOWN),
        }
    }

    /// Returns the bytes so far. Bodies without a length are counted modulo 4 GiB.
    pub fn bytes(&self, half: &Half) -> u64 {
        let missing = half.parse_at.wrapping_sub(half.seen) as i32;
        if self.length == length::KNOWN {
            let missing = half.remaining.saturating_add(missing.max(0) as u64);
            return self.known.saturating_sub(missing);
        }
        let end = match half.framing {
            framing::ENDED => half.parse_at,
            _ => half.seen,
        };
        if self.length == length::NONE {
            return 0;
        }
        self.known + u64::from(end.wrapping_sub(self.from))
    }
}

/// A connection of a client.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Connection {
    pub client: Tuple,
    /// The client's own end, which differs from the source of its packets if a proxy tells it.
    pub peer: Address,
    pub requests: Half,
    pub answers: Half,
    pub legs: [Leg; LEGS],
    /// When to send `outgoing` again; 0: nothing waits for it.
    pub retransmit_at: u64,
    /// When the present stage times out.
    pub limit_at: u64,
    pub exchange: Exchange,
    /// The endpoint of a client that speaks TLS: it stands for the client.
    pub endpoint: SlabId,
    /// The requests so far.
    pub count: u32,
    /// The client's timestamps as backends see them, and those of backends as the client does.
    pub to_backend: TimestampMap,
    pub to_client: TimestampMap,
    pub peer_port: u16,
    pub mss: u16,
    pub scale: u8,
    pub options: u8,
    /// The leg in use, or [`NO_LEG`].
    pub leg: u8,
    pub stage: u8,
    /// An answer is awaited or under transmission.
    pub busy: u8,
    /// The method of the request was HEAD (1) or CONNECT (2): its answer has no body, or no structure.
    pub method: u8,
    /// The connection ends with the answer.
    pub last: u8,
    /// The final head of the answer has been seen.
    pub answered: u8,
    /// The backends that did not take the present request.
    pub attempts: u8,
    /// The client offers another protocol.
    pub offers: u8,
    /// The client leaves after the present answer, and the leg stays open.
    pub leaves: u8,
    /// [`edits`](crate::heads::edits) of the answer.
    pub edits: u8,
    /// The header of the PROXY protocol is still to come.
    pub awaits_proxy: u8,
    /// The connection is TLS, which passes.
    pub passes: u8,
    /// The body of the request is still on its way.
    pub uploads: u8,
    pub reserved: u8,
}

impl Connection {
    /// Returns the client's own address and port.
    pub fn peer(&self) -> (IpAddr, u16) {
        (self.peer.ip(), self.peer_port)
    }

    /// Returns the listener's address and port.
    pub fn vip(&self) -> (IpAddr, u16) {
        let client = &self.client;
        (client.destination.ip(), client.destination_port)
    }

    pub fn leg(&self) -> Option<&Leg> {
        self.legs.get(usize::from(self.leg))
    }

    /// Returns the shift of the windows that the client is told.
    pub fn told_scale(&self) -> u8 {
        if self.has(options::SCALE) {
            SCALE
        } else {
            0
        }
    }

    /// Gives the queues of bytes their owner.
    pub fn own(&mut self, slot: u32) {
        for half in [&mut self.requests, &mut self.answers] {
            half.held = ByteQueue::new(slot);
            half.outgoing = ByteQueue::new(slot);
            half.kept = ByteQueue::new(slot);
        }
    }

    /// Returns all queues of bytes.
    pub fn queues(&self) -> [&ByteQueue; 6] {
        let (requests, answers) = (&self.requests, &self.answers);
        [
            &requests.held,
            &requests.outgoing,
            &requests.kept,
            &answers.held,
            &answers.outgoing,
            &answers.kept,
        ]
    }

    pub fn has_open_leg(&self) -> bool {
        self.leg().is_some_and(|leg| leg.phase == phase::OPEN)
    }

    pub fn is_opening(&self) -> bool {
        self.leg().is_some_and(|leg| leg.phase == phase::OPENING)
    }

    pub fn has(&self, option: u8) -> bool {
        self.options & option != 0
    }

    /// Tells whether no request is being handled, and every byte of answers has arrived.
    pub fn is_idle(&self) -> bool {
        self.busy == 0 && self.answers.is_quiet() && self.requests.is_quiet()
    }

    /// Tells whether a request is being handled whose answer has not begun.
    pub fn awaits_answer(&self) -> bool {
        self.busy != 0 && self.answered == 0 && self.answers.held.is_empty()
    }
}

/// Returns the tuple of packets in the other direction.
pub fn reversed(tuple: &Tuple) -> Tuple {
    Tuple {
        source: tuple.destination,
        destination: tuple.source,
        source_port: tuple.destination_port,
        destination_port: tuple.source_port,
        protocol: tuple.protocol,
    }
}
