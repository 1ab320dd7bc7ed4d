//! The entry that a table stores for a flow.

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
