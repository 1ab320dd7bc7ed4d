//! Requests of OpenFlow 1.5.

use crate::action::Strictness;
use crate::error::{ErrorCode, Refusal};
use crate::flow::FlowMod;
use crate::header::{kind as k, Header, HEADER_LEN, VERSION};
use crate::message::{encode, Message};
use crate::multipart::multipart_kind as stats;
use crate::openflow14::bundles::{self, extension};
use crate::openflow14::{self, kind, requests, VERSION as VERSION_14};
use crate::port::is_representable;
use crate::session::AsyncMasks;
use crate::wire::{patch_length, u16_at, u32_at, Put};

use super::groups::{self, Spelling};
use super::{instructions, packet_outs, Request, VERSION as VERSION_15};

/// Bytes before the body of a multipart request, and of one that names a port or a
/// group.
const MULTIPART_BODY: usize = 8;
const NUMBERED_BODY: usize = 16;

/// Decodes exactly one message of version 1.5, given the asynchronous messages that
/// its sender has chosen.
pub fn decode(frame: &[u8], current: AsyncMasks) -> Result<Request, Refusal> {
    let body = frame.get(HEADER_LEN..).unwrap_or_default();
    let header = Header::parse(frame).filter(|header| usize::from(header.length) == frame.len());
    let Some(header) = header else {
        return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, "wrong length"));
    };
    if !fits(header.kind, header.length) {
        let detail = format!("message of type {} has {} bytes", header.kind, frame.len());
        return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail));
    }
    match header.kind {
        k::FLOW_MOD | k::GROUP_MOD | k::PACKET_OUT => own(header, body).map(shared),
        number if is_of_bundle(number) => extension(header, body, inner).map(shared),
        k::MULTIPART_REQUEST => match description(header, body)? {
            Some(request) => Ok(request),
            None => as_in_14(frame, current),
        },
        _ => as_in_14(frame, current),
    }
}

fn shared(frame: Vec<u8>) -> Request {
    Request::Shared(openflow14::Request::Frame(frame))
}

/// Decodes a message that has the same form in OpenFlow 1.4.
fn as_in_14(frame: &[u8], current: AsyncMasks) -> Result<Request, Refusal> {
    openflow14::decode(&in_version_14(frame), current).map(Request::Shared)
}

fn in_version_14(frame: &[u8]) -> Vec<u8> {
    let mut translated = frame.to_vec();
    if let Some(version) = translated.first_mut() {
        *version = VERSION_14;
    }
    translated
}

/// Translates a message of a form of its own to OpenFlow 1.3.
fn own(header: Header, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let message = match header.kind {
        k::FLOW_MOD => {
            let mut message = FlowMod::decode(body, Strictness::Request15)?;
            message.instructions = instructions::to_13(&message.instructions)?;
            Message::FlowMod(message)
        }
        k::GROUP_MOD => Message::GroupMod(groups::decode(body, Spelling::OPENFLOW15)?),
        _ => Message::PacketOut(packet_outs::decode(body)?),
    };
    let too_long = |_| Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, "too long");
    encode(header.xid, &message).map_err(too_long)
}

/// Translates a whole message that may be in a bundle.
fn inner(message: &[u8]) -> Result<Vec<u8>, Refusal> {
    match Header::parse(message) {
        Some(header) if matches!(header.kind, k::FLOW_MOD | k::GROUP_MOD | k::PACKET_OUT) => {
            match fits(header.kind, header.length) {
                true => own(header, message.get(HEADER_LEN..).unwrap_or_default()),
                false => {
                    let detail = "message in a bundle with a wrong length";
                    Err(Refusal::new(ErrorCode::ONF_BUNDLE_MSG_UNSUP, detail))
                }
            }
        }
        _ => bundles::inner(&in_version_14(message)),
    }
}

/// Decodes a request that names its subject only in OpenFlow 1.5; `None`: another.
fn description(header: Header, body: &[u8]) -> Result<Option<Request>, Refusal> {
    let kind = u16_at(body, 0);
    let Some(kind) = kind.filter(|kind| matches!(*kind, stats::PORT_DESC | stats::GROUP_DESC))
    else {
        return Ok(None);
    };
    let (Some(number), NUMBERED_BODY) = (u32_at(body, MULTIPART_BODY), body.len()) else {
        let detail = format!("multipart request {kind} of {} bytes", body.len());
        return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail));
    };
    if kind == stats::PORT_DESC && !is_representable(number) {
        let detail = format!("port {number:#x}");
        return Err(Refusal::new(ErrorCode::BAD_ACTION_BAD_OUT_PORT, detail));
    }
    let mut frame = vec![VERSION, header.kind, 0, 0];
    frame.put_u32(header.xid);
    frame.put(body.get(..MULTIPART_BODY).unwrap_or_default());
    patch_length(&mut frame, 0, 2);
    Ok(Some(Request::Describe(frame, number)))
}

/// Tells whether Open vSwitch refuses a message to slaves, which it does right after
/// checking its length.
pub fn is_write(frame: &[u8]) -> bool {
    Header::parse(frame).is_some_and(|header| {
        header.version == VERSION_15
            && (requests::is_write_kind(header.kind) || is_of_bundle(header.kind))
            && fits(header.kind, header.length)
    })
}

fn is_of_bundle(number: u8) -> bool {
    matches!(number, kind::BUNDLE_CONTROL | kind::BUNDLE_ADD)
}

/// Tells whether a message of this kind can have `length` bytes.
fn fits(number: u8, length: u16) -> bool {
    let padded = |fixed| length >= fixed && (length - fixed) % 8 == 0;
    match number {
        k::FLOW_REMOVED | k::GROUP_MOD => padded(24),
        k::PACKET_OUT => length >= 16,
        _ => requests::fits(number, length),
    }
}
