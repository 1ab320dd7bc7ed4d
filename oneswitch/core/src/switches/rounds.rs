//! Rounds over a connection of another version beside that of OpenFlow 1.3 to each `virt`: a round reads what is there, writes what differs, and
//! ends with a barrier.
//!
//! It begins when no change is in flight, and controllers wait until it has ended. So the order of the two connections to a switch does not
//! matter.

use crate::api::SwitchIndex;
use crate::switch_set::SwitchSet;
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct Rounds<T> {
    /// Switches with such a connection.
    links: SwitchSet,
    /// Switches where something may differ.
    due: SwitchSet,
    running: BTreeMap<SwitchIndex, Round<T>>,
}

#[derive(Debug)]
pub struct Round<T> {
    /// xid of the request; then that of the barrier.
    pub awaited: u32,
    /// The entries that the switch has told so far.
    pub told: Vec<T>,
}

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Self {
            links: SwitchSet::EMPTY,
            due: SwitchSet::EMPTY,
            running: BTreeMap::new(),
        }
    }
}

impl<T> Rounds<T> {
    pub fn require(&mut self, switches: SwitchSet) {
        self.due = self.due.union(switches);
    }

    pub fn links(&self) -> SwitchSet {
        self.links
    }

    pub fn link_up(&mut self, switch: SwitchIndex) {
        self.links.insert(switch);
    }

    pub fn link_down(&mut self, switch: SwitchIndex) {
        self.links.remove(switch);
        if self.running.remove(&switch).is_some() {
            self.due.insert(switch);
        }
    }

    /// Tells whether a switch is in a round, or soon will be: if it is one of those that are `up`.
    pub fn include(&self, switch: SwitchIndex, is_up: bool) -> bool {
        let is_due = self.due.contains(switch) && self.links.contains(switch);
        self.running.contains_key(&switch) || is_due && is_up
    }

    /// Returns the switches whose round can begin.
    pub fn startable(&self, up: SwitchSet) -> Vec<SwitchIndex> {
        let due = self.due.intersection(self.links).intersection(up);
        let idle = |switch: &SwitchIndex| !self.running.contains_key(switch);
        due.iter().filter(idle).collect()
    }

    pub fn begin(&mut self, switch: SwitchIndex, awaited: u32) {
        self.due.remove(switch);
        let told = Vec::new();
        self.running.insert(switch, Round { awaited, told });
    }

    /// Returns the round that awaits a message with this xid.
    pub fn awaiting(&mut self, switch: SwitchIndex, xid: u32) -> Option<&mut Round<T>> {
        let round = self.running.get_mut(&switch);
        round.filter(|round| round.awaited == xid)
    }

    pub fn end(&mut self, switch: SwitchIndex) {
        self.running.remove(&switch);
    }
}
