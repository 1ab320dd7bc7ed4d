//! The configuration.

use std::{collections::BTreeMap, num::NonZeroU32, path::PathBuf};

use serde::{Deserialize, Serialize};

/// Zones, sets of addresses, rules in their order, and what happens to everything else.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The treatment of connections that no rule takes.
    #[serde(default = "Action::drop")]
    pub default: Action,
    #[serde(default)]
    pub zones: BTreeMap<String, Zone>,
    /// Named sets of addresses and prefixes.
    #[serde(default)]
    pub sets: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// TCP packets of connections whose beginning this function has not seen.
    #[serde(default)]
    pub midstream: Midstream,
    /// Frames that are neither IP nor ARP.
    #[serde(default)]
    pub other_frames: OtherFrames,
    /// The file of the hit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// The size at which the log starts again; one older file is kept.
    #[serde(default = "log_bytes")]
    pub log_bytes: u64,
    /// Whether lines name hosts: TLS server names and HTTP hosts.
    #[serde(default)]
    pub log_hosts: bool,
    /// The most flows at the same time.
    #[serde(default = "flows")]
    pub flows: usize,
    /// The most flows that only one side has sent packets of; a fourth of `flows` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<usize>,
    /// How applications are found out.
    #[serde(default)]
    pub inspection: Inspecting,
    #[serde(default)]
    pub timeouts: Timeouts,
    #[serde(default)]
    pub offload: Offload,
}

fn log_bytes() -> u64 {
    16 << 20
}

fn flows() -> usize {
    100_000
}

/// A set of ports and prefixes. A station is in the zone if its port is one of `ports` and its address in one of `prefixes`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Indices of the instance's ports. Empty: all.
    #[serde(default)]
    pub ports: Vec<usize>,
    /// Prefixes, addresses and names of sets. Empty: all.
    #[serde(default)]
    pub prefixes: Vec<String>,
}

/// A rule: conditions, all of which must hold, and what then happens. A condition that is absent holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: String,
    /// Zones of the side that opens the connection, and of the other.
    #[serde(default)]
    pub from: Vec<String>,
    #[serde(default)]
    pub to: Vec<String>,
    /// Prefixes, addresses and names of sets.
    #[serde(default)]
    pub source: Vec<String>,
    #[serde(default)]
    pub destination: Vec<String>,
    /// `tcp`, `udp`, `icmp` (both versions), or a number.
    #[serde(default)]
    pub protocols: Vec<PortOrName>,
    /// Destination ports and ranges.
    #[serde(default)]
    pub ports: Vec<PortOrName>,
    #[serde(default)]
    pub source_ports: Vec<PortOrName>,
    /// nDPI's names of protocols: `HTTP`, or `TLS.YouTube`.
    #[serde(default)]
    pub applications: Vec<String>,
    /// nDPI's names of categories: `Streaming`.
    #[serde(default)]
    pub categories: Vec<String>,
    /// TLS server names and HTTP hosts: `example.com`, or `*.example.com` for all names below it.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// JA3 fingerprints of TLS clients: 32 hexadecimal digits.
    #[serde(default)]
    pub ja3: Vec<String>,
    pub action: Action,
    #[serde(default)]
    pub log: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The treatment of a connection about whose application no answer came.
    #[serde(default)]
    pub undecided: Undecided,
}

/// The treatment of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Allow,
    Drop,
    /// Drops it and tells the sender: TCP RST, else ICMP "administratively prohibited".
    Reject,
}

impl Action {
    fn drop() -> Self {
        Self::Drop
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Drop => "drop",
            Self::Reject => "reject",
        }
    }
}

/// The treatment of a connection whose application is not known in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Undecided {
    Allow,
    #[default]
    Drop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Midstream {
    /// Rules decide, as if the packet opened the connection.
    Evaluate,
    #[default]
    Drop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtherFrames {
    Allow,
    #[default]
    Drop,
}

/// The most packets or new connections of a rule per second; the others are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Rate {
    Packets(NonZeroU32),
    Connections(NonZeroU32),
}

/// A number, or a text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PortOrName {
    Number(u16),
    Text(String),
}

impl std::fmt::Display for PortOrName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// How long packets wait for the name of an application, and how many are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Inspecting {
    /// The program that finds out applications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helper: Option<PathBuf>,
    /// The first packets of a flow that are looked at.
    pub packets: u8,
    /// The time after which a rule's `undecided` holds.
    pub wait_ms: u32,
    /// Memory for these packets of all flows.
    pub memory_mib: usize,
}

impl Default for Inspecting {
    fn default() -> Self {
        Self {
            helper: None,
            packets: 8,
            wait_ms: 200,
            memory_mib: 96,
        }
    }
}

/// The policy by which connections get rules of a faster table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Offload {
    /// The rate that makes a connection heavy.
    pub heavy_packets_per_s: f64,
    /// Seconds without packets after which a connection loses its rules.
    pub idle_s: u32,
    /// One packet of this number is looked at.
    pub sampling: u32,
}

impl Default for Offload {
    fn default() -> Self {
        Self {
            heavy_packets_per_s: 100.0,
            idle_s: 10,
            sampling: 8,
        }
    }
}

/// Seconds without packets after which a flow is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Only one side has sent packets.
    pub unanswered_s: u32,
    /// TCP.
    pub established_s: u32,
    /// TCP after FIN of both sides, or RST.
    pub closing_s: u32,
    /// All but TCP.
    pub datagrams_s: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            unanswered_s: 20,
            established_s: 3600,
            closing_s: 10,
            datagrams_s: 60,
        }
    }
}
