//! The configuration as written (TOML or JSON). `docs/l4lb.md` explains it; `check` validates it.

use std::net::IpAddr;

use nf_balancing::config::{Health, Interface, StaticNeighbour, Time};
use nf_tables::Class;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// One per port, in the order of `--port`.
    pub interfaces: Vec<Interface>,
    #[serde(default)]
    pub neighbours: Vec<StaticNeighbour>,
    #[serde(default)]
    pub tables: Tables,
    #[serde(default)]
    pub timeouts: Timeouts,
    #[serde(default)]
    pub full: FullAt,
    #[serde(default)]
    pub offload: Offload,
    /// The switch in whose name mode vxlan encapsulates; default: the load balancer itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vtep: Option<Vtep>,
    #[serde(default)]
    pub vips: Vec<Vip>,
}

/// The tunnel endpoint of a switch that carries connections for the load balancer (Tiara, section 3.2.2): packets of mode vxlan look as if it had sent
/// them, so that backends do not notice which of the two did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vtep {
    /// At most one per IP version.
    pub addresses: Vec<IpAddr>,
    /// The source of inner frames.
    pub mac: String,
}

impl Vtep {
    /// Returns its address of the same IP version as `like`.
    #[must_use]
    pub fn address(&self, like: IpAddr) -> Option<IpAddr> {
        let mut addresses = self.addresses.iter().copied();
        addresses.find(|address| address.is_ipv4() == like.is_ipv4())
    }
}

/// Capacities of the tables. They are part of the state's shape and cannot change while an instance lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tables {
    pub connections_ipv4: usize,
    pub connections_ipv6: usize,
    /// Connections with source NAT or the PROXY protocol.
    pub sessions: usize,
    pub fragments: usize,
    pub neighbours: usize,
    pub vips: usize,
    pub backends: usize,
    /// Flows with a rule of a faster table: two for each connection whose answers come back.
    pub offload: usize,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            connections_ipv4: 1 << 18,
            connections_ipv6: 1 << 16,
            sessions: 1 << 14,
            fragments: 16384,
            neighbours: 1024,
            vips: 256,
            backends: 1024,
            offload: 16384,
        }
    }
}

/// Lifetimes of connections without packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// TCP, only SYNs seen.
    pub opening: Time,
    pub established: Time,
    /// TCP after FIN or RST.
    pub closing: Time,
    pub udp: Time,
}

impl Timeouts {
    /// Returns a session's lifetime after its last packet, in nanoseconds: it outlasts the connection's record.
    pub(crate) fn of_session(&self, class: Class) -> u64 {
        let time = match class {
            Class::Opening => self.opening,
            Class::Established => self.established,
            Class::Closing => self.closing,
            Class::Datagram => self.udp,
        };
        time.nanos() + time.nanos() / 16 + 8_000_000_000
    }

    /// Returns the longest lifetime of a session.
    pub(crate) fn longest_session(&self) -> u64 {
        let classes = [
            Class::Opening,
            Class::Established,
            Class::Closing,
            Class::Datagram,
        ];
        classes
            .map(|class| self.of_session(class))
            .into_iter()
            .max()
            .unwrap_or_default()
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            opening: Time::seconds(10),
            established: Time::seconds(300),
            closing: Time::seconds(20),
            udp: Time::seconds(60),
        }
    }
}

/// Thresholds above which it reports itself full: shares of 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FullAt {
    /// Of util+.
    pub utilisation: f64,
    /// Of each connection table.
    pub table: f64,
}

impl Default for FullAt {
    fn default() -> Self {
        Self {
            utilisation: 0.9,
            table: 0.9,
        }
    }
}

/// The policy by which connections get rules of a faster table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Offload {
    /// util+ at which rules are asked for, and at which no more are: shares of 1.
    pub begin: f64,
    pub stop: f64,
    /// The rate that makes a connection heavy.
    pub heavy_packets_per_s: f64,
    /// The time without packets after which a connection loses its rules.
    pub idle: Time,
    /// A worker samples every packet of this number.
    pub sampling: u32,
}

impl Default for Offload {
    fn default() -> Self {
        Self {
            begin: 0.5,
            stop: 0.3,
            heavy_packets_per_s: 100.0,
            idle: Time::seconds(10),
            sampling: 8,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vip {
    pub name: String,
    pub address: IpAddr,
    pub port: u16,
    pub protocol: Protocol,
    pub mode: Mode,
    /// The tunnel's UDP port, for mode gue.
    #[serde(default = "default_gue_port")]
    pub gue_port: u16,
    /// The identifier of the network that the backends are in, 24 bits; for mode vxlan, which requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Packets to the backends carry the load balancer's own source address, so that the answers come back to it. Mode nat only.
    #[serde(default)]
    pub snat: bool,
    /// Sends the client's address to the backend in a PROXY protocol v2 header. Mode nat and TCP only.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// The treatment of connections whose backend fails its health checks.
    #[serde(default)]
    pub when_down: WhenDown,
    /// The limit of recorded half-open connections; SYNs beyond it leave no record. Default: an eighth of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_open_limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    pub backends: Vec<Backend>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    pub name: String,
    pub address: IpAddr,
    /// Default: the VIP's. Modes ipip and gue cannot change it, mode vxlan only with `inner_address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Its share of new connections; 0: none.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// Takes no new connections; existing ones continue.
    #[serde(default)]
    pub drain: bool,
    /// The MAC address of its interface in the network, for mode vxlan, which requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_mac: Option<String>,
    /// Its address in the network, to which packets are rewritten, for mode vxlan with a `vtep`; default: the VIP's, so packets stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_address: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => nf_packet::protocol::TCP,
            Self::Udp => nf_packet::protocol::UDP,
        }
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Rewrites addresses; answers come back through the load balancer.
    Nat,
    /// Tunnels IP in IP (RFC 2003); the backend answers the client directly.
    Ipip,
    /// Tunnels IP in UDP; the backend answers the client directly.
    Gue,
    /// Tunnels Ethernet in UDP (RFC 7348); the backend answers the client directly.
    Vxlan,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    #[default]
    Maglev,
    RoundRobin,
    LeastLoaded,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenDown {
    /// They stay: the backend may recover.
    #[default]
    Keep,
    /// Their next packet goes to another backend, which resets TCP, so that the client notices at once.
    Move,
}

const fn default_gue_port() -> u16 {
    6080
}
const fn default_weight() -> u16 {
    1
}
