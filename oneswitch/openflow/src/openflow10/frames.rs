//! The headers of messages of OpenFlow 1.0.

use crate::header::{HEADER_LEN, VERSION_10};
use crate::wire::{patch_length, Put};

/// Builds a message. Its length must be that of a message.
pub(super) fn message(kind: u8, xid: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + body.len());
    out.put(&[VERSION_10, kind, 0, 0]);
    out.put_u32(xid);
    out.put(body);
    patch_length(&mut out, 0, 2);
    out
}
