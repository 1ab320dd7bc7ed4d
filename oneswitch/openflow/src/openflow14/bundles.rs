//! Messages about bundles: OpenFlow 1.4 has the ONF's extension to 1.3 itself.

use crate::bundle::{ADD_MESSAGE, CONTROL};
use crate::error::{ErrorCode, Refusal, EXPERIMENTER_ERROR};
use crate::header::{kind as k, Header, HEADER_LEN, VERSION};
use crate::message::encode;
use crate::session::Experimenter;
use crate::wire::{patch_length, Put};
use crate::ONF_VENDOR;

use super::messages::{in_version_13, port_mod};
use super::{kind, VERSION as VERSION_14};

/// Open vSwitch's `OFPBFC_BAD_VERSION`, which OpenFlow 1.3 lacks.
const BAD_VERSION: ErrorCode = ErrorCode {
    kind: EXPERIMENTER_ERROR,
    code: 22,
};
/// Bytes of `ofp14_bundle_ctrl_msg`.
const HEAD: usize = 8;
/// Bytes of a port-mod without properties.
const PORT_MOD: usize = 32;

/// Returns a message about a bundle as the extension.
pub(super) fn extension(header: Header, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let is_add = header.kind == kind::BUNDLE_ADD;
    let (head, rest) = body.split_at(body.len().min(HEAD));
    let mut out = vec![VERSION, k::EXPERIMENTER, 0, 0];
    out.put_u32(header.xid);
    out.put_u32(ONF_VENDOR);
    out.put_u32(if is_add { ADD_MESSAGE } else { CONTROL });
    out.put(head);
    match is_add {
        true => out.put(&part(rest)?),
        false => out.put(rest),
    }
    if out.len() > usize::from(u16::MAX) {
        let detail = "the message is too long for OpenFlow 1.3";
        return Err(Refusal::new(ErrorCode::ONF_BUNDLE_MSG_BAD_LEN, detail));
    }
    patch_length(&mut out, 0, 2);
    Ok(out)
}

/// Translates the message in a bundle, and keeps what may follow it.
fn part(message: &[u8]) -> Result<Vec<u8>, Refusal> {
    let Some(header) = Header::parse(message) else {
        return Ok(message.to_vec());
    };
    if header.version != VERSION_14 {
        let detail = format!("message of version {} in a bundle", header.version);
        return Err(Refusal::new(BAD_VERSION, detail));
    }
    let whole = message.split_at_checked(usize::from(header.length));
    let Some((inner, padding)) = whole.filter(|(inner, _)| inner.len() >= HEADER_LEN) else {
        return Ok(in_version_13(message));
    };
    if header.kind != k::PORT_MOD || inner.len() < PORT_MOD {
        return Ok(in_version_13(message));
    }
    let translated = port_mod(inner.get(HEADER_LEN..).unwrap_or_default())?;
    let encoded = encode(header.xid, &translated);
    let too_long = |_| Refusal::new(ErrorCode::ONF_BUNDLE_MSG_BAD_LEN, "too long");
    Ok([&encoded.map_err(too_long)?, padding].concat())
}

/// Returns the type and the body of a message of the extension, if it is one.
pub(super) fn native(message: &Experimenter) -> Option<(u8, &[u8])> {
    match (message.vendor, message.subtype) {
        (ONF_VENDOR, CONTROL) => Some((kind::BUNDLE_CONTROL, &message.body)),
        _ => None,
    }
}
