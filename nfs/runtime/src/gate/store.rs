//! Interfaces of stores, sinks and sources for frames that are not processed now; migration implements them.

use std::collections::VecDeque;

use nf_ports::{Packet, MAX_FRAME};

/// A sink for frames, in order. One worker at a time puts frames into it.
pub trait FrameSink: Send {
    /// Returns the number of frames of any length that it can certainly take now.
    fn room(&self) -> usize;

    /// Appends a frame that arrived by the port with this index. Called only if there is [`room`](Self::room).
    fn put(&mut self, port: usize, frame: &[u8]);
}

/// A source of frames, in order. One worker at a time takes from it; it may be filled concurrently.
pub trait FrameSource: Send {
    /// Puts the next frame, if any, into `packet` ([`Packet::fill`]).
    fn take(&mut self, packet: &mut Packet) -> Taken;
}

/// The result of taking from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Frame,
    /// None now; more may come.
    Nothing,
    /// None now or later.
    End,
}

/// A store that returns its frames in order. [`Taken::End`] and [`Taken::Nothing`] both mean that it is empty.
pub trait FrameStore: FrameSink + FrameSource {
    fn is_empty(&self) -> bool;
}

/// A store in this process's memory, limited in bytes.
pub struct MemoryStore {
    frames: VecDeque<(usize, Box<[u8]>)>,
    bytes: usize,
    capacity: usize,
}

impl MemoryStore {
    /// The overhead of a frame in bytes, besides its content.
    const OVERHEAD: usize = 64;

    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            bytes: 0,
            capacity,
        }
    }
}

impl FrameSink for MemoryStore {
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.bytes) / (MAX_FRAME + Self::OVERHEAD)
    }

    fn put(&mut self, port: usize, frame: &[u8]) {
        self.bytes += frame.len() + Self::OVERHEAD;
        self.frames.push_back((port, frame.into()));
    }
}

impl FrameSource for MemoryStore {
    fn take(&mut self, packet: &mut Packet) -> Taken {
        let Some((port, frame)) = self.frames.pop_front() else {
            return Taken::End;
        };
        self.bytes -= frame.len() + Self::OVERHEAD;
        // A stored frame was a packet, so it fits into one.
        let _ = packet.fill(port, &frame);
        Taken::Frame
    }
}

impl FrameStore for MemoryStore {
    fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_frames_makes_room_again() {
        let mut store = MemoryStore::new(4 * (MAX_FRAME + MemoryStore::OVERHEAD));
        let empty = store.room();
        assert_eq!(empty, 4);
        let frame = [1; MAX_FRAME];
        (0..4).for_each(|port| store.put(port, &frame));
        assert_eq!((store.room(), store.is_empty()), (0, false));
        let mut packet = Packet::new();
        for port in 0..4 {
            assert_eq!(store.take(&mut packet), Taken::Frame);
            assert_eq!((packet.port(), packet.bytes()), (port, &frame[..]));
            assert_eq!(store.room(), port + 1);
        }
        assert_eq!(
            (store.take(&mut packet), store.is_empty()),
            (Taken::End, true)
        );
    }
}
