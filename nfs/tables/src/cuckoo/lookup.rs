//! Lookups, one at a time and in bulk.

use crate::{Entry, Key, Now};

use super::{
    place::Place,
    record::{self, Renewal},
    slots::{Core, Found, Look},
    words::Words,
};

/// Keys whose memory is asked for before the first of them is looked at: enough to hide what memory takes to answer, few enough for
/// the requests that a core can have open, and to be in the first cache still.
const BULK: usize = 32;

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
        self.prefetch_bucket(place.first);
        self.prefetch_bucket(self.other(&place.lanes, place.first));
    }

    pub(super) fn lookup_bulk(&self, keys: &[K], now: &Now, found: &mut [Option<Entry>]) {
        for (keys, found) in keys.chunks(BULK).zip(found.chunks_mut(BULK)) {
            self.lookup_chunk(&keys[..keys.len().min(found.len())], now, found);
        }
    }

    /// Between one and [`BULK`] keys: first buckets, then the second ones of those that are not there.
    fn lookup_chunk(&self, keys: &[K], now: &Now, found: &mut [Option<Entry>]) {
        let Some(last) = keys.len().checked_sub(1) else {
            return;
        };
        // The last key again and again where there are fewer: that is the same cache line.
        let places: [Place<K::Lanes>; BULK] = std::array::from_fn(|index| {
            let place = self.place(&keys[index.min(last)]);
            self.prefetch_bucket(place.first);
            place
        });
        let mut rest = [0_u8; BULK];
        let mut rest_count = 0;
        for (index, place) in places.iter().enumerate().take(keys.len()) {
            let look = self.look(
                place.first,
                self.data(place.first),
                place.pattern,
                &place.lanes,
            );
            if let Look::Found(record) = look {
                found[index] = match self.renew(record, now) {
                    Ok(entry) => entry,
                    Err(Gone) => self.lookup_placed(place, now),
                };
            } else {
                self.prefetch_bucket(self.other(&place.lanes, place.first));
                rest[rest_count & (BULK - 1)] = index as u8;
                rest_count += 1;
            }
        }
        for index in &rest[..rest_count] {
            let index = usize::from(*index) & (BULK - 1);
            found[index] = self.lookup_placed(&places[index], now);
        }
    }

    /// Makes a record that was found live on, if that is needed, and answers its entry; None: it has expired.
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
