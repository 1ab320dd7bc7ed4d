//! OpenFlow 1.0 with Nicira's extensions, translated to and from the messages
//! of OpenFlow 1.3 (OpenFlow 1.0.1; lib/ofp-*.c of Open vSwitch 3.1).
//!
//! Requests become what Open vSwitch takes them for; where OpenFlow 1.3 cannot
//! say that, an equivalent Nicira action does (`actions.rs`). Replies become
//! what Open vSwitch sends to a peer of version 1.0, which omits everything
//! that 1.0 lacks.

mod actions;
mod ages;
mod enqueue;
mod flow_mods;
mod frames;
mod groups;
mod later;
mod lenient;
mod matching;
mod misses;
mod moves;
mod nicira;
mod notices;
mod padding;
mod ports;
mod replies;
mod requests;

use crate::flow::FlowMod;
use crate::message::Message;
use crate::port::port_no;

pub(crate) use actions::of_instructions;
pub(crate) use matching::{pull_checked_nxm, to_nxm};
pub(crate) use moves::{buckets_with_moves, instructions_with_moves};
pub(crate) use notices::put_padded;

pub use ages::{decode_ages, encode_ages_request, Age};
pub use enqueue::{ends_idle_enqueue, without_idle_enqueues};
pub use later::decode_later_flow_mod;
pub use lenient::{encode_rewrite, encode_table_ids, without_inconsistent, Rewrite};
pub use matching::nxm_name;
pub use misses::{decline_misses, decode_miss, subscribe_to_misses};
pub use notices::encode_packet_in;
pub(crate) use notices::put_property;
pub use ports::{
    decode_ports, encode_barrier, encode_port_mod, encode_port_request, error_numbers,
};
pub use replies::{encode, encode_features};
pub use requests::{decode, is_write};

pub use crate::header::VERSION_10 as VERSION;

/// `ofp_type` values from 14 on, which differ from those of OpenFlow 1.3.
pub mod kind {
    #![allow(missing_docs)]
    pub const FLOW_MOD: u8 = 14;
    pub const PORT_MOD: u8 = 15;
    pub const STATS_REQUEST: u8 = 16;
    pub const STATS_REPLY: u8 = 17;
    pub const BARRIER_REQUEST: u8 = 18;
    pub const BARRIER_REPLY: u8 = 19;
    pub const QUEUE_GET_CONFIG_REQUEST: u8 = 20;
    pub const QUEUE_GET_CONFIG_REPLY: u8 = 21;
}

/// Every action of OpenFlow 1.0.
const ALL_ACTIONS: u32 = 0xfff;

/// Nicira's statistics of rules (`nx_stats_type`); those of groups are in `groups.rs`.
const NICIRA_FLOW: u32 = 0;
const NICIRA_AGGREGATE: u32 = 1;

/// `ofp_stats_types`; the others have the numbers of OpenFlow 1.3.
const STATS_VENDOR: u16 = 0xffff;

/// The format of packet-ins (`nx_packet_in_format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PacketInFormat {
    #[default]
    Standard,
    Nicira,
    Nicira2,
}

/// The choices of a connection, made by Nicira's messages; in OpenFlow 1.3 only the
/// format of packet-ins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// Whether rules that are removed are reported with NXM matches.
    pub nxm: bool,
    /// Whether the upper byte of a flow-mod's command is a table.
    pub table_id: bool,
    /// The format of packet-ins.
    pub packet_in: PacketInFormat,
}

/// A decoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A message that means the same in OpenFlow 1.3.
    Message(Message),
    /// A flow-mod that modifies rules, or adds one if there are none.
    Modify(Modify),
    /// Other formats from now on.
    Formats(Formats),
}

/// OpenFlow 1.0's modification of rules: it changes their cookies, too, and
/// adds a rule if there is nothing to modify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modify {
    /// The message with the cookie to match on. Its table may be `ALL_TABLES`.
    pub flow_mod: FlowMod,
    /// The rules' new cookie; `None` leaves it.
    pub new_cookie: Option<u64>,
}

/// The form that the reply to a statistics request has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatsForm {
    /// `ofp_stats_reply`.
    #[default]
    Standard,
    /// Nicira's, with NXM matches.
    Nicira,
    /// That of OpenFlow 1.5, or Nicira's of groups, with only the descriptions of this number.
    Only(u32),
}

/// Converts a port number of OpenFlow 1.3; those that 1.0 lacks become NONE.
pub(crate) fn to_port16(port: u32) -> u16 {
    match port {
        0..0xff00 | port_no::IN_PORT..=port_no::ANY => port as u16,
        _ => 0xffff,
    }
}
