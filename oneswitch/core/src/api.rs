//! The core's interface: plain data, no I/O.

use std::fmt;
use std::time::Duration;

/// A controller connection, accepted or initiated, after the OpenFlow handshake. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ControllerId(pub u64);

/// The result of a controller's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The wire version of OpenFlow.
    pub version: u8,
    /// Whether it is a service connection in Open vSwitch's sense, for management: it gets no asynchronous messages until it sets a
    /// `miss_send_len`.
    pub is_service: bool,
}

impl Greeting {
    /// OpenFlow 1.3 with a controller.
    pub const CONTROLLER: Self = Self {
        version: openflow13::VERSION,
        is_service: false,
    };
}

/// Index into [`CoreConfig::switches`]; 0 is the hypervisor, the hub of the star.
pub type SwitchIndex = usize;

/// One of the two bridges that every switch has (docs/architecture.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bridge {
    /// Carries the virtual tables verbatim.
    Virt,
    /// Owns the physical interfaces and the PCIe ports.
    Edge,
}

impl Bridge {
    /// Returns its name in Open vSwitch.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virt => "virt",
            Self::Edge => "edge",
        }
    }
}

/// Destination of bytes produced by the core, which are complete OpenFlow messages, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Destination {
    Controller(ControllerId),
    Switch(SwitchIndex, Bridge),
    /// The connection of OpenFlow 1.0 to `virt` of a switch.
    Version10(SwitchIndex),
    /// The connection of OpenFlow 1.5 to it.
    Properties(SwitchIndex),
    /// The connection of OpenFlow 1.4 to `edge` of a switch.
    PortCounters(SwitchIndex),
}

/// The executor value for a port's own home; no switch has this name.
pub const HOME: &str = "home";

/// The server as configured; names are unique and validated by the configuration loader.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    pub datapath_id: u64,
    /// The default executor of ports: [`HOME`] or the name of a switch.
    pub executor: String,
    pub shared_state: SharedState,
    pub switches: Vec<SwitchConfig>,
    pub ports: Vec<PortConfig>,
}

/// The handling of rules, groups and packet-outs whose state all ports share (NORMAL, ct) while the ports have several executors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedState {
    Refuse,
    /// All ports execute at one switch as long as something needs it.
    Gather {
        /// The switch's name; `None`: the one that executes for most ports.
        at: Option<String>,
        /// Whether meters need it, too: otherwise each executor measures its own packets.
        meters: bool,
    },
}

#[derive(Clone, Debug)]
pub struct SwitchConfig {
    pub name: String,
    /// `None` on the hypervisor only.
    pub link: Option<LinkConfig>,
}

/// Names of a PCIe link's two ports on the `edge` bridges, and how it carries flow-ids.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    pub hypervisor: String,
    pub local: String,
    pub kind: LinkKind,
}

/// How a PCIe link carries flow-ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// Each end by itself, as its port number tells.
    #[default]
    Probed,
    /// As VLAN tags.
    Vlan,
    /// Beside the packets, between ports of Open vSwitch's type `pcie`.
    Pcie,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    pub number: u32,
    pub name: String,
    pub switch: String,
    pub interface: String,
    /// [`HOME`] or the name of a switch; `None`: the server's default.
    pub executor: Option<String>,
    /// The executor to which it returns, if it has left that one for state that all ports share.
    pub gathered_from: Option<String>,
    /// The program responsible for the port; see [`Claim`].
    pub owner: Option<String>,
}

/// A request to map a port; `None` leaves the choice to the core.
#[derive(Clone, Debug)]
pub struct PortRequest {
    pub number: Option<u32>,
    pub name: Option<String>,
    pub switch: String,
    pub interface: String,
    pub executor: Option<String>,
    pub owner: Option<String>,
}

/// The claim of a request on a port. Only the owner's name or `force` may take an owned port from its interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub owner: Option<String>,
    pub force: bool,
}

/// The stage at which a move stops and waits for `continue_move`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveUntil {
    Prepared,
    Flipped,
    Done,
}

/// The stage of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveStage {
    Preparing,
    Prepared,
    Flipping,
    Flipped,
    Quiescing,
}

#[derive(Clone, Debug)]
pub struct MoveRequest {
    pub switch: String,
    pub interface: String,
    pub until: MoveUntil,
    /// Time between installing new rules and sending packets to them.
    pub settle: Duration,
    /// Time for which both paths stay after the flip.
    pub grace: Duration,
    /// Whether it proceeds without bridges that have not confirmed their rules; see [`Core::force_move`].
    ///
    /// [`Core::force_move`]: crate::Core::force_move
    pub force: bool,
    /// The owner that the request names. A move cannot override an owner: its `force` concerns switches only.
    pub owner: Option<String>,
}

/// A request to run a port's pipeline on another switch, like [`MoveRequest`].
#[derive(Clone, Debug)]
pub struct ExecutorRequest {
    /// [`HOME`] or the name of a switch.
    pub executor: String,
    pub until: MoveUntil,
    pub settle: Duration,
    pub grace: Duration,
    pub force: bool,
}

/// A request to send a frame down each path to the interface that a moving port leaves.
#[derive(Clone, Debug)]
pub struct MarkersRequest {
    /// The switch and the interface that the port moves to.
    pub switch: String,
    pub interface: String,
    /// The owner that the request names.
    pub owner: Option<String>,
    /// One for each path, at most three; the others are not used.
    pub frames: Vec<Box<[u8]>>,
}

/// Frames on their way down old paths; see [`Core::silent_about`].
///
/// [`Core::silent_about`]: crate::Core::silent_about
#[derive(Clone, Debug)]
pub struct MarkersSent {
    /// Names of the switches that sent them, in the order of the frames.
    pub from: Vec<String>,
    pub(crate) switches: Vec<SwitchIndex>,
    pub(crate) batch: u64,
}

/// A refused management request. `code()` is the stable code of the REST contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortError {
    PortUnknown(u32),
    /// The request neither names the owner nor sets force.
    PortOwned {
        number: u32,
        owner: String,
    },
    SwitchUnknown(String),
    NumberTaken {
        number: u32,
        by: String,
    },
    NumberOutOfRange(u32),
    NameTaken {
        name: String,
        number: u32,
    },
    NameTooLong(String),
    InterfaceTaken {
        switch: String,
        interface: String,
        number: u32,
    },
    /// A PCIe port, a patch port or the bridge's own port.
    InterfaceReserved {
        switch: String,
        interface: String,
    },
    InterfaceMissing {
        switch: String,
        interface: String,
    },
    PatchMissing {
        switch: String,
        patch: String,
    },
    SwitchDown(String),
    MoveInProgress(u32),
    NoMove(u32),
    MovePastAbort(u32),
    /// It resumes by itself when these bridges have confirmed their rules.
    MoveWaits {
        number: u32,
        bridges: String,
    },
    MoveFailed {
        number: u32,
        reason: String,
    },
    MarkersMissing {
        number: u32,
        paths: usize,
    },
    /// A switch is connected and does not confirm what it was sent.
    SwitchSilent(String),
    FlowIdsExhausted,
    /// Rules keep state that several executors cannot share.
    StatefulRules {
        number: u32,
        executor: String,
    },
}

impl PortError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::PortUnknown(_) => "port-unknown",
            Self::PortOwned { .. } => "port-owned",
            Self::SwitchUnknown(_) => "switch-unknown",
            Self::NumberTaken { .. } => "port-number-taken",
            Self::NumberOutOfRange(_) => "number-out-of-range",
            Self::NameTaken { .. } => "name-taken",
            Self::NameTooLong(_) => "name-too-long",
            Self::InterfaceTaken { .. } => "interface-taken",
            Self::InterfaceReserved { .. } => "interface-reserved",
            Self::InterfaceMissing { .. } => "interface-missing",
            Self::PatchMissing { .. } => "patch-missing",
            Self::SwitchDown(_) => "switch-down",
            Self::MoveInProgress(_) => "move-in-progress",
            Self::NoMove(_) => "no-move",
            Self::MovePastAbort(_) => "move-past-abort",
            Self::MoveWaits { .. } => "move-waits",
            Self::MoveFailed { .. } => "move-failed",
            Self::MarkersMissing { .. } => "markers-missing",
            Self::SwitchSilent(_) => "switch-silent",
            Self::FlowIdsExhausted => "flow-ids-exhausted",
            Self::StatefulRules { .. } => "stateful-rules",
        }
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortUnknown(n) => write!(f, "unknown virtual port {n}; `unoctl dump-ports` lists the mapped ones"),
            Self::PortOwned { number, owner } => write!(
                f,
                "virtual port {number} belongs to {owner:?}, which would lose its traffic: have its owner do it (nfagent: `unoctl nf delete`, \
                 `unoctl nf migrate`), or name the owner in the request (unoctl: `--force`) to do it all the same"
            ),
            Self::SwitchUnknown(s) => write!(f, "unknown switch \"{s}\"; use one of the configuration"),
            Self::NumberTaken { number, by } => write!(f, "virtual port {number} is already mapped to {by}"),
            Self::NumberOutOfRange(n) => write!(f, "virtual port number {n} is outside 1..65023"),
            Self::NameTaken { name, number } => write!(f, "virtual port {number} is already named \"{name}\""),
            Self::NameTooLong(name) => write!(f, "port name \"{name}\" is longer than the 15 bytes OpenFlow carries"),
            Self::InterfaceTaken { switch, interface, number } => {
                write!(f, "interface {interface} of {switch} already carries virtual port {number}")
            }
            Self::InterfaceReserved { switch, interface } => write!(
                f,
                "interface {interface} of {switch} joins switches or bridges; a virtual port needs an interface of a host"
            ),
            Self::InterfaceMissing { switch, interface } => write!(
                f,
                "interface {interface} is not on bridge edge of {switch}; add it first (`unoctl port add` does both)"
            ),
            Self::PatchMissing { switch, patch } => {
                write!(f, "patch port {patch} is missing on {switch}; `unoctl port add` creates it, `unoctl doctor` lists everything missing")
            }
            Self::SwitchDown(s) => write!(f, "switch {s} is not connected"),
            Self::MoveInProgress(n) => write!(f, "virtual port {n} is moving; wait for it, or `unoctl port abort {n}`"),
            Self::NoMove(n) => write!(f, "virtual port {n} is not moving"),
            Self::MovePastAbort(n) => write!(f, "the move of virtual port {n} has already flipped; let it finish, then move back"),
            Self::MoveWaits { number, bridges } => write!(
                f,
                "the move of virtual port {number} waits for {bridges}: not connected, or refuses its rules; it goes on by itself when that ends, \
                 `unoctl port continue {number} --force` goes on without, `unoctl port abort {number}` undoes it before the flip"
            ),
            Self::MoveFailed { number, reason } => write!(f, "the move of virtual port {number} failed and was undone: {reason}"),
            Self::MarkersMissing { number, paths } => {
                write!(f, "{paths} paths lead to the old interface of virtual port {number}: send a frame for each")
            }
            Self::SwitchSilent(s) => write!(f, "switch {s} is connected, but does not confirm that it sent the frames"),
            Self::StatefulRules { number, executor } => write!(
                f,
                "virtual port {number} cannot be executed at {executor}: rules with NORMAL, ct or learn keep state that all ports share at one switch; delete them first"
            ),
            Self::FlowIdsExhausted => write!(f, "all flow-ids are in use: a PCIe link that carries them as VLAN tags allows 4080"),
        }
    }
}

impl std::error::Error for PortError {}

/// A virtual port in the form of the REST contract.
#[derive(Clone, Debug)]
pub struct PortView {
    pub number: u32,
    pub name: String,
    pub switch: String,
    pub interface: String,
    /// The chosen executor: [`HOME`] or the name of a switch.
    pub executor: String,
    /// The switch that runs the pipeline.
    pub executes_at: String,
    pub flow_id: u32,
    pub ingress_id: Option<u32>,
    pub up: bool,
    /// Why it is down; `None` if it is up.
    pub reason: Option<String>,
    /// OFPPC_* names set by controllers.
    pub config: Vec<&'static str>,
    pub mac: Option<[u8; 6]>,
    pub owner: Option<String>,
    pub moving: Option<MoveView>,
}

#[derive(Clone, Debug)]
pub struct MoveView {
    pub switch: String,
    pub interface: String,
    pub executor: String,
    pub stage: MoveStage,
    /// The switch of each path to the interface that the port leaves, in the order of markers.
    pub old_paths: Vec<String>,
}

/// State of one bridge's OpenFlow session in the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeState {
    Down,
    Syncing,
    Up,
}

impl BridgeState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Syncing => "syncing",
            Self::Up => "up",
        }
    }
}

/// The state of a PCIe link.
#[derive(Clone, Debug)]
pub struct LinkView {
    pub up: bool,
    /// `vlan` or `pcie`; `None`: its ends differ, or are not known.
    pub kind: Option<&'static str>,
    /// Why it has this type.
    pub reason: String,
}

#[derive(Clone, Debug)]
pub struct SwitchView {
    pub name: String,
    pub virt: BridgeState,
    pub edge: BridgeState,
    /// `None` on the hypervisor.
    pub link: Option<LinkView>,
    pub physical_flows: usize,
    pub physical_groups: usize,
    pub physical_meters: usize,
    pub edge_flows: usize,
    pub repairs: u64,
    /// The last errors of `virt` and `edge`, while they lack something that they refused.
    pub refusals: [Option<String>; 2],
}

/// The content of a restored journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub records: usize,
    pub flows: usize,
    pub groups: usize,
    pub meters: usize,
    /// Bytes of a truncated last record.
    pub cut_off: usize,
}

#[derive(Clone, Debug)]
pub struct StatusView {
    pub datapath_id: u64,
    pub switches: Vec<SwitchView>,
    pub ports: usize,
    pub flows: usize,
    pub groups: usize,
    pub meters: usize,
    pub executors: Vec<String>,
    /// Messages answered with an OpenFlow error since start.
    pub refused: u64,
    /// `None`: all ports execute where they were told.
    pub gathered: Option<GatheredView>,
}

/// Ports that execute at one switch for state that they share.
#[derive(Clone, Debug)]
pub struct GatheredView {
    pub at: String,
    /// Those that have left their own executors.
    pub ports: Vec<u32>,
    /// Why ports are gathered, and why at this switch.
    pub reason: &'static str,
    pub choice: String,
}

/// The core's data about one controller, apart from its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerRole {
    Equal,
    Master,
    Slave,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_error_has_a_code_of_its_own_and_names_what_is_wrong() {
        let (switch, interface) = ("snic7".to_owned(), "if7".to_owned());
        let errors = [
            PortError::PortUnknown(77),
            PortError::SwitchUnknown(switch.clone()),
            PortError::NumberTaken {
                number: 77,
                by: "p7".into(),
            },
            PortError::NumberOutOfRange(77),
            PortError::NameTaken {
                name: "p7".into(),
                number: 77,
            },
            PortError::NameTooLong("p7".into()),
            PortError::InterfaceTaken {
                switch: switch.clone(),
                interface: interface.clone(),
                number: 77,
            },
            PortError::InterfaceReserved {
                switch: switch.clone(),
                interface: interface.clone(),
            },
            PortError::InterfaceMissing {
                switch: switch.clone(),
                interface,
            },
            PortError::PatchMissing {
                switch: switch.clone(),
                patch: "edge-77".into(),
            },
            PortError::SwitchDown(switch.clone()),
            PortError::MoveInProgress(77),
            PortError::NoMove(77),
            PortError::MovePastAbort(77),
            PortError::MoveWaits {
                number: 77,
                bridges: "edge of snic7".into(),
            },
            PortError::MoveFailed {
                number: 77,
                reason: "no reason 7".into(),
            },
            PortError::MarkersMissing {
                number: 77,
                paths: 3,
            },
            PortError::SwitchSilent(switch.clone()),
            PortError::FlowIdsExhausted,
            PortError::StatefulRules {
                number: 77,
                executor: switch,
            },
        ];
        let codes: BTreeSet<&str> = errors.iter().map(PortError::code).collect();
        assert_eq!(codes.len(), errors.len());
        let plain = |code: &&str| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        assert!(codes.iter().all(plain) && !codes.contains(""), "{codes:?}");
        let texts: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), errors.len());
        for text in texts {
            assert!(text.contains('7') || text.contains("4080"), "{text}");
        }
    }

    #[test]
    fn bridges_have_the_names_that_operators_know() {
        assert_eq!(
            [Bridge::Virt, Bridge::Edge].map(Bridge::name),
            ["virt", "edge"]
        );
    }
}
