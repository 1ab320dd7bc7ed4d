//! Requests of OpenFlow 1.4.

use crate::async_config;
use crate::error::{ErrorCode, Refusal};
use crate::flow_monitor::{Form, MonitorRequests, STANDARD_STATS};
use crate::header::{fits_kind, kind as k, Header, HEADER_LEN};
use crate::message::{encode, Message};
use crate::multipart::{multipart_kind as stats, Multipart, MultipartRequest};
use crate::nicira::subtype;
use crate::session::AsyncMasks;
use crate::wire::{u16_at, u32_at, Reader};
use crate::{NX_VENDOR, ONF_VENDOR};

use super::tables::TableChange;
use super::{bundles, kind, messages, multipart_kind, Request, VERSION as VERSION_14};

/// `OFPMPF_REQ_MORE`.
const MORE: u16 = 1;

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
        k::PORT_MOD => messages::port_mod(body)?,
        k::TABLE_MOD => return TableChange::decode(body).map(Request::TableMod),
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
        k::MULTIPART_REQUEST if u16_at(body, 0) == Some(STANDARD_STATS) => {
            let more = u16_at(body, 2).is_some_and(|flags| flags & MORE != 0);
            let entries = body.get(8..).unwrap_or_default();
            let requests = MonitorRequests::pull(Form::Standard, &mut Reader::new(entries))?;
            return Ok(Request::Monitors(Multipart {
                more,
                body: MultipartRequest::FlowMonitor(requests),
            }));
        }
        k::MULTIPART_REQUEST if is_standard_statistics(body) => {
            return refuse(
                ErrorCode::BAD_REQUEST_BAD_EXP_TYPE,
                "OpenFlow 1.4 has these statistics itself",
            );
        }
        kind::BUNDLE_CONTROL | kind::BUNDLE_ADD => {
            return bundles::extension(header, body, bundles::inner).map(Request::Frame)
        }
        _ => return Ok(Request::Frame(messages::in_version_13(frame))),
    };
    let encoded = encode(header.xid, &translated);
    let too_long = |_| Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, "too long");
    encoded.map(Request::Frame).map_err(too_long)
}

/// Tells whether Open vSwitch refuses a message to slaves, which it does right
/// after checking its length.
pub fn is_write(frame: &[u8]) -> bool {
    Header::parse(frame).is_some_and(|header| {
        header.version == VERSION_14
            && is_write_kind(header.kind)
            && fits(header.kind, header.length)
    })
}

pub(crate) fn is_write_kind(kind: u8) -> bool {
    matches!(
        kind,
        k::PACKET_OUT | k::FLOW_MOD | k::GROUP_MOD | k::PORT_MOD | k::TABLE_MOD | k::METER_MOD
    )
}

/// Tells whether a message of this kind can have `length` bytes.
pub(crate) fn fits(number: u8, length: u16) -> bool {
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

/// Tells whether a request is for statistics that are an extension of the ONF's
/// to earlier versions only.
fn is_standard_statistics(body: &[u8]) -> bool {
    u16_at(body, 0) == Some(stats::EXPERIMENTER)
        && u32_at(body, 8) == Some(ONF_VENDOR)
        && body.len() >= 16
}
