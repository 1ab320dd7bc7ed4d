//! Batches: packets that are decided together.

use nf_ports::{Frame, Packet, Verdict};

use crate::emitted::Emitted;

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

/// Iterates over the frames that leave; see [`Batch::leaving`].
pub struct Leaving<'a> {
    packets: &'a [Packet],
    next: usize,
    emitted: &'a Emitted,
    next_emitted: usize,
}

/// The error of a full batch, or of a frame that a packet cannot hold.
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
        Self::of(false)
    }

    /// Creates an empty batch, whose packets are [large](Packet::large) if `large`: for a function with
    /// [large frames](crate::NetworkFunction::LARGE_FRAMES).
    #[must_use]
    pub fn of(large: bool) -> Self {
        let packet = if large { Packet::large } else { Packet::new };
        Self {
            packets: (0..Self::MAX).map(|_| packet()).collect(),
            count: 0,
            emitted: Emitted::default(),
        }
    }

    /// Returns the length of the longest frame that a packet can receive.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.packets[0].longest()
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
        self.push_with(port, Frame::from(frame))
    }

    /// Adds a packet with offloads.
    ///
    /// # Errors
    /// Those of [`push`](Self::push), or if the frame has offloads and packets are not [large](Packet::large).
    pub fn push_with(&mut self, port: usize, frame: Frame<'_>) -> Result<(), NoRoom> {
        let packet = self.packets.get_mut(self.count).ok_or(NoRoom)?;
        if !packet.fill_with(port, frame) {
            return Err(NoRoom);
        }
        self.count += 1;
        Ok(())
    }

    /// Removes all packets and added frames.
    pub fn clear(&mut self) {
        self.count = 0;
        self.emitted.clear();
    }

    /// Returns the packets that are still free for receiving; call [`filled`](Self::filled) afterwards.
    pub fn free(&mut self) -> &mut [Packet] {
        &mut self.packets[self.count..]
    }

    /// Adds the first `count` packets of [`free`](Self::free) to the batch.
    pub fn filled(&mut self, count: usize) {
        self.count = Self::MAX.min(self.count + count);
    }

    /// Iterates over the frames that leave, by any port, in order: port and frame.
    #[must_use]
    pub fn leaving(&mut self) -> Leaving<'_> {
        self.emitted.sort();
        Leaving {
            packets: &self.packets[..self.count],
            next: 0,
            emitted: &self.emitted,
            next_emitted: 0,
        }
    }

    /// Iterates over the added frames: port and frame.
    pub fn emitted(&self) -> impl ExactSizeIterator<Item = (usize, Frame<'_>)> {
        self.emitted.all()
    }

    /// Returns the number of frames that could not be added since the last [`clear`](Self::clear).
    #[must_use]
    pub fn emit_refused(&self) -> u64 {
        self.emitted.refused()
    }
}

impl<'a> Iterator for Leaving<'a> {
    type Item = (usize, Frame<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // After the last packet, all others follow.
            let next = if self.next < self.packets.len() {
                self.next
            } else {
                usize::MAX
            };
            if let Some(frame) = self.emitted.before(next, self.next_emitted) {
                self.next_emitted += 1;
                return Some(frame);
            }
            let packet = self.packets.get(self.next)?;
            self.next += 1;
            if let Verdict::Send(port) = packet.verdict() {
                return Some((port, packet.frame()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nf_ports::{Offloads, MAX_FRAME, MAX_LARGE_FRAME};
    use proptest::prelude::*;

    use super::*;
    use crate::emitted::{MAX_EMITTED, MAX_EMITTED_BYTES};

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
        assert_eq!(
            batch.emitted().next(),
            Some((1, Frame::from(&b"frame"[..])))
        );
        assert_eq!(batch.emit_refused(), 2);
        batch.clear();
        assert_eq!((batch.emitted().len(), batch.emit_refused()), (0, 0));
        let longest = [0; MAX_FRAME];
        let fit = MAX_EMITTED_BYTES / MAX_FRAME;
        assert!((0..fit).all(|_| batch.emit(0, &longest)));
        assert!(!batch.emit(0, &longest));
        assert!(batch.emit(0, b"a short one still fits"));
        assert_eq!(batch.emit_refused(), 1);
    }

    #[test]
    fn emitted_frames_have_parts_and_offloads() {
        let bits = |size: u64| 1 << 48 | 1 << 49 | 16 << 32 | 34 << 16 | size;
        let (checksum, segments) = (Offloads::from_bits(bits(0)), Offloads::from_bits(bits(9)));
        assert!(checksum.segments().is_none() && segments.segments().is_some());
        let (most, large) = ([0; MAX_FRAME + 1], [0; MAX_LARGE_FRAME + 1]);
        let mut batch = Batch::new();
        let (_, emitted) = batch.parts();
        for (longest, offloads) in [(&most[..], checksum), (&large[..], segments)] {
            let (first, rest) = longest.split_at(54);
            assert!(!emitted.emit_parts(1, &[first, rest], offloads));
            assert!(emitted.emit_parts(1, &[first, &rest[1..]], offloads));
        }
        emitted.emit_parts(0, &[b"a", b"", b"bc"], checksum);
        assert_eq!(batch.emit_refused(), 2);
        let last = Frame {
            bytes: b"abc",
            offloads: checksum,
        };
        let mut leaving = batch.leaving();
        let lengths = [MAX_FRAME, MAX_LARGE_FRAME];
        let two = [checksum, segments].into_iter().zip(lengths);
        for (offloads, length) in two {
            let (port, frame) = leaving.next().unwrap();
            assert_eq!((port, frame.offloads), (1, offloads));
            assert_eq!(frame.bytes.len(), length);
        }
        assert_eq!(leaving.next(), Some((0, last)));
        assert_eq!(leaving.next(), None);
    }

    fn texts(batch: &mut Batch) -> Vec<(usize, String)> {
        let text = |frame: Frame| String::from_utf8(frame.bytes.to_vec()).unwrap();
        let all = batch.leaving().map(|(port, frame)| (port, text(frame)));
        all.collect()
    }

    fn batch_of(packets: &[(&[u8], Verdict)]) -> Batch {
        let mut batch = Batch::new();
        for (index, (frame, verdict)) in packets.iter().enumerate() {
            batch.push(0, frame).unwrap();
            batch.packets_mut()[index].set_verdict(*verdict);
        }
        batch
    }

    #[test]
    fn emitted_frames_leave_in_the_place_of_their_packet() {
        let (send, drop) = (Verdict::Send(1), Verdict::Drop("replaced"));
        let mut batch = batch_of(&[(b"p0", send), (b"p1", drop), (b"p2", send), (b"p3", drop)]);
        let (_, emitted) = batch.parts();
        emitted.emit(0, b"last");
        for (index, frame) in [(1, b"e1"), (3, b"e3"), (1, b"f1"), (0, b"e0")] {
            emitted.follow(index);
            emitted.emit(1, frame);
        }
        emitted.follow_all();
        emitted.emit(1, b"very last");
        let leaving = [
            (1, "p0"),
            (1, "e0"),
            (1, "e1"),
            (1, "f1"),
            (1, "p2"),
            (1, "e3"),
            (0, "last"),
            (1, "very last"),
        ];
        let leaving = leaving.map(|(port, text)| (port, text.to_owned()));
        assert_eq!(texts(&mut batch), leaving);
        assert_eq!(texts(&mut batch), leaving, "reading changes nothing");
        batch.parts().1.follow(0);
        batch.clear();
        batch.emit(0, b"after both");
        for (index, frame) in [b"p0", b"p1"].into_iter().enumerate() {
            batch.push(0, frame).unwrap();
            batch.packets_mut()[index].send(0);
        }
        let leaving = ["p0", "p1", "after both"].map(|text| (0, text.to_owned()));
        assert_eq!(texts(&mut batch), leaving, "a batch starts with follow_all");
    }

    #[test]
    fn frames_leave_without_packets_and_after_packets_that_do_not_exist() {
        let mut batch = Batch::new();
        let (_, emitted) = batch.parts();
        emitted.emit(0, b"b");
        emitted.follow(7);
        emitted.emit(0, b"a");
        assert_eq!(texts(&mut batch), [(0, "a".into()), (0, "b".into())]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// The model: each packet, followed by the frames with its index; then those that follow all.
        #[test]
        fn frames_leave_in_the_order_of_the_model(
            verdicts in prop::collection::vec(prop::option::of(0_usize..3), 0..20),
            places in prop::collection::vec((prop::option::of(0_usize..20), 0_usize..3), 0..40),
        ) {
            let packets: Vec<_> = verdicts.iter().map(|to| match to {
                Some(port) => (&b"packet"[..], Verdict::Send(*port)),
                None => (&b"packet"[..], Verdict::NONE),
            }).collect();
            let mut batch = batch_of(&packets);
            let (_, emitted) = batch.parts();
            for (number, (place, port)) in places.iter().enumerate() {
                match place {
                    Some(index) => emitted.follow(*index),
                    None => emitted.follow_all(),
                }
                emitted.emit(*port, number.to_string().as_bytes());
            }
            let mut expected = Vec::new();
            for index in 0..20 {
                if let Some(Some(port)) = verdicts.get(index) {
                    expected.push((*port, "packet".to_owned()));
                }
                let here = places.iter().enumerate().filter(|(_, (place, _))| *place == Some(index));
                expected.extend(here.map(|(number, (_, port))| (*port, number.to_string())));
            }
            let last = places.iter().enumerate().filter(|(_, (place, _))| place.is_none());
            expected.extend(last.map(|(number, (_, port))| (*port, number.to_string())));
            prop_assert_eq!(texts(&mut batch), expected);
        }
    }
}
