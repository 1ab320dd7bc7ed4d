//! Ports of network functions: AF_XDP, AF_PACKET, pcap files, memory. See `nfs/README.md`.

pub mod memory;
mod packet;
mod queue;

pub use packet::{Mac, Packet, Verdict, HEADROOM, MAX_FRAME};
pub use queue::{Backend, Event, Events, Port, Queue};
