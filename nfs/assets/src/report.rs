//! Answers on the control socket.

use std::collections::BTreeMap;

use nf_runtime::Refusal;
use serde::Deserialize;
use serde_json::{json, Value};

use crate::{
    fingerprint::{rounded, Way},
    history::History,
    lines,
    register::{kind, Finding, Host, Register},
    signatures::Vendors,
};

/// The most hosts or lines of an answer: it must fit a line of the control socket.
const MOST: usize = 1000;

fn all() -> usize {
    MOST
}

/// The request `hosts`: those in slots from `from` on, and only with an address if there is one.
#[derive(Deserialize)]
pub struct HostsWanted {
    #[serde(default)]
    pub from: u32,
    #[serde(default = "all")]
    pub limit: usize,
}

/// The request `history`: lines after a number.
#[derive(Deserialize)]
pub struct LinesWanted {
    #[serde(default)]
    pub after: u64,
    #[serde(default = "all")]
    pub limit: usize,
}

/// Parses a request.
///
/// # Errors
/// If it has a value of another type.
pub fn parsed<T: serde::de::DeserializeOwned>(arguments: &Value) -> Result<T, Refusal> {
    let parsed = serde_json::from_value(arguments.clone());
    parsed.map_err(|error| Refusal::new("arguments", error.to_string()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns hosts, and where to continue. `guard` is called for each, so that packets never wait for many.
pub fn hosts<G>(
    register: &Register,
    vendors: &Vendors,
    wanted: &HostsWanted,
    guard: impl Fn() -> G,
) -> Value {
    let most = wanted.limit.clamp(1, MOST);
    let mut hosts = Vec::new();
    let mut bytes = 0;
    for slot in wanted.from..register.slots() {
        let _guard = guard();
        let Some((id, host)) = register.in_slot(slot) else {
            continue;
        };
        let mut findings = Vec::new();
        register.search(id, |_, finding| {
            findings.push((*finding, register.text(finding)));
            None::<()>
        });
        let host = host_json(&host, &findings, vendors);
        bytes += host.to_string().len();
        if hosts.len() >= most || (bytes > 2 << 20 && !hosts.is_empty()) {
            return json!({"hosts": hosts, "next": slot});
        }
        hosts.push(host);
    }
    json!({"hosts": hosts, "next": null})
}

fn host_json(host: &Host, findings: &[(Finding, Vec<u8>)], vendors: &Vendors) -> Value {
    // The oldest first.
    let of = |wanted: u8| {
        findings
            .iter()
            .rev()
            .filter(move |(finding, _)| finding.kind == wanted)
    };
    let systems: Vec<Value> = of(kind::SYSTEM)
        .map(|(finding, text)| system_json(finding, text))
        .collect();
    let services: Vec<Value> = of(kind::SERVICE)
        .map(|(finding, text)| service_json(finding, text))
        .collect();
    let mut answer = BTreeMap::from([
        ("address", json!(lines::address(&host.address))),
        ("vlan", json!(host.vlan)),
        ("first_seen", json!(host.first_seen)),
        ("last_seen", json!(host.last_seen)),
        ("systems", json!(systems)),
        ("services", json!(services)),
    ]);
    if host.mac != [0; 6] {
        answer.insert("mac", json!(lines::mac(host.mac)));
    }
    if let Some(vendor) = vendors.name(host.vendor) {
        answer.insert("vendor", json!(text(vendor)));
    }
    json!(answer)
}

fn service_json(finding: &Finding, whole: &[u8]) -> Value {
    let title = usize::from(finding.title);
    let service = whole.get(..title.saturating_sub(1)).unwrap_or_default();
    let protocol = if finding.way == 6 { "tcp" } else { "udp" };
    let role = if finding.is_server != 0 {
        "server"
    } else {
        "client"
    };
    json!({
        "protocol": protocol, "port": finding.port, "role": role, "service": text(service),
        "application": text(whole.get(title..).unwrap_or_default()), "distance": distance(finding),
        "first_seen": finding.first_seen, "last_seen": finding.last_seen,
    })
}

fn system_json(finding: &Finding, whole: &[u8]) -> Value {
    let way = Way::numbered(finding.way);
    let name = way.map_or("", |way| {
        way.name().split_once(',').map_or("", |(_, name)| name)
    });
    json!({
        "way": name, "port": finding.port, "fingerprint": text(whole), "system": system(way, &text(whole)),
        "distance": distance(finding), "first_seen": finding.first_seen, "last_seen": finding.last_seen,
    })
}

/// Returns the system and its details that a fingerprint's text names. None: unknown.
fn system(way: Option<Way>, text: &str) -> Option<String> {
    let fields: Vec<&str> = text.split(':').collect();
    let place = match way? {
        Way::Dhcp => fields.len().checked_sub(2)?,
        _ => 6,
    };
    let names = fields.get(place..place + 2)?;
    (names[0] != "unknown").then(|| names.join(" "))
}

fn distance(finding: &Finding) -> u8 {
    rounded(finding.ttl) - finding.ttl
}

/// Returns lines of the history, and how many there were ever.
#[must_use]
pub fn lines(history: &History, wanted: &LinesWanted) -> Value {
    let lines = history.after(wanted.after, wanted.limit.clamp(1, MOST));
    let lines: Vec<Value> = lines
        .iter()
        .map(|(number, line)| json!({"number": number, "line": text(line)}))
        .collect();
    json!({"lines": lines, "last": history.count()})
}
