//! The log of every message, for debugging.

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
        Peer::Collector(switch, id) => format!("switch {switch} id {id}"),
    };
    for (header, frame) in messages(bytes) {
        let (kind, xid, length) = (kind_name(header.kind), header.xid, header.length);
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

/// Returns the `ofp_type` name without its prefix.
fn kind_name(kind: u8) -> &'static str {
    const NAMES: [&str; 30] = [
        "HELLO",
        "ERROR",
        "ECHO_REQUEST",
        "ECHO_REPLY",
        "EXPERIMENTER",
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
    ];
    NAMES
        .get(usize::from(kind))
        .copied()
        .unwrap_or("unknown type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow13::kind;

    #[test]
    fn messages_are_named_as_the_specification_does() {
        for (number, name) in [
            (kind::HELLO, "HELLO"),
            (kind::FLOW_MOD, "FLOW_MOD"),
            (kind::ROLE_REPLY, "ROLE_REPLY"),
            (kind::METER_MOD, "METER_MOD"),
        ] {
            assert_eq!(kind_name(number), name);
        }
        assert_eq!(kind_name(30), "unknown type");
    }
}
