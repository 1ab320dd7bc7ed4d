//! Alerts (RFC 8446, 6).

/// The description of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Alert {
    CloseNotify = 0,
    UnexpectedMessage = 10,
    BadRecordMac = 20,
    RecordOverflow = 22,
    DecodeError = 50,
    InternalError = 80,
}

impl Alert {
    /// Returns the content of the record: level and description.
    #[must_use]
    pub const fn bytes(self) -> [u8; 2] {
        let level = if matches!(self, Self::CloseNotify) {
            1
        } else {
            2
        };
        [level, self as u8]
    }
}
