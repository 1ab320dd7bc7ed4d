//! Replies and notifications in OpenFlow 1.4.

use crate::group::{before_15, GroupMod};
use crate::header::{kind as k, Header, HEADER_LEN};
use crate::message::{self, decode, Message};
use crate::multipart::{multipart_kind as stats, Entry, MultipartReply, PortStats, QueueStats};
use crate::openflow10::{
    buckets_with_moves, encode_packet_in, instructions_with_moves, PacketInFormat,
};
use crate::port::{config, Port, PortStatus};
use crate::session::{AsyncMasks, Experimenter};
use crate::wire::{patch_length, patch_u16, Put};
use crate::{extension, ONF_VENDOR};

use super::{bundles, kind, multipart_kind, port_stats, VERSION};

/// Largest message.
const MAX_MESSAGE: usize = 65_535;
/// `OFPMPF_REPLY_MORE`.
const MORE: u16 = 1;
/// `OFPC14_BUNDLES`.
const CAPABILITIES: u32 = 0x200;
/// Where `ofp_switch_features` has its capabilities.
const CAPABILITIES_AT: usize = 24;

/// Encodes a message of OpenFlow 1.3 for a peer of version 1.4, as one or more
/// messages. Errors have the version of their message anyway (`encode_error`).
pub fn encode(frame: &[u8], packet_ins: PacketInFormat) -> Vec<Vec<u8>> {
    let Some(header) = Header::parse(frame) else {
        return Vec::new();
    };
    let versioned = |mut frame: Vec<u8>| {
        if let Some(version) = frame.first_mut() {
            *version = VERSION;
        }
        frame
    };
    let same = || versioned(frame.to_vec());
    let differs = match header.kind {
        k::PACKET_IN => packet_ins != PacketInFormat::Standard,
        k::PORT_STATUS
        | k::EXPERIMENTER
        | k::FEATURES_REPLY
        | k::MULTIPART_REPLY
        | k::QUEUE_GET_CONFIG_REPLY => true,
        _ => false,
    };
    let Some((_, content)) = differs.then(|| decode(frame).ok()).flatten() else {
        return vec![same()];
    };
    let one = match content {
        Message::PacketIn(packet) => {
            encode_packet_in(VERSION, &packet, packet_ins).unwrap_or_else(same)
        }
        Message::PortStatus(status) => port_status(&status),
        Message::Experimenter(message) if is_notification(&message, extension::ROLE_STATUS) => {
            self::message(kind::ROLE_STATUS, header.xid, &message.body)
        }
        Message::Experimenter(message) if is_notification(&message, extension::REQUEST_FORWARD) => {
            let mut request = with_moves(message.body.to_vec());
            if let Some(version) = request.first_mut() {
                *version = VERSION;
            }
            self::message(kind::REQUEST_FORWARD, header.xid, &request)
        }
        Message::Experimenter(message) => match bundles::native(&message) {
            Some((kind, body)) => self::message(kind, header.xid, body),
            None => same(),
        },
        Message::FeaturesReply(features) => {
            let mut out = same();
            let capabilities = features.capabilities | CAPABILITIES;
            if let Some(slot) = out.get_mut(CAPABILITIES_AT..CAPABILITIES_AT + 4) {
                slot.copy_from_slice(&capabilities.to_be_bytes());
            }
            out
        }
        // Virtual ports have no queues.
        Message::QueueGetConfigReply { .. } => {
            let entries = std::iter::empty();
            return multipart(header.xid, multipart_kind::QUEUE_DESC, false, entries);
        }
        Message::MultipartReply(reply) => {
            let (xid, more) = (header.xid, reply.more);
            return match reply.body {
                MultipartReply::PortDesc(ports) => {
                    multipart(xid, stats::PORT_DESC, more, ports.iter().map(port))
                }
                MultipartReply::PortStats(ports) => multipart(
                    xid,
                    stats::PORT_STATS,
                    more,
                    ports.iter().map(port_stats::entry),
                ),
                MultipartReply::Queue(queues) => {
                    multipart(xid, stats::QUEUE, more, queues.iter().map(queue_stats))
                }
                MultipartReply::Flow(mut flows) => {
                    for flow in &mut flows {
                        flow.instructions = instructions_with_moves(&flow.instructions);
                    }
                    multipart(xid, stats::FLOW, more, flows.iter().map(entry))
                }
                MultipartReply::GroupDesc(mut groups) => {
                    for group in &mut groups {
                        group.buckets = buckets_with_moves(&group.buckets);
                        group.selection = None;
                    }
                    multipart(xid, stats::GROUP_DESC, more, groups.iter().map(entry))
                }
                _ => vec![same()],
            };
        }
        _ => same(),
    };
    vec![one]
}

pub(crate) fn message(kind: u8, xid: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + body.len());
    out.put(&[VERSION, kind, 0, 0]);
    out.put_u32(xid);
    out.put(body);
    patch_length(&mut out, 0, 2);
    out
}

/// Returns a forwarded request as this version has it: without what only OpenFlow 1.5
/// has, and with Nicira's copies of fields.
fn with_moves(request: Vec<u8>) -> Vec<u8> {
    let header = Header::parse(&request).filter(|header| header.kind == k::GROUP_MOD);
    let group = request.get(HEADER_LEN..).and_then(GroupMod::decode_written);
    match header.zip(group) {
        Some((header, mut group)) => {
            group.buckets = buckets_with_moves(&group.buckets);
            let moved = message::encode(header.xid, &Message::GroupMod(group));
            before_15(&moved.unwrap_or(request))
        }
        None => request,
    }
}

fn entry(entry: &impl Entry) -> Vec<u8> {
    let mut out = Vec::new();
    entry.put(&mut out);
    out
}

/// Tells whether a message is this extension of the ONF's to OpenFlow 1.3, which
/// became a standard message.
fn is_notification(message: &Experimenter, number: u32) -> bool {
    (message.vendor, message.subtype) == (ONF_VENDOR, number)
}

/// Encodes a multipart reply, split between entries.
pub(crate) fn multipart(
    xid: u32,
    number: u16,
    more: bool,
    entries: impl Iterator<Item = Vec<u8>>,
) -> Vec<Vec<u8>> {
    let mut head = Vec::new();
    head.put_u16(number);
    head.zeros(6);
    let mut bodies = Vec::new();
    let mut body = head.clone();
    for entry in entries {
        if HEADER_LEN + body.len() + entry.len() > MAX_MESSAGE {
            bodies.push(std::mem::replace(&mut body, head.clone()));
        }
        body.put(&entry);
    }
    bodies.push(body);
    let last = bodies.len() - 1;
    let numbered = bodies.into_iter().enumerate();
    numbered
        .map(|(index, mut body)| {
            patch_u16(&mut body, 2, if index < last || more { MORE } else { 0 });
            message(k::MULTIPART_REPLY, xid, &body)
        })
        .collect()
}

/// Encodes `ofp14_port` with its Ethernet property.
pub(crate) fn port(port: &Port) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(port.number);
    out.put_u16(72);
    out.zeros(2);
    out.put(&port.hw_addr);
    out.zeros(2);
    out.put(&port.name);
    out.put_u32(port.config & config::ALL);
    out.put_u32(port.state);
    out.put(&[0, 0, 0, 32, 0, 0, 0, 0]);
    port.put_ethernet(&mut out);
    out
}

fn port_status(status: &PortStatus) -> Vec<u8> {
    let mut body = vec![status.reason, 0, 0, 0, 0, 0, 0, 0];
    body.put(&port(&status.port));
    message(k::PORT_STATUS, 0, &body)
}

/// Encodes a request for the statistics of a port, or of all ports.
pub fn encode_port_stats_request(xid: u32, port: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u16(stats::PORT_STATS);
    body.zeros(6);
    body.put_u32(port);
    body.zeros(4);
    message(k::MULTIPART_REQUEST, xid, &body)
}

/// Encodes the reply to such a request.
pub fn encode_port_stats(xid: u32, ports: &[PortStats]) -> Vec<Vec<u8>> {
    multipart(
        xid,
        stats::PORT_STATS,
        false,
        ports.iter().map(port_stats::entry),
    )
}

/// Encodes the entry of 1.3 behind its length and an empty list of properties.
fn queue_stats(queue: &QueueStats) -> Vec<u8> {
    let mut out = vec![0, 48, 0, 0, 0, 0, 0, 0];
    queue.put(&mut out);
    out
}

/// Encodes the choice of asynchronous messages as properties, each for a slave
/// and then for a master.
pub fn encode_async_config(xid: u32, masks: &AsyncMasks) -> Vec<u8> {
    message(k::GET_ASYNC_REPLY, xid, &async_config(masks))
}

/// Encodes the message that chooses them.
pub(crate) fn set_async(xid: u32, masks: &AsyncMasks) -> Vec<u8> {
    message(k::SET_ASYNC, xid, &async_config(masks))
}

fn async_config(masks: &AsyncMasks) -> Vec<u8> {
    let kinds = [
        masks.packet_in,
        masks.port_status,
        masks.flow_removed,
        masks.role_status,
        masks.table_status,
        masks.request_forward,
    ];
    let mut body = Vec::new();
    let both = kinds
        .into_iter()
        .flat_map(|[master, slave]| [slave, master]);
    for (kind, mask) in (0..).zip(both) {
        body.put_u16(kind);
        body.put_u16(8);
        body.put_u32(mask);
    }
    body
}
