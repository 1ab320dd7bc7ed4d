//! The entry that a table stores for a flow, and the results of storing one.

/// A load balancer's data about a connection: 16 bits of its own, usually the backend's index, and the class, which determines how
/// long the record lives without packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub value: u16,
    pub class: Class,
}

/// The state of a connection; see [`Lifetimes`](crate::Lifetimes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// TCP, only SYNs seen.
    Opening = 0,
    /// TCP, both sides have sent.
    Established = 1,
    /// TCP after FIN or RST.
    Closing = 2,
    /// Connectionless: UDP, QUIC.
    Datagram = 3,
}

impl Class {
    pub const ALL: [Self; 4] = [
        Self::Opening,
        Self::Established,
        Self::Closing,
        Self::Datagram,
    ];

    /// Returns the class in the two lowest bits.
    #[inline]
    pub(crate) fn of_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Opening,
            1 => Self::Established,
            2 => Self::Closing,
            _ => Self::Datagram,
        }
    }
}

/// The result of [`Cuckoo::insert`](crate::Cuckoo::insert).
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
