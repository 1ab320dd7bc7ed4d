//! Records: their headers and limits (RFC 8446, 5.1; RFC 5246, 6.2).

use crate::Alert;

/// Kinds of content.
pub mod kind {
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    pub const ALERT: u8 = 21;
    pub const HANDSHAKE: u8 = 22;
    pub const APPLICATION_DATA: u8 = 23;
}

/// The bytes of a header.
pub const HEADER: usize = 5;
/// The most bytes of plaintext in a record.
pub const MAX_PLAINTEXT: usize = 1 << 14;
/// The most bytes of a record with its header. TLS 1.3 allows 256 bytes more than the plaintext, and AEADs of TLS 1.2 need fewer.
pub const MAX_RECORD: usize = HEADER + MAX_PLAINTEXT + 256;

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: u8,
    /// The bytes of the whole record.
    pub length: usize,
}

impl Header {
    /// Reads the header at the start of bytes. None: more bytes are needed.
    ///
    /// # Errors
    /// If no record begins like this.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Alert> {
        let Some([kind, major, _, high, low]) = bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = HEADER + usize::from(u16::from_be_bytes([*high, *low]));
        if !(kind::CHANGE_CIPHER_SPEC..=kind::APPLICATION_DATA).contains(kind) || *major != 3 {
            return Err(Alert::UnexpectedMessage);
        }
        if length > MAX_RECORD {
            return Err(Alert::RecordOverflow);
        }
        Ok(Some(Self {
            kind: *kind,
            length,
        }))
    }

    /// Writes a header of TLS 1.2, which is that of TLS 1.3, too.
    #[must_use]
    pub const fn bytes(kind: u8, payload: usize) -> [u8; HEADER] {
        let length = (payload as u16).to_be_bytes();
        [kind, 3, 3, length[0], length[1]]
    }
}
