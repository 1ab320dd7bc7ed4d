//! Interfaces of stores, sinks and sources for frames that are not processed now; migration implements them.

use std::collections::VecDeque;

use nf_ports::{Frame, Offloads, Packet};

/// A sink for frames, in order. One worker at a time puts frames into it.
pub trait FrameSink: Send {
    /// Returns the number of frames of up to `longest` bytes that it can certainly take now.
    fn room(&self, longest: usize) -> usize;

    /// Appends a frame that arrived by the port with this index. Called only if there is [`room`](Self::room).
    fn put(&mut self, port: usize, frame: Frame<'_>);
}

/// A filter in front of a store or sink.
pub trait FrameWatch: Send + Sync {
    /// Consumes a frame; returns false for an ordinary frame.
    fn takes(&self, frame: &[u8]) -> bool;
}

/// A source of frames, in order. One worker at a time takes from it; it may be filled concurrently.
pub trait FrameSource: Send {
    /// Puts the next frame, if any, into `packet` ([`Packet::fill_with`]). A frame that the packet cannot hold is dropped.
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
    frames: VecDeque<(usize, Box<[u8]>, Offloads)>,
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
    fn room(&self, longest: usize) -> usize {
        self.capacity.saturating_sub(self.bytes) / (longest + Self::OVERHEAD)
    }

    fn put(&mut self, port: usize, frame: Frame<'_>) {
        self.bytes += frame.bytes.len() + Self::OVERHEAD;
        self.frames
            .push_back((port, frame.bytes.into(), frame.offloads));
    }
}

impl FrameSource for MemoryStore {
    fn take(&mut self, packet: &mut Packet) -> Taken {
        while let Some((port, bytes, offloads)) = self.frames.pop_front() {
            self.bytes -= bytes.len() + Self::OVERHEAD;
            let frame = Frame {
                bytes: &bytes,
                offloads,
            };
            if packet.fill_with(port, frame) {
                return Taken::Frame;
            }
        }
        Taken::End
    }
}

impl FrameStore for MemoryStore {
    fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use nf_ports::{PartialChecksum, MAX_FRAME, MAX_LARGE_FRAME};

    use super::*;

    #[test]
    fn taking_frames_makes_room_again() {
        let mut store = MemoryStore::new(4 * (MAX_FRAME + MemoryStore::OVERHEAD));
        let empty = store.room(MAX_FRAME);
        assert_eq!(empty, 4);
        assert_eq!(store.room(MAX_LARGE_FRAME), 0);
        let frame = [1; MAX_FRAME];
        (0..4).for_each(|port| store.put(port, Frame::from(&frame[..])));
        assert_eq!((store.room(MAX_FRAME), store.is_empty()), (0, false));
        let mut packet = Packet::new();
        for port in 0..4 {
            assert_eq!(store.take(&mut packet), Taken::Frame);
            assert_eq!((packet.port(), packet.bytes()), (port, &frame[..]));
            assert_eq!(store.room(MAX_FRAME), port + 1);
        }
        assert_eq!(
            (store.take(&mut packet), store.is_empty()),
            (Taken::End, true)
        );
    }

    #[test]
    fn offloads_are_kept_for_packets_that_can_have_them() {
        let checksum = PartialChecksum {
            start: 34,
            field: 16,
        };
        let large = Frame {
            bytes: &[2; 60],
            offloads: Offloads::Checksum(checksum),
        };
        let mut store = MemoryStore::new(1 << 20);
        let room = store.room(MAX_FRAME);
        store.put(0, large);
        store.put(1, large);
        store.put(2, Frame::from(&[3; 60][..]));
        let mut packet = Packet::large();
        assert_eq!(store.take(&mut packet), Taken::Frame);
        assert_eq!((packet.port(), packet.frame()), (0, large));
        let mut packet = Packet::new();
        assert_eq!(store.take(&mut packet), Taken::Frame);
        assert_eq!((packet.port(), packet.bytes()), (2, &[3; 60][..]));
        assert_eq!(store.take(&mut packet), Taken::End);
        assert_eq!(store.room(MAX_FRAME), room);
    }
}
