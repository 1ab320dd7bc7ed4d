//! Packet-ins of actions `controller` with an id: Open vSwitch sends them only to connections that have chosen this id, so the daemon keeps one
//! to each `virt` for each id that a controller has chosen. These connections speak OpenFlow 1.4, which has more reasons; so one with id 0, which
//! all other packet-ins have, serves the controllers of that version. Packets that meet no rule come on connections of OpenFlow 1.0, while a
//! controller of that version wants them.

use crate::api::SwitchIndex;
use crate::controllers::telling::Hearers;
use crate::core::Core;
use crate::switch_set::SwitchSet;
use openflow13::continuation::{properties_of, subscribe_to_id};
use openflow13::kind;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// The time that messages of controllers wait for such connections to a switch that can be reached.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Collectors {
    /// The ids that controllers had chosen last.
    wanted: BTreeSet<u16>,
    /// Whether controllers wanted packets that meet no rule last.
    wanted_misses: bool,
    /// Connections that send packet-ins.
    ready: BTreeSet<(SwitchIndex, u16)>,
    /// Switches that send packets that meet no rule.
    misses: SwitchSet,
    /// Messages of controllers wait since then.
    since: Option<Instant>,
}

impl Core {
    /// Returns the ids of packet-ins that come on connections of their own.
    pub fn collected_ids(&self) -> BTreeSet<u16> {
        self.controllers.chosen_ids()
    }

    /// Returns what to send on a new connection for an id.
    pub fn collector_up(&self, version: u8, id: u16) -> Vec<u8> {
        subscribe_to_id(version, id)
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
            _ if properties_of(frame).is_some() => {
                let to = match id {
                    0 => Hearers::WithAllReasons,
                    _ => Hearers::All,
                };
                self.packet_in(switch, frame, id, to);
            }
            _ => {}
        }
    }

    /// Notes that a switch sends packets that meet no rule.
    pub(in crate::core) fn misses_come(&mut self, switch: SwitchIndex) {
        self.collectors.misses.insert(switch);
    }

    pub fn misses_down(&mut self, switch: SwitchIndex) {
        self.collectors.misses.remove(switch);
    }

    /// Returns the controllers that get the packet-ins without an id from the ordinary connection to a switch.
    pub(in crate::core) fn hearers_of(&self, switch: SwitchIndex) -> Hearers {
        match self.collectors.ready.contains(&(switch, 0)) {
            true => Hearers::WithoutAllReasons,
            false => Hearers::All,
        }
    }

    /// Lets messages of controllers wait until the packet-ins of new ids come, and packets that meet no rule.
    pub(in crate::core) fn await_collectors(&mut self, now: Instant) {
        let (wanted, misses) = (self.collected_ids(), self.wants_misses());
        let before = &mut self.collectors;
        let is_new = !wanted.is_subset(&before.wanted) || misses && !before.wanted_misses;
        (before.wanted, before.wanted_misses) = (wanted, misses);
        if is_new && self.lacks_collectors() {
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
            warn!(target: "southbound", "packet-ins with a controller's id, or of packets that meet no rule, do not come from all switches yet");
        }
        self.collectors.since = None;
    }

    fn lacks_collectors(&self) -> bool {
        let ids = self.collected_ids();
        let ready = |switch| {
            ids.iter()
                .all(|id| self.collectors.ready.contains(&(switch, *id)))
        };
        let up = self.switches.up();
        let misses = self.wants_misses() && !up.minus(self.collectors.misses).is_empty();
        misses || !up.iter().all(ready)
    }
}
