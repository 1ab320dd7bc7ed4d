//! Encoding messages of our own.

/// Encodes a message of ours. None of them comes near the 65,535 bytes a message can have; one that did would be left out and logged.
pub fn wire(xid: u32, message: &openflow13::Message) -> Vec<u8> {
    openflow13::encode(xid, message).unwrap_or_else(|oversize| {
        tracing::error!(target: "core", length = oversize.length, kind = message.kind(), "a message is too long for OpenFlow; left out");
        Vec::new()
    })
}
