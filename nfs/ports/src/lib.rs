//! Ports of network functions: AF_XDP, AF_PACKET, pcap files, memory. See `nfs/README.md`.

mod packet;

pub use packet::{Mac, Packet, Verdict, HEADROOM, MAX_FRAME};
