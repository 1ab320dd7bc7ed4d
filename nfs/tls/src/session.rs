//! An established session: what records mean after the handshake.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::{
    keys::{Keys, MOST_RECORDS},
    record::{kind, MAX_PLAINTEXT},
    Alert,
};

/// The messages without data that a client may send in a row: each costs a decryption.
const MOST_EMPTY: u32 = 32;
/// The records after which the keys for sending are updated.
const UPDATE_AFTER: u64 = MOST_RECORDS - 1024;
const KEY_UPDATE: u8 = 24;
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;

/// Both directions of an established connection, as plain data. Filled with zeros, it holds no keys.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Session {
    from_client: Keys,
    to_client: Keys,
    /// The messages without data in a row.
    empty: u32,
    /// The client wants the keys of the other direction updated, too.
    must_update: u32,
}

/// The meaning of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Data, at this place in the record.
    Data(Range<usize>),
    /// The client sends no more data.
    Closed,
    /// The client has given up.
    Aborted,
    /// Nothing that concerns the application.
    Nothing,
}

impl Session {
    pub(crate) fn new(from_client: Keys, to_client: Keys) -> Self {
        Self {
            from_client,
            to_client,
            empty: 0,
            must_update: 0,
        }
    }

    /// Tells whether the version is TLS 1.3; otherwise it is TLS 1.2.
    #[must_use]
    pub fn is_tls13(&self) -> bool {
        self.to_client.is_tls13()
    }

    /// Opens a whole record in place.
    ///
    /// # Errors
    /// The alert to answer with; the session is unusable then.
    pub fn open(&mut self, record: &mut [u8]) -> Result<Received, Alert> {
        let (kind, content) = self.from_client.open(record)?;
        let bytes = record.get(content.clone()).unwrap_or_default();
        let received = match (kind, bytes) {
            (kind::APPLICATION_DATA, [_, ..]) => {
                self.empty = 0;
                return Ok(Received::Data(content));
            }
            (kind::APPLICATION_DATA, []) => Received::Nothing,
            (kind::ALERT, [_, CLOSE_NOTIFY]) => Received::Closed,
            (kind::ALERT, [_, USER_CANCELED]) => Received::Nothing,
            (kind::ALERT, [_, _]) => Received::Aborted,
            (kind::HANDSHAKE, [KEY_UPDATE, 0, 0, 1, wants @ (0 | 1)])
                if self.from_client.is_tls13() =>
            {
                self.must_update |= u32::from(*wants);
                self.from_client.update()?;
                Received::Nothing
            }
            // Renegotiation, among others.
            _ => return Err(Alert::UnexpectedMessage),
        };
        self.empty += 1;
        if self.empty > MOST_EMPTY {
            return Err(Alert::UnexpectedMessage);
        }
        Ok(received)
    }

    /// Appends the records of data.
    ///
    /// # Errors
    /// If the keys are used up: TLS 1.2 cannot update them.
    pub fn seal(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Alert> {
        for part in data.chunks(MAX_PLAINTEXT) {
            self.update_if_due(out)?;
            self.to_client.seal(kind::APPLICATION_DATA, part, out)?;
        }
        Ok(())
    }

    fn update_if_due(&mut self, out: &mut Vec<u8>) -> Result<(), Alert> {
        let is_due = self.must_update != 0 || self.to_client.sequence() >= UPDATE_AFTER;
        if is_due && self.to_client.is_tls13() {
            let message = [KEY_UPDATE, 0, 0, 1, 0];
            self.to_client.seal(kind::HANDSHAKE, &message, out)?;
            self.to_client.update()?;
            self.must_update = 0;
        }
        Ok(())
    }

    /// Appends the record of an alert.
    pub fn alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        // Without keys left, the connection ends without it.
        let _ = self.to_client.seal(kind::ALERT, &alert.bytes(), out);
    }

    /// Returns the most bytes of records that data of this length needs.
    #[must_use]
    pub const fn sealed(length: usize) -> usize {
        // Header, explicit nonce or kind, tag; an update of the keys.
        length + length.div_ceil(MAX_PLAINTEXT) * 29 + 32
    }
}
