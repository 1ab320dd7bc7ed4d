//! Nicira's requests that only OpenFlow 1.0 needs (include/openflow/nicira-ext.h).

use crate::error::{ErrorCode, Refusal};
use crate::header::HEADER_LEN;
use crate::message::Message;
use crate::oxm::Match;
use crate::session::Experimenter;
use crate::wire::{u32_at, Reader};
use crate::NX_VENDOR;

use super::flow_mods::{self, FlowMod10};
use super::groups::{self, FORWARDED, GROUP_MOD};
use super::matching::pull_nxm;
use super::{Formats, Request};

/// `nxt` subtypes.
pub(super) mod subtype {
    pub const SET_FLOW_FORMAT: u32 = 12;
    pub const FLOW_MOD: u32 = 13;
    pub const FLOW_MOD_TABLE_ID: u32 = 15;
}

/// Decodes a vendor's message. Those that mean the same in every version stay
/// as they are (`extension.rs`).
pub(super) fn decode(body: &[u8], formats: &Formats) -> Result<Request, Refusal> {
    let message = Experimenter::pull(&mut Reader::new(body))?;
    let mut reader = Reader::new(&message.body);
    let whole = reader.len();
    let fixed = |length: usize| match whole == length {
        true => Ok(()),
        false => Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            format!("Nicira message has {whole} bytes after its header"),
        )),
    };
    Ok(match (message.vendor, message.subtype) {
        (NX_VENDOR, subtype::SET_FLOW_FORMAT) => {
            fixed(4)?;
            let nxm = match reader.u32()? {
                0 => false,
                2 => true,
                other => {
                    let detail = format!("unknown flow format {other}");
                    return Err(Refusal::new(ErrorCode::BAD_REQUEST_EPERM, detail));
                }
            };
            Request::Formats(Formats { nxm, ..*formats })
        }
        (NX_VENDOR, subtype::FLOW_MOD) => flow_mod(&mut reader, formats)?,
        (NX_VENDOR, subtype::FLOW_MOD_TABLE_ID) => {
            fixed(8)?;
            let table_id = reader.u8()? != 0;
            Request::Formats(Formats {
                table_id,
                ..*formats
            })
        }
        (NX_VENDOR, GROUP_MOD) => Request::Message(groups::decode(&message.body)?),
        // Controllers do not send it; a message too short for it has another error.
        (NX_VENDOR, FORWARDED) if whole >= HEADER_LEN && whole % 8 == 0 => {
            let detail = "a forwarded request";
            return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_TYPE, detail));
        }
        (NX_VENDOR, FORWARDED) => {
            let detail = "a forwarded request with a wrong length";
            return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail));
        }
        _ => Request::Message(Message::Experimenter(message)),
    })
}

/// Tells whether a vendor's message has the type and the length of a flow-mod or a group-mod.
pub(super) fn is_write(frame: &[u8]) -> bool {
    let least = match (u32_at(frame, 8), u32_at(frame, 12)) {
        (Some(NX_VENDOR), Some(subtype::FLOW_MOD)) => 48,
        (Some(NX_VENDOR), Some(GROUP_MOD)) => 32,
        _ => return false,
    };
    frame.len() >= least && frame.len() % 8 == 0
}

fn flow_mod(reader: &mut Reader<'_>, formats: &Formats) -> Result<Request, Refusal> {
    flow_mods::flow_mod(pull_flow_mod(reader)?, formats)
}

/// Reads a flow-mod up to its actions, or instructions.
pub(super) fn pull_flow_mod<'a>(reader: &mut Reader<'a>) -> Result<FlowMod10<'a>, Refusal> {
    let new_cookie = reader.u64()?;
    let command = reader.u16()?;
    let (idle_timeout, hard_timeout) = (reader.u16()?, reader.u16()?);
    let priority = reader.u16()?;
    let buffer_id = reader.u32()?;
    let (out_port, flags) = (reader.u16()?, reader.u16()?);
    let length = reader.u16()?;
    reader.skip(6)?;
    let found = pull_nxm(reader, length)?;
    Ok(FlowMod10 {
        // Before the actions, whose errors come later.
        matching: Match::checked(found.matching.as_oxm())?,
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
    })
}
