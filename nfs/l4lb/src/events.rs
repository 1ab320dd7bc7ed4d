//! Events that are counted per VIP, and the drop reasons named after them.

/// An event that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Event {
    /// A packet was placed without a record: too many half-open connections.
    Unrecorded,
    /// A packet was placed without a record: the connection table is full. With sessions: it was dropped.
    TableFull,
    NoBackend,
    /// A connection moved to another backend: its own is gone or down.
    Moved,
    HalfOpenLimit,
    NoSession,
    SessionsFull,
    TooBig,
    NeighbourUnresolved,
    TimeToLive,
    FragmentWithoutFirst,
    FragmentsFull,
    IcmpErrorForwarded,
    IcmpErrorOrphan,
    IcmpUnsupported,
    EchoAnswered,
    Malformed,
    NotForUs,
    NoRoute,
    ProtocolUnsupported,
    /// A packet of a connection whose backend is gone, while a rule of a faster table may still lead others there.
    RuleActs,
}

impl Event {
    pub const ALL: [Self; 21] = [
        Self::Unrecorded,
        Self::TableFull,
        Self::NoBackend,
        Self::Moved,
        Self::HalfOpenLimit,
        Self::NoSession,
        Self::SessionsFull,
        Self::TooBig,
        Self::NeighbourUnresolved,
        Self::TimeToLive,
        Self::FragmentWithoutFirst,
        Self::FragmentsFull,
        Self::IcmpErrorForwarded,
        Self::IcmpErrorOrphan,
        Self::IcmpUnsupported,
        Self::EchoAnswered,
        Self::Malformed,
        Self::NotForUs,
        Self::NoRoute,
        Self::ProtocolUnsupported,
        Self::RuleActs,
    ];
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the drop reason, which also names the counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unrecorded => "unrecorded",
            Self::TableFull => "table full",
            Self::NoBackend => "no backend",
            Self::Moved => "moved",
            Self::HalfOpenLimit => "half-open limit",
            Self::NoSession => "no session",
            Self::SessionsFull => "sessions full",
            Self::TooBig => "too big",
            Self::NeighbourUnresolved => "neighbour unresolved",
            Self::TimeToLive => "time to live",
            Self::FragmentWithoutFirst => "fragment without first",
            Self::FragmentsFull => "fragments full",
            Self::IcmpErrorForwarded => "icmp error forwarded",
            Self::IcmpErrorOrphan => "icmp error orphan",
            Self::IcmpUnsupported => "icmp unsupported",
            Self::EchoAnswered => "echo answered",
            Self::Malformed => "malformed",
            Self::NotForUs => "not for us",
            Self::NoRoute => "no route",
            Self::ProtocolUnsupported => "protocol unsupported",
            Self::RuleActs => "rule acts",
        }
    }
}
