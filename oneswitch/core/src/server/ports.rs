//! The port map: the switch and interface of each virtual port.

use crate::api::{Claim, MoveStage, MoveUntil, PortConfig, PortError, SwitchIndex, HOME};
use crate::offload::flows::Totals;
use crate::offload::sums::Carried;
use crate::server::flow_ids::{all_of, FlowId, IdSpace, PortIds};
use crate::server::quarantine::Quarantine;
use crate::switch_set::SwitchSet;
use openflow13::{Port, PortStats};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Highest virtual port number; higher ones are `virt-mc` and OpenFlow 1.0's reserved numbers.
pub const MAX_NUMBER: u32 = 0xfdff;
/// OpenFlow port number of the multicast patch port in every `virt`.
pub const MULTICAST_PORT: u32 = 0xfe00;

/// The choice of the switch that runs a port's pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// The switch of the port's interface.
    Home,
    At(SwitchIndex),
}

impl Executor {
    /// Returns the switch that runs the pipeline of packets that enter at `location`.
    pub fn of(self, location: &Location) -> SwitchIndex {
        match self {
            Self::Home => location.switch,
            Self::At(switch) => switch,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    pub switch: SwitchIndex,
    pub interface: String,
}

/// A move in progress (UNO 3.3.2, make-before-break): to another interface, or to another executor.
#[derive(Clone, Debug)]
pub struct Move {
    /// The goal; the port's home if only the executor changes.
    pub to: Location,
    pub executor: Executor,
    pub stage: MoveStage,
    pub until: MoveUntil,
    /// The own executor of a gathered port, which a client's change replaces; it is put back if the change is undone.
    pub replaced: Option<Executor>,
    /// Whether it does not wait for bridges that have not confirmed their rules.
    pub forced: bool,
    /// Whether waiting clients were told the reason.
    pub told_waiting: bool,
    pub settle: Duration,
    pub grace: Duration,
    /// End of the waiting time for data paths, before the flip and after it.
    pub deadline: Option<Instant>,
    /// The batch of the stage's messages; the stage is reached when it is settled.
    pub after_batch: u64,
    /// The flood generation that must be in force for the stage to be reached.
    pub flood: u64,
    /// Statistics still awaited before the old copies may be removed.
    pub folding: usize,
    /// Whether one of them is missing.
    pub fold_missed: bool,
    /// How often bridges refused statistics that the move needs.
    pub refusals: u32,
    /// The pending request for `counted_before`.
    pub baseline_asked: Option<u64>,
    /// The new interface's counters from before it became this port.
    pub counted_before: Option<PortStats>,
}

impl Move {
    pub fn new(to: Location, executor: Executor, until: MoveUntil) -> Self {
        Self {
            to,
            executor,
            stage: MoveStage::Preparing,
            until,
            replaced: None,
            forced: false,
            told_waiting: false,
            settle: Duration::ZERO,
            grace: Duration::ZERO,
            deadline: None,
            after_batch: 0,
            flood: 0,
            folding: 0,
            fold_missed: false,
            refusals: 0,
            baseline_asked: None,
            counted_before: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct VirtualPort {
    pub number: u32,
    pub name: String,
    /// DELIVER(V).
    pub flow_id: FlowId,
    /// INGRESS(V), if the port's executor can be a switch other than its home.
    pub ingress_id: Option<FlowId>,
    pub home: Location,
    pub executor: Executor,
    /// Whether the executor was chosen for this port; otherwise it is the server's default.
    pub executor_chosen: bool,
    /// The executor to which it returns, if it has left that one for state that all ports share.
    pub gathered_from: Option<Executor>,
    /// The program responsible for the port: others must not take it away by mistake.
    pub owner: Option<String>,
    pub moving: Option<Move>,
    /// A finished move, until the port map of that revision is saved.
    pub unsaved: Option<(u64, Move)>,
    /// OFPPC_* bits set by controllers.
    pub config: u32,
    /// Kept over moves: a controller must not see a different port.
    pub hw_addr: Option<[u8; 6]>,
    /// Whether its interface existed with carrier when its switch was last connected; `None`: not connected since the start.
    pub has_carrier: Option<bool>,
    /// Whether it moved to an interface not yet seen live: Open vSwitch reports that one main-loop turn after the link is up.
    pub awaits_live: bool,
    /// As last reported to the controllers.
    pub announced: Option<Port>,
    /// Added to the home interface's counters (modulo 2^64).
    pub base: PortStats,
    /// Packets that offload rules carried, by their counter, where the meter is gone.
    pub offloaded: Totals,
}

impl VirtualPort {
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        std::iter::once(&self.home).chain(self.moving.as_ref().map(|m| &m.to))
    }

    /// # Errors
    /// `PortOwned`, where the port has an owner that `claim` neither names nor overrides.
    pub fn check_claim(&self, claim: &Claim) -> Result<(), PortError> {
        match &self.owner {
            Some(owner) if !claim.force && claim.owner.as_ref() != Some(owner) => {
                Err(PortError::PortOwned {
                    number: self.number,
                    owner: owner.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Sets the result of a move.
    pub fn arrive(&mut self, home: Location, executor: Executor) {
        match self.gathered_from {
            // Its own executor is still the one before.
            Some(own) if own != executor => {}
            Some(_) => self.gathered_from = None,
            None => self.executor_chosen |= self.executor != executor,
        }
        self.executor = executor;
        self.home = home;
    }

    /// Returns its base with the packets of offload rules.
    pub fn base_with(&self, offloaded: Carried) -> PortStats {
        let mut base = self.base.clone();
        let Carried { delivered, sent } = offloaded;
        for (counter, more) in [
            (&mut base.rx_packets, sent.packets),
            (&mut base.tx_packets, delivered.packets),
            (&mut base.rx_bytes, sent.bytes),
            (&mut base.tx_bytes, delivered.bytes),
        ] {
            *counter = counter.wrapping_add(more);
        }
        base
    }

    /// Returns where packets for this port are delivered.
    pub fn delivery(&self) -> &Location {
        match &self.moving {
            Some(m) if m.stage >= MoveStage::Flipping => &m.to,
            _ => &self.home,
        }
    }

    /// Returns the switch that runs the pipeline until the current move is done.
    pub fn executes_at(&self) -> SwitchIndex {
        self.executor.of(&self.home)
    }

    /// Returns the executor after the current move.
    pub fn executor_to_be(&self) -> Option<SwitchIndex> {
        let goal = self.moving.as_ref().map(|m| m.executor.of(&m.to));
        goal.filter(|goal| *goal != self.executes_at())
    }

    /// Returns the switches that may execute packets of this port: during a move, the old and the new one.
    pub fn executors(&self) -> SwitchSet {
        let goal = self.moving.as_ref().map(|m| m.executor.of(&m.to));
        std::iter::once(self.executes_at()).chain(goal).collect()
    }

    /// Returns the switch that runs the pipeline for packets that enter at `location`, one of [`Self::locations`].
    pub fn executor_for(&self, location: &Location) -> SwitchIndex {
        match &self.moving {
            Some(m)
                if m.to == *location && (m.to != self.home || m.stage >= MoveStage::Flipping) =>
            {
                m.executor.of(location)
            }
            _ => self.executor.of(location),
        }
    }

    /// Returns the switches that its packets need: their ingress and their executor.
    pub fn needs(&self) -> SwitchSet {
        let location = self.delivery();
        [location.switch, self.executor_for(location)]
            .into_iter()
            .collect()
    }

    /// Tells whether some packets of this port cross a PCIe link to be executed.
    pub fn executes_away(&self) -> bool {
        let mut locations = self.locations();
        locations.any(|l| self.executors() != SwitchSet::of(l.switch))
    }
}

#[derive(Debug, Default)]
pub struct PortMap {
    ports: BTreeMap<u32, VirtualPort>,
    /// Quarantined flow-ids.
    pub quarantine: Quarantine,
    /// The flow-ids that ports may get.
    pub id_space: IdSpace,
    /// Grows with every change.
    pub revision: u64,
}

impl PortMap {
    pub fn get(&self, number: u32) -> Option<&VirtualPort> {
        self.ports.get(&number)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut VirtualPort> {
        self.ports.get_mut(&number)
    }

    pub fn iter(&self) -> impl Iterator<Item = &VirtualPort> {
        self.ports.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut VirtualPort> {
        self.ports.values_mut()
    }

    pub fn len(&self) -> usize {
        self.ports.len()
    }

    /// Returns the ports that have left their own executors for state that all ports share.
    pub fn gathered(&self) -> impl Iterator<Item = &VirtualPort> {
        self.iter().filter(|port| port.gathered_from.is_some())
    }

    /// Returns the port that has a location as home or as the goal of a move.
    pub fn at(&self, location: &Location) -> Option<&VirtualPort> {
        self.ports
            .values()
            .find(|p| p.locations().any(|l| l == location))
    }

    /// Checks and inserts a port; without a number it gets the lowest free one.
    ///
    /// # Errors
    /// `NumberOutOfRange`, `NumberTaken`, `NameTooLong`, `NameTaken`, `InterfaceTaken`, `FlowIdsExhausted`.
    pub fn insert(
        &mut self,
        number: Option<u32>,
        name: String,
        home: Location,
        switch_name: &str,
        executor: Executor,
    ) -> Result<u32, PortError> {
        let number = match number {
            Some(n) if !(1..=MAX_NUMBER).contains(&n) => {
                return Err(PortError::NumberOutOfRange(n))
            }
            Some(n) => n,
            None => (1..=MAX_NUMBER)
                .find(|n| !self.ports.contains_key(n))
                .ok_or(PortError::FlowIdsExhausted)?,
        };
        if let Some(taken) = self.ports.get(&number) {
            return Err(PortError::NumberTaken {
                number,
                by: taken.name.clone(),
            });
        }
        if name.len() > 15 {
            return Err(PortError::NameTooLong(name));
        }
        if let Some(taken) = self.ports.values().find(|p| p.name == name) {
            return Err(PortError::NameTaken {
                name,
                number: taken.number,
            });
        }
        if let Some(taken) = self.at(&home) {
            return Err(PortError::InterfaceTaken {
                switch: switch_name.into(),
                interface: home.interface,
                number: taken.number,
            });
        }
        let mut free = self.free_flow_ids().into_iter();
        let flow_id = free.next().ok_or(PortError::FlowIdsExhausted)?;
        let ingress_id = match executor {
            Executor::Home => None,
            Executor::At(_) => Some(free.next().ok_or(PortError::FlowIdsExhausted)?),
        };
        let port = VirtualPort {
            number,
            name,
            flow_id,
            ingress_id,
            home,
            executor,
            executor_chosen: false,
            gathered_from: None,
            owner: None,
            moving: None,
            unsaved: None,
            config: 0,
            hw_addr: None,
            has_carrier: None,
            awaits_live: false,
            announced: None,
            base: PortStats::default(),
            offloaded: Totals::new(),
        };
        self.quarantine.give(flow_id);
        ingress_id
            .into_iter()
            .for_each(|id| self.quarantine.give(id));
        self.ports.insert(number, port);
        self.revision += 1;
        Ok(number)
    }

    /// Returns at most two, as many as a port may need.
    fn free_flow_ids(&self) -> Vec<FlowId> {
        let ids = |p: &VirtualPort| [Some(p.flow_id), p.ingress_id];
        let used = self.ports.values().flat_map(ids).flatten();
        self.id_space.free(used, &self.quarantine, 2)
    }

    /// Gives the port an INGRESS flow-id if it has none.
    ///
    /// # Errors
    /// `PortUnknown`, `FlowIdsExhausted`.
    pub fn allocate_ingress(&mut self, number: u32) -> Result<(), PortError> {
        let free = self.free_flow_ids().first().copied();
        let port = self
            .ports
            .get_mut(&number)
            .ok_or(PortError::PortUnknown(number))?;
        if port.ingress_id.is_none() {
            let id = free.ok_or(PortError::FlowIdsExhausted)?;
            port.ingress_id = Some(id);
            self.quarantine.give(id);
        }
        Ok(())
    }

    /// Restores the flow-ids after a restart (DELIVER, INGRESS), by which packets in flight and the switches know the ports; other ports
    /// get free ones.
    pub fn set_flow_ids(&mut self, saved: &BTreeMap<u32, PortIds>) {
        let wanted = 2 * self.ports.len();
        let free = self.id_space.free(all_of(saved), &self.quarantine, wanted);
        let mut free = free.into_iter();
        for port in self.ports.values_mut() {
            let saved = saved.get(&port.number);
            let deliver = saved.map(|(deliver, _)| *deliver);
            port.flow_id = deliver.or_else(|| free.next()).unwrap_or(port.flow_id);
            let ingress = saved.and_then(|(_, ingress)| *ingress);
            if port.ingress_id.is_some() {
                port.ingress_id = ingress.or_else(|| free.next());
            } else {
                self.quarantine.restore(ingress.into_iter());
            }
        }
    }

    /// Quarantines the INGRESS flow-id of a port whose executor is its home.
    pub fn retire_ingress(&mut self, number: u32) {
        let port = self.ports.get_mut(&number);
        let port = port.filter(|p| p.executor == Executor::Home);
        if let Some(id) = port.and_then(|p| p.ingress_id.take()) {
            self.quarantine.retire(id);
        }
    }

    /// Removes a port that switches know.
    pub fn retire(&mut self, number: u32) -> Option<VirtualPort> {
        let removed = self.remove(number)?;
        self.quarantine.retire(removed.flow_id);
        let ingress = removed.ingress_id.into_iter();
        ingress.for_each(|id| self.quarantine.retire(id));
        Some(removed)
    }

    pub fn remove(&mut self, number: u32) -> Option<VirtualPort> {
        let removed = self.ports.remove(&number);
        self.revision += u64::from(removed.is_some());
        removed
    }

    pub fn configs(&self, switch_name: impl Fn(SwitchIndex) -> String) -> Vec<PortConfig> {
        let executor = |executor: Executor| match executor {
            Executor::Home => HOME.into(),
            Executor::At(switch) => switch_name(switch),
        };
        self.iter()
            .map(|p| PortConfig {
                number: p.number,
                name: p.name.clone(),
                switch: switch_name(p.home.switch),
                interface: p.home.interface.clone(),
                executor: (p.executor_chosen || p.gathered_from.is_some())
                    .then(|| executor(p.executor)),
                gathered_from: p.gathered_from.map(executor),
                owner: p.owner.clone(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
