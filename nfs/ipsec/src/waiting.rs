//! The packets of a batch that wait for the ciphers.

use crate::{
    cipher::{Cipher, Data},
    esp,
    outer::Peer,
};

/// A packet that waits for its encryption.
pub struct ToSeal<'a> {
    pub index: usize,
    pub cipher: &'a Cipher,
    pub data: Data,
    pub iv: [u8; esp::IV],
    /// The start of the part to encrypt.
    pub start: usize,
    /// Whether a checksum covers the encrypted part.
    pub is_summed: bool,
}

/// A packet that waits for its decryption.
pub struct ToOpen<'a> {
    pub index: usize,
    pub cipher: &'a Cipher,
    /// The place of its run.
    pub at: usize,
    /// The start of the ESP packet.
    pub start: usize,
    pub sequence: u64,
    pub data: Data,
    pub iv: [u8; esp::IV],
    /// The class of the outer packet.
    pub class: u8,
    /// The sender, if it came in UDP.
    pub peer: Option<Peer>,
    pub is_authentic: bool,
    /// Whether the run ends with it.
    pub is_last: bool,
}
