//! The interface of a connection table.

use crate::{Entry, Key, Now};

/// A map from flows to entries. Any number of threads may call any method at the same time.
///
/// For all of these calls, an expired record does not exist, whether aging has removed it or not.
pub trait ConnectionTable<K: Key>: Send + Sync {
    /// Returns the entry of a flow for a packet of it, and renews the record.
    fn lookup(&self, key: &K, now: &Now) -> Option<Entry>;

    /// Looks up many flows at once, which is faster: `found[i]` is the entry of `keys[i]`. The shorter slice sets the number.
    fn lookup_bulk(&self, keys: &[K], now: &Now, found: &mut [Option<Entry>]) {
        for (key, found) in keys.iter().zip(found) {
            *found = self.lookup(key, now);
        }
    }

    /// Prefetches the memory that the next call for this key reads. [`lookup_bulk`](Self::lookup_bulk) prefetches by itself.
    fn prefetch(&self, key: &K) {
        let _ = key;
    }

    /// Records a new flow. An existing record stays, is renewed, and its entry is returned: of several threads that insert the same flow at once,
    /// one gets [`Insertion::Inserted`], and the others get the entry that it inserted.
    ///
    /// # Errors
    /// If there is no room. Aging makes some.
    fn insert(&self, key: &K, entry: Entry, now: &Now) -> Result<Insertion, Full>;

    /// Replaces a flow's entry `old` by `new`, and renews the record.
    ///
    /// # Errors
    /// If it has an entry other than `old`: that entry, which stays. None: it has no record.
    fn replace(&self, key: &K, old: Entry, new: Entry, now: &Now) -> Result<(), Option<Entry>>;

    /// Removes a flow's record and returns its entry. An expired record is removed as well, but not returned.
    fn remove(&self, key: &K, now: &Now) -> Option<Entry>;

    /// Performs a step of aging: examines the next `budget` records or places, continuing where the last step stopped, and removes expired records
    /// after passing each to `expired`. Returns their number.
    ///
    /// The whole table must be examined once in 100 s; otherwise records that expired long ago come back to life.
    fn age(&self, budget: usize, now: &Now, expired: &mut dyn FnMut(&K, Entry)) -> usize;

    /// Returns the number of records, including expired ones that aging has not removed.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of records that fit for certain; somewhat more may fit.
    fn capacity(&self) -> usize;

    /// Calls `visit` with every unexpired record. A record that is inserted, removed or moved meanwhile may be missed or visited twice.
    fn for_each(&self, now: &Now, visit: &mut dyn FnMut(&K, Entry));
}

/// The result of [`ConnectionTable::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The flow was recorded. `expired`: the entry of its previous record, which had expired but was not removed.
    Inserted { expired: Option<Entry> },
    /// The flow had a record, with this entry.
    Existing(Entry),
}

/// The error of a table without room for another flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the connection table is full: raise its capacity, or shorten the lifetimes of its records")
    }
}

impl std::error::Error for Full {}
