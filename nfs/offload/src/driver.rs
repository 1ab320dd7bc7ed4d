//! The contract between a network function and a table that carries flows for it.

use std::{net::IpAddr, time::Duration};

use bytemuck::{Pod, Zeroable};
use nf_packet::MacAddress;

/// The endpoints and protocol of a flow's packets as they reach the function. IPv4 addresses are mapped (RFC 4291, 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct FlowKey {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u32,
}

/// The direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From one of many clients: the source.
    ToBackend,
    /// To one of many clients: the destination.
    ToClient,
}

/// The one that may change a function's rules: an instance in one of its lives. A greater epoch replaces a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Writer {
    pub instance: u128,
    pub epoch: u64,
}

/// A rule's number, which its writer chooses and never uses again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u64);

/// A target's number. Flows name targets, so that a rewrite is written once for all flows of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub u32);

/// A counter's number. Flows name counters, whose totals say what all their rules have carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId(pub u16);

impl CounterId {
    /// Returns the counter of a backend's packets in this direction. None: the backend's number is too large.
    #[must_use]
    pub fn of(backend: u16, direction: Direction) -> Option<Self> {
        let first = backend.checked_mul(2)?;
        Some(Self(first + u16::from(direction == Direction::ToClient)))
    }
}

/// The treatment of a flow's packets. Ports are the function's, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The rewrite, and then the port that the function would have sent them out of.
    Rewrite { rewrite: Rewrite, port: u16 },
    /// They leave unchanged, out of this port.
    Pass { port: u16 },
    /// They are dropped.
    Deny,
}

impl Target {
    /// The treatment where the table only marks packets with the target's number: none.
    pub const MARK: Self = Self::Rewrite {
        rewrite: Rewrite {
            source_mac: MacAddress([0; 6]),
            destination_mac: MacAddress([0; 6]),
            source: None,
            destination: None,
            tunnel: None,
        },
        port: 0,
    };
}

/// Changes of a packet. The TTL is decremented in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite {
    pub source_mac: MacAddress,
    pub destination_mac: MacAddress,
    pub source: Option<(IpAddr, u16)>,
    pub destination: Option<(IpAddr, u16)>,
    pub tunnel: Option<Tunnel>,
}

/// A VXLAN header in front of the packet (RFC 7348).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    pub local: IpAddr,
    pub remote: IpAddr,
    pub network: u32,
    /// The addresses of the inner frame: from, to.
    pub inner: (MacAddress, MacAddress),
}

/// A request. A driver works on requests in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Writes or rewrites a target. A rewritten one takes effect for all its flows.
    PutTarget(TargetId, Target),
    DropTarget(TargetId),
    /// Carries a flow. Packets that open or end a connection (TCP's SYN, FIN, RST) and fragments still go to the function.
    Install(RuleId, FlowKey, TargetId, CounterId, Direction),
    /// Stops carrying a flow. [`Event::Effective`] follows in any case, also for a rule that does not exist or is being removed.
    Remove(RuleId),
}

/// The result of earlier requests, and of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Installed(RuleId),
    /// The rule does not exist and never did.
    Refused(RuleId, Refused),
    /// The approximate number of the rule's packets, which tells heavy flows from idle ones. It falls if the table counts from zero again.
    Counted(RuleId, u64),
    /// The rule has carried no packet for the time of [`Driver::set_idle`], where the table does not count packets for each rule.
    Idle(RuleId),
    /// The packets and bytes of all rules that ever named the counter, exactly. They fall only if the table has lost them.
    Carried(CounterId, u64, u64),
    /// The rule does not exist any more, no packet leaves by it, and the last totals of its counter were told before.
    Effective(RuleId),
    /// All rules, targets and totals are lost, effectively. Requests submitted before this event was polled are void and get no further events.
    Reset,
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The table is full.
    Full,
    /// There is room, but not at the places where this flow may be.
    Collision,
    /// Requests come faster than the table can take them.
    Rate,
    /// The table cannot match, rewrite or count this.
    Unsupported,
    /// Another writer has replaced this one.
    StaleWriter,
}

impl Refused {
    pub const ALL: [Self; 5] = [
        Self::Full,
        Self::Collision,
        Self::Rate,
        Self::Unsupported,
        Self::StaleWriter,
    ];

    /// Returns the reason's name in counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Collision => "collision",
            Self::Rate => "rate",
            Self::Unsupported => "unsupported",
            Self::StaleWriter => "stale-writer",
        }
    }
}

/// The abilities of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The most flows and targets at a time.
    pub flows: u32,
    pub targets: u32,
    /// Installs per second that the table keeps up with.
    pub installs_per_s: u32,
    /// The most milliseconds from a removal to [`Event::Effective`].
    pub effective_ms: u32,
    pub matches: Matches,
    pub rewrites: Rewrites,
    pub counts: Counts,
}

/// The flows that a table can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matches {
    pub ipv4: bool,
    pub ipv6: bool,
    /// Packets with SYN, FIN or RST, and fragments, can be left to the function.
    pub leaves_ends: bool,
}

/// The changes that a table can make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewrites {
    pub source: bool,
    pub destination: bool,
    pub vxlan: bool,
    /// It can let packets pass unchanged by another port of the function, and drop them ([`Target::Pass`], [`Target::Deny`]).
    pub pass: bool,
    pub deny: bool,
}

impl Rewrites {
    /// The table only matches: packets of its flows come to the function with the number of their target.
    pub const NONE: Self = Self {
        source: false,
        destination: false,
        vxlan: false,
        pass: false,
        deny: false,
    };
}

/// The table's knowledge of its traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// [`Event::Carried`] and [`Event::Counted`].
    Exact,
    /// [`Event::Carried`] and [`Event::Idle`].
    Idle,
    /// Nothing: the function sees all packets.
    None,
}

/// The content of a table, in which no removal is waiting to take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub rules: Vec<Listed>,
    /// The totals of counters that are not zero: packets and bytes. Of two entries for a counter, the later one holds.
    pub carried: Vec<(CounterId, u64, u64)>,
}

/// A rule that carries its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub rule: RuleId,
    pub flow: FlowKey,
    pub target: TargetId,
    pub counter: CounterId,
}

/// The reason for which a table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    pub why: String,
    /// Another writer has replaced this one, which must not open the table again.
    pub is_replaced: bool,
}

/// A table that a writer can open.
pub trait Table: Send {
    /// Begins to use the table for packets that would come by a port of the function, counted from zero, without waiting for it. Earlier drivers of this
    /// writer for this port are void.
    ///
    /// # Errors
    /// If it cannot be reached now, or does not have this port.
    fn open(&mut self, writer: Writer, port: usize) -> Result<Box<dyn Driver + Send>, Unavailable>;
}

/// A table in the hands of one writer. No call waits.
pub trait Driver {
    /// None: not known yet, ask again after `poll`.
    fn capabilities(&self) -> Option<Capabilities>;

    /// Sets the time without packets after which a rule is idle, where the table tells that.
    fn set_idle(&mut self, idle: Duration) {
        let _ = idle;
    }

    /// Takes requests and returns how many, from the first on; the others must be submitted again later.
    fn submit(&mut self, requests: &[Request]) -> usize;

    /// Appends what has happened since the last call. Totals of before the answer of `list` are in that.
    ///
    /// # Errors
    /// If the table is lost: open it again. Its rules may still act; `list` then tells.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable>;

    /// Returns the rules of the writer's instance, of earlier epochs, too, and the totals of the counters, which outlive instances. From then on, requests
    /// of earlier epochs are refused. None: the answer is not there yet, ask again after `poll`.
    fn list(&mut self) -> Option<Listing>;
}

impl<D: Driver + ?Sized> Driver for Box<D> {
    fn capabilities(&self) -> Option<Capabilities> {
        (**self).capabilities()
    }

    fn set_idle(&mut self, idle: Duration) {
        (**self).set_idle(idle);
    }

    fn submit(&mut self, requests: &[Request]) -> usize {
        (**self).submit(requests)
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        (**self).poll(events)
    }

    fn list(&mut self) -> Option<Listing> {
        (**self).list()
    }
}
