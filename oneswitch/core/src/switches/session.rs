//! The state of each switch: its two OpenFlow sessions, their ports, and the rules on `edge`.

use crate::api::{Bridge, BridgeState, LinkConfig, PortError, SwitchIndex, HOME};
use crate::layout::compare::Memory;
use crate::layout::edge::{patch_name, EdgeRules};
use crate::layout::findings::Findings;
use crate::model::tlv_table::TlvTable;
use crate::server::executors::HUB;
use crate::server::ports::{Executor, Location};
use crate::switch_set::SwitchSet;
use crate::switches::doubt::Doubt;
use crate::switches::learning::Unread;
use crate::switches::offload::ChangedSince;
use crate::switches::Switches;
use foldhash::HashMap;
use openflow13::continuation::BridgeId;
use openflow13::{ErrorCode, Features, FlowStats, GroupDesc, Match, MeterConfig, Port, ALL_TABLES};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Answers still missing before a newly connected bridge can be compared.
#[derive(Debug, Default)]
pub struct Inventory {
    pub missing: usize,
    /// The error of a refused request: the inventory is incomplete.
    pub error: Option<ErrorCode>,
    /// [`Verdicts::sequence`] at the time of the request.
    ///
    /// [`Verdicts::sequence`]: crate::switches::verdict::Verdicts::sequence
    pub since: u64,
    /// Number of questions to switches before this one.
    pub begun: u64,
    /// Whether the bridge was out of reach before, so that missing rules may have expired unseen.
    pub after_gap: bool,
    /// [`Switch::bundles`] at the time of the request.
    pub bundles: u32,
    /// [`Switch::own_changes`] at the time of the request.
    pub own_changes: u64,
    pub flows: Vec<FlowStats>,
    pub groups: Vec<GroupDesc>,
    pub meters: Vec<MeterConfig>,
    pub tlv_table: TlvTable,
}

/// The last external changes of a bridge that were found and repaired.
#[derive(Debug)]
pub struct Found {
    pub at: Instant,
    pub changes: Findings,
    /// Names of those that had been found before.
    pub again: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Session {
    pub state: SessionState,
    /// `None`: the bridge is known to have everything that it was sent, apart from open batches.
    pub doubt: Option<Doubt>,
    /// The answers so far of a bridge in service that is being read again.
    pub resync: Option<Inventory>,
    /// Whether to read it once more after that.
    pub again: bool,
    /// Start and number of the last resyncs, and when a postponed one is due.
    pub resync_window: Option<Instant>,
    pub resyncs: u32,
    pub resync_at: Option<Instant>,
    /// Consecutive resyncs because the bridge refused something, and its last error.
    pub retries: u32,
    pub refusal: Option<ErrorCode>,
    pub memory: Memory,
    /// Of the last comparison: its [`Inventory::begun`], and the batch of the repairs.
    pub compared: Option<(u64, u64)>,
    pub found: Option<Found>,
    /// Whether it tells of the rules that it changes (learning.rs).
    pub is_watched: bool,
    pub unread: Unread,
    pub ports: BTreeMap<u32, Port>,
    /// The batch of the last port-mod for a port.
    pub port_mods: HashMap<u32, u64>,
    numbers: BTreeMap<String, u32>,
}

#[derive(Debug, Default)]
pub enum SessionState {
    #[default]
    Down,
    /// Waiting for the inventory; messages are not sent here yet, because the comparison will bring them.
    Syncing(Inventory),
    Up,
}

impl Session {
    /// Creates the state of a bridge that has not connected yet.
    fn new(now: Instant) -> Self {
        Self {
            doubt: Some(Doubt::new(now)),
            ..Self::default()
        }
    }

    /// Resets the state of a disconnected bridge.
    pub fn end(&mut self) {
        *self = Self {
            doubt: self.doubt,
            ..Self::default()
        };
    }

    /// Returns the inventory that is being read.
    pub fn inventory_mut(&mut self) -> Option<&mut Inventory> {
        match &mut self.state {
            SessionState::Syncing(inventory) => Some(inventory),
            SessionState::Up => self.resync.as_mut(),
            SessionState::Down => None,
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state, SessionState::Up)
    }

    pub fn is_down(&self) -> bool {
        matches!(self.state, SessionState::Down)
    }

    pub fn view(&self) -> BridgeState {
        match self.state {
            SessionState::Down => BridgeState::Down,
            SessionState::Syncing(_) => BridgeState::Syncing,
            SessionState::Up => BridgeState::Up,
        }
    }

    pub fn set_port(&mut self, port: Port) {
        self.remove_port(port.number);
        self.numbers.insert(port.name_str().into(), port.number);
        self.ports.insert(port.number, port);
    }

    pub fn remove_port(&mut self, number: u32) {
        if let Some(old) = self.ports.remove(&number) {
            let name = old.name_str();
            if self.numbers.get::<str>(&name) == Some(&number) {
                self.numbers.remove::<str>(&name);
            }
        }
    }

    pub fn clear_ports(&mut self) {
        self.ports.clear();
        self.numbers.clear();
    }

    /// Names a rule for the operator.
    pub fn rule_name(&self, table: u8, priority: u16, matching: &Match) -> String {
        if table == ALL_TABLES {
            return "rules in all tables".into();
        }
        let port = matching
            .in_port()
            .and_then(|number| self.ports.get(&number));
        let from = port.map(|port| format!(" (from {})", port.name_str()));
        let from = from.unwrap_or_default();
        format!("rule table={table},priority={priority} {matching}{from}")
    }

    pub fn number_of(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub fn port_named_mut(&mut self, name: &str) -> Option<&mut Port> {
        self.ports.get_mut(&self.numbers.get(name).copied()?)
    }

    pub fn port_named(&self, name: &str) -> Option<&Port> {
        self.ports.get(&self.number_of(name)?)
    }
}

#[derive(Debug)]
pub struct Switch {
    pub name: String,
    pub link: Option<LinkConfig>,
    pub virt: Session,
    pub edge: Session,
    pub features: Option<Features>,
    /// Its `virt` in continuations of packets, once one was seen.
    pub in_continuations: Option<BridgeId>,
    /// The rules sent to `edge`.
    pub installed: EdgeRules,
    pub bundles: u32,
    pub repairs: u64,
    /// Our own messages that change its `virt`: copies of rules, groups and meters, and the hidden groups.
    pub own_changes: u64,
    /// The offload rules of `edge` that changed while it was being read.
    pub changed_since: ChangedSince,
    /// Ports whose hidden groups (liveness.rs) were sent to it.
    pub live: BTreeSet<u32>,
}

impl Switch {
    pub fn new(name: String, link: Option<LinkConfig>, now: Instant) -> Self {
        Self {
            name,
            link,
            virt: Session::new(now),
            edge: Session::new(now),
            features: None,
            in_continuations: None,
            installed: EdgeRules::new(),
            bundles: 0,
            repairs: 0,
            own_changes: 0,
            changed_since: ChangedSince::default(),
            live: BTreeSet::new(),
        }
    }

    pub fn session(&self, bridge: Bridge) -> &Session {
        match bridge {
            Bridge::Virt => &self.virt,
            Bridge::Edge => &self.edge,
        }
    }

    pub fn session_mut(&mut self, bridge: Bridge) -> &mut Session {
        match bridge {
            Bridge::Virt => &mut self.virt,
            Bridge::Edge => &mut self.edge,
        }
    }
}

impl Switches {
    /// Returns the switches whose `virt` accepts messages now.
    pub fn up(&self) -> SwitchSet {
        self.list
            .iter()
            .enumerate()
            .filter(|(_, s)| s.virt.is_up())
            .map(|(i, _)| i)
            .collect()
    }

    /// Tells whether every bridge is in sync.
    pub fn is_in_step(&self) -> bool {
        let in_step = |s: &Switch| s.virt.is_up() && s.edge.is_up();
        self.list.iter().all(in_step)
    }

    pub fn switch_names(&self, set: SwitchSet) -> String {
        set.iter()
            .map(|s| self.list[s].name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Returns switches that packets can neither reach nor leave: their PCIe link is dead, or their state is unknown.
    pub fn out_of_reach(&self) -> SwitchSet {
        let lost = |s: &usize| self.link_dead(*s) || !self.list[*s].edge.is_up();
        (0..self.list.len()).filter(lost).collect()
    }

    /// # Errors
    /// `SwitchUnknown`, `InterfaceReserved`.
    pub fn locate(&self, switch: &str, interface: &str) -> Result<Location, PortError> {
        let index = self.index_of(switch)?;
        let is_pcie = self
            .list
            .iter()
            .enumerate()
            .filter_map(|(at, s)| Some((at, s.link.as_ref()?)))
            .any(|(at, link)| {
                (index == HUB && link.hypervisor == interface)
                    || (index == at && link.local == interface)
            });
        if is_pcie || interface == "edge" || interface.starts_with("edge-") {
            return Err(PortError::InterfaceReserved {
                switch: switch.into(),
                interface: interface.into(),
            });
        }
        Ok(Location {
            switch: index,
            interface: interface.into(),
        })
    }

    /// # Errors
    /// `SwitchUnknown`.
    pub fn executor_named(&self, name: &str) -> Result<Executor, PortError> {
        if name == HOME {
            return Ok(Executor::Home);
        }
        self.index_of(name).map(Executor::At)
    }

    pub fn executor_name(&self, executor: Executor) -> String {
        match executor {
            Executor::Home => HOME.into(),
            Executor::At(switch) => self.list[switch].name.clone(),
        }
    }

    /// # Errors
    /// `SwitchDown`.
    pub fn check_up(&self, switch: SwitchIndex) -> Result<(), PortError> {
        let switch = &self.list[switch];
        if !switch.edge.is_up() || !switch.virt.is_up() {
            return Err(PortError::SwitchDown(switch.name.clone()));
        }
        Ok(())
    }

    /// Checks that the interface and the patch ports of `number` exist, on connected switches.
    pub fn check_present(&self, location: &Location, number: u32) -> Result<(), PortError> {
        let home = &self.list[location.switch];
        self.check_up(location.switch)?;
        if home.edge.number_of(&location.interface).is_none() {
            return Err(PortError::InterfaceMissing {
                switch: home.name.clone(),
                interface: location.interface.clone(),
            });
        }
        let patch = patch_name(number);
        for switch in self.list.iter().filter(|s| s.edge.is_up()) {
            if switch.edge.number_of(&patch).is_none() {
                return Err(PortError::PatchMissing {
                    switch: switch.name.clone(),
                    patch,
                });
            }
        }
        for switch in self.list.iter().filter(|s| s.virt.is_up()) {
            if !switch.virt.ports.contains_key(&number) {
                return Err(PortError::PatchMissing {
                    switch: switch.name.clone(),
                    patch: format!("virt-{number}"),
                });
            }
        }
        Ok(())
    }

    /// # Errors
    /// `SwitchUnknown`.
    pub fn index_of(&self, name: &str) -> Result<SwitchIndex, PortError> {
        let index = self.list.iter().position(|s| s.name == name);
        index.ok_or_else(|| PortError::SwitchUnknown(name.into()))
    }
}
