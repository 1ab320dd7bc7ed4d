//! Errors, and the reasons for refusing a message.

use std::borrow::Cow;
use std::fmt;

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
