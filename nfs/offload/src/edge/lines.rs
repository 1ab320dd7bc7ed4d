//! The lines of oneswitchd's offload socket.

use std::net::{IpAddr, Ipv6Addr};

use nf_packet::protocol;
use serde::{ser::SerializeMap, Deserialize, Serialize, Serializer};

use crate::{
    Capabilities, CounterId, Counts, Direction, FlowKey, Listed, Matches, Request, Rewrite,
    Rewrites, RuleId, Target, TargetId, Writer,
};

/// The first line.
#[derive(Serialize)]
pub struct Hello<'a> {
    hello: Introduction<'a>,
}

#[derive(Serialize)]
struct Introduction<'a> {
    port: u32,
    owner: Option<&'a str>,
    instance: String,
    epoch: u64,
}

impl<'a> Hello<'a> {
    pub fn of(writer: Writer, port: u32, owner: Option<&'a str>) -> Self {
        let instance = format!("{:032x}", writer.instance);
        Self {
            hello: Introduction {
                port,
                owner,
                instance,
                epoch: writer.epoch,
            },
        }
    }
}

/// A request as a line, with the numbers of the function's virtual ports.
pub struct Line<'a>(pub Request, pub &'a [u32]);

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.0 {
            Request::PutTarget(TargetId(id), target) => match target {
                Target::Rewrite { rewrite, .. } => {
                    map.serialize_entry("target", &(id, Rewriting::of(&rewrite)))?;
                }
                Target::Pass { port } => {
                    // Port 0 does not exist: oneswitchd refuses the flows of a target that names it.
                    let number = self.1.get(usize::from(port)).copied().unwrap_or(0);
                    map.serialize_entry("pass", &(id, number))?;
                }
                Target::Deny => map.serialize_entry("deny", &id)?,
            },
            Request::DropTarget(TargetId(id)) => map.serialize_entry("drop", &id)?,
            Request::Install(RuleId(rule), flow, target, counter, direction) => {
                let clients = match direction {
                    Direction::ToBackend => "source",
                    Direction::ToClient => "destination",
                };
                let line = (
                    rule,
                    protocol_name(flow.protocol),
                    address(flow.source),
                    flow.source_port,
                    address(flow.destination),
                    flow.destination_port,
                    target.0,
                    clients,
                    counter.0,
                );
                map.serialize_entry("install", &line)?;
            }
            Request::Remove(RuleId(rule)) => map.serialize_entry("remove", &rule)?,
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Rewriting {
    eth_src: String,
    eth_dst: String,
    source: Option<(IpAddr, u16)>,
    destination: Option<(IpAddr, u16)>,
    tunnel: Option<Tunnel>,
}

#[derive(Serialize)]
struct Tunnel {
    local: IpAddr,
    remote: IpAddr,
    network: u32,
    inner_src: String,
    inner_dst: String,
}

impl Rewriting {
    fn of(rewrite: &Rewrite) -> Self {
        Self {
            eth_src: rewrite.source_mac.to_string(),
            eth_dst: rewrite.destination_mac.to_string(),
            source: rewrite.source,
            destination: rewrite.destination,
            tunnel: rewrite.tunnel.as_ref().map(|tunnel| Tunnel {
                local: tunnel.local,
                remote: tunnel.remote,
                network: tunnel.network,
                inner_src: tunnel.inner.0.to_string(),
                inner_dst: tunnel.inner.1.to_string(),
            }),
        }
    }
}

/// A part of an answer's line.
#[derive(Debug)]
pub enum Answer {
    Welcome(Welcome),
    Listed(Vec<ListedRule>),
    ListEnds,
    Installed(Vec<u64>),
    Refused(Vec<(u64, String)>),
    Counted(Vec<(u64, u64)>),
    Carried(Vec<(u16, u64, u64)>),
    Effective(Vec<u64>),
    Reset,
    Error { code: String, detail: String },
}

/// The keys of an answer's line. Unknown keys are an error, because an event that is overlooked would leave a rule in doubt.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Parts {
    welcome: Option<Welcome>,
    listed: Option<Vec<ListedRule>>,
    more: Option<bool>,
    installed: Option<Vec<u64>>,
    refused: Option<Vec<(u64, String)>>,
    counted: Option<Vec<(u64, u64)>>,
    carried: Option<Vec<(u16, u64, u64)>>,
    effective: Option<Vec<u64>>,
    #[serde(deserialize_with = "present")]
    reset: Option<()>,
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
}

/// Tells a key with the value null from a missing one.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<()>, D::Error> {
    <()>::deserialize(value).map(Some)
}

/// Parses a line.
///
/// # Errors
/// A description of what cannot be read.
pub fn answers(line: &[u8]) -> Result<Vec<Answer>, String> {
    let parts: Parts = serde_json::from_slice(line).map_err(|error| format!("a line ({error})"))?;
    let listed = parts.listed.map(Answer::Listed);
    let ends = (parts.more == Some(false)).then_some(Answer::ListEnds);
    let error = parts.error.map(|error| Answer::Error {
        code: error.code,
        detail: error.detail,
    });
    Ok([
        parts.welcome.map(Answer::Welcome),
        // Totals precede what they are complete for.
        parts.carried.map(Answer::Carried),
        listed,
        ends,
        parts.installed.map(Answer::Installed),
        parts.refused.map(Answer::Refused),
        parts.counted.map(Answer::Counted),
        parts.effective.map(Answer::Effective),
        parts.reset.map(|()| Answer::Reset),
        error,
    ]
    .into_iter()
    .flatten()
    .collect())
}

/// The table's abilities.
#[derive(Debug, Deserialize)]
pub struct Welcome {
    flows: u32,
    targets: u32,
    installs_per_s: u32,
    effective_ms: u32,
    ipv4: bool,
    ipv6: bool,
    leaves_ends: bool,
    source: bool,
    destination: bool,
    vxlan: bool,
    #[serde(default)]
    pass: bool,
    #[serde(default)]
    deny: bool,
    counts: CountsName,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CountsName {
    Exact,
}

impl Welcome {
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            flows: self.flows,
            targets: self.targets,
            installs_per_s: self.installs_per_s,
            effective_ms: self.effective_ms,
            matches: Matches {
                ipv4: self.ipv4,
                ipv6: self.ipv6,
                leaves_ends: self.leaves_ends,
            },
            rewrites: Rewrites {
                source: self.source,
                destination: self.destination,
                vxlan: self.vxlan,
                pass: self.pass,
                deny: self.deny,
            },
            counts: match self.counts {
                CountsName::Exact => Counts::Exact,
            },
        }
    }
}

/// A rule: its number, protocol, source, port, destination, port, target, counter.
#[derive(Debug, Deserialize)]
pub struct ListedRule(u64, String, IpAddr, u16, IpAddr, u16, u32, u16);

impl ListedRule {
    /// None: its protocol is unknown.
    pub fn listed(&self) -> Option<Listed> {
        let protocol = match self.1.as_str() {
            "tcp" => protocol::TCP,
            "udp" => protocol::UDP,
            _ => return None,
        };
        Some(Listed {
            rule: RuleId(self.0),
            flow: FlowKey {
                source: octets(self.2),
                destination: octets(self.4),
                source_port: self.3,
                destination_port: self.5,
                protocol: protocol.into(),
            },
            target: TargetId(self.6),
            counter: CounterId(self.7),
        })
    }
}

fn address(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn protocol_name(number: u32) -> &'static str {
    if number == u32::from(protocol::TCP) {
        "tcp"
    } else {
        "udp"
    }
}
