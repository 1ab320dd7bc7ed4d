//! The sequence numbers of a key that protects packets. Its state says how far they are reserved; which of them are used, only the process knows.
//!
//! Workers take numbers in lots, for a run of packets each. A number leaves only after the state says that it is reserved. The next owner of the state, after a move or a kill, continues behind the
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
    /// The last number of the latest lot: all up to it are used, unused for ever, or in the lot of a worker.
    taken: AtomicU64,
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

/// Consecutive numbers that belong to one worker.
#[derive(Debug, Default)]
pub struct Lot {
    base: u64,
    next: u64,
    left: u64,
}

impl Lot {
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Takes the next number. None: all are used.
    #[inline]
    pub fn take(&mut self) -> Option<Number> {
        self.left = self.left.checked_sub(1)?;
        let sequence = self.next;
        self.next += 1;
        Some(Number {
            sequence,
            iv: self.base.wrapping_add(sequence).to_be_bytes(),
        })
    }
}

impl Sequence {
    /// Continues behind what the row of the state has reserved.
    #[must_use]
    pub fn behind(rows: &Rows, row: usize, unix_ns: u64) -> Self {
        let this = Self {
            row,
            base: AtomicU64::new(0),
            taken: AtomicU64::new(0),
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
        self.taken.fetch_max(reserved, Ordering::Relaxed);
        self.reserved.fetch_max(reserved, Ordering::Release);
    }

    /// Takes up to `most` numbers, none beyond `last`. None: all up to `last` are taken.
    pub fn lot(&self, rows: &Rows, last: u64, most: u64) -> Option<Lot> {
        let last = last.min(LAST);
        let end = |taken: u64| last.min(taken.saturating_add(most));
        let next = |taken: u64| (taken < last).then(|| end(taken));
        let order = Ordering::Relaxed;
        let taken = self.taken.fetch_update(order, order, next).ok()?;
        let end = end(taken);
        if end > self.reserved.load(Ordering::Acquire) {
            self.reserve(rows, end);
        }
        Some(Lot {
            base: self.base.load(Ordering::Relaxed),
            next: taken + 1,
            left: end - taken,
        })
    }

    /// Gives back the numbers that are left, unless another worker has taken later ones: those would then be taken twice.
    pub fn give_back(&self, lot: &mut Lot) {
        let left = std::mem::take(&mut lot.left);
        if left > 0 {
            let (end, used) = (lot.next + left - 1, lot.next - 1);
            let order = Ordering::Relaxed;
            // If it fails, the numbers stay unused.
            let _ = self.taken.compare_exchange(end, used, order, order);
        }
    }

    /// Reserves all numbers up to this one in the state.
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

    /// Returns the number taken last, or skipped. Between batches, it is the one used last.
    #[inline]
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
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

    fn take(sequence: &Sequence, rows: &Rows, last: u64) -> Option<Number> {
        sequence.lot(rows, last, 1)?.take()
    }

    fn numbers(mut lot: Lot) -> Vec<u64> {
        std::iter::from_fn(|| lot.take())
            .map(|number| number.sequence)
            .collect()
    }

    #[test]
    fn numbers_start_at_one_and_continue_behind_the_reservation() {
        let (rows, row) = rows();
        let first = Sequence::behind(&rows, row, 1000);
        for expected in 1..=BLOCK + 1 {
            let number = take(&first, &rows, u64::MAX).unwrap();
            assert_eq!(number.sequence, expected);
            assert_eq!(number.iv, (1000 + expected).to_be_bytes());
            assert!(rows.get(row, outbound::RESERVED) >= expected);
        }
        let second = Sequence::behind(&rows, row, 500);
        let number = take(&second, &rows, u64::MAX).unwrap();
        assert_eq!(number.sequence, 2 * BLOCK + 1);
        assert_eq!(number.iv, (1000 + 2 * BLOCK + 1).to_be_bytes());
    }

    #[test]
    fn a_start_with_older_state_uses_other_nonces() {
        let (rows, row) = rows();
        let first = Sequence::behind(&rows, row, 1_000_000);
        let used: Vec<_> = (0..10)
            .filter_map(|_| take(&first, &rows, u64::MAX))
            .collect();
        // As if the state were a copy from before: the same numbers again, at a later time.
        let (old, row) = self::rows();
        let again = Sequence::behind(&old, row, 1_000_100);
        for _ in 0..10 {
            let number = take(&again, &old, u64::MAX).unwrap();
            assert!(used.iter().all(|other| other.iv != number.iv));
        }
    }

    #[test]
    fn numbers_end() {
        let (rows, row) = rows();
        let sequence = Sequence::behind(&rows, row, 0);
        assert_eq!((0..10).filter_map(|_| take(&sequence, &rows, 3)).count(), 3);
        rows.set(row, outbound::RESERVED, u64::MAX - BLOCK - 1);
        let sequence = Sequence::behind(&rows, row, 0);
        assert!(take(&sequence, &rows, u64::MAX).is_some());
        assert!(take(&sequence, &rows, u64::MAX).is_none());
        assert!(take(&sequence, &rows, u64::MAX).is_none());
    }

    #[test]
    fn a_lot_ends_with_the_last_number_and_is_reserved_before_it_is_used() {
        let (rows, row) = rows();
        let sequence = Sequence::behind(&rows, row, 0);
        let lot = sequence.lot(&rows, u64::MAX, 2 * BLOCK + 1).unwrap();
        assert!(rows.get(row, outbound::RESERVED) > 2 * BLOCK);
        assert_eq!(numbers(lot), (1..=2 * BLOCK + 1).collect::<Vec<_>>());
        let lot = sequence.lot(&rows, 2 * BLOCK + 4, 64).unwrap();
        assert_eq!(numbers(lot).last(), Some(&(2 * BLOCK + 4)));
        assert!(sequence.lot(&rows, 2 * BLOCK + 4, 64).is_none());
    }

    #[test]
    fn numbers_are_given_back_unless_later_ones_are_taken() {
        let (rows, row) = rows();
        let sequence = Sequence::behind(&rows, row, 0);
        let lot = |most| sequence.lot(&rows, u64::MAX, most).unwrap();
        let mut first = lot(8);
        assert_eq!(first.take().unwrap().sequence, 1);
        let mut second = lot(4);
        assert_eq!(second.take().unwrap().sequence, 9);
        sequence.give_back(&mut first);
        assert!(first.is_empty() && first.take().is_none());
        assert_eq!(sequence.taken(), 12);
        sequence.give_back(&mut second);
        sequence.give_back(&mut second);
        assert_eq!(sequence.taken(), 9);
        assert_eq!(numbers(lot(2)), [10, 11]);
    }

    #[test]
    fn threads_take_each_number_once() {
        let (rows, row) = rows();
        let sequence = Sequence::behind(&rows, row, 7);
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let take = || {
                let mut all = Vec::new();
                for count in 0..5000_u64 {
                    let mut lot = sequence.lot(&rows, u64::MAX, 1 + count % 5).unwrap();
                    let used = (0..=count % 3).filter_map(|_| lot.take());
                    all.extend(used.map(|number| number.sequence));
                    sequence.give_back(&mut lot);
                }
                all
            };
            let threads = [scope.spawn(take), scope.spawn(take)];
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "a number was taken twice");
        assert!(rows.get(row, outbound::RESERVED) >= all[count - 1]);
    }
}
