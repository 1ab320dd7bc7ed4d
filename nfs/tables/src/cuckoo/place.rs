//! Places keys: computes a key's two buckets and the part of the key that its record stores.
//!
//! A Feistel network of two rounds, which is reversible, mixes the 40 bits of the tail with the rest of the key. The first bucket's number
//! determines the leading bits of the mixed tail, and the tag stores the others (a quotient and its remainder), so lanes, tag and place together
//! are the whole key, without loss. The second bucket's number is the lanes' sum minus the first, so a record itself tells its other bucket.

use crate::Key;

use super::record::Fields;

/// The number of slots per bucket.
pub(super) const SLOTS: usize = 4;

/// The secret numbers of a table. Without them, an attacker cannot choose keys that share a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secrets(pub(super) [u64; Secrets::COUNT]);

impl Secrets {
    pub(super) const COUNT: usize = 3;
}

/// Multiplies to 128 bits and XORs the halves: each bit of the result depends on all bits of the factors.
#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product >> 64) as u64 ^ product as u64
}

/// The parameters that depend only on the table's size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) buckets: u64,
    pub(super) fields: Fields,
}

/// A key in its stored form, with its place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place<L> {
    pub(super) lanes: L,
    /// The key's part of the record's data word in the first bucket.
    pub(super) pattern: u64,
    first: u32,
    second: u32,
}

impl<L> Place<L> {
    /// Returns the number of the first bucket.
    #[inline(always)]
    pub(super) fn first(&self) -> u64 {
        self.first.into()
    }

    /// Returns the number of the second bucket.
    #[inline(always)]
    pub(super) fn second(&self) -> u64 {
        self.second.into()
    }
}

impl Shape {
    /// Requires that `buckets` * 2^`tail_bits` fits 64 bits.
    pub(super) fn new(buckets: u64, tail_bits: u32) -> Self {
        Self {
            buckets,
            // The tag omits the bits that the bucket's number determines: the logarithm, rounded down.
            fields: Fields::new(tail_bits - buckets.ilog2()),
        }
    }

    #[inline(always)]
    pub(super) fn place<K: Key>(&self, secrets: &Secrets, key: &K) -> Place<K::Lanes> {
        let tail = key.tail();
        let mut lanes = key.lanes();
        lanes.as_mut()[0] ^= round_of_tail(secrets, tail);
        let mixed = round_of_lanes(secrets, lanes.as_ref());
        // The product of the mixed tail, a number below 2^TAIL_BITS, and the number of buckets: a bucket's number, then the tag and some
        // redundant bits.
        let product = (tail ^ mixed >> (64 - K::TAIL_BITS)) * self.buckets;
        let first = (product >> K::TAIL_BITS) as u32;
        Place {
            lanes,
            pattern: self.fields.pattern(product << (64 - K::TAIL_BITS)),
            first,
            second: self.opposite(mixed, first),
        }
    }

    /// Returns the other possible bucket of a record with these lanes.
    #[inline(always)]
    pub(super) fn other<L: AsRef<[u64]>>(&self, secrets: &Secrets, lanes: &L, bucket: u64) -> u64 {
        self.opposite(round_of_lanes(secrets, lanes.as_ref()), bucket as u32)
            .into()
    }

    #[inline(always)]
    fn opposite(&self, mixed: u64, bucket: u32) -> u32 {
        let sum = ((u64::from(mixed as u32) * self.buckets) >> 32) as u32;
        // A subtraction modulo the number of buckets. A comparison would become a branch that is mispredicted half of the time.
        let (difference, borrows) = sum.overflowing_sub(bucket);
        difference.wrapping_add(u32::from(borrows).wrapping_neg() & self.buckets as u32)
    }

    /// Reconstructs the key of a record whose first bucket is known.
    pub(super) fn key<K: Key>(
        &self,
        secrets: &Secrets,
        lanes: &K::Lanes,
        first: u64,
        data: u64,
    ) -> K {
        // Products that fall into this bucket with this tag differ by `buckets` or more, and the tag is more precise than that.
        let least = first << K::TAIL_BITS | self.fields.leading_bits(data) >> (64 - K::TAIL_BITS);
        let mixed = least.div_ceil(self.buckets);
        let tail = mixed ^ round_of_lanes(secrets, lanes.as_ref()) >> (64 - K::TAIL_BITS);
        let mut plain = *lanes;
        plain.as_mut()[0] ^= round_of_tail(secrets, tail);
        K::from_words(&plain, tail)
    }
}

#[inline(always)]
fn round_of_tail(secrets: &Secrets, tail: u64) -> u64 {
    fold(tail ^ secrets.0[0], secrets.0[1])
}

#[inline(always)]
fn round_of_lanes(secrets: &Secrets, lanes: &[u64]) -> u64 {
    lanes.iter().fold(0, |mixed, lane| {
        fold(mixed ^ lane ^ secrets.0[2], secrets.0[1])
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Ipv4Flow, Ipv6Flow};

    proptest! {
        #[test]
        fn a_key_can_be_reconstructed(
            numbers in prop::array::uniform4(any::<u64>()),
            seed in any::<u64>(),
            buckets in 1_u64 << 10..1 << 24,
        ) {
            let secrets = Secrets(std::array::from_fn(|i| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15 + 2 * i as u64) | 1));
            let tail = numbers[3] >> 24;
            round_trip(&secrets, buckets, &Ipv4Flow::from_words(&[numbers[0]], tail))?;
            round_trip(&secrets, buckets, &Ipv6Flow::from_words(&numbers, tail))?;
        }
    }

    fn round_trip<K: Key>(secrets: &Secrets, buckets: u64, key: &K) -> Result<(), TestCaseError> {
        let shape = Shape::new(buckets, K::TAIL_BITS);
        let place = shape.place(secrets, key);
        prop_assert!(place.first() < buckets);
        let read: K = shape.key(secrets, &place.lanes, place.first(), place.pattern);
        prop_assert_eq!(read, *key);
        let other = place.second();
        prop_assert!(other < buckets);
        prop_assert_eq!(shape.other(secrets, &place.lanes, other), place.first());
        Ok(())
    }
}
