//! The table of a network card that only matches (Intel's Flow Director; HNLB, section II-B): packets of its flows come to the function with the number
//! of their target, which rewrites them without a lookup.
//!
//! [`FlowDirector`] is the table, [`Worker`] its work at the card, which takes up to milliseconds per rule and so has a thread of its own. The card is an
//! [`nf_ports::Matcher`]: a program on the lab's wires, or the rules of `ethtool -N`.
//!
//! The card counts nothing and tells no hits: the function sees every packet, and counts and samples it as before.
//!
//! A rule's removal is effective when the card has removed it and all packets were processed that had arrived by then: until that moment, one on its way
//! may carry the mark.

mod director;
mod session;
mod worker;

pub use director::FlowDirector;
pub use worker::Worker;
