//! The server: its port map, the executors of the ports, and state derived from both.

pub mod counters;
pub mod executors;
pub mod flood;
pub mod flow_ids;
pub mod port_views;
pub mod ports;
pub mod quarantine;

use crate::api::{MoveStage, PortError, SwitchIndex};
use crate::model::hidden::{needed_by, Hidden, HiddenGroups};
use crate::model::rule::Rule;
use crate::model::truth::Truth;
use crate::offload::flows::Counted;
use crate::offload::Offload;
use executors::Executors;
use flood::Flood;
use ports::{Executor, Move, PortMap};
use std::collections::BTreeSet;
use std::time::Instant;

#[derive(Debug)]
pub struct Server {
    pub ports: PortMap,
    pub flood: Flood,
    pub executors: Executors,
    pub offload: Offload,
    /// The default executor of ports.
    pub default_executor: Executor,
    /// Grows with every change of `executors`.
    pub epoch: u64,
    pub hidden: HiddenGroups,
    /// Whether something that the journal keeps may have changed.
    pub unsettled: bool,
}

impl Server {
    pub fn new(ports: PortMap, default_executor: Executor) -> Self {
        Self {
            executors: Executors::derive(&ports, default_executor, false),
            flood: Flood::new(&ports),
            ports,
            offload: Offload::default(),
            default_executor,
            epoch: 0,
            hidden: HiddenGroups::default(),
            unsettled: false,
        }
    }

    /// Derives the executors from the port map; returns the old and the new ones.
    pub fn derive_executors(&mut self) -> (Executors, Executors) {
        self.derive_executors_with(self.executors.is_everywhere())
    }

    /// As [`Self::derive_executors`]. `everywhere`: any rule may apply at any executor.
    pub fn derive_executors_with(&mut self, everywhere: bool) -> (Executors, Executors) {
        let new = Executors::derive(&self.ports, self.default_executor, everywhere);
        let old = std::mem::replace(&mut self.executors, new.clone());
        self.epoch += u64::from(old != new);
        (old, new)
    }

    /// Provides the hidden groups that the controllers' groups need.
    pub fn provide_watched(&mut self, truth: &Truth) {
        let buckets = truth.groups.values().flat_map(|group| group.buckets.iter());
        for needed in buckets.flat_map(|bucket| needed_by(&bucket)) {
            let provided = self.hidden.provide(needed, |id| truth.names_group(id));
            self.unsettled |= provided.is_some();
        }
    }

    /// Forgets the hidden groups that no group of a controller needs any more.
    pub fn forget_unwatched(&mut self, truth: &Truth) {
        let buckets = truth.groups.values().flat_map(|group| group.buckets.iter());
        let needed: BTreeSet<Hidden> = buckets.flat_map(|bucket| needed_by(&bucket)).collect();
        self.hidden
            .retain_watched(|hidden| needed.contains(&hidden));
    }

    /// Returns the move of a port.
    ///
    /// # Errors
    /// `PortUnknown`, `NoMove`.
    pub fn moving(&mut self, number: u32) -> Result<&mut Move, PortError> {
        let port = self.ports.get_mut(number);
        let port = port.ok_or(PortError::PortUnknown(number))?;
        port.moving.as_mut().ok_or(PortError::NoMove(number))
    }

    pub fn moving_mut(&mut self, number: u32) -> Option<&mut Move> {
        self.ports.get_mut(number)?.moving.as_mut()
    }

    /// Enters a stage of a move, whose messages are in `batch`.
    pub fn enter_stage(&mut self, number: u32, stage: MoveStage, batch: u64) {
        let flood = self.flood.current().number;
        if let Some(moving) = self.moving_mut(number) {
            moving.stage = stage;
            moving.after_batch = batch;
            moving.flood = flood;
            self.unsettled = true;
        }
    }

    /// Returns whether `rule` has left `switch` with its port, although its copy is still there.
    pub fn flipped_away(&self, rule: &Rule, switch: SwitchIndex) -> bool {
        let port = rule.in_port().and_then(|n| self.ports.get(n));
        port.is_some_and(|p| {
            p.moving
                .as_ref()
                .is_some_and(|m| m.stage >= MoveStage::Flipping && m.executor.of(&m.to) != switch)
                && p.executes_at() == switch
        })
    }

    /// Returns whether a saved port map would lack a move that the journal knows of.
    pub fn has_unsaved_ports(&self) -> bool {
        self.ports.iter().any(|port| port.unsaved.is_some())
    }

    /// Drops moves that are in the saved port map of this revision, because the journal need not keep them.
    pub fn ports_are_saved(&mut self, revision: u64) {
        for port in self.ports.iter_mut() {
            let saved = port.unsaved.take_if(|(at, _)| *at <= revision);
            self.unsettled |= saved.is_some();
        }
    }

    /// Adds the counts of meters that are gone to their port.
    pub fn keep_offloaded(&mut self, number: u32, gone: impl IntoIterator<Item = (u16, Counted)>) {
        let Some(port) = self.ports.get_mut(number) else {
            return;
        };
        for (counter, counted) in gone {
            if counted != Counted::default() {
                let total = port.offloaded.entry(counter).or_default();
                *total = total.plus(counted);
                self.unsettled = true;
            }
        }
    }

    /// Frees flow-ids that no packet has any more.
    pub fn release_retired_ids(&mut self, now: Instant) {
        self.unsettled |= self.ports.quarantine.release(now);
    }
}
