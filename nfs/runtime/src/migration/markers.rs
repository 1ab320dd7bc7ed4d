//! Markers: the last frames on a path. When a marker arrives, all earlier frames of the path have arrived, or have passed the switches.
//!
//! The agent sends markers down the stale paths to the old instance. The old instance sends markers to the new one, behind all its other frames; they pass each
//! switch at which packets of the two instances meet (docs/architecture.md, "Rules in `edge`").

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Condvar, Mutex, PoisonError,
    },
    time::{Duration, Instant},
};

use nf_ports::Mac;
use ring::hmac;
use serde_json::Value;

use super::{
    arguments::{missing, number},
    secret::{Secret, CODE_BYTES},
};
use crate::{
    gate::{FrameWatch, Order},
    refusal::Refused,
    Refusal,
};

/// The time limit of the new instance's wait for markers. A switch that is stalled forwards no packets either; one that is stalled for longer counts as dead,
/// with the packets in it.
pub(super) const MARKED: Duration = Duration::from_secs(6);
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

    /// Tells whether the markers of these paths have arrived.
    fn has(&self, paths: &Range<u32>) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.range(paths.clone()).count() == paths.len()
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

impl FrameWatch for Markers {
    fn takes(&self, frame: &[u8]) -> bool {
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
}

/// A barrier that opens when markers arrive. Workers poll it, which saves a wake-up by the control thread.
pub(super) struct Barrier {
    markers: Arc<Markers>,
    numbers: Range<u32>,
    is_open: AtomicBool,
}

impl Barrier {
    pub(super) fn new(markers: Arc<Markers>, numbers: Range<u32>) -> Self {
        Self {
            markers,
            numbers,
            is_open: AtomicBool::new(false),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire) || self.markers.has(&self.numbers)
    }

    /// Opens the barrier when the markers have arrived, or when the time is over; the error lists the markers that arrived in time.
    pub(super) fn open(&self, longest: Duration) -> Result<(), BTreeSet<u32>> {
        let arrived = self.markers.wait(self.numbers.clone(), longest);
        self.is_open.store(true, Ordering::Release);
        arrived
    }
}

/// The source address of markers, which the rules of `edge` match.
const FROM: Mac = [0x02, b'n', b'f', b'm', b'g', 0];

/// The markers from the old instance to the new one: one per worker and live port.
pub(super) struct Trail {
    /// By worker: ports, and their frames.
    frames: Vec<Vec<(usize, Box<[u8]>)>>,
}

impl Trail {
    /// Makes one marker per port and worker, numbered from `first` on.
    ///
    /// # Errors
    /// If a number exceeds 32 bits.
    pub(super) fn new(
        first: u64,
        workers: usize,
        ports: &[(usize, Mac)],
        secret: &Secret,
        epoch: u64,
    ) -> Result<Self, Refusal> {
        let mut numbers = range(first, (workers * ports.len()) as u64)?;
        let mut of_port = |(port, mac): &(usize, Mac)| {
            let frame = marker(*mac, FROM, secret, epoch, numbers.next()?);
            Some((*port, frame.into()))
        };
        let frames = (0..workers).map(|_| ports.iter().filter_map(&mut of_port).collect());
        Ok(Self {
            frames: frames.collect(),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.frames.iter().map(Vec::len).sum()
    }

    /// Orders a worker to send its markers.
    pub(super) fn of_worker(&self, worker: usize) -> Order {
        Order::Send(self.frames.get(worker).cloned().unwrap_or_default())
    }
}

/// Reads the numbers of markers, `first` and `markers`; None: `first` is not there.
pub(super) fn numbers(arguments: &Value) -> Result<Option<Range<u32>>, Refusal> {
    let Some(first) = number(arguments, "first")? else {
        return Ok(None);
    };
    let count = number(arguments, "markers")?
        .ok_or_else(|| missing("markers", "expected what \"mark\" answered"))?;
    range(first, count).map(Some)
}

fn range(first: u64, count: u64) -> Result<Range<u32>, Refusal> {
    let end = first
        .checked_add(count)
        .and_then(|end| u32::try_from(end).ok());
    let range = end.and_then(|end| Some(u32::try_from(first).ok()?..end));
    range.ok_or_else(|| {
        let detail =
            format!("\"first\" is {first}: expected {count} numbers below 2^32 from it on");
        Refusal::new("malformed", detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_authentic_markers_of_the_epoch_are_taken() {
        let (secret, other) = (
            Secret::parse(&"0a".repeat(32)).unwrap(),
            Secret::parse(&"0b".repeat(32)).unwrap(),
        );
        let refused = Arc::new(Refused::default());
        let markers = Markers::new(7, &secret, Arc::clone(&refused));
        let authentic = |epoch, path| marker([1; 6], [2; 6], &secret, epoch, path).to_vec();
        let mut tagged = authentic(7, 1);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert!(markers.takes(&authentic(7, 0)));
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
            assert!(!markers.takes(&frame), "it belongs to somebody else");
        }
        assert_eq!(markers.wait(0..2, Duration::ZERO), Err(BTreeSet::from([0])));
        assert_eq!(
            refused.all(),
            [
                ("marker of another migration", 1),
                ("marker with a wrong code", 3)
            ]
        );
        assert!(markers.takes(&tagged));
        assert_eq!(markers.wait(0..2, Duration::ZERO), Ok(()));
        assert_eq!(
            markers.wait(1..3, Duration::ZERO),
            Err(BTreeSet::from([1])),
            "earlier markers are discarded"
        );
    }

    #[test]
    fn each_worker_has_a_marker_for_each_port() {
        let secret = Secret::parse(&"0a".repeat(32)).unwrap();
        let ports = [(0, [2; 6]), (2, [4; 6])];
        let trail = Trail::new(5, 2, &ports, &secret, 7).unwrap();
        assert_eq!(trail.count(), 4);
        let markers = Markers::new(7, &secret, Arc::default());
        for worker in 0..2 {
            let Order::Send(frames) = trail.of_worker(worker) else {
                panic!("expected frames to send");
            };
            assert_eq!(
                frames.iter().map(|(port, _)| *port).collect::<Vec<_>>(),
                [0, 2]
            );
            assert_eq!(frames[1].1[..12], [[4; 6], FROM].concat());
            assert!(frames.iter().all(|(_, frame)| markers.takes(frame)));
        }
        assert_eq!(markers.wait(5..9, Duration::ZERO), Ok(()));
        let most = u64::from(u32::MAX);
        for (first, is_fine) in [(most - 4, true), (most - 3, false), (u64::MAX, false)] {
            let trail = Trail::new(first, 2, &ports, &secret, 7);
            assert_eq!(trail.is_ok(), is_fine, "{first}");
        }
    }
}
