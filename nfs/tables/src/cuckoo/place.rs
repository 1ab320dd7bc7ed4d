//! Which buckets a key has, and what of it is written there.
//!
//! The 40 bits of the tail are mixed with all the rest by a Feistel network of two rounds, which can be undone. Of the mixed tail, the first
//! bucket's number says the leading bits and the tag the others (a quotient and its remainder), so that lanes, tag and place together are the
//! whole key, without loss. The second bucket's number is the lanes' sum minus the first, so that a record says itself where else it may be.

use crate::Key;

use super::record::Fields;

/// Secret numbers of a table. Who does not know them cannot choose keys that meet in one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secrets(pub(super) [u64; Secrets::COUNT]);

impl Secrets {
    pub(super) const COUNT: usize = 4;
}

/// Multiplies to 128 bits and adds the halves without carry: each bit of the result depends on all of the factors.
#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product >> 64) as u64 ^ product as u64
}

/// What depends on the table's size only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) buckets: u64,
    tail_bits: u32,
    /// Bits of the tail that the bucket's number says: the logarithm of `buckets`, rounded down.
    said: u32,
    pub(super) fields: Fields,
}

/// A key as it is written, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<L> {
    pub(super) lanes: L,
    /// Number of the first bucket.
    pub(super) first: u64,
    /// Of the data word in the first bucket.
    pub(super) pattern: u64,
}

impl Shape {
    pub(super) fn new(buckets: u64, tail_bits: u32) -> Self {
        let said = buckets.ilog2();
        Self {
            buckets,
            tail_bits,
            said,
            fields: Fields::new(tail_bits - said),
        }
    }

    #[inline(always)]
    pub(super) fn place<K: Key>(&self, secrets: &Secrets, key: &K) -> Place<K::Lanes> {
        let tail = key.tail();
        let mut lanes = key.lanes();
        lanes.as_mut()[0] ^= round_of_tail(secrets, tail);
        let mixed = tail ^ round_of_lanes(secrets, lanes.as_ref()) >> (64 - self.tail_bits);
        let product = mixed * self.buckets;
        let rest = product & ((1 << self.tail_bits) - 1);
        Place {
            lanes,
            first: product >> self.tail_bits,
            pattern: self.fields.pattern(rest >> self.said),
        }
    }

    /// The other bucket that a record with these lanes may be in.
    #[inline(always)]
    pub(super) fn other<L: AsRef<[u64]>>(&self, secrets: &Secrets, lanes: &L, bucket: u64) -> u64 {
        let mixed = fold(round_of_lanes(secrets, lanes.as_ref()), secrets.0[3]);
        let sum = ((mixed >> 32) * self.buckets) >> 32;
        // Modulo the number of buckets; both are below it.
        sum.wrapping_sub(bucket)
            .wrapping_add(if sum < bucket { self.buckets } else { 0 })
    }

    /// The key of a record whose first bucket is known.
    pub(super) fn key<K: Key>(
        &self,
        secrets: &Secrets,
        lanes: &K::Lanes,
        first: u64,
        data: u64,
    ) -> K {
        // The products that fall into this bucket with this tag differ by `buckets` or more, and the tag says them to within less.
        let least =
            u128::from(first) << self.tail_bits | u128::from(self.fields.tag(data)) << self.said;
        let mixed = least.div_ceil(u128::from(self.buckets)) as u64;
        let tail = mixed ^ round_of_lanes(secrets, lanes.as_ref()) >> (64 - self.tail_bits);
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
        fn a_key_can_be_read_back(
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
        prop_assert!(place.first < buckets);
        let read: K = shape.key(secrets, &place.lanes, place.first, place.pattern);
        prop_assert_eq!(read, *key);
        let other = shape.other(secrets, &place.lanes, place.first);
        prop_assert!(other < buckets);
        prop_assert_eq!(shape.other(secrets, &place.lanes, other), place.first);
        Ok(())
    }
}
