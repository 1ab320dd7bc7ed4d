//! The sequence numbers of a key that protects packets. Its state says how far they are reserved; which of them are used, only the process knows.
//!
//! A number leaves only after the state says that it is reserved. The next owner of the state, after a move or a kill, continues behind the
//! reservation, so no number of a key is used twice.
//!
//! The nonce of a packet is a base plus its number. The base is the time at which the key came into this state or was taken over, in nanoseconds
//! since 1970, unless the state already is beyond that. No machine sends a packet per nanosecond, so a start without the old state, or with an
//! old copy of it, uses no nonce twice either while the wall clock does not go back.

use std::sync::{
    atomic::{AtomicU64, Ordering},
    Mutex, PoisonError,
};

use crate::keys::{outbound, Rows};

/// The numbers that are reserved together.
pub const BLOCK: u64 = 1024;
/// The last number without extension (RFC 4303, 3.3.3).
pub const LAST_SHORT: u64 = u32::MAX as u64;
/// The last number that can be reserved with a whole block.
const LAST: u64 = u64::MAX - BLOCK;

/// The numbers of one key, in the process that owns the state.
pub struct Sequence {
    row: usize,
    base: AtomicU64,
    /// The number used last.
    used: AtomicU64,
    /// The last reserved number.
    reserved: AtomicU64,
    reserving: Mutex<()>,
}

/// A sequence number with its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    pub sequence: u64,
    pub iv: [u8; 8],
}

impl Sequence {
    /// Continues behind what the row of the state has reserved.
    #[must_use]
    pub fn behind(rows: &Rows, row: usize, unix_ns: u64) -> Self {
        let this = Self {
            row,
            base: AtomicU64::new(0),
            used: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            reserving: Mutex::new(()),
        };
        this.take_over(rows, unix_ns);
        this
    }

    /// Skips all that the state has reserved.
    pub fn take_over(&self, rows: &Rows, unix_ns: u64) {
        let reserved = rows.get(self.row, outbound::RESERVED);
        let base = rows.get(self.row, outbound::BASE);
        // Nonces only grow: base + number is beyond the time, and beyond all that were ever reserved.
        let base = base.max(unix_ns.saturating_sub(reserved));
        rows.set(self.row, outbound::BASE, base);
        self.base.store(base, Ordering::Relaxed);
        self.used.fetch_max(reserved, Ordering::Relaxed);
        self.reserved.fetch_max(reserved, Ordering::Release);
    }

    /// Takes the next number. None: all up to `last` are used.
    #[inline]
    pub fn take(&self, rows: &Rows, last: u64) -> Option<Number> {
        // Bounded first, so that a used-up key does not count on for ever.
        if self.used.load(Ordering::Relaxed) >= last.min(LAST) {
            return None;
        }
        let sequence = self.used.fetch_add(1, Ordering::Relaxed) + 1;
        if sequence > last.min(LAST) {
            return None;
        }
        if sequence > self.reserved.load(Ordering::Acquire) {
            self.reserve(rows, sequence);
        }
        let iv = self.base.load(Ordering::Relaxed).wrapping_add(sequence);
        Some(Number {
            sequence,
            iv: iv.to_be_bytes(),
        })
    }

    #[cold]
    fn reserve(&self, rows: &Rows, sequence: u64) {
        let _guard = self
            .reserving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while sequence > self.reserved.load(Ordering::Relaxed) {
            let next = self.reserved.load(Ordering::Relaxed) + BLOCK;
            rows.set(self.row, outbound::RESERVED, next);
            self.reserved.store(next, Ordering::Release);
        }
    }

    #[must_use]
    pub fn row(&self) -> usize {
        self.row
    }

    /// Returns the number used last, or skipped.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use nf_arena::ArenaBuilder;
    use nf_runtime::state::StateBuilder;

    use super::*;

    fn rows() -> (Rows, usize) {
        let mut state = StateBuilder::new(ArenaBuilder::fresh("ipsec", 1).unwrap());
        let rows = Rows::declare(&mut state, "outbound keys", 4, outbound::WORDS).unwrap();
        state.finish().unwrap();
        let row = rows.claim([1, 2], 5).unwrap();
        (rows, row)
    }

    #[test]
    fn numbers_start_at_one_and_continue_behind_the_reservation() {
        let (rows, row) = rows();
        let first = Sequence::behind(&rows, row, 1000);
        for expected in 1..=BLOCK + 1 {
            let number = first.take(&rows, u64::MAX).unwrap();
            assert_eq!(number.sequence, expected);
            assert_eq!(number.iv, (1000 + expected).to_be_bytes());
            assert!(rows.get(row, outbound::RESERVED) >= expected);
        }
        let second = Sequence::behind(&rows, row, 500);
        let number = second.take(&rows, u64::MAX).unwrap();
        assert_eq!(number.sequence, 2 * BLOCK + 1);
        assert_eq!(number.iv, (1000 + 2 * BLOCK + 1).to_be_bytes());
    }

    #[test]
    fn a_start_with_older_state_uses_other_nonces() {
        let (rows, row) = rows();
        let first = Sequence::behind(&rows, row, 1_000_000);
        let used: Vec<_> = (0..10)
            .filter_map(|_| first.take(&rows, u64::MAX))
            .collect();
        // As if the state were a copy from before: the same numbers again, at a later time.
        let (old, row) = self::rows();
        let again = Sequence::behind(&old, row, 1_000_100);
        for _ in 0..10 {
            let number = again.take(&old, u64::MAX).unwrap();
            assert!(used.iter().all(|other| other.iv != number.iv));
        }
    }

    #[test]
    fn numbers_end() {
        let (rows, row) = rows();
        let sequence = Sequence::behind(&rows, row, 0);
        assert_eq!((0..10).filter_map(|_| sequence.take(&rows, 3)).count(), 3);
        rows.set(row, outbound::RESERVED, u64::MAX - BLOCK - 1);
        let sequence = Sequence::behind(&rows, row, 0);
        assert!(sequence.take(&rows, u64::MAX).is_some());
        assert!(sequence.take(&rows, u64::MAX).is_none());
        assert!(sequence.take(&rows, u64::MAX).is_none());
    }

    #[test]
    fn threads_take_each_number_once() {
        let (rows, row) = rows();
        let sequence = Sequence::behind(&rows, row, 7);
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let take = || {
                let numbers = (0..5000).filter_map(|_| sequence.take(&rows, u64::MAX));
                numbers.map(|number| number.sequence).collect::<Vec<_>>()
            };
            let threads = [scope.spawn(take), scope.spawn(take)];
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        all.sort_unstable();
        assert_eq!(all, (1..=10_000).collect::<Vec<_>>());
        assert!(rows.get(row, outbound::RESERVED) >= 10_000);
    }
}
