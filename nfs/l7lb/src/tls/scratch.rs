//! Buffers of a worker for endpoints, among them the segments that the engine has sent to clients.

use nf_runtime::{state::SlabId, Packet};

use crate::segments::{Outgoing, Segment};

/// Buffers of a worker.
pub struct Scratch {
    pub heard: Heard,
    pub(super) plain: Vec<u8>,
    pub(super) records: Vec<u8>,
    pub(super) payload: Vec<u8>,
    /// The bytes of a segment to the engine.
    pub(super) packet: Packet,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            heard: Heard::default(),
            plain: Vec::new(),
            records: Vec::new(),
            payload: Vec::new(),
            packet: Packet::large(),
        }
    }
}

/// Segments that the engine has sent to clients of endpoints.
#[derive(Default)]
pub struct Heard {
    segments: Vec<One>,
    bytes: Vec<u8>,
}

struct One {
    endpoint: SlabId,
    segment: Segment,
}

impl Heard {
    /// Notes a segment of the engine. Its bytes are `payload`.
    pub fn push(&mut self, endpoint: SlabId, segment: &Outgoing<'_>) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(segment.payload);
        self.segments.push(One {
            endpoint,
            segment: Segment {
                flags: segment.flags,
                seq: segment.seq,
                ack: segment.ack,
                window: segment.window,
                at,
                len: segment.payload.len(),
                stamps: None,
                syn: None,
            },
        });
    }

    /// Returns the endpoint to which the segments go.
    pub fn endpoint(&self) -> Option<SlabId> {
        self.segments.first().map(|one| one.endpoint)
    }

    /// Iterates over the segments with their bytes.
    pub(super) fn segments(&self) -> impl Iterator<Item = (SlabId, &Segment, &[u8])> {
        let each = self.segments.iter();
        each.map(|one| (one.endpoint, &one.segment, one.segment.payload(&self.bytes)))
    }

    pub fn clear(&mut self) {
        self.segments.clear();
        self.bytes.clear();
    }
}
