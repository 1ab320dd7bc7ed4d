//! The `ofp_header` at the start of every message (OpenFlow 1.3.5, section
//! A.1), and splitting a byte stream into messages.

use crate::error::{ErrorCode, Oversize, Refusal};
use crate::wire::{patch_u16, Put};

/// Wire version of OpenFlow 1.3.
pub const VERSION: u8 = 4;
/// Wire version of OpenFlow 1.0.
pub const VERSION_10: u8 = 1;
/// Wire version of OpenFlow 1.4.
pub const VERSION_14: u8 = 5;
/// Wire version of OpenFlow 1.5.
pub const VERSION_15: u8 = 6;
/// Bytes of `ofp_header`.
pub const HEADER_LEN: usize = 8;

/// `ofp_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Wire version; 4 is OpenFlow 1.3.
    pub version: u8,
    /// One of [`kind`].
    pub kind: u8,
    /// Bytes of the whole message, header included.
    pub length: u16,
    /// Transaction id: a reply repeats its request's.
    pub xid: u32,
}

impl Header {
    /// Parses the first eight bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let &[version, kind, l0, l1, x0, x1, x2, x3] = bytes.first_chunk::<HEADER_LEN>()?;
        Some(Header {
            version,
            kind,
            length: u16::from_be_bytes([l0, l1]),
            xid: u32::from_be_bytes([x0, x1, x2, x3]),
        })
    }
}

/// `ofp_type` values (OpenFlow 1.3.5, section A.1).
pub mod kind {
    #![allow(missing_docs)]
    pub const HELLO: u8 = 0;
    pub const ERROR: u8 = 1;
    pub const ECHO_REQUEST: u8 = 2;
    pub const ECHO_REPLY: u8 = 3;
    pub const EXPERIMENTER: u8 = 4;
    pub const FEATURES_REQUEST: u8 = 5;
    pub const FEATURES_REPLY: u8 = 6;
    pub const GET_CONFIG_REQUEST: u8 = 7;
    pub const GET_CONFIG_REPLY: u8 = 8;
    pub const SET_CONFIG: u8 = 9;
    pub const PACKET_IN: u8 = 10;
    pub const FLOW_REMOVED: u8 = 11;
    pub const PORT_STATUS: u8 = 12;
    pub const PACKET_OUT: u8 = 13;
    pub const FLOW_MOD: u8 = 14;
    pub const GROUP_MOD: u8 = 15;
    pub const PORT_MOD: u8 = 16;
    pub const TABLE_MOD: u8 = 17;
    pub const MULTIPART_REQUEST: u8 = 18;
    pub const MULTIPART_REPLY: u8 = 19;
    pub const BARRIER_REQUEST: u8 = 20;
    pub const BARRIER_REPLY: u8 = 21;
    pub const QUEUE_GET_CONFIG_REQUEST: u8 = 22;
    pub const QUEUE_GET_CONFIG_REPLY: u8 = 23;
    pub const ROLE_REQUEST: u8 = 24;
    pub const ROLE_REPLY: u8 = 25;
    pub const GET_ASYNC_REQUEST: u8 = 26;
    pub const GET_ASYNC_REPLY: u8 = 27;
    pub const SET_ASYNC: u8 = 28;
    pub const METER_MOD: u8 = 29;
}

/// Returns the length of the message at the start of `buffer`.
///
/// `Ok(None)`: more bytes are needed. `Err`: the header claims fewer bytes
/// than a header has, so that the stream can no longer be split.
pub fn frame_length(buffer: &[u8]) -> Result<Option<usize>, Refusal> {
    let Some(header) = Header::parse(buffer) else {
        return Ok(None);
    };
    let length = usize::from(header.length);
    if length < HEADER_LEN {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            format!("message length {length} is shorter than a header"),
        ));
    }
    Ok((buffer.len() >= length).then_some(length))
}

/// Tells whether a message of `kind` that changes a switch can have `length`
/// bytes: those of its fixed part, and whole entries after it. Open vSwitch
/// checks this before the sender and the content (lib/ofp-msgs.h).
pub fn fits_kind(kind: u8, length: u16) -> bool {
    let (fixed, entry) = match kind {
        kind::PACKET_OUT => (24, 1),
        kind::FLOW_MOD => (48, 8),
        kind::GROUP_MOD | kind::METER_MOD => (16, 8),
        kind::PORT_MOD => return length == 40,
        kind::TABLE_MOD => return length == 16,
        _ => return true,
    };
    length >= fixed && (length - fixed) % entry == 0
}

/// Replaces the transaction id of an encoded message in place; ignores a buffer
/// that is shorter than a header.
pub fn set_xid(frame: &mut [u8], xid: u32) {
    if let Some(slot) = frame.get_mut(4..HEADER_LEN) {
        slot.copy_from_slice(&xid.to_be_bytes());
    }
}

/// Starts a message; [`finish`] sets its length.
pub(crate) fn start(xid: u32, kind_number: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.put(&[VERSION, kind_number, 0, 0]);
    out.put_u32(xid);
    out
}

/// Sets the length of a message that [`start`] began.
pub(crate) fn finish(mut out: Vec<u8>) -> Result<Vec<u8>, Oversize> {
    let length = u16::try_from(out.len()).map_err(|_| Oversize { length: out.len() })?;
    patch_u16(&mut out, 2, length);
    Ok(out)
}
