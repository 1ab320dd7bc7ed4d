//! Where frames wait that are not to be processed now: what migration implements.

use std::collections::VecDeque;

use nf_ports::{Packet, MAX_FRAME};

/// Takes frames in order. One worker at a time puts into it.
pub trait FrameSink: Send {
    /// Frames of any length that it surely takes now.
    fn room(&self) -> usize;

    /// Appends a frame that came in by the port of this index. Called only where there is [`room`](Self::room).
    fn put(&mut self, port: usize, frame: &[u8]);
}

/// Gives frames in order. One worker at a time takes from it; it may be filled elsewhere meanwhile.
pub trait FrameSource: Send {
    /// Puts the next frame, if there is one, into `packet` ([`Packet::fill`]).
    fn take(&mut self, packet: &mut Packet) -> Taken;
}

/// What a source gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Frame,
    /// None now; there may be more.
    Nothing,
    /// None now and none later.
    End,
}

/// Gives back in order what was put into it. [`Taken::End`] and [`Taken::Nothing`] say the same of it: it is empty.
pub trait FrameStore: FrameSink + FrameSource {
    fn is_empty(&self) -> bool;
}

/// A store in this process' memory, for so many bytes of frames.
pub struct MemoryStore {
    frames: VecDeque<(usize, Box<[u8]>)>,
    bytes: usize,
    capacity: usize,
}

impl MemoryStore {
    /// A frame costs its bytes and about so many more.
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
        // What was a packet fits into one.
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
    fn what_is_taken_makes_room_again() {
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
