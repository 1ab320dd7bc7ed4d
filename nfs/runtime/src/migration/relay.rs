//! Rings as sinks and sources of the workers.

use std::{
    os::fd::OwnedFd,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc,
    },
};

use nf_arena::{ArenaBuilder, Memory};
use nf_ports::{Frame, Packet};

use super::{
    decision,
    markers::Barrier,
    ring::{rings, Record, Ring, RINGS},
};
use crate::{
    gate::{FrameSink, FrameSource, Taken},
    Refusal,
};

/// A frozen worker's sink: puts frames into its ring.
pub(super) struct RelaySink<M>(pub(super) Arc<Ring<M>>);

impl<M: Memory> FrameSink for RelaySink<M> {
    fn room(&self, longest: usize) -> usize {
        // Each frame may have a word of offloads.
        self.0.room(longest + size_of::<u64>())
    }

    fn put(&mut self, port: usize, frame: Frame<'_>) {
        // `room` has reported room.
        let _ = self.0.push(port, frame);
    }
}

/// A sink for frames after the end of a relay, when none should arrive: it counts and drops them.
pub(super) struct StraySink(pub(super) Arc<AtomicU64>);

impl FrameSink for StraySink {
    fn room(&self, _longest: usize) -> usize {
        usize::MAX
    }

    fn put(&mut self, _port: usize, _frame: Frame<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A source of the frames of some rings. It ends when each ring has ended or, once their writer is known to be dead, is empty.
pub(super) struct RelaySource<M> {
    /// What must be open before the first frame is taken.
    barrier: Option<Arc<Barrier>>,
    rings: Vec<Arc<Ring<M>>>,
    orphaned: Arc<AtomicBool>,
    frame: Vec<u8>,
    taken: Arc<AtomicU64>,
}

impl<M: Memory> RelaySource<M> {
    pub(super) fn new(
        rings: Vec<Arc<Ring<M>>>,
        orphaned: Arc<AtomicBool>,
        taken: Arc<AtomicU64>,
    ) -> Self {
        Self {
            barrier: None,
            rings,
            orphaned,
            frame: Vec::new(),
            taken,
        }
    }

    pub(super) fn behind(self, barrier: Option<Arc<Barrier>>) -> Self {
        Self { barrier, ..self }
    }
}

impl<M: Memory> FrameSource for RelaySource<M> {
    fn take(&mut self, packet: &mut Packet) -> Taken {
        if let Some(barrier) = &self.barrier {
            if !barrier.is_open() {
                return Taken::Nothing;
            }
            self.barrier = None;
        }
        let mut index = 0;
        while let Some(ring) = self.rings.get(index) {
            // Checked before the ring: after its death the writer wrote nothing more.
            let orphaned = self.orphaned.load(Ordering::Acquire);
            match ring.pop(&mut self.frame) {
                Some(Record::Frame { port, offloads, .. }) => {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    let bytes = &self.frame;
                    // It fits unless the other instance's version took larger frames.
                    if packet.fill_with(port, Frame { bytes, offloads }) {
                        return Taken::Frame;
                    }
                }
                Some(Record::End) => drop(self.rings.swap_remove(index)),
                None if orphaned => drop(self.rings.swap_remove(index)),
                None => index += 1,
            }
        }
        if self.rings.is_empty() {
            Taken::End
        } else {
            Taken::Nothing
        }
    }
}

/// Opens the frames that a dead instance left in its rings, for the instance that adopts its state.
///
/// # Errors
/// If the descriptor is not that of rings.
pub fn orphans(rings_of: OwnedFd) -> Result<Box<dyn FrameSource>, Refusal> {
    let builder = ArenaBuilder::adopt(rings_of, RINGS.0, RINGS.1)?;
    let mut regions = builder.adopted_regions();
    regions.retain(|(name, _)| name != decision::NAME);
    let words = regions.first().map_or(0, |(_, words)| *words);
    let (_, rings, _) = rings(builder, regions.len(), words)?;
    let dead = Arc::new(AtomicBool::new(true));
    Ok(Box::new(RelaySource::new(rings, dead, Arc::default())))
}

#[cfg(test)]
mod tests {
    use nf_arena::Heap;

    use super::*;

    fn ring() -> Arc<Ring<Heap>> {
        Arc::new(Ring::open(Heap::new(Ring::<Heap>::words(1 << 16)).unwrap()))
    }

    #[test]
    fn a_source_ends_with_its_rings_or_their_writer() {
        let rings = vec![ring(), ring()];
        let (orphaned, taken) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let mut source = RelaySource::new(rings.clone(), Arc::clone(&orphaned), Arc::clone(&taken));
        let mut packet = Packet::new();
        assert_eq!(source.take(&mut packet), Taken::Nothing);
        rings[1].push(3, Frame::from(&b"frame"[..])).unwrap();
        assert_eq!(source.take(&mut packet), Taken::Frame);
        assert_eq!((packet.port(), packet.bytes()), (3, &b"frame"[..]));
        rings[0].end().unwrap();
        assert_eq!(source.take(&mut packet), Taken::Nothing);
        rings[1].push(0, Frame::from(&b"last"[..])).unwrap();
        orphaned.store(true, Ordering::Release);
        assert_eq!(source.take(&mut packet), Taken::Frame);
        assert_eq!(source.take(&mut packet), Taken::End);
        assert_eq!(taken.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn strays_are_counted() {
        let strays = Arc::new(AtomicU64::new(0));
        let mut sink = StraySink(Arc::clone(&strays));
        for count in 1..=3 {
            assert!(sink.room(9000) > 0);
            sink.put(1, Frame::from(&b"late"[..]));
            assert_eq!(strays.load(Ordering::Relaxed), count);
        }
    }
}
