//! A session between a software load balancer and a T-NIC: lines of JSON over a unix socket, and memory that both map.
//!
//! The load balancer begins with [`Say::Hello`]. The T-NIC removes the entries of its earlier lives and answers [`Answer::Welcome`], with two descriptors
//! beside the line: the session's memory, and the totals. A second welcome has new memory: the T-NIC has lost its table.

mod channel;
mod memory;
mod words;

pub use channel::Channel;
pub use memory::{Queues, SessionMemory, SignalsIn, SignalsOut, Totals, COUNTERS};
pub use words::{Answer, Kept, Say, Terms, VERSION};
