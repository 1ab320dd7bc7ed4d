//! The packets that are decided together.

use nf_ports::{Packet, Verdict};

/// Frames that a network function may add to one batch.
pub const MAX_EMITTED: usize = 256;

/// At most [`Batch::MAX`] packets, and what the network function adds to them.
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

/// What a network function sends besides the packets that it received.
#[derive(Default)]
pub struct Emitted {
    frames: Vec<Packet>,
    count: usize,
    refused: u64,
}

/// There is no room for another frame, or not for one of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Packets in a batch.
    pub const MAX: usize = 64;

    /// Without packets. Takes memory once: a batch is used again and again.
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

    /// The packets and what is added to them, to be used at once.
    #[inline]
    #[must_use]
    pub fn parts(&mut self) -> (&mut [Packet], &mut Emitted) {
        (&mut self.packets[..self.count], &mut self.emitted)
    }

    /// See [`Emitted::emit`].
    pub fn emit(&mut self, port: usize, frame: &[u8]) -> bool {
        self.emitted.emit(port, frame)
    }

    /// Adds a packet as if it had come in by the port of this index.
    ///
    /// # Errors
    /// The batch is full, or the frame too long.
    pub fn push(&mut self, port: usize, frame: &[u8]) -> Result<(), NoRoom> {
        let packet = self.packets.get_mut(self.count).ok_or(NoRoom)?;
        if !packet.fill(port, frame) {
            return Err(NoRoom);
        }
        self.count += 1;
        Ok(())
    }

    /// Forgets all packets and all that was added.
    pub fn clear(&mut self) {
        self.count = 0;
        self.emitted.count = 0;
        self.emitted.refused = 0;
    }

    /// Packets that can still be filled, for whoever receives; then [`filled`](Self::filled).
    pub fn free(&mut self) -> &mut [Packet] {
        &mut self.packets[self.count..]
    }

    /// The first `count` of [`free`](Self::free) are packets now.
    pub fn filled(&mut self, count: usize) {
        self.count = Self::MAX.min(self.count + count);
    }

    /// The frames that were added, each with the verdict to be sent.
    #[must_use]
    pub fn emitted(&self) -> &[Packet] {
        &self.emitted.frames[..self.emitted.count]
    }

    /// Frames that could not be added since the last [`clear`](Self::clear).
    #[must_use]
    pub fn emit_refused(&self) -> u64 {
        self.emitted.refused
    }
}

impl Emitted {
    /// Sends a frame by the port of this index, after the packets of this batch. False when it cannot: more than [`MAX_EMITTED`]
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
    fn a_batch_holds_so_many_packets_and_no_more() {
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
    fn what_is_emitted_is_bounded_and_what_is_not_is_counted() {
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
