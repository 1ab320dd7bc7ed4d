//! The exchange with the engine: segments in both directions, whose bytes are plaintext.

use nf_packet::{protocol, tcp_flags, Fragment, Headers, Version};
use nf_runtime::state::{ByteQueue, SlabId};
use nf_splice::segment::Verdict;
use nf_tls::{Alert, Session};

use super::endpoint::Endpoint;
use crate::{
    pass::{Fate, Pass, Received},
    segments::{Segment, ACK},
};

/// The most bytes in a segment to the engine: those of a received frame of several segments.
const MOST: usize = 32 << 10;

/// The headers of a segment to the engine: it has none, and none are looked at.
const HEADERS: Headers = Headers {
    version: Version::V4,
    fragment: Fragment::Whole,
    protocol: protocol::TCP,
    tcp_flags: 0,
    network: 0,
    transport: 0,
    end: 0,
    source_port: 0,
    destination_port: 0,
    fragment_id: 0,
};

impl Pass<'_> {
    /// Hands an endpoint the segments of the engine.
    pub(super) fn hear_engine(&mut self, id: SlabId, endpoint: &mut Endpoint) {
        let mut heard = std::mem::take(&mut self.scratch.tls.heard);
        for (to, segment, payload) in heard.segments() {
            if to == id {
                self.engine_says(endpoint, segment, payload);
            }
        }
        heard.clear();
        self.scratch.tls.heard = heard;
    }

    fn engine_says(&mut self, endpoint: &mut Endpoint, segment: &Segment, payload: &[u8]) {
        if endpoint.connection.is_none() {
            return;
        }
        if segment.has(tcp_flags::RST) {
            return self.reset_client(endpoint);
        }
        if endpoint.from_engine.judge(segment) != Verdict::Accept {
            return endpoint.from_engine.repeat();
        }
        let has_fin = segment.has(tcp_flags::FIN);
        let is_bare = payload.is_empty() && !has_fin;
        let chunks = &self.tables.chunks;
        endpoint.to_engine.acknowledged(
            chunks,
            segment.ack,
            segment.window.into(),
            is_bare,
            self.now(),
        );
        if is_bare {
            return;
        }
        let needed = Session::sealed(payload.len()) + endpoint.from_engine.stashed();
        if endpoint.to_client.queue().len() + needed > ByteQueue::MAX_BYTES {
            // The backend sends it again when there is room.
            return;
        }
        let mut plain = std::mem::take(&mut self.scratch.tls.plain);
        plain.clear();
        endpoint.from_engine.accept(
            chunks,
            (segment.seq, payload, has_fin),
            self.now(),
            &mut plain,
        );
        self.protect(endpoint, &plain);
        self.scratch.tls.plain = plain;
        if endpoint.from_engine.is_over() && !endpoint.to_client.has_fin() {
            self.end_client(endpoint, Alert::CloseNotify);
        }
    }

    /// Sends the engine what there is for it. Returns false if there was nothing.
    pub(super) fn tell_engine(&mut self, endpoint: &mut Endpoint) -> bool {
        let now = self.now();
        let room = endpoint.room_for_engine();
        let piece = if endpoint.connection.is_none() {
            return false;
        } else {
            endpoint.to_engine.take(MOST, now)
        };
        if piece.is_none() && !endpoint.from_engine.is_due(room, now) {
            return false;
        }
        let piece = piece.unwrap_or(endpoint.to_engine.empty());
        let window = endpoint.from_engine.window(room).min(u16::MAX.into());
        let ack = endpoint.from_engine.next();
        endpoint.from_engine.tell(window, piece.is_repeated);
        let mut payload = std::mem::take(&mut self.scratch.tls.payload);
        payload.resize(piece.len, 0);
        let queue = endpoint.to_engine.queue();
        let _ = queue.read_at(&self.tables.chunks, piece.skip, &mut payload);
        let segment = Segment {
            flags: if piece.has_fin {
                ACK | tcp_flags::FIN
            } else {
                ACK
            },
            seq: piece.seq,
            ack,
            window: window as u16,
            at: 0,
            len: piece.len,
            stamps: None,
            syn: None,
        };
        self.say_to_engine(endpoint, segment, &payload);
        self.scratch.tls.payload = payload;
        true
    }

    fn say_to_engine(&mut self, endpoint: &mut Endpoint, segment: Segment, payload: &[u8]) {
        let (tables, id) = (self.tables, endpoint.connection);
        let mut packet = std::mem::take(&mut self.scratch.tls.packet);
        // It is large enough for every segment.
        let _ = packet.fill(0, payload);
        let mut received = Received {
            packet: &mut packet,
            headers: HEADERS,
            segment,
            id,
            went: false,
        };
        let fate = tables.connections.update(id, |connection| {
            let before = connection.deadline();
            let fate = self.client_says(connection, &mut received);
            let after = connection.deadline();
            if after != before {
                tables.timers.set(id.slot(), after);
            }
            fate
        });
        self.scratch.tls.packet = packet;
        if fate != Some(Fate::Stays) {
            tables.remove(id);
            endpoint.connection = SlabId::default();
        }
    }
}
