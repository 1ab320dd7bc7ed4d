//! Messages about bundles: OpenFlow 1.4 has the ONF's extension to 1.3 itself.

use crate::bundle::{ADD_MESSAGE, CONTROL};
use crate::error::{ErrorCode, Refusal, EXPERIMENTER_ERROR};
use crate::header::{kind as k, Header, HEADER_LEN, VERSION};
use crate::message::encode;
use crate::session::Experimenter;
use crate::wire::{patch_length, Put};
use crate::ONF_VENDOR;

use super::kind;
use super::messages::{in_version_13, port_mod};

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
pub(crate) fn extension(
    header: Header,
    body: &[u8],
    translate: impl Fn(&[u8]) -> Result<Vec<u8>, Refusal>,
) -> Result<Vec<u8>, Refusal> {
    let is_add = header.kind == kind::BUNDLE_ADD;
    let (head, rest) = body.split_at(body.len().min(HEAD));
    let mut out = vec![VERSION, k::EXPERIMENTER, 0, 0];
    out.put_u32(header.xid);
    out.put_u32(ONF_VENDOR);
    out.put_u32(if is_add { ADD_MESSAGE } else { CONTROL });
    out.put(head);
    match is_add {
        true => out.put(&part(header, rest, translate)?),
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
fn part(
    outer: Header,
    message: &[u8],
    translate: impl Fn(&[u8]) -> Result<Vec<u8>, Refusal>,
) -> Result<Vec<u8>, Refusal> {
    let Some(header) = Header::parse(message) else {
        return Ok(message.to_vec());
    };
    if header.version != outer.version {
        let detail = format!("message of version {} in a bundle", header.version);
        return Err(Refusal::new(BAD_VERSION, detail));
    }
    let whole = message.split_at_checked(usize::from(header.length));
    // Open vSwitch reads only a message that has the xid of the one around it.
    let is_read = |inner: &[u8]| inner.len() >= HEADER_LEN && header.xid == outer.xid;
    match whole.filter(|(inner, _)| is_read(inner)) {
        Some((inner, padding)) => Ok([&translate(inner)?, padding].concat()),
        None => Ok(in_version_13(message)),
    }
}

/// Translates a whole message that OpenFlow 1.4 allows in a bundle.
pub(crate) fn inner(inner: &[u8]) -> Result<Vec<u8>, Refusal> {
    let Some(header) = Header::parse(inner) else {
        return Ok(inner.to_vec());
    };
    if header.kind != k::PORT_MOD || inner.len() < PORT_MOD {
        return Ok(in_version_13(inner));
    }
    let translated = port_mod(inner.get(HEADER_LEN..).unwrap_or_default())?;
    let encoded = encode(header.xid, &translated);
    let too_long = |_| Refusal::new(ErrorCode::ONF_BUNDLE_MSG_BAD_LEN, "too long");
    encoded.map_err(too_long)
}

/// Returns the type and the body of a message of the extension, if it is one.
pub(super) fn native(message: &Experimenter) -> Option<(u8, &[u8])> {
    match (message.vendor, message.subtype) {
        (ONF_VENDOR, CONTROL) => Some((kind::BUNDLE_CONTROL, &message.body)),
        _ => None,
    }
}
