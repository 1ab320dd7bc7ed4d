//! Flows and targets of one port.

use crate::offload::requests::{Clients, FlowKey, OffloadTarget};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// Sent to the switches, which have not confirmed it.
    Asked,
    Carried,
    /// The shadow is sent; cached flows may still carry packets.
    Leaving,
    /// No packet leaves by the rule any more. The rule and its counts stay until they are forgotten.
    Left,
}

#[derive(Clone, Debug)]
pub struct Flow {
    pub key: FlowKey,
    pub clients: Clients,
    pub target: u16,
    pub state: FlowState,
    /// Counts of switches that no longer have the rule, or have lost them.
    pub base: Counted,
    /// As last reported to the writer.
    pub told: Counted,
    /// Whether it belongs to a former writer: it is forgotten as soon as its removal is effective.
    pub is_disowned: bool,
    /// Whether its writer has forgotten it before its removal is effective.
    pub is_forgotten: bool,
}

impl Flow {
    pub fn is_removed(&self) -> bool {
        matches!(self.state, FlowState::Leaving | FlowState::Left)
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
