//! Replies and notifications in OpenFlow 1.5.

use crate::continuation;
use crate::group::{group_no, GroupMod};
use crate::header::{kind as k, Header, HEADER_LEN};
use crate::message::{decode, Message};
use crate::multipart::{multipart_kind as stats, MultipartReply};
use crate::openflow10::{encode_packet_in, PacketInFormat, StatsForm};
use crate::openflow14::replies::{message, multipart, port};
use crate::openflow14::{self, kind, VERSION as VERSION_14};
use crate::packet::PacketIn;
use crate::port::port_no;
use crate::session::Experimenter;
use crate::{extension, ONF_VENDOR};

use super::fields::matching;
use super::groups::{self, Spelling};
use super::{statistics, VERSION};

/// Encodes a message of OpenFlow 1.3, or one of 1.4 that is the same, for a peer of
/// version 1.5, as one or more messages.
pub fn encode(frame: &[u8], packet_ins: PacketInFormat, form: StatsForm) -> Vec<Vec<u8>> {
    let frames = match Header::parse(frame) {
        None => Vec::new(),
        Some(header) if header.version == VERSION_14 => vec![frame.to_vec()],
        Some(header) => own(header, frame, packet_ins, form)
            .unwrap_or_else(|| openflow14::encode(frame, packet_ins)),
    };
    frames.into_iter().map(versioned).collect()
}

fn versioned(mut frame: Vec<u8>) -> Vec<u8> {
    if let Some(version) = frame.first_mut() {
        *version = VERSION;
    }
    frame
}

/// Encodes a message that OpenFlow 1.4 has in another form.
fn own(
    header: Header,
    frame: &[u8],
    packet_ins: PacketInFormat,
    form: StatsForm,
) -> Option<Vec<Vec<u8>>> {
    let differs = matches!(
        header.kind,
        k::PACKET_IN | k::FLOW_REMOVED | k::MULTIPART_REPLY | k::EXPERIMENTER
    );
    let (_, content) = differs.then(|| decode(frame).ok()).flatten()?;
    let xid = header.xid;
    Some(match content {
        Message::PacketIn(packet) => vec![packet_in(header, &packet, packet_ins)],
        Message::FlowRemoved(removed) => {
            vec![message(
                k::FLOW_REMOVED,
                xid,
                &statistics::removed(&removed),
            )]
        }
        Message::MultipartReply(reply) => {
            let more = reply.more;
            match reply.body {
                MultipartReply::Flow(flows) => multipart(
                    xid,
                    stats::FLOW,
                    more,
                    flows.iter().map(statistics::describe),
                ),
                MultipartReply::Aggregate {
                    packet_count,
                    byte_count,
                    flow_count,
                } => {
                    let sums = statistics::aggregate(packet_count, byte_count, flow_count);
                    multipart(xid, stats::AGGREGATE, more, [sums].into_iter())
                }
                MultipartReply::GroupDesc(list) => {
                    let wanted = list
                        .iter()
                        .filter(|group| is_wanted(form, group.group_id, group_no::ALL));
                    multipart(
                        xid,
                        stats::GROUP_DESC,
                        more,
                        wanted.map(|group| groups::describe(group, Spelling::OPENFLOW15)),
                    )
                }
                MultipartReply::PortDesc(list) => {
                    let wanted = list
                        .iter()
                        .filter(|port| is_wanted(form, port.number, port_no::ANY));
                    multipart(xid, stats::PORT_DESC, more, wanted.map(port))
                }
                _ => return None,
            }
        }
        Message::Experimenter(message) => vec![forwarded(header, &message)?],
        _ => return None,
    })
}

/// Encodes the notification of a request of another controller.
fn forwarded(header: Header, notification: &Experimenter) -> Option<Vec<u8>> {
    let numbers = (notification.vendor, notification.subtype);
    if numbers != (ONF_VENDOR, extension::REQUEST_FORWARD) {
        return None;
    }
    let body = &notification.body;
    let request = Header::parse(body)?;
    let inner = match request.kind {
        k::GROUP_MOD => {
            let group = GroupMod::decode_written(body.get(HEADER_LEN..)?)?;
            message(
                k::GROUP_MOD,
                request.xid,
                &groups::encode(&group, Spelling::OPENFLOW15),
            )
        }
        _ => body.to_vec(),
    };
    let inner = versioned(inner);
    Some(message(kind::REQUEST_FORWARD, header.xid, &inner))
}

/// Tells whether a request asks for the description of this number, or for `every` one.
fn is_wanted(form: StatsForm, number: u32, every: u32) -> bool {
    match form {
        StatsForm::Only(only) => only == number || only == every,
        _ => true,
    }
}

fn packet_in(header: Header, packet: &PacketIn, format: PacketInFormat) -> Vec<u8> {
    let translated = PacketIn {
        matching: matching(&packet.matching),
        ..packet.clone()
    };
    match format {
        // In NXM, which has no pairs of registers.
        PacketInFormat::Nicira => encode_packet_in(VERSION, packet, format),
        _ => encode_packet_in(VERSION, &translated, format),
    }
    .unwrap_or_else(|| {
        let mut body = Vec::new();
        translated.put(&mut body);
        message(k::PACKET_IN, header.xid, &body)
    })
}

/// Returns a packet-in of Nicira's second format that can be continued, whose
/// continuation only its switch reads.
pub fn packet_in_in_version(frame: &[u8]) -> Vec<u8> {
    continuation::with_matching(&continuation::in_version(frame, VERSION), matching)
}
