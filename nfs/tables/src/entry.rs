//! What a table knows about a flow.

/// What a load balancer keeps of a connection: 16 bits of its own, usually the backend's index, and the class, which says how long
/// the record lives without packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub value: u16,
    pub class: Class,
}

/// How far a connection is; see [`Lifetimes`](crate::Lifetimes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// TCP, of which only SYNs were seen.
    Opening = 0,
    /// TCP, both sides of which have spoken.
    Established = 1,
    /// TCP after FIN or RST.
    Closing = 2,
    /// What has no connection: UDP, QUIC.
    Datagram = 3,
}

impl Class {
    pub const ALL: [Self; 4] = [
        Self::Opening,
        Self::Established,
        Self::Closing,
        Self::Datagram,
    ];

    /// The class of the two lowest bits.
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
