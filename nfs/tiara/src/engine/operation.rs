//! Operations on the table and their outcomes, as records of the queues.
//!
//! Both are `head | decision | tail | lanes`, like an entry. The head holds the sequence number in its upper 48 bits, below it 8 bits of detail, and the kind.

use nf_tables::Key;

use crate::table::{entry_words, Decision};

/// The most words of a record: that of IPv6.
pub(super) const MOST_WORDS: usize = 8;
/// Sequence numbers are compared modulo this.
pub(super) const SEQUENCES: u64 = 1 << 48;

/// A request of a load balancer to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<K> {
    /// Inserts a flow. An entry of the flow, of another load balancer that failed, say, gets the new decision. If the flow's places are full and
    /// `evict` is given, the flow's own last periods, the engine may evict the least used of them that is used less (see [`Usage`](crate::Usage)).
    Insert {
        key: K,
        decision: Decision,
        evict: Option<u8>,
    },
    /// Deletes a flow's entry, unless another load balancer has inserted the flow since.
    Delete { key: K },
    /// Deletes all entries of the engine with this real server. The engine serves other queues meanwhile.
    DeleteServer { rs_index: u32 },
}

impl<K> Operation<K> {
    /// Inserts a flow unless its places are full.
    #[must_use]
    pub fn insert(key: K, decision: Decision) -> Self {
        Self::Insert {
            key,
            decision,
            evict: None,
        }
    }
}

/// The result of an operation, or an event of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<K> {
    Inserted,
    /// The flow's places are full. Its packets take the slow path.
    Full,
    /// The number of entries that were deleted.
    Deleted(u32),
    /// The flow has no entry, or that of another load balancer.
    NotFound,
    /// The engine refuses the operation: the record is damaged, or names a flow of another engine.
    Refused,
    /// The completion never came. The operation may have been done or not; delete the flow to be sure.
    Lost,
    /// Not a completion: the engine has evicted a flow that this load balancer inserted.
    Evicted(K),
}

const INSERT: u64 = 1;
const DELETE: u64 = 2;
const DELETE_SERVER: u64 = 3;
const INSERT_OR_EVICT: u64 = 4;

const INSERTED: u64 = 1;
const FULL: u64 = 2;
const DELETED: u64 = 3;
const NOT_FOUND: u64 = 4;
const REFUSED: u64 = 5;
const EVICTED: u64 = 6;

/// A record of a queue, and the words of it that count.
pub(super) type Record = [u64; MOST_WORDS];

pub(super) const fn record_words<K: Key>() -> usize {
    entry_words::<K>()
}

#[inline]
fn head(kind: u64, detail: u8, sequence: u64) -> u64 {
    kind | u64::from(detail) << 8 | sequence << 16
}

#[inline]
pub(super) fn sequence_of(record: &Record) -> u64 {
    record[0] >> 16
}

#[inline]
fn put_key<K: Key>(record: &mut Record, key: &K) {
    record[2] = key.tail();
    for (word, lane) in record[3..].iter_mut().zip(key.lanes().as_ref()) {
        *word = *lane;
    }
}

#[inline]
fn key_of<K: Key>(record: &Record) -> K {
    let mut lanes = K::Lanes::default();
    for (lane, word) in lanes.as_mut().iter_mut().zip(&record[3..]) {
        *lane = *word;
    }
    K::from_words(&lanes, record[2])
}

#[inline]
pub(super) fn write_operation<K: Key>(operation: &Operation<K>, sequence: u64) -> Record {
    let mut record = Record::default();
    match operation {
        Operation::Insert {
            key,
            decision,
            evict,
        } => {
            let kind = if evict.is_some() {
                INSERT_OR_EVICT
            } else {
                INSERT
            };
            record[0] = head(kind, evict.unwrap_or(0), sequence);
            record[1] = decision.word();
            put_key(&mut record, key);
        }
        Operation::Delete { key } => {
            record[0] = head(DELETE, 0, sequence);
            put_key(&mut record, key);
        }
        Operation::DeleteServer { rs_index } => {
            record[0] = head(DELETE_SERVER, 0, sequence);
            record[1] = (*rs_index).into();
        }
    }
    record
}

/// Returns None for a damaged record.
#[inline]
pub(super) fn read_operation<K: Key>(record: &Record) -> Option<Operation<K>> {
    let evict = (record[0] >> 8) as u8;
    match record[0] & 0xff {
        kind @ (INSERT | INSERT_OR_EVICT) => Some(Operation::Insert {
            key: key_of(record),
            decision: Decision::of_word(record[1]),
            evict: (kind == INSERT_OR_EVICT).then_some(evict),
        }),
        DELETE => Some(Operation::Delete {
            key: key_of(record),
        }),
        DELETE_SERVER => Some(Operation::DeleteServer {
            rs_index: record[1] as u32,
        }),
        _ => None,
    }
}

#[inline]
pub(super) fn write_outcome<K: Key>(outcome: &Outcome<K>, sequence: u64) -> Record {
    let mut record = Record::default();
    let kind = match outcome {
        Outcome::Inserted => INSERTED,
        Outcome::Full => FULL,
        Outcome::Deleted(count) => {
            record[1] = (*count).into();
            DELETED
        }
        Outcome::NotFound => NOT_FOUND,
        Outcome::Refused | Outcome::Lost => REFUSED,
        Outcome::Evicted(key) => {
            put_key(&mut record, key);
            EVICTED
        }
    };
    record[0] = head(kind, 0, sequence);
    record
}

/// Returns None for a damaged record.
#[inline]
pub(super) fn read_outcome<K: Key>(record: &Record) -> Option<Outcome<K>> {
    match record[0] & 0xff {
        INSERTED => Some(Outcome::Inserted),
        FULL => Some(Outcome::Full),
        DELETED => Some(Outcome::Deleted(record[1] as u32)),
        NOT_FOUND => Some(Outcome::NotFound),
        REFUSED => Some(Outcome::Refused),
        EVICTED => Some(Outcome::Evicted(key_of(record))),
        _ => None,
    }
}
