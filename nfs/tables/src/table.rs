//! What a load balancer asks of a connection table.

use crate::{Entry, Key, Now};

/// Which entry a flow has. Any number of threads may call anything at the same time.
///
/// A record that has expired is not there for any of these calls, whether it was aged yet or not.
pub trait ConnectionTable<K: Key>: Send + Sync {
    /// The entry of a flow, a packet of which has come: renews the record.
    fn lookup(&self, key: &K, now: &Now) -> Option<Entry>;

    /// As [`lookup`](Self::lookup), of many at once, which is faster: `found[i]` is the entry of `keys[i]`. The shorter slice says how many.
    fn lookup_bulk(&self, keys: &[K], now: &Now, found: &mut [Option<Entry>]) {
        for (key, found) in keys.iter().zip(found) {
            *found = self.lookup(key, now);
        }
    }

    /// Asks for the memory that the next call about this key will read, so that it is there by then. [`lookup_bulk`](Self::lookup_bulk) needs no such help.
    fn prefetch(&self, key: &K) {
        let _ = key;
    }

    /// Records a new flow. Where it has a record already, that one stays and is renewed, and its entry is the answer: of several threads that insert the same
    /// flow at once, one gets [`Insertion::Inserted`], and the others what it inserted.
    ///
    /// # Errors
    /// There is no room. Aging makes some.
    fn insert(&self, key: &K, entry: Entry, now: &Now) -> Result<Insertion, Full>;

    /// Gives a flow the entry `new`, renewed, in place of `old`.
    ///
    /// # Errors
    /// It has another entry than `old`, which stays: that one. None: it has no record.
    fn replace(&self, key: &K, old: Entry, new: Entry, now: &Now) -> Result<(), Option<Entry>>;

    /// Forgets a flow, and answers its entry. A record that has expired is forgotten as well, but is not an answer.
    fn remove(&self, key: &K, now: &Now) -> Option<Entry>;

    /// A step of aging: looks at the next `budget` records or places for them, where the last step stopped, and removes those that
    /// have expired, after `expired` was told of each. Answers how many.
    ///
    /// The whole table has to be looked at once in 100 s, or records that expired long ago come to life again.
    fn age(&self, budget: usize, now: &Now, expired: &mut dyn FnMut(&K, Entry)) -> usize;

    /// Records, with those that have expired and were not aged yet.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many records fit for sure; somewhat more may.
    fn capacity(&self) -> usize;

    /// Calls `visit` with every record that has not expired. One that is inserted, removed or moved meanwhile may be missed or come twice.
    fn for_each(&self, now: &Now, visit: &mut dyn FnMut(&K, Entry));
}

/// What [`ConnectionTable::insert`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The flow has a record now. `expired`: the entry of its last one, which had expired but was not aged yet.
    Inserted { expired: Option<Entry> },
    /// It had one, with this entry.
    Existing(Entry),
}

/// There is no room for another flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the connection table is full: give it a larger capacity, or its records shorter lifetimes")
    }
}

impl std::error::Error for Full {}
