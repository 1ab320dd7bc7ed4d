//! The concurrent cuckoo table.
//!
//! A key has two buckets of four slots. Its record is in one of them, or, during a move, in both. An IPv4 bucket is one cache line.
//!
//! *Lookups* take no lock and write nothing except an occasional new expiry. *Inserts* lock one bucket; if both are full, they search without locks
//! for the shortest way to make room (breadth first), and then move records along it, starting at its end. Invariants:
//!
//! 1. A thread that inserts, changes, moves or removes a key holds the lock of the key's first bucket, and no other lock.
//! 2. An empty slot belongs to the thread that claimed it (compare and exchange on its data word) until it is filled.
//! 3. A slot is filled in this order: the claim, which makes it invalid; lanes; data, which makes it valid. The paper writes the key first, while the
//!    old data is still there: a reader of the new key then gets the old value, and checking the key again does not reveal it.
//! 4. A move fills the new slot, then empties the old one, so that the record is always in one of them.
//! 5. A reader that finds a key in neither bucket checks the first again: if records were added meanwhile, the key may have been among them,
//!    moved from the second to the first, and the reader starts over. The paper's reader misses it.
//! 6. Only a record's expiry changes without the lock, by compare and exchange on the whole data word: it cannot affect another record, and a
//!    thread that moves or removes the record notices. (The paper writes it unconditionally.)

use std::{marker::PhantomData, sync::Once};

use nf_arena::Memory;

use crate::{Entry, Full, Insertion, Key, Now};

mod age;
mod displace;
mod header;
mod insert;
mod lines;
mod lookup;
mod place;
mod record;
mod recover;
mod slots;
mod words;

#[cfg(test)]
mod crash;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use header::TableError;

use place::{Secrets, Shape};
use slots::Core;
use words::View;

/// A connection table in words, for any number of threads of one process at a time: the concurrent cuckoo table of LB-NIC 3.2.
///
/// Its state is entirely in the words. An instance that adopts the words of a stopped one continues with its records. If the old one was
/// killed within a call, the partial change is cleaned up before the first new one.
///
/// For all calls, an expired record does not exist, whether aging has removed it or not.
pub struct Cuckoo<K, M> {
    memory: M,
    shape: Shape,
    capacity: usize,
    recovered: Once,
    keys: PhantomData<K>,
}

impl<K: Key, M: Memory> Cuckoo<K, M> {
    /// Returns the words of memory needed for `capacity` flows: 17.8 bytes per flow for IPv4, 53.4 for IPv6, and at least 4096 slots.
    ///
    /// # Errors
    /// If there are more than 60 million flows.
    pub fn words(capacity: usize) -> Result<usize, TableError> {
        let buckets = header::buckets(capacity)?;
        Ok(header::WORDS + buckets as usize * slots::bucket_words::<K>())
    }

    /// Opens a table: a new one in zeroed memory, otherwise the existing one, of the same capacity.
    ///
    /// # Errors
    /// If the memory is too small, or holds something else.
    pub fn open(memory: M, capacity: usize) -> Result<Self, TableError> {
        let random = || {
            use std::hash::{BuildHasher, Hasher};
            std::hash::RandomState::new().build_hasher().finish()
        };
        Self::open_with(
            memory,
            capacity,
            Secrets(std::array::from_fn(|_| random() | 1)),
        )
    }

    /// Like [`open`](Self::open), but a new table places its keys the same way in each run. For tests only: the seed reveals which keys share a bucket.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_seeded(memory: M, capacity: usize, seed: u64) -> Result<Self, TableError> {
        // SplitMix64.
        let number = |i: usize| {
            let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(i as u64 + 1));
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (x ^ x >> 31) | 1
        };
        Self::open_with(memory, capacity, Secrets(std::array::from_fn(number)))
    }

    fn open_with(memory: M, capacity: usize, secrets: Secrets) -> Result<Self, TableError> {
        let buckets = header::buckets(capacity)?;
        let needed = Self::words(capacity)?;
        let words = memory.words().len();
        if words < needed {
            return Err(TableError::TooSmall { words, needed });
        }
        header::open::<K, _>(View::new(&memory), buckets, &secrets)?;
        Ok(Self {
            memory,
            shape: Shape::new(buckets, K::TAIL_BITS),
            capacity,
            recovered: Once::new(),
            keys: PhantomData,
        })
    }

    /// Returns the number of slots, of which about 95 % can be filled.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.shape.buckets as usize * place::SLOTS
    }

    #[inline]
    fn core(&self) -> Core<K, View<'_, M>> {
        Core::new(View::new(&self.memory), self.shape)
    }

    /// Like [`core`](Self::core), for changing records.
    #[inline]
    fn writer(&self) -> Core<K, View<'_, M>> {
        let core = self.core();
        self.recovered.call_once(|| core.recover_if_needed());
        core
    }

    /// Returns the entry of a flow for a packet of it, and renews the record.
    pub fn lookup(&self, key: &K, now: &Now) -> Option<Entry> {
        self.core().lookup(key, now)
    }

    /// Looks up many flows at once, which is faster: `found[i]` is the entry of `keys[i]`. The shorter slice sets the number.
    pub fn lookup_bulk(&self, keys: &[K], now: &Now, found: &mut [Option<Entry>]) {
        self.core().lookup_bulk(keys, now, found);
    }

    /// Prefetches the memory that the next call for this key reads. [`lookup_bulk`](Self::lookup_bulk) prefetches by itself.
    pub fn prefetch(&self, key: &K) {
        self.core().prefetch(key);
    }

    /// Records a new flow. An existing record stays, is renewed, and its entry is returned: of several threads that insert the same flow at once,
    /// one gets [`Insertion::Inserted`], and the others get the entry that it inserted.
    ///
    /// # Errors
    /// If the table is full; aging frees entries.
    pub fn insert(&self, key: &K, entry: Entry, now: &Now) -> Result<Insertion, Full> {
        self.writer().insert(key, entry, now)
    }

    /// Replaces a flow's entry `old` by `new`, and renews the record.
    ///
    /// # Errors
    /// If it has an entry other than `old`: that entry, which stays. None: it has no record.
    pub fn replace(&self, key: &K, old: Entry, new: Entry, now: &Now) -> Result<(), Option<Entry>> {
        self.writer().replace(key, old, new, now)
    }

    /// Removes a flow's record and returns its entry. An expired record stays until aging reports it.
    pub fn remove(&self, key: &K, now: &Now) -> Option<Entry> {
        self.writer().remove(key, now)
    }

    /// Performs a step of aging: examines the next `budget` places, continuing where the last step stopped, and removes expired records, passing each
    /// to `expired`. Returns their number.
    ///
    /// The whole table must be examined once in 100 s; otherwise records that expired long ago come back to life.
    pub fn age(&self, budget: usize, now: &Now, expired: &mut dyn FnMut(&K, Entry)) -> usize {
        self.writer().age(budget, now, expired)
    }

    /// Returns the number of records, including expired ones that aging has not removed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core().len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of records that fit for certain; somewhat more may fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Calls `visit` with every unexpired record. A record that is inserted, removed or moved meanwhile may be missed or visited twice.
    pub fn for_each(&self, now: &Now, visit: &mut dyn FnMut(&K, Entry)) {
        self.core().for_each(now, visit);
    }
}
