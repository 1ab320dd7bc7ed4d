//! Segments to clients that speak TLS.

use nf_packet::tcp_flags;
use nf_splice::options::Timestamps;

use super::{
    endpoint::{stage, Endpoint},
    sender::{Piece, ROOM},
};
use crate::{
    pass::Pass,
    record::{options, reversed, SCALE},
    segments::{Blocks, Outgoing, ACK, PSH_ACK},
};

const MILLISECOND: u64 = 1_000_000;

impl Pass<'_> {
    /// Sends the client what the windows allow, and acknowledges what has arrived.
    pub(super) fn transmit(&mut self, endpoint: &mut Endpoint) {
        let now = self.now();
        let most = ROOM;
        while let Some(piece) = endpoint.to_client.take(most, now) {
            self.send_piece(endpoint, &piece);
        }
        let room = room_for_client(endpoint);
        if endpoint.from_client.is_due(room, now) {
            let piece = endpoint.to_client.empty();
            self.send_piece(endpoint, &piece);
        }
    }

    fn send_piece(&mut self, endpoint: &mut Endpoint, piece: &Piece) {
        let scale = if endpoint.has(options::SCALE) {
            SCALE
        } else {
            0
        };
        let window = endpoint.from_client.window(room_for_client(endpoint)) >> scale;
        let window = window.min(u16::MAX.into());
        let ack = endpoint.from_client.next();
        endpoint
            .from_client
            .tell(window << scale, piece.is_repeated);
        let mut payload = std::mem::take(&mut self.scratch.tls.payload);
        payload.resize(piece.len, 0);
        let queue = endpoint.to_client.queue();
        let _ = queue.read_at(&self.tables.chunks, piece.skip, &mut payload);
        let flags = if piece.is_last { PSH_ACK } else { ACK };
        let fin = if piece.has_fin { tcp_flags::FIN } else { 0 };
        let segment = Outgoing {
            flags: flags | fin,
            seq: piece.seq,
            ack,
            window: window as u16,
            stamps: endpoint.has(options::TIMESTAMPS).then(|| Timestamps {
                value: endpoint.stamp.wrapping_add(elapsed(endpoint, self.now())),
                echo: endpoint.recent,
            }),
            syn: None,
            // Segments with bytes have no room for them.
            blocks: if endpoint.has(options::SACK) && payload.is_empty() {
                endpoint.from_client.blocks()
            } else {
                Blocks::default()
            },
            payload: &payload,
            size: endpoint.mss,
        };
        self.send(reversed(&endpoint.tuple), &segment);
        self.scratch.tls.payload = payload;
    }
}

/// Returns the milliseconds since a connection was opened.
fn elapsed(endpoint: &Endpoint, now: u64) -> u32 {
    (now.saturating_sub(endpoint.began_at) / MILLISECOND) as u32
}

fn room_for_client(endpoint: &Endpoint) -> usize {
    if endpoint.stage == stage::CLOSING {
        ROOM
    } else {
        endpoint.room_for_client()
    }
}
