//! One virtual OpenFlow switch over several Open vSwitch instances, as a state machine without I/O.
//!
//! The daemon feeds it complete OpenFlow messages (after version negotiation; echoes stay in the daemon), connection events,
//! management requests and time; it answers with bytes per [`Destination`]. It never blocks and never reads a clock.
//!
//! One round: feed events, [`Core::end_of_batch`], write what [`Core::take_outputs`] returns.
//!
//! | room | owns |
//! |---|---|
//! | `model` | the virtual tables, groups and meters |
//! | `server` | the port map, the executors, the flood's lists |
//! | `offload` | the offloaded flows of network functions |
//! | `layout` | nothing: the wanted state of a switch, and its difference from the found one |
//! | `journal` | the state that survives a restart |
//! | `switches` | sessions, verdicts, requests to switches |
//! | `controllers` | connections, roles, the order of replies |
//! | `expiry` | removed rules, idle timeouts |
//! | `moves` | moves of ports and executors |
//! | `core` | the dispatcher: all of them; no room calls it |
//!
//! Rooms borrow those above them in this table by name and return results to be routed (docs/architecture.md, "Rooms of `oneswitch/core`").

mod api;
mod controllers;
mod core;
mod expiry;
mod journal;
mod layout;
mod model;
mod moves;
mod offload;
mod outbox;
mod server;
mod switch_set;
mod switches;
mod wire;

pub use api::*;
pub use core::{Core, Discarded};
pub use journal::records::JournalError;
pub use offload::events::{OffloadError, OffloadEvent, OffloadListed, OffloadRefused};
pub use offload::flows::Counted;
pub use offload::ports::{FLOWS as OFFLOAD_FLOWS, TARGETS as OFFLOAD_TARGETS};
pub use offload::requests::{
    Clients, FlowEnd, FlowKey, FlowProtocol, OffloadHello, OffloadRequest, OffloadRewrite,
    OffloadTarget, WriterId,
};
pub use offload::view::OffloadView;
pub use switches::audit::BridgeAudit;
