//! The configuration, as written (TOML or JSON); docs/ipsec.md explains it.

use std::{net::IpAddr, path::PathBuf};

use nf_balancing::config::{Interface, Prefix, StaticNeighbour, Time};
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// That toward the protected networks, and that toward the peers; one may be both.
    pub interfaces: Vec<Interface>,
    #[serde(default)]
    pub neighbours: Vec<StaticNeighbour>,
    #[serde(default)]
    pub tunnels: Vec<Tunnel>,
    /// The station of the protected network that exchanges keys (IKE) for the gateway, under the gateway's outer address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ike_host: Option<IpAddr>,
    /// The most keys of each direction that the instance and its successors ever have.
    #[serde(default = "keys")]
    pub keys: usize,
}

/// A tunnel to a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnel {
    pub name: String,
    /// An address of the outer interface.
    pub local: IpAddr,
    pub remote: IpAddr,
    #[serde(default)]
    pub encapsulation: Encapsulation,
    /// The peer's UDP port, until its packets show another one.
    #[serde(default = "nat_traversal")]
    pub remote_port: u16,
    /// The silence after which a packet keeps the mapping of a NAT before this gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Time>,
    #[serde(default)]
    pub dont_fragment: DontFragment,
    pub selectors: Vec<Selector>,
    /// The first one that is not used up protects.
    pub outbound: Vec<Association>,
    pub inbound: Vec<Association>,
}

/// The headers between the outer IP header and ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encapsulation {
    #[default]
    None,
    /// UDP (RFC 3948), which passes NATs.
    Udp,
}

/// The outer packet's flag "don't fragment" (RFC 4301, 8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DontFragment {
    #[default]
    Copy,
    Set,
    Clear,
}

/// The packets that a tunnel carries, both ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    pub local: Prefix,
    pub remote: Prefix,
    /// IANA's number; default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// The first and the last port; default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_ports: Option<[u16; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_ports: Option<[u16; 2]>,
}

/// A security association with its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Association {
    pub spi: u32,
    /// Hexadecimal digits of the key, 16 or 32 bytes, and its salt, 4 bytes; or a file with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// Extended sequence numbers: 64 bits, of which packets have the low half.
    #[serde(default)]
    pub esn: bool,
    /// The window against replays in packets; inbound only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// The use after which the next association protects, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<Limits>,
    /// The use after which no packet passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard: Option<Limits>,
}

/// A lifetime: it ends with the first of these limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of tunnelled packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Since the key came into the instance's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// The port of IKE (RFC 7296, 2).
pub const KEY_EXCHANGE: u16 = 500;
/// The port of UDP encapsulation (RFC 3948), and of IKE behind NATs.
pub const NAT_TRAVERSAL: u16 = 4500;

const fn nat_traversal() -> u16 {
    NAT_TRAVERSAL
}

const fn keys() -> usize {
    256
}

impl Config {
    /// Returns the index of the interface toward the peers.
    #[must_use]
    pub fn outside(&self) -> usize {
        self.interfaces.len().saturating_sub(1)
    }
}

/// The index of the interface toward the protected networks.
pub const INSIDE: usize = 0;

impl Limits {
    /// Tells whether this use reaches one of the limits.
    #[inline]
    #[must_use]
    pub fn reached(&self, packets: u64, bytes: u64, age: u64) -> bool {
        self.packets.is_some_and(|most| packets >= most)
            || self.bytes.is_some_and(|most| bytes >= most)
            || self.time.is_some_and(|most| age >= most.nanos())
    }
}
