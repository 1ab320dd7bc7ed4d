//! Rings as sinks and sources of the workers, and the markers that end old paths.

use std::{
    collections::BTreeSet,
    ops::Range,
    os::fd::OwnedFd,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Condvar, Mutex, PoisonError,
    },
    time::{Duration, Instant},
};

use nf_arena::{ArenaBuilder, Memory};
use nf_ports::{Frame, Packet};
use ring::hmac;

use super::{
    decision,
    ring::{rings, Record, Ring, RINGS},
    secret::{Secret, CODE_BYTES},
};
use crate::{
    gate::{FrameSink, FrameSource, Taken},
    refusal::Refused,
    Refusal,
};

/// EtherType "local experimental 1" (IEEE 802), which tenants do not use.
const MARKER_TYPE: [u8; 2] = [0x88, 0xb5];
const MARKER_MAGIC: &[u8; 4] = b"nfmg";
const MARKER_BYTES: usize = 64;
/// The length of the authenticated part: epoch and number.
const SIGNED_BYTES: usize = 12;

/// Builds a path's marker: the last frame sent down the path. It has 64 bytes; the addresses are those that the path needs.
///
/// Making one requires the secret, and each number has its own code, so a marker that was seen cannot be used for another number.
///
/// ```
/// use nf_runtime::migration::{marker, Secret};
///
/// let secret = Secret::parse(&"0f".repeat(32)).ok_or("not a secret")?;
/// assert_eq!(marker([2; 6], [4; 6], &secret, 7, 0).len(), 64);
/// # Ok::<(), &str>(())
/// ```
#[must_use]
pub fn marker(
    to: [u8; 6],
    from: [u8; 6],
    secret: &Secret,
    epoch: u64,
    path: u32,
) -> [u8; MARKER_BYTES] {
    let mut frame = [0; MARKER_BYTES];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&MARKER_TYPE);
    frame[14..18].copy_from_slice(MARKER_MAGIC);
    frame[18..26].copy_from_slice(&epoch.to_be_bytes());
    frame[26..30].copy_from_slice(&path.to_be_bytes());
    let code = hmac::sign(&secret.marker_key(), &frame[18..30]);
    frame[30..30 + CODE_BYTES].copy_from_slice(code.as_ref());
    frame
}

/// Parses a marker: the authenticated part, and its code, which may be wrong. None for any other frame. Skips a VLAN tag, which a path may add.
fn read_marker(frame: &[u8]) -> Option<(&[u8; SIGNED_BYTES], &[u8; CODE_BYTES])> {
    let tagged = frame.get(12..14)? == [0x81, 0x00];
    let rest = frame
        .get(if tagged { 16 } else { 12 }..)?
        .strip_prefix(&MARKER_TYPE)?
        .strip_prefix(MARKER_MAGIC)?;
    let (signed, rest) = rest.split_first_chunk()?;
    Some((signed, rest.first_chunk()?))
}

/// Parses epoch and number.
fn read_signed(signed: &[u8; SIGNED_BYTES]) -> (u64, u32) {
    let value = signed
        .iter()
        .fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
    ((value >> 32) as u64, value as u32)
}

/// The markers of an epoch that have arrived.
pub(super) struct Markers {
    epoch: u64,
    key: hmac::Key,
    refused: Arc<Refused>,
    seen: Mutex<BTreeSet<u32>>,
    changed: Condvar,
}

impl Markers {
    pub(super) fn new(epoch: u64, secret: &Secret, refused: Arc<Refused>) -> Self {
        Self {
            epoch,
            key: secret.marker_key(),
            refused,
            seen: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Consumes a frame if it is a marker of this migration; false: it is an ordinary frame.
    fn see(&self, frame: &[u8]) -> bool {
        let Some((signed, code)) = read_marker(frame) else {
            return false;
        };
        let (epoch, path) = read_signed(signed);
        if epoch != self.epoch {
            self.refused.count("marker of another migration");
            return false;
        }
        if hmac::verify(&self.key, signed, code).is_err() {
            self.refused.count("marker with a wrong code");
            return false;
        }
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(path);
        self.changed.notify_all();
        true
    }

    /// Waits for the markers of these paths, and discards those of smaller numbers. On a timeout, the error lists the markers that arrived.
    pub(super) fn wait(&self, paths: Range<u32>, timeout: Duration) -> Result<(), BTreeSet<u32>> {
        let end = Instant::now() + timeout;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            *seen = seen.split_off(&paths.start);
            if seen.range(paths.clone()).count() == paths.len() {
                return Ok(());
            }
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return Err(seen.clone());
            };
            seen = self
                .changed
                .wait_timeout(seen, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// A frozen worker's sink: puts frames into its ring, and consumes markers.
pub(super) struct RelaySink<M> {
    pub(super) ring: Arc<Ring<M>>,
    pub(super) markers: Arc<Markers>,
}

impl<M: Memory> FrameSink for RelaySink<M> {
    fn room(&self, longest: usize) -> usize {
        // Each frame may have a word of offloads.
        self.ring.room(longest + size_of::<u64>())
    }

    fn put(&mut self, port: usize, frame: Frame<'_>) {
        if !self.markers.see(frame.bytes) {
            // `room` has reported room.
            let _ = self.ring.push(port, frame);
        }
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
            rings,
            orphaned,
            frame: Vec::new(),
            taken,
        }
    }
}

impl<M: Memory> FrameSource for RelaySource<M> {
    fn take(&mut self, packet: &mut Packet) -> Taken {
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
    fn only_authentic_markers_of_the_epoch_arrive_and_are_not_relayed() {
        let (secret, other) = (
            Secret::parse(&"0a".repeat(32)).unwrap(),
            Secret::parse(&"0b".repeat(32)).unwrap(),
        );
        let refused = Arc::new(Refused::default());
        let (ring, markers) = (
            self::ring(),
            Arc::new(Markers::new(7, &secret, Arc::clone(&refused))),
        );
        let mut sink = RelaySink {
            ring: Arc::clone(&ring),
            markers: Arc::clone(&markers),
        };
        let authentic = |epoch, path| marker([1; 6], [2; 6], &secret, epoch, path).to_vec();
        let mut tagged = authentic(7, 1);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        sink.put(0, Frame::from(&authentic(7, 0)[..]));
        assert_eq!(markers.wait(0..2, Duration::ZERO), Err(BTreeSet::from([0])));
        let mut renumbered = authentic(7, 0);
        renumbered[29] = 1;
        let mut of_the_next = authentic(6, 1);
        of_the_next[25] = 7;
        let forged = marker([1; 6], [2; 6], &other, 7, 1).to_vec();
        for frame in [
            renumbered,
            of_the_next,
            forged,
            authentic(6, 1),
            b"".to_vec(),
            tagged[..40].to_vec(),
        ] {
            sink.put(0, Frame::from(&frame[..]));
        }
        assert_eq!(markers.wait(0..2, Duration::ZERO), Err(BTreeSet::from([0])));
        assert_eq!(
            ring.frames(),
            6,
            "other frames than markers of this migration are relayed"
        );
        assert_eq!(
            refused.all(),
            [
                ("marker of another migration", 1),
                ("marker with a wrong code", 3)
            ]
        );
        sink.put(0, Frame::from(&tagged[..]));
        assert_eq!(markers.wait(0..2, Duration::ZERO), Ok(()));
        assert_eq!(
            markers.wait(1..3, Duration::ZERO),
            Err(BTreeSet::from([1])),
            "earlier markers are discarded"
        );
        assert_eq!(ring.frames(), 6);
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
