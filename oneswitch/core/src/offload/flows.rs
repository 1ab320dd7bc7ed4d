//! Flows and targets of one port.

use crate::offload::requests::{Clients, FlowKey, OffloadTarget};
use std::collections::BTreeMap;

/// Packets, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counted {
    pub packets: u64,
    pub bytes: u64,
}

impl Counted {
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }
}

/// The packets of counters.
pub type Totals = BTreeMap<u16, Counted>;

/// Returns the packets of all counters.
pub fn sum(totals: &Totals) -> Counted {
    totals
        .values()
        .copied()
        .fold(Counted::default(), Counted::plus)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// Sent to the switches, which have not confirmed it.
    Asked,
    Carried,
    /// The rule's removal is sent; cached flows may still carry packets.
    Leaving,
}

#[derive(Clone, Debug)]
pub struct Flow {
    pub key: FlowKey,
    pub clients: Clients,
    pub target: u16,
    pub counter: u16,
    pub state: FlowState,
    /// The rule's packets as last reported to the writer. Open vSwitch counts them inexactly while rules change under traffic.
    pub told: u64,
}

impl Flow {
    pub fn is_leaving(&self) -> bool {
        self.state == FlowState::Leaving
    }
}

#[derive(Clone, Debug)]
pub struct TargetState {
    pub target: OffloadTarget,
    /// Flows that name it.
    pub users: usize,
    /// Whether its writer has dropped it: it disappears with its last flow.
    pub is_dropped: bool,
}
