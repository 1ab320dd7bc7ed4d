//! A slot's data word: a record without its lanes.
//!
//! ```text
//! | present | second | tag | version | value 16 | expiry 9 | class 2 | lock |
//! ```
//!
//! *present, second*: 00 empty, 01 (second) claimed by a thread that fills it, 1x a record, in its first or its second bucket.
//! *tag*: the part of the key's tail that the number of the first bucket does not determine. *version*: increases with each record in the slot; it has
//! the bits that the tag leaves, 4 in the smallest table, 12 in one of a million slots. An empty slot keeps tag and version, so that it differs from
//! its earlier states. *lock*: the bucket's, in the word of its first slot; its holder may insert, change, move or remove the records whose first bucket it is.

use crate::{lifetime, Class, Entry, Now};

pub(super) const PRESENT: u64 = 1 << 63;
pub(super) const SECOND: u64 = 1 << 62;
pub(super) const LOCK: u64 = 1;
const CLASS_SHIFT: u32 = 1;
const EXPIRY_SHIFT: u32 = 3;
const EXPIRY: u64 = (lifetime::EXPIRY_SPAN - 1) << EXPIRY_SHIFT;
const VALUE_SHIFT: u32 = 12;
const VERSION_SHIFT: u32 = 28;
const ENTRY: u64 = ((1 << VERSION_SHIFT) - (1 << VALUE_SHIFT)) | (3 << CLASS_SHIFT);

/// The boundary between tag and version, which depends on the table's size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    /// The lowest bit of the tag.
    tag_unit: u64,
}

impl Fields {
    pub(super) fn new(tag_bits: u32) -> Self {
        Self {
            tag_unit: SECOND >> tag_bits,
        }
    }

    #[inline]
    fn tag_mask(self) -> u64 {
        SECOND - self.tag_unit
    }

    /// Returns the pattern in the first bucket of a record whose tag has these leading bits.
    #[inline]
    pub(super) fn pattern(self, bits: u64) -> u64 {
        bits >> 2 & self.tag_mask() | PRESENT
    }

    /// Returns the leading bits of a tag.
    #[inline]
    pub(super) fn leading_bits(self, data: u64) -> u64 {
        (data & self.tag_mask()) << 2
    }

    /// Tells whether this is a record with this pattern.
    #[inline]
    pub(super) fn matches(self, data: u64, pattern: u64) -> bool {
        data ^ pattern < self.tag_unit
    }

    /// Returns zero if this is a record with this pattern.
    #[inline]
    pub(super) fn mismatch(self, data: u64, pattern: u64) -> u64 {
        (data ^ pattern) & self.tag_unit.wrapping_neg()
    }

    /// Returns the word of a record that replaces `before`: tag and place from `pattern`, the next version, the rest from `record`; unlocked.
    #[inline]
    pub(super) fn successor(self, before: u64, pattern: u64, record: u64) -> u64 {
        let version = self.tag_unit - (1 << VERSION_SHIFT);
        let next = (before & version).wrapping_add(1 << VERSION_SHIFT) & version;
        pattern & self.tag_unit.wrapping_neg() | next | record & (ENTRY | EXPIRY)
    }
}

/// Returns zero if no record was added to or removed from a slot between these two states of it.
#[inline]
pub(super) fn difference(before: u64, after: u64) -> u64 {
    (before ^ after) >> VERSION_SHIFT
}

#[inline]
pub(super) fn is_record(data: u64) -> bool {
    data & PRESENT != 0
}

#[inline]
pub(super) fn is_empty(data: u64) -> bool {
    data & (PRESENT | SECOND) == 0
}

#[inline]
pub(super) fn is_claimed(data: u64) -> bool {
    data & (PRESENT | SECOND) == SECOND
}

#[inline]
pub(super) fn claimed(empty: u64) -> u64 {
    empty | SECOND
}

#[inline]
pub(super) fn emptied(data: u64) -> u64 {
    data & !(PRESENT | SECOND)
}

#[inline]
pub(super) fn entry(data: u64) -> Entry {
    Entry {
        value: (data >> VALUE_SHIFT) as u16,
        class: Class::of_bits(data >> CLASS_SHIFT),
    }
}

/// Returns entry and expiry of a record created now; other bits are zero.
#[inline]
pub(super) fn content(entry: Entry, now: &Now) -> u64 {
    u64::from(entry.value) << VALUE_SHIFT
        | (entry.class as u64) << CLASS_SHIFT
        | now.expiry(entry.class) << EXPIRY_SHIFT & EXPIRY
}

/// Replaces the content of a word.
#[inline]
pub(super) fn with_content(data: u64, content: u64) -> u64 {
    data & !(ENTRY | EXPIRY) | content
}

/// Copies the expiry of another word.
#[inline]
pub(super) fn with_expiry_of(data: u64, other: u64) -> u64 {
    data & !EXPIRY | other & EXPIRY
}

/// Returns the remaining ticks; [`lifetime::LIVING_TICKS`] or more mean expired.
#[inline]
fn left(data: u64, now: &Now) -> u64 {
    (data >> EXPIRY_SHIFT).wrapping_sub(now.tick()) & (lifetime::EXPIRY_SPAN - 1)
}

#[inline]
pub(super) fn has_expired(data: u64, now: &Now) -> bool {
    left(data, now) >= lifetime::LIVING_TICKS
}

/// The expiries of records that are alive and need no renewal, for each class, prepared for many comparisons.
pub(super) struct Fresh {
    /// The earliest one, in the leading bits.
    from: [u64; 4],
    /// The number of them, in the leading bits.
    span: [u64; 4],
}

impl Fresh {
    /// Moves an expiry to the leading bits, so that subtracting wraps around as expiries do.
    const LEAD: u32 = 64 - (lifetime::EXPIRY_SPAN.ilog2() + EXPIRY_SHIFT);

    #[inline]
    pub(super) fn at(now: &Now) -> Self {
        let lead = |ticks: u64| ticks << (Self::LEAD + EXPIRY_SHIFT);
        let enough: [u64; 4] = std::array::from_fn(|class| now.enough_of(class as u64));
        Self {
            from: enough.map(|enough| lead(now.tick() + enough)),
            span: enough.map(|enough| lead(lifetime::LIVING_TICKS - enough)),
        }
    }

    /// Tells whether a record is alive and needs no renewal. Has no branches.
    #[inline(always)]
    pub(super) fn contains(&self, data: u64) -> bool {
        let class = (data >> CLASS_SHIFT) as usize % 4;
        (data << Self::LEAD).wrapping_sub(self.from[class]) < self.span[class]
    }
}

/// Tells whether `data` expires later than `other`.
#[inline]
pub(super) fn outlives(data: u64, other: u64) -> bool {
    let ahead = (data >> EXPIRY_SHIFT).wrapping_sub(other >> EXPIRY_SHIFT);
    (1..lifetime::LIVING_TICKS).contains(&(ahead & (lifetime::EXPIRY_SPAN - 1)))
}

/// The effect of a packet on a record's expiry.
pub(super) enum Renewal {
    /// Enough time is left.
    Unneeded,
    /// The record is renewed; this is its new word.
    To(u64),
    Expired,
}

#[inline]
pub(super) fn renewal(data: u64, now: &Now) -> Renewal {
    let class = Class::of_bits(data >> CLASS_SHIFT);
    let left = left(data, now);
    if left >= lifetime::LIVING_TICKS {
        Renewal::Expired
    } else if left >= now.enough(class) {
        Renewal::Unneeded
    } else {
        Renewal::To(data & !EXPIRY | now.expiry(class) << EXPIRY_SHIFT & EXPIRY)
    }
}
