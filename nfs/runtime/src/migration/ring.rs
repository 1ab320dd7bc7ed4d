//! Rings of waiting frames: those that a frozen instance relays, and those that the new one holds.
//!
//! A ring has one writer and one reader, each a thread or a process. A ring in a memfd outlives both, and stores their positions.
//!
//! ```text
//! word 0: words ever written | word 1: frames ever written | word 8: words ever read | word 9: frames ever read | from 16: a power of two of words of records
//! record: length in bytes, port << 32, kind << 40 | number of the frame | the frame's offloads, if its kind says so | the frame, padded to words
//! ```

use std::sync::{atomic::Ordering, Arc};

use nf_arena::{Arena, ArenaBuilder, Memory, Region};
use nf_ports::{Frame, Offloads};

use super::decision::Decision;
use crate::Refusal;

/// The kind of the arena that contains the rings, and its version.
pub(super) const RINGS: (&str, u32) = ("nf-relay", 2);

/// Rings in an arena, one per queue.
pub(super) type Rings = Vec<Arc<Ring<Region>>>;

const WRITTEN: usize = 0;
const NUMBER: usize = 1;
/// The reader's words, on their own cache line.
const READ: usize = 8;
const READ_NUMBER: usize = 9;
const RECORDS: usize = 16;
const RECORD_HEADER: u64 = 2;

const FRAME: u64 = 1;
const END: u64 = 2;
/// A frame whose record has a word of [`Offloads`].
const FRAME_WITH_OFFLOADS: u64 = 3;

/// A record read from a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A frame that arrived at `port`, the `number`-th of its queue.
    Frame {
        port: usize,
        number: u64,
        offloads: Offloads,
    },
    /// The end: nothing follows.
    End,
}

/// The error of a full ring: leave the frame where it is, and retry later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFull;

/// A ring of frames in memory.
pub struct Ring<M> {
    memory: M,
    mask: u64,
}

impl<M: Memory> Ring<M> {
    pub const LAYOUT: &'static str = "frames v1";

    /// Returns the words for a ring with room for at least `bytes` of frames.
    #[must_use]
    pub fn words(bytes: usize) -> usize {
        RECORDS + bytes.div_ceil(8).next_power_of_two()
    }

    /// Opens the ring in this memory, with its content; zeros are an empty ring. `memory` has as many words as [`words`](Self::words) returns.
    #[must_use]
    pub fn open(memory: M) -> Self {
        let room = memory.words().len().saturating_sub(RECORDS).max(1) as u64;
        // The largest power of two that fits, for any size of memory.
        let mask = (1_u64 << room.ilog2()) - 1;
        Self { memory, mask }
    }

    /// Appends a frame. Only the writer may call this.
    ///
    /// # Errors
    /// [`RingFull`], without a change.
    pub fn push(&self, port: usize, frame: Frame<'_>) -> Result<(), RingFull> {
        let kind = if frame.offloads.is_none() {
            FRAME
        } else {
            FRAME_WITH_OFFLOADS
        };
        self.write(kind, port, frame)
    }

    /// Appends the end: nothing follows. Only the writer may call this.
    ///
    /// # Errors
    /// Those of [`push`](Self::push).
    pub fn end(&self) -> Result<(), RingFull> {
        self.write(END, 0, Frame::from(&[][..]))
    }

    /// Takes the next record; a frame's bytes replace the content of `frame`. Only the reader may call this.
    pub fn pop(&self, frame: &mut Vec<u8>) -> Option<Record> {
        let read = self.get(READ, Ordering::Relaxed);
        if read == self.get(WRITTEN, Ordering::Acquire) {
            return None;
        }
        let header = self.record_word(read);
        let number = self.record_word(read + 1);
        let kind = header >> 40;
        let length = (header as u32 as usize).min(self.mask as usize * 8);
        let header_words = Self::header_words(kind);
        let offloads = if kind == FRAME_WITH_OFFLOADS {
            Offloads::from_bits(self.record_word(read + RECORD_HEADER))
        } else {
            Offloads::None
        };
        frame.clear();
        for index in 0..length.div_ceil(8) {
            let word = self
                .record_word(read + header_words + index as u64)
                .to_le_bytes();
            frame.extend_from_slice(&word[..(length - index * 8).min(8)]);
        }
        self.put(READ, read + header_words + length.div_ceil(8) as u64);
        Some(match kind {
            END => Record::End,
            _ => {
                // Last: if this reader dies here, its successor must not take the frame for read.
                self.put(READ_NUMBER, number + 1);
                Record::Frame {
                    port: (header >> 32) as usize & 0xff,
                    number,
                    offloads,
                }
            }
        })
    }

    /// Returns how many frames of up to `length` bytes [`push`](Self::push) can certainly take now; 8 bytes more for each frame with offloads.
    #[must_use]
    pub fn room(&self, length: usize) -> usize {
        let used = self.get(WRITTEN, Ordering::Relaxed) - self.get(READ, Ordering::Acquire);
        // One record is reserved for the end.
        ((self.mask + 1 - used).saturating_sub(Self::record_words(0)) / Self::record_words(length))
            as usize
    }

    /// Tells whether everything written has been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.get(READ, Ordering::Acquire) == self.get(WRITTEN, Ordering::Acquire)
    }

    /// Returns the number of frames ever written.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.get(NUMBER, Ordering::Acquire)
    }

    /// Returns the number of frames ever read.
    #[must_use]
    pub fn frames_read(&self) -> u64 {
        let written = self.frames();
        if self.is_empty() {
            return written; // even if a reader died before it counted the last one
        }
        self.get(READ_NUMBER, Ordering::Acquire)
    }

    fn write(&self, kind: u64, port: usize, frame: Frame<'_>) -> Result<(), RingFull> {
        let written = self.get(WRITTEN, Ordering::Relaxed);
        let used = written - self.get(READ, Ordering::Acquire);
        let length = frame.bytes.len();
        let header_words = Self::header_words(kind);
        let words = header_words + length.div_ceil(8) as u64;
        if used + words > self.mask + 1 {
            return Err(RingFull);
        }
        let number = self.get(NUMBER, Ordering::Relaxed);
        self.put_record_word(written, length as u64 | (port as u64) << 32 | kind << 40);
        self.put_record_word(written + 1, number);
        if kind == FRAME_WITH_OFFLOADS {
            self.put_record_word(written + RECORD_HEADER, frame.offloads.to_bits());
        }
        for (index, chunk) in frame.bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.put_record_word(
                written + header_words + index as u64,
                u64::from_le_bytes(word),
            );
        }
        if kind != END {
            self.put(NUMBER, number + 1);
        }
        // Last, with Release: whoever sees the record sees all of it, even if this process dies here.
        self.put(WRITTEN, written + words);
        Ok(())
    }

    fn header_words(kind: u64) -> u64 {
        RECORD_HEADER + u64::from(kind == FRAME_WITH_OFFLOADS)
    }

    /// Returns the words of a record without offloads.
    fn record_words(length: usize) -> u64 {
        RECORD_HEADER + length.div_ceil(8) as u64
    }

    fn record_word(&self, position: u64) -> u64 {
        self.get(RECORDS + (position & self.mask) as usize, Ordering::Relaxed)
    }

    fn put_record_word(&self, position: u64, value: u64) {
        self.memory.words()[RECORDS + (position & self.mask) as usize]
            .store(value, Ordering::Relaxed);
    }

    fn get(&self, index: usize, order: Ordering) -> u64 {
        self.memory.words()[index].load(order)
    }

    fn put(&self, index: usize, value: u64) {
        self.memory.words()[index].store(value, Ordering::Release);
    }
}

/// Opens rings of `words` words, one per queue, and the decision: in a new arena, or in that of another instance.
pub(super) fn rings(
    mut builder: ArenaBuilder,
    count: usize,
    words: usize,
) -> Result<(Arena, Rings, Decision), Refusal> {
    let mut rings = Vec::with_capacity(count);
    for index in 0..count {
        let region = builder.region(&format!("queue {index}"), Ring::<Region>::LAYOUT, words)?;
        rings.push(Arc::new(Ring::open(region)));
    }
    let decision = Decision::open(&mut builder)?;
    Ok((builder.finish()?, rings, decision))
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, thread};

    use nf_arena::Heap;
    use proptest::prelude::*;

    use super::*;

    fn ring(bytes: usize) -> Ring<Heap> {
        Ring::open(Heap::new(Ring::<Heap>::words(bytes)).unwrap())
    }

    /// Any offloads, half of them none.
    fn offloads() -> impl Strategy<Value = Offloads> {
        (any::<bool>(), any::<u64>()).prop_map(|(any, bits)| {
            if any {
                Offloads::from_bits(bits)
            } else {
                Offloads::None
            }
        })
    }

    fn plain(bytes: &[u8]) -> Frame<'_> {
        Frame::from(bytes)
    }

    proptest! {
        #[test]
        fn frames_come_out_unchanged_and_in_order(steps in prop::collection::vec((any::<bool>(), 0_usize..3, 0_usize..200, offloads()), 0..300)) {
            let ring = ring(1024);
            let (mut model, mut number, mut frame) = (VecDeque::new(), 0, Vec::new());
            for (push, port, length, offloads) in steps {
                if push {
                    let bytes: Vec<u8> = (0..length).map(|index| (index + number as usize) as u8).collect();
                    match ring.push(port, Frame { bytes: &bytes, offloads }) {
                        Ok(()) => {
                            model.push_back((port, number, offloads, bytes));
                            number += 1;
                        }
                        Err(RingFull) => prop_assert!(!model.is_empty()),
                    }
                } else {
                    let got = ring.pop(&mut frame);
                    let expected = model.pop_front();
                    prop_assert_eq!(got, expected.as_ref().map(|(port, number, offloads, _)| Record::Frame { port: *port, number: *number, offloads: *offloads }));
                    if let Some((_, _, _, bytes)) = expected {
                        prop_assert_eq!(&frame, &bytes);
                    }
                }
                prop_assert_eq!(ring.is_empty(), model.is_empty());
            }
            prop_assert_eq!(ring.frames(), number);
            prop_assert_eq!(ring.frames_read(), number - model.len() as u64);
        }
    }

    #[test]
    fn as_many_frames_fit_as_room_reports() {
        for (bytes, words) in [(0, 17), (8, 17), (9, 18), (1024, 144), (1025, 272)] {
            assert_eq!(Ring::<Heap>::words(bytes), words);
        }
        let mut frame = Vec::new();
        // 128 words of records: each takes two words and the frame's, and two are reserved for the end.
        for (length, room) in [(0, 63), (1, 42), (8, 42), (9, 31), (1000, 0), (992, 1)] {
            let ring = ring(1024);
            for turn in 0..3 {
                assert_eq!(ring.room(length), room, "{length}");
                (0..room).for_each(|_| ring.push(1, plain(&vec![7; length])).unwrap());
                assert_eq!(ring.room(length), 0);
                assert_eq!(ring.end(), Ok(()));
                assert_eq!(ring.push(1, plain(&[7; 1000])), Err(RingFull));
                for number in 0..room as u64 {
                    let number = number + turn * room as u64;
                    assert_eq!(
                        ring.pop(&mut frame),
                        Some(Record::Frame {
                            port: 1,
                            number,
                            offloads: Offloads::None
                        })
                    );
                    assert_eq!(frame, vec![7; length]);
                }
                assert_eq!(ring.pop(&mut frame), Some(Record::End));
                assert_eq!(ring.pop(&mut frame), None);
            }
        }
        let (full, end) = (ring(1024), [0; 126 * 8]);
        assert_eq!(
            full.push(1, plain(&end[1..])),
            Ok(()),
            "exactly as long as the ring"
        );
        assert_eq!((full.end(), full.is_empty()), (Err(RingFull), false));
        // Memory of another size: the ring uses the largest power of two in it.
        assert_eq!(Ring::open(Heap::new(16 + 127).unwrap()).room(0), 31);
    }

    #[test]
    fn an_uncounted_frame_of_a_dead_reader_counts_as_read() {
        let (ring, mut frame) = (ring(1024), Vec::new());
        for number in 0..3_u8 {
            ring.push(0, plain(&[number])).unwrap();
        }
        for read in 1..=3 {
            ring.pop(&mut frame).unwrap();
            ring.put(READ_NUMBER, read - 1);
            assert_eq!(ring.frames_read(), if read < 3 { read - 1 } else { 3 });
        }
    }

    #[test]
    fn a_writer_and_a_reader_run_concurrently() {
        const FRAMES: u64 = 50_000;
        let ring = ring(4096);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..FRAMES {
                    let frame = number.to_le_bytes().repeat(1 + number as usize % 30);
                    while ring.push(0, plain(&frame)).is_err() {
                        thread::yield_now();
                    }
                }
                while ring.end().is_err() {
                    thread::yield_now();
                }
            });
            let (mut expected, mut frame) = (0, Vec::new());
            loop {
                match ring.pop(&mut frame) {
                    None => thread::yield_now(),
                    Some(Record::End) => break,
                    Some(Record::Frame { number, .. }) => {
                        assert_eq!(number, expected);
                        assert_eq!(frame, number.to_le_bytes().repeat(1 + number as usize % 30));
                        expected += 1;
                    }
                }
            }
            assert_eq!(expected, FRAMES);
        });
    }
}
