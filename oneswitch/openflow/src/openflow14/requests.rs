//! Requests of OpenFlow 1.4.

use crate::async_config;
use crate::error::{ErrorCode, Refusal};
use crate::header::{fits_kind, kind as k, Header, HEADER_LEN, VERSION};
use crate::message::{encode, Message};
use crate::nicira::subtype;
use crate::port::{is_representable, PortMod};
use crate::session::{AsyncMasks, TableMod};
use crate::wire::{padded, u16_at, u32_at, Reader};
use crate::{NX_VENDOR, ONF_VENDOR};

use super::{bundles, kind, multipart_kind, Request, VERSION as VERSION_14};

/// `OFPPMPT14_ETHERNET`, a property of a port-mod.
const ETHERNET: u16 = 0;
/// Where `ofp_flow_mod` has its importance.
const IMPORTANCE: std::ops::Range<usize> = 46..48;

fn refuse<T>(error: ErrorCode, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(error, detail.into()))
}

/// Decodes exactly one message of version 1.4, given the asynchronous messages
/// that its sender has chosen.
pub fn decode(frame: &[u8], current: AsyncMasks) -> Result<Request, Refusal> {
    let header = Header::parse(frame).filter(|header| usize::from(header.length) == frame.len());
    let Some(header) = header else {
        return refuse(ErrorCode::BAD_REQUEST_BAD_LEN, "wrong length");
    };
    let body = frame.get(HEADER_LEN..).unwrap_or_default();
    if !fits(header.kind, header.length) {
        let detail = format!("message of type {} has {} bytes", header.kind, frame.len());
        return refuse(ErrorCode::BAD_REQUEST_BAD_LEN, detail);
    }
    let translated = match header.kind {
        k::PORT_MOD => port_mod(body)?,
        k::TABLE_MOD => table_mod(body)?,
        k::SET_ASYNC => return async_masks(body, current),
        k::EXPERIMENTER if has_become_standard(body) => {
            return refuse(
                ErrorCode::BAD_REQUEST_BAD_EXP_TYPE,
                "OpenFlow 1.4 has this message itself",
            );
        }
        k::QUEUE_GET_CONFIG_REQUEST | k::QUEUE_GET_CONFIG_REPLY => {
            return refuse(
                ErrorCode::BAD_REQUEST_BAD_TYPE,
                "OpenFlow 1.4 has statistics of queues' configurations instead",
            )
        }
        k::MULTIPART_REQUEST if u16_at(body, 0) == Some(multipart_kind::TABLE_DESC) => {
            return match body.len() {
                8 => Ok(Request::TableDesc),
                _ => refuse(ErrorCode::BAD_REQUEST_BAD_LEN, "table description"),
            };
        }
        k::MULTIPART_REQUEST if u16_at(body, 0) == Some(multipart_kind::QUEUE_DESC) => {
            match (body.len(), u32_at(body, 8)) {
                (16, Some(port)) => Message::QueueGetConfigRequest { port },
                _ => return refuse(ErrorCode::BAD_REQUEST_BAD_LEN, "queue description"),
            }
        }
        kind::BUNDLE_CONTROL | kind::BUNDLE_ADD => {
            return bundles::extension(header, body).map(Request::Frame)
        }
        _ => return Ok(Request::Frame(in_version_13(frame, header.kind))),
    };
    let encoded = encode(header.xid, &translated);
    let too_long = |_| Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, "too long");
    encoded.map(Request::Frame).map_err(too_long)
}

/// Tells whether Open vSwitch refuses a message to slaves, which it does right
/// after checking its length.
pub fn is_write(frame: &[u8]) -> bool {
    let is_write = |kind| {
        matches!(
            kind,
            k::PACKET_OUT | k::FLOW_MOD | k::GROUP_MOD | k::PORT_MOD | k::TABLE_MOD | k::METER_MOD
        )
    };
    Header::parse(frame).is_some_and(|header| {
        header.version == VERSION_14 && is_write(header.kind) && fits(header.kind, header.length)
    })
}

/// Tells whether a message of this kind can have `length` bytes.
fn fits(number: u8, length: u16) -> bool {
    let with_properties = |fixed| length >= fixed && (length - fixed) % 8 == 0;
    match number {
        k::PORT_MOD => with_properties(32),
        k::TABLE_MOD => with_properties(16),
        k::SET_ASYNC => with_properties(8),
        kind::ROLE_STATUS => with_properties(24),
        kind::TABLE_STATUS | kind::REQUEST_FORWARD | kind::BUNDLE_CONTROL => with_properties(16),
        kind::BUNDLE_ADD => length >= 16,
        _ => fits_kind(number, length),
    }
}

/// Changes what is fixed in a message of the same form.
fn in_version_13(frame: &[u8], kind: u8) -> Vec<u8> {
    let mut translated = frame.to_vec();
    if let Some(version) = translated.first_mut() {
        *version = VERSION;
    }
    if kind == k::FLOW_MOD {
        if let Some(importance) = translated.get_mut(IMPORTANCE) {
            importance.fill(0);
        }
    }
    translated
}

fn async_masks(body: &[u8], current: AsyncMasks) -> Result<Request, Refusal> {
    let masks = async_config::properties(body, current, VERSION_14)?;
    Ok(Request::AsyncMasks(masks))
}

/// Tells whether a message is an extension to earlier versions only: one of the
/// ONF's, or NXT_SET_ASYNC_CONFIG2.
fn has_become_standard(body: &[u8]) -> bool {
    match u32_at(body, 0) {
        Some(ONF_VENDOR) => body.len() >= 8,
        Some(NX_VENDOR) => u32_at(body, 4) == Some(subtype::SET_ASYNC_CONFIG2),
        _ => false,
    }
}

fn port_mod(body: &[u8]) -> Result<Message, Refusal> {
    let mut reader = Reader::new(body);
    let port = reader.u32()?;
    reader.skip(4)?;
    let hw_addr = reader.array()?;
    reader.skip(2)?;
    let mut message = PortMod {
        port,
        hw_addr,
        config: reader.u32()?,
        mask: reader.u32()?,
        advertise: 0,
    };
    if !is_representable(port) {
        let detail = format!("port {port:#x}");
        return refuse(ErrorCode::BAD_ACTION_BAD_OUT_PORT, detail);
    }
    for property in Properties(reader.rest()) {
        let (kind, content) = property?;
        match (kind, content.len()) {
            (ETHERNET, 4) => message.advertise = u32_at(content, 0).unwrap_or_default(),
            (ETHERNET, length) => return Err(bad_length(kind, length)),
            _ => return Err(unknown(kind)),
        }
    }
    Ok(Message::PortMod(message))
}

fn table_mod(body: &[u8]) -> Result<Message, Refusal> {
    let mut reader = Reader::new(body);
    let table_id = reader.u8()?;
    reader.skip(3)?;
    let config = reader.u32()?;
    if config != 0 || !reader.is_empty() {
        // Switches cannot be told over OpenFlow 1.3, and silence would be a lie.
        let detail = "tables have neither eviction nor events about vacancy";
        return refuse(ErrorCode::TABLE_MOD_FAILED_EPERM, detail);
    }
    Ok(Message::TableMod(TableMod { table_id, config }))
}

/// Splits properties off, each with its type and content (`ofpprop_pull`).
struct Properties<'a>(&'a [u8]);

impl<'a> Iterator for Properties<'a> {
    type Item = Result<(u16, &'a [u8]), Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = self.0;
        if all.is_empty() {
            return None;
        }
        let kind = u16_at(all, 0).unwrap_or_default();
        let length = u16_at(all, 2).map_or(0, usize::from);
        let (content, rest) = (all.get(4..length), all.get(padded(length)..));
        let (Some(content), Some(rest)) = (content, rest) else {
            self.0 = &[];
            return Some(Err(bad_length(kind, length)));
        };
        self.0 = rest;
        Some(Ok((kind, content)))
    }
}

/// Creates Open vSwitch's OFPBPC_BAD_LEN, by its number in OpenFlow 1.3.
fn bad_length(kind: u16, length: usize) -> Refusal {
    let detail = format!("property {kind} of {length} bytes");
    Refusal::new(ErrorCode::TABLE_FEATURES_FAILED_BAD_LEN, detail)
}

/// Creates Open vSwitch's OFPBPC_BAD_TYPE, by its number in OpenFlow 1.3.
fn unknown(kind: u16) -> Refusal {
    let error = match kind {
        0xffff => ErrorCode::ONF_PROPERTY_BAD_EXP_TYPE,
        _ => ErrorCode::TABLE_FEATURES_FAILED_BAD_TYPE,
    };
    Refusal::new(error, format!("unknown property {kind}"))
}
