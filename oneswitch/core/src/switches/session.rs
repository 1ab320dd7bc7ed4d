//! What is known of each switch: its two OpenFlow sessions, their ports, and what was put on `edge`.

use crate::api::{Bridge, BridgeState, LinkConfig};
use crate::layout::edge::EdgeRules;
use crate::model::rule::RuleKey;
use crate::switches::doubt::Doubt;
use foldhash::{HashMap, HashSet};
use openflow13::{ErrorCode, Features, FlowStats, GroupDesc, Instructions, MeterConfig, Port};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Answers still missing before a bridge that came up can be compared with the truth.
#[derive(Debug, Default)]
pub struct Inventory {
    pub missing: usize,
    /// What a question was refused with: it is not the whole inventory.
    pub error: Option<ErrorCode>,
    /// [`Verdicts::sequence`] when it was asked for.
    ///
    /// [`Verdicts::sequence`]: crate::switches::verdict::Verdicts::sequence
    pub since: u64,
    /// The bridge was out of reach before: what it lacks may have expired unseen.
    pub after_gap: bool,
    /// [`Switch::bundles`] when it was asked for.
    pub bundles: u32,
    /// [`Switch::own_changes`] when it was asked for.
    pub own_changes: u64,
    pub flows: Vec<FlowStats>,
    pub groups: Vec<GroupDesc>,
    pub meters: Vec<MeterConfig>,
}

/// Instructions as they were written, and as the switch reported them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelling {
    pub written: Instructions,
    pub reported: Instructions,
}

#[derive(Debug, Default)]
pub struct Session {
    pub state: SessionState,
    /// `None`: the bridge is known to have what it was sent, but for what is in open batches.
    pub doubt: Option<Doubt>,
    /// The answers so far of a bridge in service that is read anew.
    pub resync: Option<Inventory>,
    /// There is reason to read it once more after that.
    pub again: bool,
    /// When the last resyncs began, how many they were, and when one that was put off is due.
    pub resync_window: Option<Instant>,
    pub resyncs: u32,
    pub resync_at: Option<Instant>,
    /// Times in a row that the bridge was read anew because it refused something, and what it refused last with.
    pub retries: u32,
    pub refusal: Option<ErrorCode>,
    /// Rules that were missing at the last comparison and may have expired: their end is perhaps on its way to us.
    pub suspects: HashSet<RuleKey>,
    /// Rules that were rewritten because the switch spelled them otherwise: if it does so again, it means the same.
    pub spelled: HashMap<RuleKey, Spelling>,
    pub ports: BTreeMap<u32, Port>,
    /// The batch of the last port-mod for a port.
    pub port_mods: HashMap<u32, u64>,
    numbers: BTreeMap<String, u32>,
}

#[derive(Debug, Default)]
pub enum SessionState {
    #[default]
    Down,
    /// Waiting for the inventory; messages are not sent here yet, the comparison will bring them.
    Syncing(Inventory),
    Up,
}

impl Session {
    /// Of a bridge that was not connected yet.
    fn new(now: Instant) -> Self {
        Self {
            doubt: Some(Doubt::new(now)),
            ..Self::default()
        }
    }

    /// The bridge is away, and with it what was known of it.
    pub fn end(&mut self) {
        *self = Self {
            doubt: self.doubt,
            ..Self::default()
        };
    }

    /// The inventory that is being read.
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
    /// What is in `edge`, as far as it was sent.
    pub installed: EdgeRules,
    pub bundles: u32,
    pub repairs: u64,
    /// Messages of our own that change its `virt`: copies of rules, groups and meters, and the hidden groups.
    pub own_changes: u64,
    /// Ports whose hidden groups (liveness.rs) it has, as far as that was sent.
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
            installed: EdgeRules::new(),
            bundles: 0,
            repairs: 0,
            own_changes: 0,
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
