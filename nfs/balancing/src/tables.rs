//! The tables of neighbours, as laid out in the arena.
//!
//! Next hops (gateways and backends) have their own table: only the configuration adds to it, so other stations cannot fill it. Clients on a
//! link are in a second table, which first evicts those that never answered.

use bytemuck::{Pod, Zeroable};
use nf_runtime::{
    state::{FlowTable, StateBuilder},
    Refusal,
};

use crate::tuple::Address;

/// A neighbour: a station with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Neighbour {
    /// 0: unknown.
    pub mac: u64,
    pub interface: u64,
    pub confirmed: u64,
    pub asked: u64,
    /// A MAC address that another station claimed, until the owner of `mac` objects; 0: none.
    pub claim: u64,
    /// The time of the claim; while `mac` is unknown, that of the first question.
    pub claimed: u64,
    /// The MAC address before an announcement, whose owner may still object; 0: none.
    pub former: u64,
    pub announced: u64,
    /// The time of the owner's last objection.
    pub objected: u64,
}

/// The known neighbours on all links.
pub struct Neighbours {
    /// Next hops: gateways and backends.
    pub next_hops: FlowTable<Address, Neighbour>,
    /// Other stations on the links.
    pub stations: FlowTable<Address, Neighbour>,
}

impl Neighbours {
    /// Declares both tables, each with room for `capacity` neighbours.
    ///
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(state: &mut StateBuilder, capacity: usize) -> Result<Self, Refusal> {
        Ok(Self {
            next_hops: state.flow_table("neighbours", capacity)?,
            stations: state.flow_table("stations", capacity)?,
        })
    }
}
