//! Packets that meet no rule. Open vSwitch sends them only to peers that speak
//! OpenFlow 1.2 or earlier (`connmgr_wants_packet_in_on_miss`).

use crate::continuation;
use crate::error::{ErrorCode, Refusal};
use crate::header::kind as k;
use crate::nicira::subtype;
use crate::packet::PacketIn;
use crate::session::SwitchConfig;
use crate::wire::Put;

use super::frames::message;
use super::{kind, notices};

/// Returns the messages that ask an Open vSwitch for packets that meet no rule,
/// and for nothing else. The reply to the barrier at the end tells that they
/// come.
pub fn subscribe_to_misses() -> Vec<u8> {
    /// `nx_packet_in_format`: the only one with all metadata.
    const NXT_PACKET_IN2: u32 = 2;
    let mut config = Vec::new();
    SwitchConfig {
        // Open vSwitch cannot do this: it keeps the bridge's setting.
        flags: SwitchConfig::REASSEMBLE,
        miss_send_len: u16::MAX,
    }
    .put(&mut config);
    let mut format = notices::start(subtype::SET_PACKET_IN_FORMAT);
    format.put_u32(NXT_PACKET_IN2);
    let mut masks = notices::start(subtype::SET_ASYNC_CONFIG);
    masks.put_u32(1 << PacketIn::NO_MATCH);
    masks.zeros(20);
    [
        message(k::EXPERIMENTER, 1, &format),
        message(k::EXPERIMENTER, 2, &masks),
        message(k::SET_CONFIG, 3, &config),
        message(kind::BARRIER_REQUEST, 4, &[]),
    ]
    .concat()
}

/// Returns the message of a version after which an Open vSwitch no longer takes
/// its connection for one that wants packets that meet no rule. It does so if
/// the connection's controller id is 0 and its version is 1.0, or not noticed
/// yet, which it is with the first message (`update_want_packet_in_on_miss`).
pub fn decline_misses(version: u8) -> Vec<u8> {
    let mut id = notices::start(subtype::SET_CONTROLLER_ID);
    id.zeros(6);
    id.put_u16(u16::MAX);
    let mut declining = message(k::EXPERIMENTER, 1, &id);
    if let Some(slot) = declining.first_mut() {
        *slot = version;
    }
    declining
}

/// Decodes a message on a connection with that subscription; `None` if it is
/// about a packet that met a rule, or something else.
pub fn decode_miss(frame: &[u8]) -> Result<Option<PacketIn>, Refusal> {
    if frame.get(1) == Some(&k::ERROR) {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_TYPE,
            format!("error {frame:02x?}"),
        ));
    }
    let Some(properties) = continuation::properties_of(frame) else {
        return Ok(None);
    };
    let packet = continuation::packet_in(properties)?;
    // Rules that send to the controller have the other reasons.
    let is_miss = packet.reason == PacketIn::NO_MATCH;
    let reason = PacketIn::IMPLICIT_MISS;
    Ok(is_miss.then_some(PacketIn { reason, ..packet }))
}
