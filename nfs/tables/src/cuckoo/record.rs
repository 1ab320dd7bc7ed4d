//! A slot's data word: everything about a record but its lanes.
//!
//! ```text
//! | present | second | tag | version | value 16 | expiry 9 | class 2 | lock |
//! ```
//!
//! *present, second*: 00 empty, 01 (second) claimed by a thread that fills it, 1x a record, in its first or its second bucket.
//! *tag*: what the number of the first bucket does not say of the key's tail. *version*: goes up with each record that the slot gets; it has the
//! bits that the tag leaves, 4 in the smallest table, 12 in one of a million slots. An empty slot keeps tag and version, so that it differs from what it was.
//! *lock*: of the bucket, in the word of its first slot: who holds it may insert, change, move or remove the records whose first bucket it is.

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

/// Where tag and version meet: that depends on the table's size.
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

    /// What a record has there in its first bucket, of whose tag these are the leading bits.
    #[inline]
    pub(super) fn pattern(self, bits: u64) -> u64 {
        bits >> 2 & self.tag_mask() | PRESENT
    }

    /// The reverse.
    #[inline]
    pub(super) fn leading_bits(self, data: u64) -> u64 {
        (data & self.tag_mask()) << 2
    }

    /// Is this a record with this pattern?
    #[inline]
    pub(super) fn matches(self, data: u64, pattern: u64) -> bool {
        data ^ pattern < self.tag_unit
    }

    /// Zero if it is one.
    #[inline]
    pub(super) fn mismatch(self, data: u64, pattern: u64) -> u64 {
        (data ^ pattern) & self.tag_unit.wrapping_neg()
    }

    /// The word of a record that takes the place of `before`: tag and place from `pattern`, the next version, the rest from `record`. Unlocked.
    #[inline]
    pub(super) fn successor(self, before: u64, pattern: u64, record: u64) -> u64 {
        let version = self.tag_unit - (1 << VERSION_SHIFT);
        let next = (before & version).wrapping_add(1 << VERSION_SHIFT) & version;
        pattern & self.tag_unit.wrapping_neg() | next | record & (ENTRY | EXPIRY)
    }
}

/// Zero if no record came to or went from a slot between these two states of it.
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

/// Entry and expiry of a record made now, other bits zero.
#[inline]
pub(super) fn content(entry: Entry, now: &Now) -> u64 {
    u64::from(entry.value) << VALUE_SHIFT
        | (entry.class as u64) << CLASS_SHIFT
        | now.expiry(entry.class) << EXPIRY_SHIFT & EXPIRY
}

/// The word with another content.
#[inline]
pub(super) fn with_content(data: u64, content: u64) -> u64 {
    data & !(ENTRY | EXPIRY) | content
}

/// The word with the expiry of another one.
#[inline]
pub(super) fn with_expiry_of(data: u64, other: u64) -> u64 {
    data & !EXPIRY | other & EXPIRY
}

/// Ticks that are left, or [`lifetime::LIVING_TICKS`] or more: it has expired.
#[inline]
fn left(data: u64, now: &Now) -> u64 {
    (data >> EXPIRY_SHIFT).wrapping_sub(now.tick()) & (lifetime::EXPIRY_SPAN - 1)
}

#[inline]
pub(super) fn has_expired(data: u64, now: &Now) -> bool {
    left(data, now) >= lifetime::LIVING_TICKS
}

/// Zero if a record needs no renewal: it has not expired, and enough is left. Without branches.
#[inline(always)]
pub(super) fn staleness(data: u64, now: &Now) -> u64 {
    let left = left(data, now);
    let enough = now.enough_of(data >> CLASS_SHIFT);
    // One of the differences is negative where it does.
    (left.wrapping_sub(enough) | (lifetime::LIVING_TICKS - 1).wrapping_sub(left)) >> 63
}

/// Does `data` live longer than `other`?
#[inline]
pub(super) fn outlives(data: u64, other: u64) -> bool {
    let ahead = (data >> EXPIRY_SHIFT).wrapping_sub(other >> EXPIRY_SHIFT);
    (1..lifetime::LIVING_TICKS).contains(&(ahead & (lifetime::EXPIRY_SPAN - 1)))
}

/// What a packet makes of a record.
pub(super) enum Renewal {
    /// Long enough is left.
    Unneeded,
    /// The word with its new expiry.
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
