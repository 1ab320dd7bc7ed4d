//! One virtual OpenFlow 1.3 switch over several Open vSwitch instances, as a state machine without I/O.
//!
//! The daemon feeds it whole OpenFlow messages (after version negotiation; echo and hello stay in the daemon), connection
//! events, management requests and time; it answers with bytes per [`Destination`]. It never blocks and never reads a clock.
//!
//! One round: feed events, [`Core::end_of_batch`], write what [`Core::take_outputs`] returns.
//!
//! | room | owns | may call |
//! |---|---|---|
//! | `model` | the virtual tables, groups and meters | - |
//! | `server` | the port map, the executors, the flood's lists | `model` |
//! | `layout` | nothing: which rules and groups a switch has to have | `model`, `server` |
//! | `switches` | sessions, verdicts, questions to switches | `layout` and below, `journal` |
//! | `controllers` | connections, roles, the order of replies | `switches` and below |
//! | `expiry` | removed rules, idle timeouts | `switches` and below |
//! | `moves` | moves of ports and executors | `switches` and below |
//! | `journal` | what survives a restart | `model`, `server` |
//! | `core` | the rooms | all; no room calls it |

mod api;
mod controllers;
mod core;
mod expiry;
mod journal;
mod layout;
mod model;
mod moves;
pub mod mutants;
mod outbox;
mod server;
mod switch_set;
mod switches;
mod wire;

pub use api::*;
pub use journal::records::JournalError;

use controllers::controller::Controller;
use expiry::idle::IdleWatch;
use expiry::removed::Removals;
use foldhash::{HashMap, HashMapExt};
use journal::records::Journal;
use model::truth::{Changes, Truth};
use outbox::Outbox;
use server::executors::Executors;
use server::flood::Flood;
use server::ports::{Executor, Location, PortMap};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use switch_set::SwitchSet;
use switches::audit::Audit;
use switches::reads::Read;
use switches::session::Switch;
use switches::verdict::{Verdicts, NOT_AN_OPERATION};
use wire::wire;

/// Unacknowledged messages toward the switches above which no more are taken from controllers.
const IN_FLIGHT_LIMIT: usize = 16_384;
/// Bytes of such messages, with what they change, above which no more are taken from controllers.
const IN_FLIGHT_BYTES: usize = 64 << 20;

pub struct Core {
    datapath_id: u64,
    switches: Vec<Switch>,
    ports: PortMap,
    executors: Executors,
    /// Of ports that have none of their own.
    default_executor: Executor,
    /// Grows with every change of `executors`.
    executors_epoch: u64,
    truth: Truth,
    flood: Flood,
    /// Ports that groups watch, or have watched.
    watched: BTreeSet<u32>,
    controllers: BTreeMap<ControllerId, Controller>,
    /// Of the last accepted ROLE_REQUEST for master or slave (OpenFlow 1.3.5, 6.3.6).
    role_generation: Option<u64>,
    fragment_flags: u16,
    verdicts: Verdicts,
    reads: HashMap<u32, Read>,
    removals: Removals,
    idle: IdleWatch,
    audit: Option<Audit>,
    journal: Journal,
    outbox: Outbox,
    next_xid: u32,
    questions: u64,
    move_outcomes: BTreeMap<u32, Result<(), PortError>>,
    disconnects: Vec<(ControllerId, String)>,
    switch_disconnects: Vec<(SwitchIndex, Bridge, String)>,
    refused: u64,
    discarded: Vec<Changes>,
}

/// Memory that is not needed any more. Freeing it takes long.
#[derive(Debug)]
pub struct Discarded {
    _changes: Vec<Changes>,
}

impl Core {
    /// Starts with empty virtual tables and the configured ports.
    ///
    /// # Errors
    /// The first port that contradicts another one or the switches.
    pub fn new(config: CoreConfig, now: Instant) -> Result<Self, PortError> {
        let switches: Vec<Switch> = config
            .switches
            .into_iter()
            .map(|s| Switch::new(s.name, s.link, now))
            .collect();
        let index = |name: &str| {
            let found = switches.iter().position(|s| s.name == name);
            found.ok_or_else(|| PortError::SwitchUnknown(name.into()))
        };
        let executor = |name: &str| match name {
            HOME => Ok(Executor::Home),
            switch => index(switch).map(Executor::At),
        };
        let default_executor = executor(&config.executor)?;
        let mut ports = PortMap::default();
        for port in config.ports {
            let home = Location {
                switch: index(&port.switch)?,
                interface: port.interface,
            };
            let chosen = port.executor.as_deref().map(executor).transpose()?;
            ports.insert(
                Some(port.number),
                port.name,
                home,
                &port.switch,
                chosen.unwrap_or(default_executor),
            )?;
            if let Some(inserted) = ports.get_mut(port.number) {
                inserted.executor_chosen = chosen.is_some();
                inserted.owner = port.owner;
            }
        }
        Ok(Self {
            datapath_id: config.datapath_id,
            executors: Executors::derive(&ports, default_executor, false),
            default_executor,
            executors_epoch: 0,
            switches,
            flood: Flood::new(&ports),
            watched: BTreeSet::new(),
            ports,
            truth: Truth::default(),
            controllers: BTreeMap::new(),
            role_generation: None,
            fragment_flags: 0,
            verdicts: Verdicts::default(),
            reads: HashMap::new(),
            removals: Removals::default(),
            idle: IdleWatch::default(),
            audit: None,
            journal: Journal::default(),
            outbox: Outbox::default(),
            next_xid: 1,
            questions: 0,
            move_outcomes: BTreeMap::new(),
            disconnects: Vec::new(),
            switch_disconnects: Vec::new(),
            refused: 0,
            discarded: Vec::new(),
        })
    }

    /// Ends a batch of `*_message` calls: asks the switches for the verdict (barriers) on what was sent.
    pub fn end_of_batch(&mut self, now: Instant) {
        self.close_batch();
        self.settle(now);
        // What settling sent needs a verdict too: nothing else may ever happen that would end a batch.
        while self.close_batch() {
            self.settle(now);
        }
        self.release_replies();
    }

    /// Sends the barriers of the open batch; false if there is none.
    fn close_batch(&mut self) -> bool {
        let barrier = self.fresh_xid();
        let Some((virt, edge)) = self.verdicts.close(barrier) else {
            return false;
        };
        let frame = wire(barrier, &openflow13::Message::BarrierRequest);
        for (set, bridge) in [(virt, Bridge::Virt), (edge, Bridge::Edge)] {
            for switch in set.iter() {
                self.outbox.put(Destination::Switch(switch, bridge), &frame);
            }
        }
        true
    }

    /// Settles what can be settled and lets go on what waited for it.
    fn settle(&mut self, now: Instant) {
        while let Some(settled) = self.verdicts.settle(&mut self.truth, &mut self.journal) {
            self.report_settled(settled, now);
            self.release_replies();
        }
        self.end_doubts();
        self.confirm_retired_ids(now);
        self.advance_flood();
        self.advance_moves(now);
        self.leave_everywhere(now);
    }

    /// An xid for a message to a switch that is not an operation.
    fn fresh_xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.next_xid | NOT_AN_OPERATION
    }

    /// Bytes to write now, in order per destination.
    pub fn take_outputs(&mut self) -> Vec<(Destination, Vec<u8>)> {
        self.outbox.take()
    }

    /// Memory to free when the outputs are written, best on another thread; `None`: nothing that is worth it.
    pub fn take_discarded(&mut self) -> Option<Discarded> {
        let changes = std::mem::take(&mut self.discarded);
        (!changes.is_empty()).then_some(Discarded { _changes: changes })
    }

    /// Controllers to disconnect after their pending bytes were written, with the reason for the log.
    pub fn take_disconnects(&mut self) -> Vec<(ControllerId, String)> {
        std::mem::take(&mut self.disconnects)
    }

    /// Bridges to disconnect and dial again, with the reason for the log (their stream or state cannot be trusted).
    pub fn take_switch_disconnects(&mut self) -> Vec<(SwitchIndex, Bridge, String)> {
        std::mem::take(&mut self.switch_disconnects)
    }

    /// Messages sent to switches and not acknowledged yet.
    pub fn in_flight(&self) -> usize {
        self.verdicts.in_flight() + self.reads.len()
    }

    /// Whether every bridge has been compared with what it should have.
    pub fn is_in_step(&self) -> bool {
        let in_step = |s: &Switch| s.virt.is_up() && s.edge.is_up();
        self.switches.iter().all(in_step)
    }

    /// The switches whose `virt` takes messages now.
    fn up(&self) -> SwitchSet {
        self.switches
            .iter()
            .enumerate()
            .filter(|(_, s)| s.virt.is_up())
            .map(|(i, _)| i)
            .collect()
    }
}
