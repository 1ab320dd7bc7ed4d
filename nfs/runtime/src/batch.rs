//! Batches: packets that are decided together.

use nf_ports::{Packet, Verdict};

/// The frames that a network function may add to one batch.
pub const MAX_EMITTED: usize = 256;

/// At most [`Batch::MAX`] packets, and the frames that the network function adds.
///
/// ```
/// use nf_runtime::{Batch, Verdict};
/// let mut batch = Batch::new();
/// batch.push(0, b"a frame").unwrap();
/// let (packets, emitted) = batch.parts();
/// for packet in packets {
///     packet.send(1 - packet.port());
///     emitted.emit(0, b"seen one");
/// }
/// assert_eq!(batch.packets()[0].verdict(), Verdict::Send(1));
/// ```
pub struct Batch {
    packets: Box<[Packet]>,
    count: usize,
    emitted: Emitted,
}

/// The frames that a network function sends besides the received packets.
#[derive(Default)]
pub struct Emitted {
    frames: Vec<Packet>,
    count: usize,
    refused: u64,
}

/// The error of a full batch, or of a frame that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// The maximum of packets in a batch.
    pub const MAX: usize = 64;

    /// Creates an empty batch. Allocates once: a batch is reused.
    #[must_use]
    pub fn new() -> Self {
        Self {
            packets: (0..Self::MAX).map(|_| Packet::new()).collect(),
            count: 0,
            emitted: Emitted::default(),
        }
    }

    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    #[must_use]
    pub fn packets(&self) -> &[Packet] {
        &self.packets[..self.count]
    }

    #[inline]
    #[must_use]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        &mut self.packets[..self.count]
    }

    /// Returns the packets and the added frames, for use at the same time.
    #[inline]
    #[must_use]
    pub fn parts(&mut self) -> (&mut [Packet], &mut Emitted) {
        (&mut self.packets[..self.count], &mut self.emitted)
    }

    /// See [`Emitted::emit`].
    pub fn emit(&mut self, port: usize, frame: &[u8]) -> bool {
        self.emitted.emit(port, frame)
    }

    /// Adds a packet as if it had arrived by the port with this index.
    ///
    /// # Errors
    /// If the batch is full, or the frame too long.
    pub fn push(&mut self, port: usize, frame: &[u8]) -> Result<(), NoRoom> {
        let packet = self.packets.get_mut(self.count).ok_or(NoRoom)?;
        if !packet.fill(port, frame) {
            return Err(NoRoom);
        }
        self.count += 1;
        Ok(())
    }

    /// Removes all packets and added frames.
    pub fn clear(&mut self) {
        self.count = 0;
        self.emitted.count = 0;
        self.emitted.refused = 0;
    }

    /// Returns the packets that are still free for receiving; call [`filled`](Self::filled) afterwards.
    pub fn free(&mut self) -> &mut [Packet] {
        &mut self.packets[self.count..]
    }

    /// Adds the first `count` packets of [`free`](Self::free) to the batch.
    pub fn filled(&mut self, count: usize) {
        self.count = Self::MAX.min(self.count + count);
    }

    /// Returns the added frames, each with the verdict to send it.
    #[must_use]
    pub fn emitted(&self) -> &[Packet] {
        &self.emitted.frames[..self.emitted.count]
    }

    /// Returns the number of frames that could not be added since the last [`clear`](Self::clear).
    #[must_use]
    pub fn emit_refused(&self) -> u64 {
        self.emitted.refused
    }
}

impl Emitted {
    /// Sends a frame by the port with this index, after the packets of this batch. Returns false if it cannot: more than [`MAX_EMITTED`]
    /// frames in one batch, or a frame that is too long. The runtime counts those.
    pub fn emit(&mut self, port: usize, frame: &[u8]) -> bool {
        if self.count == self.frames.len() && self.count < MAX_EMITTED {
            self.frames.push(Packet::new());
        }
        let done = self.frames.get_mut(self.count).is_some_and(|packet| {
            let fits = packet.fill(port, frame);
            packet.set_verdict(Verdict::Send(port));
            fits
        });
        if done {
            self.count += 1;
        } else {
            self.refused += 1;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf_ports::MAX_FRAME;

    #[test]
    fn a_batch_holds_at_most_its_maximum_of_packets() {
        let mut batch = Batch::new();
        for index in 0..Batch::MAX {
            batch.push(index, &[index as u8; 60]).unwrap();
        }
        assert_eq!(batch.push(0, b"one more"), Err(NoRoom));
        assert!(batch.free().is_empty());
        assert_eq!(batch.packets()[63].bytes(), [63; 60]);
        batch.clear();
        assert_eq!((batch.len(), batch.free().len()), (0, Batch::MAX));
        assert_eq!(batch.push(0, &[0; MAX_FRAME + 1]), Err(NoRoom));
        assert!(batch.is_empty());
    }

    #[test]
    fn emitted_frames_are_bounded_and_the_others_counted() {
        let mut batch = Batch::new();
        assert!(!batch.emit(0, &[0; MAX_FRAME + 1]));
        for _ in 0..MAX_EMITTED {
            assert!(batch.emit(1, b"frame"));
        }
        assert!(!batch.emit(1, b"one more"));
        assert_eq!(batch.emitted().len(), MAX_EMITTED);
        assert_eq!(batch.emitted()[0].verdict(), Verdict::Send(1));
        assert_eq!(batch.emit_refused(), 2);
        batch.clear();
        assert_eq!((batch.emitted().len(), batch.emit_refused()), (0, 0));
        assert!(batch.emit(0, b"again"));
    }
}
