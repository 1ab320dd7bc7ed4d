//! An instance's wishes about its ports.

use std::net::IpAddr;

/// The requested back end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// AF_XDP where it works, else AF_PACKET; AF_PACKET also where packets are large and the interface has offloads for
    /// such frames.
    #[default]
    Auto,
    Xdp,
    Packet,
}

/// The use that a network function makes of a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    pub choice: Choice,
    /// The number of workers: each gets a queue. 0 counts as 1.
    pub queues: usize,
    /// Whether packets are [large](crate::Packet::large), of which only AF_PACKET makes use.
    pub large: bool,
    /// The addresses from which the function opens connections. AF_PACKET gives the frames to them to the worker with the index destination port modulo
    /// number of workers, and spreads the frames to others by their source; without such addresses, by a hash of the flow.
    pub own: &'a [IpAddr],
    /// The matches that mark frames: only with AF_XDP.
    pub matching: Matching,
}

/// Matches in front of a port: see [`Matcher`](crate::Matcher).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matching {
    #[default]
    None,
    /// By a program on the interface, of at most this many flows.
    Program(u32),
    /// By the rules of the network card (`ethtool -N`).
    Card,
}
