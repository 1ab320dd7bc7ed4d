//! The log of every message, for debugging.

use openflow13::{kind, openflow10, Header, VERSION};
use tracing::{debug, enabled, trace, Level};

use crate::events::Peer;
use crate::session::messages;

/// Bytes of a message in a trace line.
const TRACED: usize = 1_024;

/// Logs every message in either direction if module `openflow` is at `debug`; at `trace` with its bytes, as `ovs-ofctl ofp-print` reads
/// them.
pub fn log_messages(direction: &str, connection: u64, peer: &Peer, bytes: &[u8]) {
    if !enabled!(target: "openflow", Level::DEBUG) {
        return;
    }
    let peer = match peer {
        Peer::Controller { target, .. } => target.to_string(),
        Peer::Switch(switch, bridge) => format!("switch {switch} {bridge:?}").to_lowercase(),
        Peer::Misses(switch) => format!("switch {switch} misses"),
        Peer::Version10(switch) => format!("switch {switch} version10"),
        Peer::Properties(switch) => format!("switch {switch} properties"),
        Peer::PortCounters(switch) => format!("switch {switch} port counters"),
        Peer::Collector(switch, id) => format!("switch {switch} id {id}"),
    };
    for (header, frame) in messages(bytes) {
        let (kind, xid, length) = (kind_name(header), header.xid, header.length);
        debug!(target: "openflow", "{direction} connection {connection} ({peer}): {kind}, xid {xid:#x}, {length} bytes");
        if enabled!(target: "openflow", Level::TRACE) {
            let hex: String = frame
                .iter()
                .take(TRACED)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            trace!(target: "openflow", "{hex}");
        }
    }
}

/// `ofp_type` of OpenFlow 1.0 without its prefix, and what later versions have in common with it.
const TYPES_10: [&str; 22] = [
    "HELLO",
    "ERROR",
    "ECHO_REQUEST",
    "ECHO_REPLY",
    "VENDOR",
    "FEATURES_REQUEST",
    "FEATURES_REPLY",
    "GET_CONFIG_REQUEST",
    "GET_CONFIG_REPLY",
    "SET_CONFIG",
    "PACKET_IN",
    "FLOW_REMOVED",
    "PORT_STATUS",
    "PACKET_OUT",
    "FLOW_MOD",
    "PORT_MOD",
    "STATS_REQUEST",
    "STATS_REPLY",
    "BARRIER_REQUEST",
    "BARRIER_REPLY",
    "QUEUE_GET_CONFIG_REQUEST",
    "QUEUE_GET_CONFIG_REPLY",
];
/// `ofp_type` from OpenFlow 1.3 on, behind FLOW_MOD; version 1.4 has added those behind METER_MOD.
const LATER_TYPES: [&str; 20] = [
    "GROUP_MOD",
    "PORT_MOD",
    "TABLE_MOD",
    "MULTIPART_REQUEST",
    "MULTIPART_REPLY",
    "BARRIER_REQUEST",
    "BARRIER_REPLY",
    "QUEUE_GET_CONFIG_REQUEST",
    "QUEUE_GET_CONFIG_REPLY",
    "ROLE_REQUEST",
    "ROLE_REPLY",
    "GET_ASYNC_REQUEST",
    "GET_ASYNC_REPLY",
    "SET_ASYNC",
    "METER_MOD",
    "ROLE_STATUS",
    "TABLE_STATUS",
    "REQUESTFORWARD",
    "BUNDLE_CONTROL",
    "BUNDLE_ADD_MESSAGE",
];

/// Returns the `ofp_type` name without its prefix, as the message's version has it.
fn kind_name(header: Header) -> &'static str {
    let kind = usize::from(header.kind);
    let last_common = usize::from(kind::FLOW_MOD);
    let name = match header.version {
        openflow10::VERSION => TYPES_10.get(kind),
        _ if header.kind == kind::EXPERIMENTER => Some(&"EXPERIMENTER"),
        _ if kind <= last_common => TYPES_10.get(kind),
        VERSION if header.kind > kind::METER_MOD => None,
        _ => LATER_TYPES.get(kind - last_common - 1),
    };
    name.copied().unwrap_or("unknown type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow13::openflow14;

    #[test]
    fn messages_are_named_as_the_specification_of_their_version_does() {
        for (version, kind, name) in [
            (VERSION, kind::HELLO, "HELLO"),
            (VERSION, kind::EXPERIMENTER, "EXPERIMENTER"),
            (VERSION, kind::FLOW_MOD, "FLOW_MOD"),
            (VERSION, kind::ROLE_REPLY, "ROLE_REPLY"),
            (VERSION, kind::METER_MOD, "METER_MOD"),
            (VERSION, 30, "unknown type"),
            (openflow10::VERSION, 4, "VENDOR"),
            (openflow10::VERSION, 14, "FLOW_MOD"),
            (openflow10::VERSION, 15, "PORT_MOD"),
            (openflow10::VERSION, 18, "BARRIER_REQUEST"),
            (openflow10::VERSION, 22, "unknown type"),
            (openflow14::VERSION, kind::GROUP_MOD, "GROUP_MOD"),
            (openflow14::VERSION, 30, "ROLE_STATUS"),
            (openflow14::VERSION, 34, "BUNDLE_ADD_MESSAGE"),
            (openflow14::VERSION, 35, "unknown type"),
        ] {
            let header = Header {
                version,
                kind,
                length: 8,
                xid: 0,
            };
            assert_eq!(kind_name(header), name);
        }
    }
}
