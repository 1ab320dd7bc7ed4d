//! Packet-ins of actions `controller` with an id: Open vSwitch sends them only to connections that have chosen this id, so the daemon keeps one
//! to each `virt` for each id that a controller has chosen.

use crate::api::SwitchIndex;
use crate::core::Core;
use crate::wire::wire;
use openflow13::continuation::{properties_of, subscribe_to_id};
use openflow13::kind;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// The time that messages of controllers wait for such connections to a switch that can be reached.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Collectors {
    /// Connections that send packet-ins.
    ready: BTreeSet<(SwitchIndex, u16)>,
    /// Messages of controllers wait since then.
    since: Option<Instant>,
}

impl Core {
    /// Returns the ids other than 0 that controllers have chosen.
    pub fn collected_ids(&self) -> BTreeSet<u16> {
        self.controllers.chosen_ids()
    }

    /// Returns what to send on a new connection for an id.
    pub fn collector_up(&self, id: u16) -> Vec<u8> {
        let messages = subscribe_to_id(id).into_iter();
        messages.flat_map(|message| wire(0, &message)).collect()
    }

    pub fn collector_down(&mut self, switch: SwitchIndex, id: u16) {
        self.collectors.ready.remove(&(switch, id));
    }

    /// Handles a message on a connection for an id.
    pub fn collected(&mut self, switch: SwitchIndex, id: u16, frame: &[u8]) {
        match frame.get(1) {
            Some(&kind::BARRIER_REPLY) => {
                self.collectors.ready.insert((switch, id));
            }
            Some(&kind::ERROR) => {
                let switch = &self.switches.list[switch].name;
                error!(target: "southbound", %switch, id, "refuses to send packet-ins by their id");
            }
            _ if properties_of(frame).is_some() => self.packet_in(switch, frame, id),
            _ => {}
        }
    }

    /// Lets messages of controllers wait until the packet-ins of a new id come.
    pub(in crate::core) fn await_collectors(&mut self, now: Instant) {
        if self.lacks_collectors() {
            self.collectors.since = Some(now);
        }
    }

    pub(in crate::core) fn awaits_collectors(&self) -> bool {
        self.collectors.since.is_some() && self.lacks_collectors()
    }

    pub(in crate::core) fn collectors_deadline(&self) -> Option<Instant> {
        self.collectors.since.map(|since| since + PATIENCE)
    }

    /// Ends the waiting that has taken too long.
    pub(in crate::core) fn stop_awaiting_collectors(&mut self, now: Instant) {
        if self.collectors_deadline().is_none_or(|at| now < at) {
            return;
        }
        if self.lacks_collectors() {
            warn!(target: "southbound", "packet-ins with a controller's id do not come from all switches yet");
        }
        self.collectors.since = None;
    }

    fn lacks_collectors(&self) -> bool {
        let ids = self.collected_ids();
        let ready = |switch| {
            ids.iter()
                .all(|id| self.collectors.ready.contains(&(switch, *id)))
        };
        !self.switches.up().iter().all(ready)
    }
}
