//! Packet-ins of Nicira's second format, which carry the data of their action
//! and the rest of a packet's processing (include/openflow/nicira-ext.h,
//! lib/ofp-packet.c).

use crate::error::Refusal;
use crate::extension::{set_controller_id, set_packet_in_format};
use crate::header::VERSION_14;
use crate::message::{encode, Message};
use crate::nicira::{property, subtype};
use crate::openflow10::{put_property, PacketInFormat};
use crate::openflow14::set_async;
use crate::oxm::Match;
use crate::packet::PacketIn;
use crate::properties::Properties;
use crate::session::AsyncMasks;
use crate::wire::{padded, patch_length, u32_at, Put, Reader};
use crate::{kind, HEADER_LEN, NO_BUFFER, NX_VENDOR};

/// A property of a continuation (`NXCPT_BRIDGE`).
const BRIDGE: u16 = 0x8000;
/// Vendor and subtype.
const NUMBERS: usize = 8;
/// Bytes of the property about the reason.
const REASON_LENGTH: usize = 5;

/// The reasons of packet-ins that OpenFlow 1.4 has (`OFPR14_BITS`).
const PACKET_IN_REASONS: u32 = 0x3f;

/// The identity of a bridge in continuations.
pub type BridgeId = [u8; 16];

/// Returns the properties of a packet-in of this format; `None`: it is another
/// message.
pub fn properties_of(frame: &[u8]) -> Option<&[u8]> {
    let is_vendors = frame.get(1) == Some(&kind::EXPERIMENTER);
    let numbers = (u32_at(frame, HEADER_LEN), u32_at(frame, HEADER_LEN + 4));
    let is_packet_in = numbers == (Some(NX_VENDOR), Some(subtype::PACKET_IN2));
    (is_vendors && is_packet_in).then(|| frame.get(HEADER_LEN + NUMBERS..))?
}

/// Decodes such properties, without the data and the continuation.
///
/// # Errors
/// The property that cannot be read.
pub fn packet_in(properties: &[u8]) -> Result<PacketIn, Refusal> {
    let mut packet = PacketIn {
        buffer_id: NO_BUFFER,
        total_len: 0,
        reason: PacketIn::NO_MATCH,
        table_id: 0,
        cookie: u64::MAX,
        matching: Match::any(),
        data: Box::default(),
    };
    let mut full_length = None;
    for property in Properties::new(properties) {
        let (kind, content) = property?;
        let mut reader = Reader::new(content);
        match kind {
            property::PACKET => packet.data = content.into(),
            property::FULL_LENGTH => full_length = Some(reader.u32()?),
            property::BUFFER_ID => packet.buffer_id = reader.u32()?,
            property::TABLE_ID => packet.table_id = reader.u8()?,
            property::COOKIE => {
                reader.skip(4)?;
                packet.cookie = reader.u64()?;
            }
            property::REASON => packet.reason = reader.u8()?,
            property::METADATA => packet.matching = Match::from_oxm(content.to_vec())?,
            _ => {}
        }
    }
    let length = full_length.unwrap_or(packet.data.len() as u32);
    packet.total_len = u16::try_from(length).unwrap_or(u16::MAX);
    Ok(packet)
}

/// Returns a packet-in of this format for a peer of another version.
pub fn in_version(frame: &[u8], version: u8) -> Vec<u8> {
    let mut out = frame.to_vec();
    let mut list = Properties::new(properties_of(frame).unwrap_or_default());
    let found = list
        .by_ref()
        .flatten()
        .find(|(kind, _)| *kind == property::REASON);
    let reason = found.and_then(|(_, content)| content.first().copied());
    // The fields before the reason, and the header of its property.
    let before = frame.len() - list.rest().len() - padded(REASON_LENGTH);
    if let (Some(reason), Some(slot)) = (reason, out.get_mut(before + 4)) {
        *slot = PacketIn::reason_in(version, reason);
    }
    if let Some(slot) = out.first_mut() {
        *slot = version;
    }
    out
}

/// Returns a packet-in of this format with another spelling of its match.
pub(crate) fn with_matching(frame: &[u8], spell: impl Fn(&Match) -> Match) -> Vec<u8> {
    let Some(properties) = properties_of(frame) else {
        return frame.to_vec();
    };
    let mut out = frame
        .get(..HEADER_LEN + NUMBERS)
        .unwrap_or_default()
        .to_vec();
    let mut list = Properties::new(properties);
    loop {
        let before = list.rest();
        let Some(property) = list.next() else { break };
        let raw = before.get(..before.len() - list.rest().len());
        let spelled = match property {
            Ok((property::METADATA, content)) => Match::from_oxm(content.to_vec()).ok(),
            _ => None,
        };
        match spelled {
            Some(matching) => put_property(&mut out, property::METADATA, spell(&matching).as_oxm()),
            None => out.put(raw.unwrap_or_default()),
        }
    }
    patch_length(&mut out, 0, 2);
    out
}

/// Returns the messages of a version, 1.3 or 1.4, that ask an Open vSwitch for
/// the packet-ins of actions `controller` with an id, and for nothing else. The
/// reply to the last one tells that they come from then on.
pub fn subscribe_to_id(version: u8, id: u16) -> Vec<u8> {
    let masks = AsyncMasks {
        packet_in: [PACKET_IN_REASONS; 2],
        ..AsyncMasks::NONE
    };
    let messages = [
        set_packet_in_format(PacketInFormat::Nicira2),
        set_controller_id(id),
        Message::SetAsync(masks),
        Message::BarrierRequest,
    ];
    let in_version = |message: &Message| match message {
        Message::SetAsync(masks) if version >= VERSION_14 => set_async(0, masks),
        message => {
            let mut frame = encode(0, message).unwrap_or_default();
            if let Some(slot) = frame.first_mut() {
                *slot = version;
            }
            frame
        }
    };
    messages.iter().flat_map(in_version).collect()
}

/// Returns the bridge that can continue a packet's processing.
pub fn bridge_of(properties: &[u8]) -> Option<BridgeId> {
    let continuation = content_of(property::CONTINUATION, properties)?;
    // Padding precedes nested properties.
    content_of(BRIDGE, continuation.get(4..)?)?.try_into().ok()
}

/// Returns the content of the first property of a type.
fn content_of(kind: u16, properties: &[u8]) -> Option<&[u8]> {
    let mut list = Properties::new(properties).flatten();
    let found = list.find(|(number, _)| *number == kind);
    found.map(|(_, content)| content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openflow10::{self, encode_packet_in, PacketInFormat};
    use crate::VERSION;

    fn packet() -> PacketIn {
        PacketIn {
            buffer_id: NO_BUFFER,
            total_len: 300,
            reason: PacketIn::NO_MATCH,
            table_id: 3,
            cookie: 5,
            matching: Match::any().with_in_port(7),
            data: [1, 2, 3].into(),
        }
    }

    fn encoded(version: u8) -> Vec<u8> {
        encode_packet_in(version, &packet(), PacketInFormat::Nicira2).unwrap()
    }

    #[test]
    fn a_packet_in_is_read_as_it_was_written() {
        let frame = encoded(VERSION);
        let properties = properties_of(&frame).unwrap();
        assert_eq!(packet_in(properties), Ok(packet()));
        assert_eq!(bridge_of(properties), None);
    }

    #[test]
    fn a_peer_of_another_version_gets_its_reasons() {
        let frame = encoded(VERSION);
        assert_eq!(in_version(&frame, VERSION), frame);
        let old = openflow10::VERSION;
        assert_eq!(in_version(&frame, old), encoded(old));
    }

    #[test]
    fn the_bridge_of_a_continuation_is_found() {
        let mut list = vec![0, 5, 0, 5, 1, 0, 0, 0];
        list.extend([0, 8, 0, 32, 0, 0, 0, 0, 0x80, 0, 0, 20]);
        list.extend([9; 16]);
        list.extend([0; 4]);
        assert_eq!(bridge_of(&list), Some([9; 16]));
        // Its length is wrong.
        list[19] = 19;
        assert_eq!(bridge_of(&list), None);
    }
}
