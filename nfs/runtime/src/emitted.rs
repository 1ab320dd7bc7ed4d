//! The frames that a network function sends besides the packets of a batch.

use nf_ports::{Frame, Offloads, MAX_FRAME, MAX_LARGE_FRAME};

/// The maximum of frames that a network function can add to one batch: 64 KiB in segments of 1,460 bytes for each packet.
pub const MAX_EMITTED: usize = 64 * 45;

/// The maximum of bytes in them; memory is used as far as a function adds frames.
pub const MAX_EMITTED_BYTES: usize = MAX_EMITTED * 1600;

/// The place of frames that leave after all packets.
const LAST: usize = usize::MAX - 1;

/// The frames that a network function sends besides the received packets.
pub struct Emitted {
    frames: Vec<Added>,
    /// The frames' content, one after the other.
    bytes: Vec<u8>,
    /// The index of the packet after which the next frame leaves.
    after: usize,
    is_sorted: bool,
    refused: u64,
}

/// A frame in `Emitted::bytes`.
struct Added {
    start: usize,
    end: usize,
    port: usize,
    after: usize,
    offloads: Offloads,
}

impl Default for Emitted {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            bytes: Vec::new(),
            after: LAST,
            is_sorted: true,
            refused: 0,
        }
    }
}

impl Emitted {
    /// Places the frames emitted from now on after the packet with this index, and before the next packet. Frames with the same place leave in the order
    /// in which they were emitted.
    pub fn follow(&mut self, index: usize) {
        self.after = index.min(LAST);
    }

    /// Places the frames emitted from now on after all packets, which is where a batch starts.
    pub fn follow_all(&mut self) {
        self.after = LAST;
    }

    /// Sends a frame by the port with this index, in the place that [`follow`](Self::follow) has set. Returns false if it cannot: more than
    /// [`MAX_EMITTED`] frames or [`MAX_EMITTED_BYTES`] bytes in one batch, or a frame that is too long. The runtime counts those.
    pub fn emit(&mut self, port: usize, frame: &[u8]) -> bool {
        self.emit_parts(port, &[frame], Offloads::None)
    }

    /// Sends a frame given in parts, for example headers and payload, like [`emit`](Self::emit). The output computes the checksum and splits the frame
    /// if `offloads` says so: a frame of several segments has up to [`MAX_LARGE_FRAME`] bytes. A function need not take such frames to send them.
    pub fn emit_parts(&mut self, port: usize, parts: &[&[u8]], offloads: Offloads) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let longest = match offloads {
            Offloads::Segments(..) => MAX_LARGE_FRAME,
            Offloads::None | Offloads::Checksum(_) => MAX_FRAME,
        };
        let (start, end) = (self.bytes.len(), self.bytes.len() + length);
        if length > longest || self.frames.len() == MAX_EMITTED || end > MAX_EMITTED_BYTES {
            self.refused += 1;
            return false;
        }
        let after = self.after;
        self.is_sorted &= self.frames.last().is_none_or(|last| last.after <= after);
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.frames.push(Added {
            start,
            end,
            port,
            after,
            offloads,
        });
        true
    }

    /// Puts the frames into the order of their places.
    pub(crate) fn sort(&mut self) {
        if !self.is_sorted {
            // Stable: it keeps the order of frames with the same place.
            self.frames.sort_by_key(|frame| frame.after);
            self.is_sorted = true;
        }
    }

    /// Returns the frame at this position if it leaves before the packet with the index `next`: its port and content.
    #[inline]
    pub(crate) fn before(&self, next: usize, position: usize) -> Option<(usize, Frame<'_>)> {
        let added = self.frames.get(position)?;
        (added.after < next).then(|| self.content(added))
    }

    /// Iterates over ports and frames.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = (usize, Frame<'_>)> {
        self.frames.iter().map(|added| self.content(added))
    }

    fn content(&self, added: &Added) -> (usize, Frame<'_>) {
        let frame = Frame {
            bytes: &self.bytes[added.start..added.end],
            offloads: added.offloads,
        };
        (added.port, frame)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.bytes.clear();
        self.after = LAST;
        self.is_sorted = true;
        self.refused = 0;
    }
}
