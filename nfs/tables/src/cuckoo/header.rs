//! The words before the buckets: what the table is, its secrets, and its counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Key;

use super::{place::Secrets, slots, words::Words};

/// Words of the header: cache lines, of which the first is only read once the table is made.
pub(super) const WORDS: usize = 128;
const LINE_WORDS: usize = 8;

const MAGIC: usize = 0;
const BUCKETS: usize = 1;
const SECRETS: usize = 2;
/// The bucket that aging looks at next, modulo their number.
pub(super) const HAND: usize = LINE_WORDS;
/// The first of the counts, each in a line of its own.
const COUNTS: usize = 2 * LINE_WORDS;
const COUNT_LINES: usize = (WORDS - COUNTS) / LINE_WORDS;
/// The line of those that have none of their own.
pub(super) const SHARED_LINE: usize = COUNT_LINES - 1;

/// "nftable1" and the name of the keys.
fn magic<K: Key>() -> u64 {
    u64::from_le_bytes(*b"nftable1") ^ u64::from(u32::from_le_bytes(K::NAME)) << 16
}

/// What can be wrong with a table's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// The capacity is beyond what a table can have.
    TooLarge { capacity: usize, most: usize },
    /// The memory is too small for the capacity.
    TooSmall { words: usize, needed: usize },
    /// The memory holds something else than a table of these keys and this capacity.
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
                write!(f, "a connection table for {capacity} flows: at most {most} are possible; use several")
            }
            Self::TooSmall { words, needed } => {
                write!(f, "{words} words of memory for a connection table that takes {needed}")
            }
            Self::Foreign {
                what,
                found,
                expected,
            } => write!(
                f,
                "the memory holds no connection table of this kind: {what} {found:#x}, expected {expected:#x}"
            ),
        }
    }
}

impl std::error::Error for TableError {}

/// Buckets of a table that is to hold `capacity` flows at a load of 90 %.
pub(super) fn buckets(capacity: usize) -> Result<u64, TableError> {
    const LEAST: usize = 1 << 10;
    /// Products of a bucket's number and a tail have 64 bits.
    const MOST: usize = 1 << 24;
    let most = MOST * slots::SLOTS / 10 * 9;
    if capacity > most {
        return Err(TableError::TooLarge { capacity, most });
    }
    Ok((capacity * 10).div_ceil(9 * slots::SLOTS).max(LEAST) as u64)
}

/// Writes the header of a new table, or checks that of one that is there.
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

/// Read anew by each call: words that are copied from another instance come after the table was opened.
#[inline]
pub(super) fn secrets<W: Words>(words: W) -> Secrets {
    Secrets(std::array::from_fn(|index| {
        words.load(SECRETS + index, Ordering::Relaxed)
    }))
}

/// Each count has its records above this, and changes under way below. A thread counts in a line of its own, if it can, and only the sum
/// means something: a record may come by one line and go by another.
const RECORD: u64 = 1 << 16;

/// A change to the table under way. One that stays open was cut off: see [`super::recover`].
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
        // Nobody else writes it; an addition that others may interfere with would cost as much as an insert's other steps together.
        let count = words.load(index, Ordering::Relaxed);
        words.store(index, count.wrapping_add(value));
    }
}

/// Records, and changes under way.
pub(super) fn counted<W: Words>(words: W) -> (usize, u64) {
    let total = (0..COUNT_LINES)
        .map(|line| words.load(COUNTS + line * LINE_WORDS, Ordering::Relaxed))
        .fold(0, u64::wrapping_add);
    // A sum taken while others count may be off by what they do, also below nothing.
    let records = (total as i64 >> RECORD.trailing_zeros()).max(0);
    (records as usize, total & (RECORD - 1))
}

/// Sets the number of records, and that no change is under way.
pub(super) fn set_count<W: Words>(words: W, records: usize) {
    for line in 1..COUNT_LINES {
        words.store(COUNTS + line * LINE_WORDS, 0);
    }
    words.store(COUNTS, records as u64 * RECORD);
}

/// Lines that threads of this process have for their own, as bits.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The line that a thread counts in, while it lives: its own, or the one shared by those that came when all were taken.
struct Line(usize);

impl Line {
    fn take() -> Self {
        let free = |taken: u64| {
            let line = taken.trailing_ones();
            (line < SHARED_LINE as u32).then_some(taken | 1 << line)
        };
        // Acquire: who had the line before has written its last.
        let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, free);
        Self(taken.map_or(SHARED_LINE, |taken| taken.trailing_ones() as usize))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.0 != SHARED_LINE {
            TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

#[inline]
pub(super) fn line_of_thread() -> usize {
    thread_local! {
        static LINE: Line = Line::take();
    }
    // A thread that is ending may have none any more.
    LINE.try_with(|line| line.0).unwrap_or(SHARED_LINE)
}
