//! One virtual OpenFlow 1.3 switch over several Open vSwitch instances, as a state machine without I/O.
//!
//! The daemon feeds it whole OpenFlow messages (after version negotiation; echo and hello stay in the daemon), connection
//! events, management requests and time; it answers with bytes per [`Destination`]. It never blocks and never reads a clock.
//!
//! One round: feed events, [`Core::end_of_batch`], write what [`Core::take_outputs`] returns.
//!
//! | room | owns | may call |
//! |---|---|---|
//! | `model` | the virtual tables, groups and meters | - |
//! | `server` | the port map, the executors, the flood's lists | `model` |
//! | `layout` | nothing: which rules and groups a switch has to have | `model`, `server` |
//! | `switches` | sessions, verdicts, questions to switches | `layout` and below, `journal` |
//! | `controllers` | connections, roles, the order of replies | `switches` and below |
//! | `expiry` | removed rules, idle timeouts | `switches` and below |
//! | `moves` | moves of ports and executors | `switches` and below |
//! | `journal` | what survives a restart | `model`, `server` |
//! | `core` | the rooms | all; no room calls it |

mod api;
mod controllers;
mod core;
mod expiry;
mod journal;
mod layout;
mod model;
mod moves;
pub mod mutants;
mod outbox;
mod server;
mod switch_set;
mod switches;
mod wire;

pub use api::*;
pub use core::{Core, Discarded};
pub use journal::records::JournalError;
