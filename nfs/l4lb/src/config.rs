//! The configuration as written (TOML or JSON). `docs/l4lb.md` explains it; `check` validates it.

use std::{fmt::Display, net::IpAddr, time::Duration};

use nf_runtime::Refusal;
use nf_tables::Class;
use serde::{de::Error, Deserialize, Deserializer, Serialize, Serializer};

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
    #[serde(default)]
    pub vips: Vec<Vip>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its own addresses with their prefix: `"10.0.0.2/24"`.
    pub addresses: Vec<Prefix>,
    /// Routers for destinations off the link; at most one per IP version.
    #[serde(default)]
    pub gateways: Vec<IpAddr>,
    /// The MTU: the largest IP packet, in bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticNeighbour {
    pub address: IpAddr,
    pub mac: String,
    #[serde(default)]
    pub interface: usize,
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
}

impl Default for Offload {
    fn default() -> Self {
        Self {
            begin: 0.5,
            stop: 0.3,
            heavy_packets_per_s: 100.0,
            idle: Time::seconds(10),
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
    /// Default: the VIP's. Modes ipip, gue and vxlan cannot change it.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    pub kind: HealthKind,
    /// Default: the backend's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// For http.
    #[serde(default = "default_path")]
    pub path: String,
    /// For http: the Host header; default the VIP's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// For http: the accepted statuses.
    #[serde(default = "default_status")]
    pub status: Vec<u16>,
    #[serde(default = "default_interval")]
    pub interval: Time,
    /// The limit of a whole check.
    #[serde(default = "default_timeout")]
    pub timeout: Time,
    /// Consecutive successes that bring a backend up.
    #[serde(default = "default_rise")]
    pub rise: u16,
    /// Consecutive failures that take it down.
    #[serde(default = "default_fall")]
    pub fall: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthKind {
    /// Succeeds if the port answers a SYN.
    Tcp,
    /// Succeeds if the backend answers a GET with an accepted status.
    Http,
}

const fn default_mtu() -> u16 {
    1500
}
const fn default_gue_port() -> u16 {
    6080
}
const fn default_weight() -> u16 {
    1
}
fn default_path() -> String {
    "/".into()
}
fn default_status() -> Vec<u16> {
    vec![200]
}
const fn default_interval() -> Time {
    Time::seconds(5)
}
const fn default_timeout() -> Time {
    Time::seconds(2)
}
const fn default_rise() -> u16 {
    2
}
const fn default_fall() -> u16 {
    3
}

/// A span of time, written with its unit: `"500ms"`, `"10s"`, `"5m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl Time {
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0.as_nanos() as u64
    }
}

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a time with a unit, such as \"500ms\", \"10s\" or \"5m\"");
        let digits = text.trim_end_matches(|each: char| !each.is_ascii_digit());
        let count: u32 = digits.parse().map_err(|_| wrong())?;
        match &text[digits.len()..] {
            "ms" => Ok(Self(Duration::from_millis(count.into()))),
            "s" => Ok(Self(Duration::from_secs(count.into()))),
            "m" => Ok(Self(Duration::from_secs(u64::from(count) * 60))),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let milliseconds = self.0.as_millis();
        if milliseconds % 1000 == 0 {
            write!(f, "{}s", milliseconds / 1000)
        } else {
            write!(f, "{milliseconds}ms")
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A number is parsed as well, so that the error can name the missing unit.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(serde_json::Number),
        }
        match Written::deserialize(deserializer)? {
            Written::Text(text) => text.parse().map_err(D::Error::custom),
            Written::Number(number) => Err(D::Error::custom(format!(
                "{number} has no unit: write \"{number}s\" or \"{number}ms\""
            ))),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An address with its network's prefix length: `"10.0.0.2/24"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

impl Prefix {
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing
                    .checked_shr(32 - u32::from(self.length))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing
                    .checked_shr(128 - u32::from(self.length))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }
}

impl std::str::FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not an address with a prefix length, such as \"10.0.0.2/24\"");
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length: u8 = length.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (length <= longest)
            .then_some(Self { address, length })
            .ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}/{}", self.address, self.length))
    }
}

/// Refuses the value at a path.
pub(crate) fn wrong<T>(path: &str, reason: impl Display) -> Result<T, Refusal> {
    Err(Refusal::configuration(path, reason))
}
