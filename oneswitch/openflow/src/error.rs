//! Errors: their encoding, and the reasons for refusing a message.

use std::borrow::Cow;
use std::fmt;

use crate::header::{kind, HEADER_LEN, VERSION};
use crate::wire::{Put, Reader};
use crate::{NX_VENDOR, ONF_VENDOR};

/// Error type of extension errors (`OFPET_EXPERIMENTER`).
pub const EXPERIMENTER_ERROR: u16 = 0xffff;

/// `(OFPET, code)`; the constants are in `codes.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode {
    /// `ofp_error_type`.
    pub kind: u16,
    /// Code within the type; for type 0xffff the experimenter's own type.
    pub code: u16,
}

impl ErrorCode {
    /// Returns the experimenter of a type 0xffff error. Nicira's codes in Open
    /// vSwitch end at 44 and ONF's begin at 2300 (lib/ofp-errors.h), so the
    /// code distinguishes them.
    pub fn experimenter(self) -> Option<u32> {
        match (self.kind, self.code) {
            (EXPERIMENTER_ERROR, 2300..) => Some(ONF_VENDOR),
            (EXPERIMENTER_ERROR, _) => Some(NX_VENDOR),
            _ => None,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error type {} code {}", self.kind, self.code),
        }
    }
}

/// The reason for refusing a message: the OpenFlow error that Open vSwitch
/// would send, and a sentence for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error for the sender.
    pub error: ErrorCode,
    /// The text for the log.
    pub detail: Cow<'static, str>,
}

impl Refusal {
    /// Creates a refusal with its reason.
    pub fn new(error: ErrorCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            error,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error, self.detail)
    }
}

impl std::error::Error for Refusal {}

/// The message exceeds the 65,535 bytes that a header can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversize {
    /// Bytes that the message would have.
    pub length: usize,
}

impl fmt::Display for Oversize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "message of {} bytes exceeds OpenFlow's 65535",
            self.length
        )
    }
}

impl std::error::Error for Oversize {}

/// `ofp_error_msg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Type and code.
    pub error: ErrorCode,
    /// The experimenter, for type 0xffff.
    pub experimenter: Option<u32>,
    /// The start of the refused message, or a text for HELLO_FAILED.
    pub data: Box<[u8]>,
}

impl ErrorMessage {
    /// Creates an error about `offending`, a whole message or its start.
    pub fn new(error: ErrorCode, offending: &[u8]) -> Self {
        Self {
            error,
            experimenter: error.experimenter(),
            data: offending.into(),
        }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let error = ErrorCode {
            kind: reader.u16()?,
            code: reader.u16()?,
        };
        let experimenter = match error.kind {
            EXPERIMENTER_ERROR => Some(reader.u32()?),
            _ => None,
        };
        Ok(Self {
            error,
            experimenter,
            data: reader.rest().into(),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.error.kind);
        out.put_u16(self.error.code);
        if let Some(experimenter) = self.experimenter.or(self.error.experimenter()) {
            if self.error.kind == EXPERIMENTER_ERROR {
                out.put_u32(experimenter);
            }
        }
        out.put(&self.data);
    }
}

/// Encodes an error message about `offending`. As in Open vSwitch
/// (`ofperr_encode_msg__`), it carries the whole offending message, truncated
/// only at a message's limit of 65,535 bytes.
pub fn encode_error(xid: u32, error: ErrorCode, offending: &[u8]) -> Vec<u8> {
    let experimenter = error.experimenter();
    let fixed = HEADER_LEN + 4 + if experimenter.is_some() { 4 } else { 0 };
    let kept = offending.len().min(usize::from(u16::MAX) - fixed);
    let length = u16::try_from(fixed + kept).unwrap_or(u16::MAX);
    let mut out = Vec::with_capacity(fixed + kept);
    out.put(&[VERSION, kind::ERROR]);
    out.put_u16(length);
    out.put_u32(xid);
    out.put_u16(error.kind);
    out.put_u16(error.code);
    if let Some(experimenter) = experimenter {
        out.put_u32(experimenter);
    }
    out.extend(offending.iter().take(kept));
    out
}
