//! The dispatcher: owns the rooms, gives them input, and routes their results. No room calls it.

pub mod ages;
pub mod answers;
pub mod aside;
pub mod bundle_parts;
pub mod bundles;
pub mod collectors;
pub mod extensions;
pub mod groups;
pub mod held;
pub mod learning;
pub mod links;
pub mod management;
pub mod monitors;
pub mod newer;
pub mod northbound;
pub mod offload;
pub mod openflow10;
pub mod openflow14;
pub mod openflow15;
pub mod port_counters;
pub mod port_mods;
pub mod restarts;
pub mod southbound;
pub mod table_features;
pub mod tick;
pub mod unseen;
pub mod writes;

use crate::api::{
    Bridge, ControllerId, CoreConfig, Destination, PortError, SharedState, SwitchIndex,
};
use crate::controllers::controller::Asynchronous;
use crate::controllers::{Controllers, View};
use crate::expiry::Expiry;
use crate::journal::records::Journal;
use crate::model::truth::{Changes, Truth};
use crate::moves::Moves;
use crate::offload::requests::{OffloadHello, WriterId};
use crate::server::ports::{Location, PortMap};
use crate::server::Server;
use crate::switches::session::Switch;
use crate::switches::{Below, Switches};
use std::time::Instant;

/// Unacknowledged messages toward the switches above which no more are taken from controllers.
const IN_FLIGHT_LIMIT: usize = 16_384;
/// Bytes of such messages and their changes, above which no more are taken from controllers.
const IN_FLIGHT_BYTES: usize = 64 << 20;

pub struct Core {
    datapath_id: u64,
    truth: Truth,
    server: Server,
    switches: Switches,
    controllers: Controllers,
    expiry: Expiry,
    moves: Moves,
    held: held::Held,
    learning: learning::Learning,
    /// The bundle that is being committed.
    commit: Option<bundles::Commit>,
    /// Hidden groups that step aside.
    aside: Option<aside::Aside>,
    collectors: collectors::Collectors,
    ages: ages::Ages,
    links: links::Links,
    table_changes: table_features::TableChanges,
    journal: Journal,
    /// Writers that wait for the switches of their ports.
    offload_hellos: Vec<(WriterId, OffloadHello)>,
    discarded: Vec<Changes>,
}

/// Unused memory that takes long to free.
#[derive(Debug)]
pub struct Discarded {
    _changes: Vec<Changes>,
}

impl Core {
    /// Starts with empty virtual tables and the configured ports.
    ///
    /// # Errors
    /// The first port that contradicts another port or the switches.
    pub fn new(config: CoreConfig, now: Instant) -> Result<Self, PortError> {
        let switches = config.switches.into_iter();
        let switches = Switches::new(switches.map(|s| Switch::new(s.name, s.link, now)).collect());
        let default_executor = switches.executor_named(&config.executor)?;
        let mut moves = Moves::default();
        if let SharedState::Gather { at, meters } = &config.shared_state {
            let chosen = at.as_deref().map(|name| switches.index_of(name));
            moves.gathering.is_allowed = true;
            moves.gathering.chosen = chosen.transpose()?;
            moves.gathering.includes_meters = *meters;
        }
        let mut ports = PortMap::default();
        for port in config.ports {
            let home = Location {
                switch: switches.index_of(&port.switch)?,
                interface: port.interface,
            };
            let chosen = port.executor.as_deref();
            let chosen = chosen
                .map(|name| switches.executor_named(name))
                .transpose()?;
            ports.insert(
                Some(port.number),
                port.name,
                home,
                &port.switch,
                chosen.unwrap_or(default_executor),
            )?;
            let own = port.gathered_from.as_deref();
            let own = own.map(|name| switches.executor_named(name)).transpose()?;
            if let Some(inserted) = ports.get_mut(port.number) {
                inserted.executor_chosen =
                    own.map_or(chosen.is_some(), |own| own != default_executor);
                inserted.gathered_from = own;
                inserted.owner = port.owner;
            }
        }
        Ok(Self {
            datapath_id: config.datapath_id,
            truth: Truth::default(),
            server: Server::new(ports, default_executor),
            switches,
            controllers: Controllers::default(),
            expiry: Expiry::default(),
            moves,
            held: held::Held::default(),
            learning: learning::Learning::default(),
            commit: None,
            aside: None,
            collectors: collectors::Collectors::default(),
            ages: ages::Ages::default(),
            links: links::Links::default(),
            table_changes: table_features::TableChanges::default(),
            journal: Journal::default(),
            offload_hellos: Vec::new(),
            discarded: Vec::new(),
        })
    }

    /// Ends a batch of `*_message` calls: requests the switches' verdict (barriers).
    pub fn end_of_batch(&mut self, now: Instant) {
        self.await_collectors(now);
        self.switches.close_batch();
        self.settle(now);
        // The messages that settling sent need a verdict, too: no later event may end its batch.
        while self.switches.close_batch() {
            self.settle(now);
        }
        self.follow_hold(now);
        self.release_replies();
    }

    /// Settles what can be settled, and resumes what waited for it.
    fn settle(&mut self, now: Instant) {
        let verdicts = |core: &mut Self| {
            let switches = &mut core.switches;
            switches.verdicts.settle(&mut core.truth, &mut core.journal)
        };
        while let Some(settled) = verdicts(self) {
            self.report_settled(settled, now);
            self.release_replies();
        }
        self.route_settled_answers(now);
        self.switches.end_doubts();
        self.settle_offload(now);
        self.switches.confirm_retired_ids(&mut self.server, now);
        self.switches.advance_flood(&mut self.server);
        self.with_moves(now, |moves, below| moves.advance_moves(below));
        self.leave_everywhere(now);
        self.advance_gathering(now);
        self.advance_learning(now);
        self.switches.begin_rounds();
        self.switches.begin_version10();
        self.advance_aside(now);
        self.advance_commit(now);
    }

    /// Borrows the rooms below moves and expiry beside these two.
    fn split(&mut self, now: Instant) -> (Below<'_>, &mut Moves, &mut Expiry) {
        let below = Below {
            truth: &mut self.truth,
            server: &mut self.server,
            switches: &mut self.switches,
            journal: &mut self.journal,
            now,
        };
        (below, &mut self.moves, &mut self.expiry)
    }

    /// Lets moves act on the rooms below, and routes their results.
    fn with_moves<R>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Moves, &mut Below<'_>) -> R,
    ) -> R {
        let (mut below, moves, _) = self.split(now);
        let result = act(moves, &mut below);
        if std::mem::take(&mut self.moves.timers_move) {
            self.expiry.idle.start(now);
        }
        if std::mem::take(&mut self.moves.ended) {
            self.announce_ports(None);
        }
        result
    }

    /// Lets expired rules act on the rooms below, and notifies controllers of removed rules.
    fn with_expiry<R>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Expiry, &mut Below<'_>) -> R,
    ) -> R {
        let (mut below, _, expiry) = self.split(now);
        let result = act(expiry, &mut below);
        for told in self.expiry.removals.told.drain(..) {
            let kind = Asynchronous::FlowRemoved;
            self.controllers
                .tell(kind, told.masked_as, &told.frame, None);
        }
        result
    }

    /// Reports changed virtual ports to controllers, and the liveness of watched ports to switches. `except`: the controller that requested
    /// the change.
    fn announce_ports(&mut self, except: Option<ControllerId>) {
        for announced in self.switches.announce(&mut self.server) {
            self.controllers.tell_port_status(&announced, except);
        }
        self.switches.refresh_liveness(&self.server);
    }

    fn view(&self) -> View<'_> {
        View {
            datapath_id: self.datapath_id,
            truth: &self.truth,
            server: &self.server,
            switches: &self.switches,
        }
    }

    /// Returns the bytes to write now, in order per destination.
    pub fn take_outputs(&mut self) -> Vec<(Destination, Vec<u8>)> {
        let mut outputs = self.switches.outbox.take();
        outputs.append(&mut self.controllers.take_outputs());
        outputs
    }

    /// Returns memory to free after writing the output, best on another thread; `None`: nothing large.
    pub fn take_discarded(&mut self) -> Option<Discarded> {
        let changes = std::mem::take(&mut self.discarded);
        (!changes.is_empty()).then_some(Discarded { _changes: changes })
    }

    /// Returns controllers to disconnect after writing their pending bytes, with the reason for the log.
    pub fn take_disconnects(&mut self) -> Vec<(ControllerId, String)> {
        std::mem::take(&mut self.controllers.disconnects)
    }

    /// Returns bridges to disconnect and reconnect, with the reason for the log (their stream or state cannot be trusted).
    pub fn take_switch_disconnects(&mut self) -> Vec<(SwitchIndex, Bridge, String)> {
        std::mem::take(&mut self.switches.disconnects)
    }

    /// Counts unacknowledged messages to switches.
    pub fn in_flight(&self) -> usize {
        self.switches.verdicts.in_flight() + self.switches.open_questions()
    }

    /// Tells whether every bridge is in sync.
    pub fn is_in_step(&self) -> bool {
        self.switches.is_in_step()
    }
}
