//! Lookups, single and in bulk.

use crate::{Entry, Key, Now};

use super::{
    place::Place,
    record::{self, Renewal},
    slots::{Core, Found},
    words::Words,
};

/// The number of keys prefetched before the first is examined: enough to hide memory latency, few enough for the requests that a core
/// can have outstanding and for its L1 cache.
const BULK: usize = 32;
/// The same, for the rest of a larger number of keys.
const SMALL_BULK: usize = 4;

impl<K: Key, W: Words> Core<K, W> {
    #[inline]
    pub(super) fn lookup(&self, key: &K, now: &Now) -> Option<Entry> {
        self.lookup_placed(&self.place(key), now)
    }

    fn lookup_placed(&self, place: &Place<K::Lanes>, now: &Now) -> Option<Entry> {
        loop {
            let found = self.find(place)?;
            if let Ok(entry) = self.renew(found, now) {
                return entry;
            }
        }
    }

    pub(super) fn prefetch(&self, key: &K) {
        let place = self.place(key);
        self.prefetch_bucket(place.first());
        self.prefetch_bucket(place.second());
    }

    pub(super) fn lookup_bulk(&self, keys: &[K], now: &Now, found: &mut [Option<Entry>]) {
        let count = keys.len().min(found.len());
        let (keys, found) = (&keys[..count], &mut found[..count]);
        let mut bulks = keys.chunks_exact(BULK);
        let mut found_bulks = found.chunks_exact_mut(BULK);
        for (keys, found) in bulks.by_ref().zip(found_bulks.by_ref()) {
            if let (Ok(keys), Ok(found)) = (keys.try_into(), found.try_into()) {
                self.lookup_chunk::<BULK>(keys, now, found);
            }
        }
        let mut bulks = bulks.remainder().chunks_exact(SMALL_BULK);
        let mut found_bulks = found_bulks.into_remainder().chunks_exact_mut(SMALL_BULK);
        for (keys, found) in bulks.by_ref().zip(found_bulks.by_ref()) {
            if let (Ok(keys), Ok(found)) = (keys.try_into(), found.try_into()) {
                self.lookup_chunk::<SMALL_BULK>(keys, now, found);
            }
        }
        for (key, found) in bulks.remainder().iter().zip(found_bulks.into_remainder()) {
            *found = self.lookup(key, now);
        }
    }

    /// Looks up a chunk of keys. Certain results are found without branches that depend on the table's content, which would be
    /// unpredictable: first all first buckets, then the second buckets of the rest, then the uncertain keys one by one.
    #[inline(always)]
    fn lookup_chunk<const N: usize>(
        &self,
        keys: &[K; N],
        now: &Now,
        found: &mut [Option<Entry>; N],
    ) {
        let places: [Place<K::Lanes>; N] = std::array::from_fn(|index| {
            let place = self.place(&keys[index]);
            self.prefetch_bucket(place.first());
            self.prefetch_bucket(place.second());
            place
        });
        // A count apart from its array stays in a register.
        let (mut rest, mut rest_count) = ([0_u8; N], 0);
        for (index, place) in places.iter().enumerate() {
            let (data, doubt) = self.glance(place.first(), place.pattern, &place.lanes);
            found[index] = Some(record::entry(data));
            // Always written; the next key overwrites it if it does not count.
            rest[rest_count % N] = index as u8;
            rest_count += usize::from(doubt | record::staleness(data, now) != 0);
        }
        let (mut hard, mut hard_count) = ([0_u8; N], 0);
        for index in &rest[..rest_count.min(N)] {
            let index = usize::from(*index) % N;
            let place = &places[index];
            let pattern = place.pattern | record::SECOND;
            let (data, doubt) = self.glance(place.second(), pattern, &place.lanes);
            found[index] = Some(record::entry(data));
            hard[hard_count % N] = index as u8;
            hard_count += usize::from(doubt | record::staleness(data, now) != 0);
        }
        for index in &hard[..hard_count.min(N)] {
            let index = usize::from(*index) % N;
            found[index] = self.lookup_placed(&places[index], now);
        }
    }

    /// Renews a record if needed and returns its entry; None: it has expired.
    #[inline(always)]
    pub(super) fn renew(&self, found: Found, now: &Now) -> Result<Option<Entry>, Gone> {
        match record::renewal(found.data, now) {
            Renewal::Unneeded => Ok(Some(record::entry(found.data))),
            Renewal::Expired => Ok(None),
            Renewal::To(renewed) => self.write_renewal(found, renewed, now),
        }
    }

    #[cold]
    fn write_renewal(
        &self,
        found: Found,
        mut renewed: u64,
        now: &Now,
    ) -> Result<Option<Entry>, Gone> {
        let index = self.base(found.bucket) + found.slot;
        let mut data = found.data;
        while let Err(other) = self.words.exchange(index, data, renewed) {
            if self.differs(data, other) {
                return Err(Gone);
            }
            data = other;
            renewed = match record::renewal(data, now) {
                Renewal::Unneeded => break,
                Renewal::Expired => return Ok(None),
                Renewal::To(renewed) => renewed,
            };
        }
        Ok(Some(record::entry(data)))
    }
}

/// The record was moved or removed.
pub(super) struct Gone;
