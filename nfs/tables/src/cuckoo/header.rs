//! The words before the buckets: identification, secrets, and counts.

use std::sync::atomic::Ordering;

use crate::Key;

use super::{
    lines::{COUNT_LINES, SHARED_LINE},
    place::{Secrets, SLOTS},
    words::Words,
};

/// The length of the header in words. Its first cache line is read-only once the table exists.
pub(super) const WORDS: usize = 128;
const LINE_WORDS: usize = 8;

const MAGIC: usize = 0;
const BUCKETS: usize = 1;
const SECRETS: usize = 2;
/// The bucket that aging examines next, modulo the number of buckets.
pub(super) const HAND: usize = LINE_WORDS;
/// The first count. Each count has its own cache line.
const COUNTS: usize = 2 * LINE_WORDS;
const _: () = assert!((WORDS - COUNTS) / LINE_WORDS == COUNT_LINES);

/// Returns "nftable1" mixed with the keys' name.
fn magic<K: Key>() -> u64 {
    u64::from_le_bytes(*b"nftable1") ^ u64::from(u32::from_le_bytes(K::NAME)) << 16
}

/// A fault of a table's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// The capacity exceeds the largest table.
    TooLarge { capacity: usize, most: usize },
    /// The memory is too small for the capacity.
    TooSmall { words: usize, needed: usize },
    /// The memory holds something other than a table of these keys and this capacity.
    Foreign {
        what: &'static str,
        found: u64,
        expected: u64,
    },
}

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge { capacity, most } => {
                write!(f, "a connection table for {capacity} flows, expected at most {most}; use several tables")
            }
            Self::TooSmall { words, needed } => {
                write!(f, "{words} words of memory for a connection table, expected at least {needed}")
            }
            Self::Foreign {
                what,
                found,
                expected,
            } => write!(
                f,
                "the memory does not hold a connection table of this kind: {what} {found:#x}, expected {expected:#x}"
            ),
        }
    }
}

impl std::error::Error for TableError {}

/// Returns the number of buckets that hold `capacity` flows at a load of 90 %.
pub(super) fn buckets(capacity: usize) -> Result<u64, TableError> {
    const LEAST: usize = 1 << 10;
    // The product of a bucket's number and a tail must fit 64 bits.
    const MOST: usize = 1 << 24;
    let most = MOST * SLOTS / 10 * 9;
    if capacity > most {
        return Err(TableError::TooLarge { capacity, most });
    }
    Ok((capacity * 10).div_ceil(9 * SLOTS).max(LEAST) as u64)
}

/// Writes the header of a new table, or checks that of an existing one.
pub(super) fn open<K: Key, W: Words>(
    words: W,
    buckets: u64,
    secrets: &Secrets,
) -> Result<(), TableError> {
    let check = |what, index, expected| {
        let found = words.load(index, Ordering::Acquire);
        let foreign = TableError::Foreign {
            what,
            found,
            expected,
        };
        if found == expected {
            Ok(())
        } else {
            Err(foreign)
        }
    };
    if words.load(MAGIC, Ordering::Acquire) == 0 {
        for (index, secret) in secrets.0.iter().enumerate() {
            words.store(SECRETS + index, *secret);
        }
        words.store(BUCKETS, buckets);
        words.store(MAGIC, magic::<K>());
    }
    check("kind", MAGIC, magic::<K>())?;
    check("buckets", BUCKETS, buckets)
}

/// Reads the secrets on each call, since a copy from another instance may arrive after the table was opened.
#[inline]
pub(super) fn secrets<W: Words>(words: W) -> Secrets {
    Secrets(std::array::from_fn(|index| {
        words.load(SECRETS + index, Ordering::Relaxed)
    }))
}

/// The unit of records in a count; the bits below count pending changes. A thread counts in its own line if it can. Only the sum over all lines
/// is meaningful: a record may be added in one line and removed in another.
const RECORD: u64 = 1 << 16;

/// A pending change of the table. One that stays pending was interrupted: see [`super::recover`].
pub(super) struct Change<W: Words> {
    words: W,
    line: usize,
    closing: u64,
}

impl<W: Words> Change<W> {
    #[inline]
    pub(super) fn begin(words: W) -> Self {
        let line = words.count_line();
        add(words, line, 1);
        Self {
            words,
            line,
            closing: 1_u64.wrapping_neg(),
        }
    }

    pub(super) fn count_insertion(&mut self) {
        self.closing = self.closing.wrapping_add(RECORD);
    }

    pub(super) fn count_removal(&mut self) {
        self.closing = self.closing.wrapping_sub(RECORD);
    }
}

impl<W: Words> Drop for Change<W> {
    #[inline]
    fn drop(&mut self) {
        add(self.words, self.line, self.closing);
    }
}

#[inline]
fn add<W: Words>(words: W, line: usize, value: u64) {
    let index = COUNTS + line * LINE_WORDS;
    if line == SHARED_LINE {
        words.add(index, value);
    } else {
        // Only this thread writes the line; an atomic addition would cost as much as the rest of an insert.
        let count = words.load(index, Ordering::Relaxed);
        words.store(index, count.wrapping_add(value));
    }
}

/// Returns the numbers of records and of pending changes.
pub(super) fn counted<W: Words>(words: W) -> (usize, u64) {
    let total = (0..COUNT_LINES)
        .map(|line| words.load(COUNTS + line * LINE_WORDS, Ordering::Relaxed))
        .fold(0, u64::wrapping_add);
    // A sum taken during changes may be off by them, even below zero.
    let records = (total as i64 >> RECORD.trailing_zeros()).max(0);
    (records as usize, total & (RECORD - 1))
}

/// Sets the number of records, with no pending change.
pub(super) fn set_count<W: Words>(words: W, records: usize) {
    for line in 1..COUNT_LINES {
        words.store(COUNTS + line * LINE_WORDS, 0);
    }
    words.store(COUNTS, records as u64 * RECORD);
}
