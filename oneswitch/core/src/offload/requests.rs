//! Requests of writers.

use std::net::IpAddr;

/// A connection of a writer. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WriterId(pub u64);

/// The first message of a writer: the port whose flows it offloads, and its place among the writers of that port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadHello {
    pub port: u32,
    pub owner: Option<String>,
    pub instance: u128,
    /// Grows with each life of the instance.
    pub epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowProtocol {
    Tcp = 6,
    Udp = 17,
}

/// An address and a port number of the transport protocol.
pub type FlowEnd = (IpAddr, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    pub protocol: FlowProtocol,
    pub source: FlowEnd,
    pub destination: FlowEnd,
}

impl FlowKey {
    /// Tells whether both ends have the same IP version.
    pub fn is_of_one_version(&self) -> bool {
        self.source.0.is_ipv4() == self.destination.0.is_ipv4()
    }
}

/// The end of a flow that is one of many clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clients {
    Source,
    Destination,
}

/// The rewrite of a packet. Its time to live is decremented, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadRewrite {
    pub eth_src: [u8; 6],
    pub eth_dst: [u8; 6],
    pub source: Option<FlowEnd>,
    pub destination: Option<FlowEnd>,
}

/// The treatment of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadTarget {
    /// They leave as if the port had sent them.
    Rewrite(OffloadRewrite),
    /// They leave unchanged, as if this port of the same owner had sent them.
    Pass(u32),
    /// They are dropped.
    Deny,
}

impl OffloadTarget {
    fn ends(&self) -> [Option<FlowEnd>; 2] {
        match self {
            Self::Rewrite(rewrite) => [rewrite.source, rewrite.destination],
            Self::Pass(_) | Self::Deny => [None; 2],
        }
    }

    /// Tells of each rewritten end whether it is of IPv4.
    pub fn versions(&self) -> [Option<bool>; 2] {
        self.ends()
            .map(|end| end.map(|(address, _)| address.is_ipv4()))
    }

    /// Tells whether it can rewrite packets of a flow: its addresses have the flow's IP version.
    pub fn suits(&self, key: &FlowKey) -> bool {
        let same = |(address, _): &FlowEnd| address.is_ipv4() == key.source.0.is_ipv4();
        self.ends().iter().flatten().all(same)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadRequest {
    List,
    /// Writes a target. `None`: one that `edge` cannot carry out.
    Target(u16, Option<OffloadTarget>),
    Drop(u16),
    Install {
        rule: u64,
        key: FlowKey,
        target: u16,
        clients: Clients,
        /// Counts its packets, with those of other flows that name it.
        counter: u16,
    },
    Remove(u64),
    /// The writer lives.
    Alive,
}
