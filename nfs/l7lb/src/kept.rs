//! Bytes beyond a hole in the framing: their meaning is unknown, so they wait until the hole is filled.
//!
//! They are not acknowledged, but reported in a SACK block, so that the sender repeats the hole alone. Afterwards they pass as if they had just arrived: if
//! they are lost then, their sender repeats them (RFC 2018 lets a receiver discard what it has reported).

use nf_runtime::state::ChunkPool;
use nf_splice::segment::is_after;

use crate::{
    pass::Pass,
    record::{framing, Connection, Half},
};

/// The bytes kept for one direction at most. Without them, the sender repeats everything behind the hole.
const MOST: usize = 32 * 1024;

impl Half {
    /// Keeps bytes that follow directly those kept before, if there is room. Heads have precedence: they need half of the pool.
    pub fn keep(&mut self, chunks: &ChunkPool, begin: u32, bytes: &[u8]) {
        if chunks.free() < chunks.capacity() / 2 {
            return;
        }
        if self.kept.is_empty() {
            self.kept_at = begin;
        }
        let end = self.kept_at.wrapping_add(self.kept.len() as u32);
        let Some(new) = usize::try_from(end.wrapping_sub(begin) as i32)
            .ok()
            .and_then(|known| bytes.get(known..))
        else {
            return;
        };
        let room = MOST.saturating_sub(self.kept.len());
        let _ = self.kept.append(chunks, &new[..new.len().min(room)]);
    }

    /// Discards the bytes kept; the sender repeats them.
    pub fn drop_kept(&mut self, chunks: &ChunkPool) {
        self.kept.clear(chunks);
        self.owed = 0;
    }

    /// Returns the edges of the bytes kept.
    pub fn kept_block(&self) -> Option<(u32, u32)> {
        let end = self.kept_at.wrapping_add(self.kept.len() as u32);
        (!self.kept.is_empty()).then_some((self.kept_at, end))
    }

    /// Takes the bytes kept and their first number, if the framing has reached them.
    pub fn release(&mut self, chunks: &ChunkPool) -> Option<(u32, Vec<u8>)> {
        if self.kept.is_empty() || is_after(self.kept_at, self.next_known()) {
            return None;
        }
        let mut bytes = vec![0; self.kept.len()];
        let _ = self.kept.read_at(chunks, 0, &mut bytes);
        self.drop_kept(chunks);
        Some((self.kept_at, bytes))
    }

    /// Returns the number up to which the framing knows what bytes mean.
    fn next_known(&self) -> u32 {
        if self.held.is_empty() || is_after(self.parse_at, self.owned) {
            self.parse_at
        } else {
            self.owned
        }
    }

    /// Tells whether the meaning of a byte is unknown, because bytes before it are missing.
    pub fn is_beyond_hole(&self, begin: u32) -> bool {
        let parses = matches!(self.framing, framing::CHUNKED | framing::HEAD);
        parses && is_after(begin, self.next_known())
    }

    /// Tells whether a byte belongs to later heads, and bytes before it are missing.
    pub fn is_beyond_head(&self, begin: u32) -> bool {
        self.framing == framing::ENDED && is_after(begin, self.next_known())
    }

    /// Owes the sender a duplicate ACK. Sent at once, it would repeat an older acknowledgement, and the sender would take other bytes for lost.
    fn owe(&mut self) {
        self.owed = self.owed.saturating_add(1);
    }

    /// Returns the ACKs to send now: none as long as the receiver has not acknowledged everything before the hole.
    fn due(&mut self) -> u8 {
        if self.acked == self.top {
            std::mem::take(&mut self.owed)
        } else {
            0
        }
    }
}

impl Pass<'_> {
    /// Reports bytes beyond a hole to the client.
    pub(crate) fn report_requests(&mut self, connection: &mut Connection) {
        connection.requests.owe();
        self.pay_client(connection);
    }

    /// Reports bytes beyond a hole to the backend. The client learns now what the backend has acknowledged with them.
    pub(crate) fn report_answers(&mut self, connection: &mut Connection) {
        connection.answers.owe();
        self.pay_leg(connection);
        if connection.requests.acknowledgement() != connection.requests.told {
            self.acknowledge_client(connection);
        }
    }

    /// Sends the ACKs owed to the client.
    pub(crate) fn pay_client(&mut self, connection: &mut Connection) {
        for _ in 0..connection.requests.due() {
            self.acknowledge_client(connection);
        }
    }

    /// Sends the ACKs owed to the backend.
    pub(crate) fn pay_leg(&mut self, connection: &mut Connection) {
        for _ in 0..connection.answers.due() {
            self.acknowledge_leg(connection);
        }
    }
}
