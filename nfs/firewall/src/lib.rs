//! A stateful firewall: rules by zone, addresses, ports and application, decided once for each connection.
//!
//! An inspector in a process of its own says which application a flow has. Its packets wait for that only at the beginning, and only where the first rule
//! that may take the flow depends on it. Afterwards a packet costs a look at its flow's record. docs/firewall.md describes what users see.

mod application;
mod compile;
mod config;
mod coverage;
mod desk;
mod dispatch;
mod flows;
mod function;
mod hits;
mod inspection;
mod key;
mod live;
mod ndpi;
mod offload;
mod pass;
mod prefix;
mod ranges;
mod refusing;
mod related;
mod report;
mod rows;
mod rules;
mod state;
mod tcp;
mod waiting;
mod words;

pub use application::{Catalogue, Known};
pub use config::{Action, Config, Inspecting};
pub use function::Firewall;
pub use inspection::{Answer, Inspection, Refused, Request};
pub use ndpi::Ndpi;
