//! Ports of network functions: AF_XDP, AF_PACKET, pcap files, memory. See `nfs/README.md`.
//!
//! The files that pass pointers to the kernel contain `unsafe`: `system`, `interface`, `packet_socket`, and `xdp`.

mod checksum;
mod claim;
mod error;
mod frame;
mod interface;
mod matching;
pub mod memory;
mod ntuple;
mod open;
mod packet;
mod packet_socket;
pub mod pcap;
mod queue;
mod segment;
mod system;
mod wanted;
mod xdp;

pub use claim::{claim, Claim};
pub use error::PortError;
pub use frame::{Frame, Network, Offloads, PartialChecksum, Segments, MAX_LARGE_FRAME};
pub use matching::{is_refusal, Match, Matcher, Moment};
pub use open::open;
pub use packet::{Mac, Packet, Verdict, HEADROOM, MAX_FRAME};
pub use queue::{Backend, Event, Events, Port, Queue};
pub use segment::{finish, Unfit};
pub use wanted::{Choice, Matching, Wanted};
