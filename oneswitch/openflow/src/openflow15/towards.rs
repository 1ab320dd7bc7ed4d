//! Messages to switches over OpenFlow 1.5, which says what OpenFlow 1.3 cannot.

use crate::bundle::{self, Bundle};
use crate::codes14::error_of_15;
use crate::error::Oversize;
use crate::flow::FlowMod;
use crate::header::{kind as k, Header, HEADER_LEN};
use crate::instruction::Instructions;
use crate::message::{decode, Message};
use crate::openflow14::kind;
use crate::packet::PacketOut;
use crate::port::PortMod;
use crate::session::ErrorMessage;
use crate::wire::{padded, patch_length, Put};

use super::groups::{self, Spelling};
use super::{actions, instructions, VERSION};

/// Encodes a whole message of OpenFlow 1.3 to a switch.
///
/// # Errors
/// It is too long for a message of OpenFlow 1.5.
pub fn encode_request(request: &[u8]) -> Result<Vec<u8>, Oversize> {
    let Ok((header, message)) = decode(request) else {
        return Ok(versioned(request));
    };
    let xid = header.xid;
    match message {
        Message::FlowMod(message) => frame(k::FLOW_MOD, xid, &flow_mod(message)),
        Message::GroupMod(message) => frame(
            k::GROUP_MOD,
            xid,
            &groups::encode(&message, Spelling::OPENFLOW15),
        ),
        Message::PacketOut(message) => frame(k::PACKET_OUT, xid, &packet_out(&message)),
        Message::PortMod(message) => frame(k::PORT_MOD, xid, &port_mod(&message)),
        Message::Experimenter(message) => match bundle::decode(xid, &message) {
            Some(Ok(Bundle::Control(_))) => frame(kind::BUNDLE_CONTROL, xid, &message.body),
            Some(Ok(Bundle::Add(add))) => {
                let head = message.body.len() - add.inner.len();
                let mut body = message.body.get(..head).unwrap_or_default().to_vec();
                body.put(&encode_request(add.inner)?);
                frame(kind::BUNDLE_ADD, xid, &body)
            }
            _ => Ok(versioned(request)),
        },
        _ => Ok(versioned(request)),
    }
}

/// Changes the version of a message of the same form.
fn versioned(request: &[u8]) -> Vec<u8> {
    let mut out = request.to_vec();
    if let Some(version) = out.first_mut() {
        *version = VERSION;
    }
    out
}

fn frame(kind: u8, xid: u32, body: &[u8]) -> Result<Vec<u8>, Oversize> {
    let length = HEADER_LEN + body.len();
    if u16::try_from(length).is_err() {
        return Err(Oversize { length });
    }
    let mut out = vec![VERSION, kind, 0, 0];
    out.put_u32(xid);
    out.put(body);
    patch_length(&mut out, 0, 2);
    Ok(out)
}

fn flow_mod(mut message: FlowMod) -> Vec<u8> {
    message.instructions = Instructions::trusted(instructions::to_15(&message.instructions));
    let mut out = Vec::new();
    message.put(&mut out);
    out
}

/// Encodes `ofp15_packet_out`: a match on the port stands in place of the port.
fn packet_out(message: &PacketOut) -> Vec<u8> {
    /// `OXM_OF_IN_PORT` and `OXM_OF_PACKET_TYPE`.
    const IN_PORT: u32 = 0x8000_0004;
    const PACKET_TYPE: u32 = 0x8000_5804;
    /// Bytes of the match with a port only, without padding, and of another field.
    const MATCH: usize = 12;
    const FIELD: usize = 8;
    let list = actions::to_15(message.actions.as_bytes());
    let mut out = Vec::with_capacity(24 + list.len() + message.data.len());
    out.put_u32(message.buffer_id);
    out.put_u16(u16::try_from(list.len()).unwrap_or(u16::MAX));
    out.zeros(2);
    let has_type = message.packet_type != 0;
    let length = MATCH + usize::from(has_type) * FIELD;
    out.put_u16(1);
    out.put_u16(length as u16);
    out.put_u32(IN_PORT);
    out.put_u32(message.in_port);
    if has_type {
        out.put_u32(PACKET_TYPE);
        out.put_u32(message.packet_type);
    }
    out.zeros(padded(length) - length);
    out.put(&list);
    out.put(&message.data);
    out
}

/// Encodes `ofp14_port_mod`.
fn port_mod(message: &PortMod) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(message.port);
    out.zeros(4);
    out.put(&message.hw_addr);
    out.zeros(2);
    out.put_u32(message.config);
    out.put_u32(message.mask);
    if message.advertise != 0 {
        // OFPPMPT14_ETHERNET
        out.put_u16(0);
        out.put_u16(8);
        out.put_u32(message.advertise);
    }
    out
}

/// Reads an error of a switch; `None`: it is another message.
pub fn decode_error(frame: &[u8]) -> Option<ErrorMessage> {
    let header = Header::parse(frame).filter(|header| header.kind == k::ERROR)?;
    let body = frame.get(HEADER_LEN..usize::from(header.length))?;
    let told = ErrorMessage::decode(body).ok()?;
    Some(ErrorMessage {
        error: error_of_15(told.error),
        ..told
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{bucket_no, group_no, group_type, Bucket, Buckets};
    use crate::message::encode;
    use crate::openflow15;
    use crate::port::port_no;
    use crate::session::AsyncMasks;
    use crate::{ActionList, ErrorCode, FlowModCommand, GroupMod, GroupModCommand, Match};

    /// Encodes a message for a switch, and reads it as a controller's.
    fn both_ways(message: &Message) -> Message {
        let towards = encode_request(&encode(7, message).unwrap()).unwrap();
        assert_eq!(towards[0], VERSION);
        let read = openflow15::decode(&towards, AsyncMasks::NONE).unwrap();
        let openflow15::Request::Shared(crate::openflow14::Request::Frame(frame)) = read else {
            panic!("{read:?}");
        };
        let (header, back) = decode(&frame).unwrap();
        assert_eq!(header.xid, 7);
        back
    }

    fn output(port: u32) -> ActionList {
        ActionList::new().output(port, 0)
    }

    #[test]
    fn what_a_controller_can_say_reaches_a_switch() {
        let list = output(3);
        let bucket = Bucket {
            id: 9,
            weight: 2,
            watch_port: port_no::ANY,
            watch_group: group_no::ANY,
            actions: list.as_actions(),
        };
        let group = GroupMod {
            command: GroupModCommand::InsertBucket(bucket_no::LAST),
            group_type: group_type::ALL,
            group_id: 1,
            buckets: Buckets::with_ids([bucket]),
            selection: None,
        };
        let mut flow = FlowMod::new(FlowModCommand::Add, 1, 5, Match::any());
        flow.instructions =
            Instructions::from_bytes(vec![0, 6, 0, 8, 0, 0, 0, 1, 0, 1, 0, 8, 2, 0, 0, 0]).unwrap();
        let packet = PacketOut {
            buffer_id: u32::MAX,
            in_port: port_no::ANY,
            packet_type: 0x1_0800,
            actions: list.clone(),
            data: [1, 2, 3].into(),
        };
        let port = PortMod {
            port: 1,
            hw_addr: [1; 6],
            config: 1,
            mask: 1,
            advertise: 4,
        };
        assert_eq!(
            both_ways(&Message::GroupMod(group.clone())),
            Message::GroupMod(group.clone())
        );
        assert_eq!(
            both_ways(&Message::PacketOut(packet.clone())),
            Message::PacketOut(packet)
        );
        assert_eq!(both_ways(&Message::PortMod(port)), Message::PortMod(port));
        let Message::FlowMod(read) = both_ways(&Message::FlowMod(flow)) else {
            panic!();
        };
        // A meter is an action, in a list of its own here.
        assert_eq!(read.instructions.as_bytes()[..8], [0, 6, 0, 8, 0, 0, 0, 1]);
        let added = bundle::encode_add(4, &encode(7, &Message::GroupMod(group)).unwrap()).unwrap();
        let towards = encode_request(&added).unwrap();
        let read = openflow15::decode(&towards, AsyncMasks::NONE).unwrap();
        let frame = openflow15::Request::Shared(crate::openflow14::Request::Frame(added));
        assert_eq!(read, frame);
    }

    #[test]
    fn errors_have_their_meaning_in_openflow_13() {
        for error in [
            ErrorCode::GROUP_MOD_FAILED_UNKNOWN_BUCKET,
            ErrorCode::ONF_BUNDLE_MSG_FAILED,
            ErrorCode::ONF_BAD_SET_MASK,
            ErrorCode::NX_MUST_BE_ZERO,
        ] {
            let told = crate::encode_error(5, error, &[VERSION, 2]);
            let read = decode_error(&told).unwrap();
            assert_eq!((read.error, &read.data[..]), (error, &[VERSION, 2][..]));
        }
        assert_eq!(decode_error(&[6, 21, 0, 8, 0, 0, 0, 0]), None);
    }
}
