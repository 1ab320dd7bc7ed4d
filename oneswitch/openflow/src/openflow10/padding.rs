//! Actions whose length is known only at their end.

use crate::wire::{padded, patch_length, Put};
use crate::NX_VENDOR;

/// `OFPAT10_VENDOR`.
pub(super) const VENDOR: u16 = 0xffff;

/// Pads the action that began at `start` and sets its length.
pub(super) fn pad(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    out.zeros(padded(length) - length);
    patch_length(out, start, 2);
}

/// Encodes Nicira's action of a subtype.
pub(super) fn put_nicira(out: &mut Vec<u8>, subtype: u16, body: &[u8]) {
    let start = out.len();
    out.put_u16(VENDOR);
    out.put_u16(0);
    out.put_u32(NX_VENDOR);
    out.put_u16(subtype);
    out.put(body);
    pad(out, start);
}
