//! Messages of OpenFlow 1.4 that can also be in a bundle.

use crate::error::{ErrorCode, Refusal};
use crate::header::{kind as k, VERSION};
use crate::message::Message;
use crate::port::{is_representable, PortMod};
use crate::wire::{padded, u16_at, u32_at, Reader};

/// `OFPPMPT14_ETHERNET`, a property of a port-mod.
const ETHERNET: u16 = 0;
/// Where `ofp_flow_mod` has its importance.
const IMPORTANCE: std::ops::Range<usize> = 46..48;

/// Changes what is fixed in a message of the same form.
pub(super) fn in_version_13(frame: &[u8], kind: u8) -> Vec<u8> {
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

pub(super) fn port_mod(body: &[u8]) -> Result<Message, Refusal> {
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
        return Err(Refusal::new(ErrorCode::BAD_ACTION_BAD_OUT_PORT, detail));
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
