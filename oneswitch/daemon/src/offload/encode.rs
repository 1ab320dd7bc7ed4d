//! Lines to a writer.

use std::io::Write;
use std::net::IpAddr;

use oneswitch_core::{FlowProtocol, OffloadEvent, OffloadListed, OFFLOAD_FLOWS, OFFLOAD_TARGETS};
use serde_json::json;

/// Entries of a line, so that none is longer than 64 KiB: an entry of a list of rules has at most 200 bytes, others at most 70.
const RULES: usize = 250;
const ENTRIES: usize = 800;
/// Milliseconds after which a removal is effective at the latest, if its switch is connected.
const EFFECTIVE_MS: u32 = 2_000;
/// Installs per second that a switch keeps up with.
const INSTALLS_PER_S: u32 = 20_000;

/// Appends an event's lines; returns whether the writer is to be disconnected after them.
pub fn encode(event: &OffloadEvent, out: &mut Vec<u8>) -> bool {
    match event {
        OffloadEvent::Welcome => line(out, &welcome()),
        OffloadEvent::Listed(rules) => listed(out, rules),
        OffloadEvent::Installed(rules) => numbers(out, "installed", rules),
        OffloadEvent::Effective(rules) => numbers(out, "effective", rules),
        OffloadEvent::Refused(rules) => entries(out, "refused", rules, |out, (rule, reason)| {
            write!(out, "[{rule},\"{}\"]", reason.name())
        }),
        OffloadEvent::Counted(rules) => entries(out, "counted", rules, |out, (rule, packets)| {
            write!(out, "[{rule},{packets}]")
        }),
        OffloadEvent::Carried(totals) => {
            entries(out, "carried", totals, |out, (counter, total)| {
                write!(out, "[{counter},{},{}]", total.packets, total.bytes)
            })
        }
        OffloadEvent::Reset => line(out, &json!({"reset": null})),
        OffloadEvent::Error(error) => out.extend(error_line(error.code, &error.detail)),
        OffloadEvent::Close => return true,
    }
    false
}

pub fn error_line(code: &str, detail: &str) -> Vec<u8> {
    let mut out = Vec::new();
    line(
        &mut out,
        &json!({"error": {"code": code, "detail": detail}}),
    );
    out
}

fn welcome() -> serde_json::Value {
    json!({"welcome": {
        "flows": OFFLOAD_FLOWS,
        "targets": OFFLOAD_TARGETS,
        "installs_per_s": INSTALLS_PER_S,
        "effective_ms": EFFECTIVE_MS,
        "ipv4": true,
        "ipv6": true,
        "leaves_ends": true,
        "source": true,
        "destination": true,
        "vxlan": false,
        "pass": true,
        "deny": true,
        "counts": "exact",
    }})
}

fn line(out: &mut Vec<u8>, value: &serde_json::Value) {
    out.extend(value.to_string().as_bytes());
    out.push(b'\n');
}

fn numbers(out: &mut Vec<u8>, name: &str, rules: &[u64]) {
    entries(out, name, rules, |out, rule| write!(out, "{rule}"));
}

/// Appends lines with at most [`ENTRIES`] entries each.
fn entries<T>(
    out: &mut Vec<u8>,
    name: &str,
    all: &[T],
    put: impl Fn(&mut Vec<u8>, &T) -> std::io::Result<()>,
) {
    for part in all.chunks(ENTRIES) {
        array(out, name, part, &put);
        out.extend(b"}\n");
    }
}

/// Appends an object up to its first value, an array. Writing to memory cannot fail.
fn array<T>(
    out: &mut Vec<u8>,
    name: &str,
    part: &[T],
    put: impl Fn(&mut Vec<u8>, &T) -> std::io::Result<()>,
) {
    let _ = write!(out, "{{\"{name}\":[");
    for (index, entry) in part.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let _ = put(out, entry);
    }
    out.push(b']');
}

fn listed(out: &mut Vec<u8>, rules: &[OffloadListed]) {
    let mut parts = rules.chunks(RULES).peekable();
    // An empty list is one empty part.
    let mut next = Some(parts.next().unwrap_or_default());
    while let Some(part) = next {
        next = parts.next();
        array(out, "listed", part, rule);
        let more = next.is_some();
        let _ = writeln!(out, ",\"more\":{more}}}");
    }
}

fn rule(out: &mut Vec<u8>, listed: &OffloadListed) -> std::io::Result<()> {
    let protocol = match listed.key.protocol {
        FlowProtocol::Tcp => "tcp",
        FlowProtocol::Udp => "udp",
    };
    let ((from, from_port), (to, to_port)): ((IpAddr, u16), (IpAddr, u16)) =
        (listed.key.source, listed.key.destination);
    write!(
        out,
        "[{},\"{protocol}\",\"{from}\",{from_port},\"{to}\",{to_port},{},{}]",
        listed.rule, listed.target, listed.counter
    )
}
