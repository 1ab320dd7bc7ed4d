//! Lookups, single and in bulk.

use nf_arena::{prefetch_level, FIRST_LEVEL, SECOND_LEVEL};

use crate::{Entry, Key, Now};

use super::{
    place::Place,
    record::{self, Fresh, Renewal},
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
        match prefetch_level() {
            SECOND_LEVEL => self.prefetch_place::<SECOND_LEVEL>(&place),
            _ => self.prefetch_place::<FIRST_LEVEL>(&place),
        }
    }

    #[inline(always)]
    fn prefetch_place<const LEVEL: u8>(&self, place: &Place<K::Lanes>) {
        self.prefetch_bucket::<LEVEL>(place.first());
        self.prefetch_bucket::<LEVEL>(place.second());
    }

    pub(super) fn lookup_bulk(&self, keys: &[K], now: &Now, found: &mut [Option<Entry>]) {
        match prefetch_level() {
            SECOND_LEVEL => self.lookup_bulk_from::<SECOND_LEVEL>(keys, now, found),
            _ => self.lookup_bulk_from::<FIRST_LEVEL>(keys, now, found),
        }
    }

    /// Looks up keys whose buckets are prefetched into a level of the cache.
    #[inline(always)]
    fn lookup_bulk_from<const LEVEL: u8>(
        &self,
        keys: &[K],
        now: &Now,
        found: &mut [Option<Entry>],
    ) {
        let count = keys.len().min(found.len());
        let (keys, found) = (&keys[..count], &mut found[..count]);
        let fresh = Fresh::at(now);
        let mut bulks = keys.chunks_exact(BULK);
        let mut found_bulks = found.chunks_exact_mut(BULK);
        for (keys, found) in bulks.by_ref().zip(found_bulks.by_ref()) {
            if let (Ok(keys), Ok(found)) = (keys.try_into(), found.try_into()) {
                self.lookup_chunk::<BULK, LEVEL>(keys, now, &fresh, found);
            }
        }
        let mut bulks = bulks.remainder().chunks_exact(SMALL_BULK);
        let mut found_bulks = found_bulks.into_remainder().chunks_exact_mut(SMALL_BULK);
        for (keys, found) in bulks.by_ref().zip(found_bulks.by_ref()) {
            if let (Ok(keys), Ok(found)) = (keys.try_into(), found.try_into()) {
                self.lookup_chunk::<SMALL_BULK, LEVEL>(keys, now, &fresh, found);
            }
        }
        for (key, found) in bulks.remainder().iter().zip(found_bulks.into_remainder()) {
            *found = self.lookup(key, now);
        }
    }

    /// Looks up a chunk of keys. Certain results are found without branches that depend on the table's content, which would be
    /// unpredictable: first all first buckets, then the second buckets of the rest, then the uncertain keys one by one.
    #[inline(always)]
    fn lookup_chunk<const N: usize, const LEVEL: u8>(
        &self,
        keys: &[K; N],
        now: &Now,
        fresh: &Fresh,
        found: &mut [Option<Entry>; N],
    ) {
        // Filled in place: an array of `from_fn` would be copied, right after its parts have been written.
        let mut places = [Place::<K::Lanes>::default(); N];
        for (place, key) in places.iter_mut().zip(keys) {
            *place = self.place(key);
            self.prefetch_place::<LEVEL>(place);
        }
        let mut rest = 0;
        for (place, found) in places.iter().zip(found.iter_mut()) {
            let (data, doubt) = self.glance(place.first(), place.pattern, &place.lanes);
            *found = Some(record::entry(data));
            rest = rest + rest + u32::from((doubt != 0) | !fresh.contains(data));
        }
        let mut hard = 0;
        while let Some((bit, index)) = take_first::<N>(&mut rest) {
            let place = &places[index];
            let pattern = place.pattern | record::SECOND;
            let (data, doubt) = self.glance(place.second(), pattern, &place.lanes);
            found[index] = Some(record::entry(data));
            hard |= u32::from((doubt != 0) | !fresh.contains(data)) << bit;
        }
        while let Some((_, index)) = take_first::<N>(&mut hard) {
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

/// Takes the first of N keys from a set of them; returns its bit and its index. The first key's bit is the highest, so that doubling the set and
/// adding a bit, a single instruction, adds the next key.
#[inline(always)]
fn take_first<const N: usize>(keys: &mut u32) -> Option<(u32, usize)> {
    const { assert!(N <= u32::BITS as usize) }
    let bit = keys.checked_ilog2()?;
    *keys ^= 1 << bit;
    Some((bit, (N - 1 - bit as usize) % N))
}
