//! Nicira's requests over OpenFlow 1.0 (include/openflow/nicira-ext.h).

use crate::error::{ErrorCode, Refusal};
use crate::message::Message;
use crate::session::{AsyncMasks, Experimenter, Role};
use crate::wire::{u32_at, Reader};
use crate::NX_VENDOR;

use super::flow_mods::{self, FlowMod10};
use super::matching::pull_nxm;
use super::{Formats, PacketInFormat, Request};

/// `nxt` subtypes.
mod subtype {
    pub const ROLE_REQUEST: u32 = 10;
    pub const SET_FLOW_FORMAT: u32 = 12;
    pub const FLOW_MOD: u32 = 13;
    pub const FLOW_MOD_TABLE_ID: u32 = 15;
    pub const SET_PACKET_IN_FORMAT: u32 = 16;
    pub const SET_ASYNC: u32 = 19;
    pub const CT_FLUSH_ZONE: u32 = 29;
    pub const CT_FLUSH: u32 = 32;
}

/// Decodes a vendor's message.
pub(super) fn decode(body: &[u8], formats: &Formats) -> Result<Request, Refusal> {
    let mut reader = Reader::new(body);
    let (vendor, number) = (reader.u32()?, reader.u32());
    if vendor != NX_VENDOR {
        let error = ErrorCode::BAD_REQUEST_BAD_EXPERIMENTER;
        return Err(Refusal::new(error, format!("vendor {vendor:#x}")));
    }
    let number = number?;
    let whole = reader.len();
    let fixed = |length: usize| match whole == length {
        true => Ok(()),
        false => Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            format!("Nicira message {number} has {whole} bytes after its header"),
        )),
    };
    let unknown = |what: &'static str, value: u32| {
        let detail = format!("unknown {what} {value}");
        Refusal::new(ErrorCode::BAD_REQUEST_EPERM, detail)
    };
    Ok(match number {
        subtype::ROLE_REQUEST => {
            fixed(4)?;
            Request::Role(role(reader.u32()?)?)
        }
        subtype::SET_FLOW_FORMAT => {
            fixed(4)?;
            let nxm = match reader.u32()? {
                0 => false,
                2 => true,
                other => return Err(unknown("flow format", other)),
            };
            Request::Formats(Formats { nxm, ..*formats })
        }
        subtype::FLOW_MOD => flow_mod(&mut reader, formats)?,
        subtype::FLOW_MOD_TABLE_ID => {
            fixed(8)?;
            let table_id = reader.u8()? != 0;
            Request::Formats(Formats {
                table_id,
                ..*formats
            })
        }
        subtype::SET_PACKET_IN_FORMAT => {
            let packet_in = packet_in_format(reader.rest())?;
            Request::Formats(Formats {
                packet_in,
                ..*formats
            })
        }
        subtype::SET_ASYNC => {
            fixed(24)?;
            Request::Message(Message::SetAsync(AsyncMasks::decode(reader.rest())?))
        }
        subtype::CT_FLUSH_ZONE | subtype::CT_FLUSH => {
            Request::Message(Message::Experimenter(Experimenter {
                vendor,
                subtype: number,
                body: reader.rest().into(),
            }))
        }
        other => {
            let error = ErrorCode::BAD_REQUEST_BAD_EXP_TYPE;
            return Err(Refusal::new(error, format!("Nicira message {other}")));
        }
    })
}

/// Decodes the body of NXT_SET_PACKET_IN_FORMAT.
fn packet_in_format(body: &[u8]) -> Result<PacketInFormat, Refusal> {
    let refuse = |error, detail: String| Err(Refusal::new(error, detail));
    match <[u8; 4]>::try_from(body).map(u32::from_be_bytes) {
        Ok(0) => Ok(PacketInFormat::Standard),
        Ok(1) => Ok(PacketInFormat::Nicira),
        Ok(2) => Ok(PacketInFormat::Nicira2),
        Ok(other) => refuse(
            ErrorCode::BAD_REQUEST_EPERM,
            format!("unknown packet-in format {other}"),
        ),
        Err(_) => refuse(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            format!("packet-in format of {} bytes", body.len()),
        ),
    }
}

/// Tells whether an experimenter's message of any version removes tracked
/// connections. Open vSwitch checks its content.
pub fn flushes_connections(message: &Experimenter) -> bool {
    message.vendor == NX_VENDOR
        && matches!(message.subtype, subtype::CT_FLUSH_ZONE | subtype::CT_FLUSH)
}

/// Returns the format of packet-ins that an experimenter's message of any
/// version chooses; `None` if it is about something else.
pub fn chosen_packet_in_format(message: &Experimenter) -> Option<Result<PacketInFormat, Refusal>> {
    let numbers = (message.vendor, message.subtype);
    (numbers == (NX_VENDOR, subtype::SET_PACKET_IN_FORMAT)).then(|| packet_in_format(&message.body))
}

/// Converts `nx_role`, which counts from 0.
fn role(number: u32) -> Result<u32, Refusal> {
    match number {
        0..=2 => Ok(number + Role::EQUAL),
        other => Err(Refusal::new(
            ErrorCode::ROLE_REQUEST_FAILED_BAD_ROLE,
            format!("role {other}"),
        )),
    }
}

/// Tells whether a vendor's message has the type and the length of a flow-mod.
pub(super) fn is_flow_mod(frame: &[u8]) -> bool {
    let numbers = (u32_at(frame, 8), u32_at(frame, 12));
    let fits = frame.len() >= 48 && frame.len() % 8 == 0;
    numbers == (Some(NX_VENDOR), Some(subtype::FLOW_MOD)) && fits
}

fn flow_mod(reader: &mut Reader<'_>, formats: &Formats) -> Result<Request, Refusal> {
    let new_cookie = reader.u64()?;
    let command = reader.u16()?;
    let (idle_timeout, hard_timeout) = (reader.u16()?, reader.u16()?);
    let priority = reader.u16()?;
    let buffer_id = reader.u32()?;
    let (out_port, flags) = (reader.u16()?, reader.u16()?);
    let length = reader.u16()?;
    reader.skip(6)?;
    let found = pull_nxm(reader, length)?;
    flow_mods::flow_mod(
        FlowMod10 {
            matching: found.matching,
            cookie: found.cookie,
            cookie_mask: found.cookie_mask,
            new_cookie,
            command,
            idle_timeout,
            hard_timeout,
            priority,
            buffer_id,
            out_port,
            flags,
            actions: reader.rest(),
        },
        formats,
    )
}
