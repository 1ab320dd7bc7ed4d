//! The heavy flows of a network function in a faster table: the rules of a switch, a NIC, or an FPGA.
//!
//! Software owns every flow; a faster table carries the heavy ones (HNLB, section III; LB-NIC, section 3.3; Tiara, section 4). This crate has what all of
//! them share:
//!
//! - [`Driver`]: the contract of a table. It installs and removes rules, and tells what became of them.
//! - [`Edge`]: the table that every server has: the rules of its switches, by way of oneswitchd.
//! - [`open_ports`]: the tables of several ports of a function as one.
//! - [`Exchange`]: a ledger with its promoter at a table that may come and go.
//! - [`Heavy`]: finds the heavy flows among samples.
//! - [`Promoter`]: decides which flows get a rule, and which lose theirs.
//! - [`Ledger`]: knows which flows have a rule, in which state. It survives with the instance.
//!
//! Four rules hold whatever a driver, a crash or a move does (`tests/histories.rs`):
//!
//! 1. Losing a rule is safe: the function has a record of every flow and processes its packets as before.
//! 2. A flow whose rule may still act has one backend: until the removal is *effective*, [`Ledger::backend_of`] names it, and no other may be chosen.
//! 3. A table has one writer: requests of an older one are refused ([`Refused::StaleWriter`]).
//! 4. The growth of a counter is added once, to the backend whose rules it counts, also if the process dies meanwhile.

mod driver;
mod edge;
mod exchange;
mod heavy;
mod ledger;
mod ports;
mod promoter;

pub use driver::{
    Capabilities, CounterId, Counts, Direction, Driver, Event, FlowKey, Listed, Listing, Matches,
    Refused, Request, Rewrite, Rewrites, RuleId, Table, Target, TargetId, Tunnel, Unavailable,
    Writer,
};
pub use edge::Edge;
pub use exchange::{Exchange, Totals};
pub use heavy::Heavy;
pub use ledger::{Addition, Ledger, Live, Outcome, Row, Rows, Tally};
pub use ports::open_ports;
pub use promoter::{Limits, Promoter};
