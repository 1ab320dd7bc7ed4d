//! Nicira's replies and notifications over OpenFlow 1.0
//! (include/openflow/nicira-ext.h).

use crate::flow::FlowRemoved;
use crate::header::kind;
use crate::nicira::{property, subtype};
use crate::packet::PacketIn;
use crate::wire::{padded, Put};
use crate::NX_VENDOR;

use super::frames::message;
use super::matching::to_nxm;
use super::PacketInFormat;

/// Starts a message of Nicira's.
pub(super) fn start(number: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u32(NX_VENDOR);
    body.put_u32(number);
    body
}

pub(super) fn flow_removed(removed: &FlowRemoved) -> Vec<u8> {
    let mut body = start(subtype::FLOW_REMOVED);
    body.put_u64(removed.cookie);
    body.put_u16(removed.priority);
    body.put(&[removed.reason, removed.table_id.wrapping_add(1)]);
    body.put_u32(removed.duration_sec);
    body.put_u32(removed.duration_nsec);
    body.put_u16(removed.idle_timeout);
    let nxm = to_nxm(&removed.matching);
    body.put_u16(u16::try_from(nxm.len()).unwrap_or(u16::MAX));
    body.put_u64(removed.packet_count);
    body.put_u64(removed.byte_count);
    put_padded(&mut body, &nxm);
    message(kind::EXPERIMENTER, 0, &body)
}

/// Writes bytes and the zeros that align them.
pub(crate) fn put_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put(bytes);
    out.zeros(padded(bytes.len()) - bytes.len());
}

/// Encodes a packet-in for a peer of any version that has chosen one of
/// Nicira's formats; `None`: it has not.
pub fn encode_packet_in(version: u8, packet: &PacketIn, format: PacketInFormat) -> Option<Vec<u8>> {
    let reason = PacketIn::reason_in(version, packet.reason);
    let mut frame = match format {
        PacketInFormat::Standard => return None,
        PacketInFormat::Nicira => packet_in(packet, reason),
        PacketInFormat::Nicira2 => packet_in2(packet, reason),
    };
    if let Some(slot) = frame.first_mut() {
        *slot = version;
    }
    Some(frame)
}

/// Encodes a packet-in in the first of Nicira's formats.
fn packet_in(packet: &PacketIn, reason: u8) -> Vec<u8> {
    let mut body = start(subtype::PACKET_IN);
    body.put_u32(packet.buffer_id);
    body.put_u16(packet.total_len);
    body.put(&[reason, packet.table_id]);
    body.put_u64(packet.cookie);
    let nxm = to_nxm(&packet.matching);
    body.put_u16(u16::try_from(nxm.len()).unwrap_or(u16::MAX));
    body.zeros(6);
    put_padded(&mut body, &nxm);
    body.zeros(2);
    body.put(&packet.data);
    message(kind::EXPERIMENTER, 0, &body)
}

/// Encodes a packet-in in the second of Nicira's formats
/// (`ofputil_put_packet_in`).
fn packet_in2(packet: &PacketIn, reason: u8) -> Vec<u8> {
    let mut body = start(subtype::PACKET_IN2);
    put_property(&mut body, property::PACKET, &packet.data);
    if usize::from(packet.total_len) != packet.data.len() {
        let length = u32::from(packet.total_len).to_be_bytes();
        put_property(&mut body, property::FULL_LENGTH, &length);
    }
    if packet.buffer_id != crate::NO_BUFFER {
        let id = packet.buffer_id.to_be_bytes();
        put_property(&mut body, property::BUFFER_ID, &id);
    }
    put_property(&mut body, property::TABLE_ID, &[packet.table_id]);
    if packet.cookie != u64::MAX {
        let mut cookie = vec![0; 4];
        cookie.put_u64(packet.cookie);
        put_property(&mut body, property::COOKIE, &cookie);
    }
    put_property(&mut body, property::REASON, &[reason]);
    // In OXM, whatever the version.
    put_property(&mut body, property::METADATA, packet.matching.as_oxm());
    message(kind::EXPERIMENTER, 0, &body)
}

/// Writes a property. Its length does not count its padding.
pub(crate) fn put_property(out: &mut Vec<u8>, kind: u16, content: &[u8]) {
    let length = 4 + content.len();
    out.put_u16(kind);
    out.put_u16(u16::try_from(length).unwrap_or(u16::MAX));
    out.put(content);
    out.zeros(padded(length) - length);
}
