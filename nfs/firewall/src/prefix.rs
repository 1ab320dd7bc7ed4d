//! The first packets of flows, as they came: for the inspector, for its successor after a restart, and until they may leave.

use bytemuck::{Pod, Zeroable};
use nf_arena::Region;
use nf_packet::protocol;
use nf_runtime::{
    state::{ByteQueue, ChunkPool, Reader, StateBuilder},
    Refusal, MAX_FRAME,
};

use crate::{flows::Cold, inspection::Request};

/// The size of a chunk: most first packets are short.
const CHUNK: usize = 256;
/// The bytes of a chunk with its own header in the pool.
const WHOLE_CHUNK: usize = CHUNK + 32;

/// The head of a stored packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Stored {
    /// The number of the packet among the stored packets of all flows, in the order of their arrival.
    pub sequence: u64,
    pub time: u64,
    pub length: u32,
    /// The offset of the IP header, and of the end of the IP packet.
    pub network: u16,
    pub port: u8,
    /// The end that sent it.
    pub sender: u8,
    pub end: u32,
    /// TCP: the number of its first byte of payload, the offset of that, and whether there is any.
    pub number: u32,
    pub payload: u16,
    pub reserved: [u8; 6],
}

const HEAD: usize = size_of::<Stored>();

impl Stored {
    /// Returns the request that gives it to the inspector, at a time not before this one.
    pub fn request<'a>(&self, flow: u64, frame: &'a [u8], latest: u64) -> Request<'a> {
        let packet = frame.get(usize::from(self.network)..self.end as usize);
        Request::Packet {
            flow,
            sequence: self.sequence,
            time_ms: self.time.max(latest) / 1_000_000,
            bytes: packet.unwrap_or_default(),
        }
    }

    /// Returns the payload of TCP, or of a datagram, in the frame.
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame
            .get(usize::from(self.payload)..self.end as usize)
            .unwrap_or_default()
    }

    /// Tells whether [`payload`](Self::payload) has bytes.
    pub fn has_payload(&self) -> bool {
        u32::from(self.payload) < self.end && self.end <= self.length
    }

    /// Tells whether the answer to it may end the inspection of its flow.
    pub fn is_telling(&self, of: u8) -> bool {
        of != protocol::TCP || self.has_payload()
    }
}

impl Cold {
    /// Tells whether the prefix takes no more packets: it has as many as are inspected, or another one of the greatest length might not fit.
    pub fn is_full(&self, limit: u8) -> bool {
        is_full(self.stored, self.prefix.len(), limit)
    }

    /// Tells whether the prefix takes no more packets after a frame of this length.
    pub fn is_full_with(&self, length: usize, limit: u8) -> bool {
        let stored = self.stored.saturating_add(1);
        is_full(stored, self.prefix.len() + HEAD + length, limit)
    }

    /// Tells whether the inspector has got all packets that it ever will, and was not asked for its best guess.
    pub fn lacks_guess(&self, limit: u8) -> bool {
        self.is_full(limit) && self.submitted == self.stored && self.given_up == 0
    }
}

fn is_full(stored: u8, bytes: usize, limit: u8) -> bool {
    stored >= limit || bytes + HEAD + MAX_FRAME > ByteQueue::MAX_BYTES
}

/// The memory of all prefixes.
pub struct Prefixes {
    pool: ChunkPool,
}

impl Prefixes {
    /// # Errors
    /// If memory runs out.
    pub fn declare(mebibytes: usize, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let chunks = (mebibytes << 20) / WHOLE_CHUNK;
        let pool = state.chunk_pool("prefixes", chunks, CHUNK)?;
        Ok(Self { pool })
    }

    /// Returns free and all bytes.
    pub fn room(&self) -> (usize, usize) {
        (self.pool.free() * CHUNK, self.pool.capacity() * CHUNK)
    }

    /// Tells whether a packet with this number of bytes fits into the pool.
    pub fn has_room(&self, bytes: usize) -> bool {
        (bytes + HEAD).div_ceil(CHUNK) < self.pool.free()
    }

    /// Appends a packet to a flow's prefix. False: the prefix is too long, or the pool full.
    pub fn store(&self, cold: &mut Cold, stored: Stored, frame: &[u8]) -> bool {
        let bytes = HEAD + frame.len();
        if cold.prefix.len() + bytes > ByteQueue::MAX_BYTES || !self.has_room(frame.len()) {
            return false;
        }
        cold.prefix.append(&self.pool, bytemuck::bytes_of(&stored));
        cold.prefix.append(&self.pool, frame);
        cold.stored += 1;
        true
    }

    /// Calls `look` with the head of each stored packet, and what reads its frame, until it returns false.
    pub fn heads(
        &self,
        cold: &Cold,
        mut look: impl FnMut(u8, &Stored, &Reader<'_, Region>) -> bool,
    ) {
        let mut reader = cold.prefix.reader(&self.pool);
        for index in 0..cold.stored {
            let mut stored = Stored::default();
            let head = reader.read(bytemuck::bytes_of_mut(&mut stored));
            let length = stored.length as usize;
            if head < HEAD || length > reader.left() || !look(index, &stored, &reader) {
                return;
            }
            reader.skip(length);
        }
    }

    /// Calls `look` with each stored packet from the one with this index on, until it returns false.
    pub fn each(&self, cold: &Cold, from: u8, mut look: impl FnMut(u8, &Stored, &[u8]) -> bool) {
        let mut frame = Vec::new();
        self.heads(cold, |index, stored, reader| {
            if index < from {
                return true;
            }
            let length = stored.length as usize;
            frame.resize(length, 0);
            let read = reader.clone().read(&mut frame);
            read == length && look(index, stored, &frame)
        });
    }

    /// Returns the first stored packet's index and head that `is_wanted` accepts.
    pub fn find(
        &self,
        cold: &Cold,
        is_wanted: impl Fn(u8, &Stored) -> bool,
    ) -> Option<(u8, Stored)> {
        let mut found = None;
        self.heads(cold, |index, stored, _| {
            found = is_wanted(index, stored).then_some((index, *stored));
            found.is_none()
        });
        found
    }

    /// Returns a stored packet.
    pub fn packet(&self, cold: &Cold, wanted: u8) -> Option<(Stored, Vec<u8>)> {
        let mut found = None;
        self.heads(cold, |index, stored, reader| {
            if index < wanted {
                return true;
            }
            let mut frame = vec![0; stored.length as usize];
            let read = reader.clone().read(&mut frame);
            found = (read == frame.len()).then_some((*stored, frame));
            false
        });
        found
    }

    /// Tells whether bytes of an end equal those that were stored where they overlap.
    pub fn agrees(&self, cold: &Cold, sender: u8, number: u32, payload: &[u8]) -> bool {
        let mut agrees = true;
        self.each(cold, 0, |_, stored, frame| {
            let old = stored.payload(frame);
            if stored.sender != sender || old.is_empty() {
                return true;
            }
            // The distance between their beginnings, of which one is 0.
            let ahead = number.wrapping_sub(stored.number) as usize;
            let behind = stored.number.wrapping_sub(number) as usize;
            let (old, new) = if ahead < old.len() {
                (&old[ahead..], payload)
            } else if behind < payload.len() {
                (old, &payload[behind..])
            } else {
                return true;
            };
            agrees = old.iter().zip(new).all(|(old, new)| old == new);
            agrees
        });
        agrees
    }

    /// Forgets a prefix.
    pub fn clear(&self, cold: &mut Cold) {
        cold.prefix.clear(&self.pool);
        (cold.stored, cold.submitted, cold.released, cold.answered) = (0, 0, 0, 0);
    }

    /// Frees the memory of flows that a kill has torn; `owns` returns the prefix of a slot.
    pub fn repair(&self, owns: impl Fn(u32) -> Option<ByteQueue>) {
        self.pool.free_orphans(|slot, chunk| {
            owns(slot).is_some_and(|prefix| prefix.chunks(&self.pool).any(|one| one == chunk))
        });
    }

    /// Tells whether a prefix still has all its bytes.
    pub fn is_whole(&self, cold: &Cold) -> bool {
        cold.prefix.is_whole(&self.pool)
    }
}
