//! The keys of one direction as plain data, and the protection of its records.

use aws_lc_rs::{
    aead::{self, Aad, LessSafeKey, Nonce, UnboundKey, NONCE_LEN},
    hkdf,
};
use bytemuck::{Pod, Zeroable};
use rustls::ConnectionTrafficSecrets;

use crate::{
    record::{kind, Header, HEADER, MAX_PLAINTEXT},
    Alert,
};

/// The records after which a key must not protect more: the confidentiality limit of AES-GCM (RFC 8446, 5.5).
pub const MOST_RECORDS: u64 = 1 << 24;

const TAG: usize = 16;
/// The bytes of the nonce that a record of AES-GCM in TLS 1.2 carries.
const EXPLICIT: usize = 8;

mod version {
    pub const TLS12: u8 = 2;
    pub const TLS13: u8 = 3;
}

mod cipher {
    pub const AES_128_GCM: u8 = 1;
    pub const AES_256_GCM: u8 = 2;
    pub const CHACHA20_POLY1305: u8 = 3;
}

/// The keys of one direction.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Keys {
    /// The traffic secret, from which the next keys follow; TLS 1.3 only.
    secret: [u8; 48],
    key: [u8; 32],
    iv: [u8; NONCE_LEN],
    cipher: u8,
    version: u8,
    /// The bytes of `secret` in use.
    hash: u8,
    reserved: u8,
    /// The number of the next record.
    sequence: u64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Keys")
            .field("version", &self.version)
            .field("cipher", &self.cipher)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// Takes over what rustls has agreed upon. `secret`: the traffic secret of TLS 1.3. None: a cipher that this record layer lacks.
    #[must_use]
    pub fn new(
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
        secret: Option<&[u8]>,
    ) -> Option<Self> {
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (cipher::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (cipher::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (cipher::CHACHA20_POLY1305, key, iv)
            }
            _ => return None,
        };
        let mut keys = Self::zeroed();
        keys.cipher = cipher;
        keys.sequence = sequence;
        keys.key
            .get_mut(..key.as_ref().len())?
            .copy_from_slice(key.as_ref());
        keys.iv = iv.as_ref().try_into().ok()?;
        keys.version = version::TLS12;
        if let Some(secret) = secret {
            keys.version = version::TLS13;
            keys.keep(secret)?;
        }
        Some(keys)
    }

    /// Derives the keys of a traffic secret of TLS 1.3, for a cipher with keys of 16 or 32 bytes.
    #[must_use]
    pub fn derived(secret: &[u8], suite: rustls::CipherSuite) -> Option<Self> {
        let mut keys = Self::zeroed();
        keys.version = version::TLS13;
        keys.cipher = match suite {
            rustls::CipherSuite::TLS13_AES_128_GCM_SHA256 => cipher::AES_128_GCM,
            rustls::CipherSuite::TLS13_AES_256_GCM_SHA384 => cipher::AES_256_GCM,
            rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => cipher::CHACHA20_POLY1305,
            _ => return None,
        };
        keys.keep(secret)?;
        keys.derive().ok()?;
        Some(keys)
    }

    fn keep(&mut self, secret: &[u8]) -> Option<()> {
        self.secret.get_mut(..secret.len())?.copy_from_slice(secret);
        self.hash = secret.len() as u8;
        Some(())
    }

    pub const fn is_tls13(&self) -> bool {
        self.version == version::TLS13
    }

    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    fn algorithm(&self) -> Result<&'static aead::Algorithm, Alert> {
        match self.cipher {
            cipher::AES_128_GCM => Ok(&aead::AES_128_GCM),
            cipher::AES_256_GCM => Ok(&aead::AES_256_GCM),
            cipher::CHACHA20_POLY1305 => Ok(&aead::CHACHA20_POLY1305),
            _ => Err(Alert::InternalError),
        }
    }

    fn key(&self) -> Result<LessSafeKey, Alert> {
        let algorithm = self.algorithm()?;
        let key = UnboundKey::new(algorithm, &self.key[..algorithm.key_len()]);
        Ok(LessSafeKey::new(key.map_err(|_| Alert::InternalError)?))
    }

    /// Returns the nonce of the next record, unless it carries its own.
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        let number = self.sequence.to_be_bytes();
        for (byte, add) in nonce[NONCE_LEN - number.len()..].iter_mut().zip(number) {
            *byte ^= add;
        }
        nonce
    }

    /// Tells whether records carry a part of the nonce.
    const fn is_explicit(&self) -> bool {
        !self.is_tls13() && self.cipher != cipher::CHACHA20_POLY1305
    }

    /// Returns the additional data of a record of TLS 1.2.
    fn additional(&self, kind: u8, length: usize) -> [u8; 13] {
        let mut data = [0; 13];
        data[..8].copy_from_slice(&self.sequence.to_be_bytes());
        data[8..].copy_from_slice(&Header::bytes(kind, length));
        data
    }

    /// Appends the record of a plaintext of at most [`MAX_PLAINTEXT`] bytes.
    ///
    /// # Errors
    /// If the plaintext is longer, or the key is used up.
    pub fn seal(&mut self, kind: u8, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), Alert> {
        if plaintext.len() > MAX_PLAINTEXT || self.sequence >= MOST_RECORDS {
            return Err(Alert::InternalError);
        }
        let key = self.key()?;
        let nonce = self.nonce();
        let start = out.len();
        let tag = if self.is_tls13() {
            let header = Header::bytes(kind::APPLICATION_DATA, plaintext.len() + 1 + TAG);
            out.extend_from_slice(&header);
            out.extend_from_slice(plaintext);
            out.push(kind);
            let nonce = Nonce::assume_unique_for_key(nonce);
            let content = &mut out[start + HEADER..];
            key.seal_in_place_separate_tag(nonce, Aad::from(header), content)
        } else {
            let explicit = if self.is_explicit() { EXPLICIT } else { 0 };
            out.extend_from_slice(&Header::bytes(kind, explicit + plaintext.len() + TAG));
            out.extend_from_slice(&nonce[NONCE_LEN - explicit..]);
            out.extend_from_slice(plaintext);
            let nonce = Nonce::assume_unique_for_key(nonce);
            let data = Aad::from(self.additional(kind, plaintext.len()));
            let content = &mut out[start + HEADER + explicit..];
            key.seal_in_place_separate_tag(nonce, data, content)
        };
        match tag {
            Ok(tag) => out.extend_from_slice(tag.as_ref()),
            Err(_) => {
                out.truncate(start);
                return Err(Alert::InternalError);
            }
        }
        self.sequence += 1;
        Ok(())
    }

    /// Opens a whole record in place. Returns the kind of its content, and where the content is.
    ///
    /// # Errors
    /// The alert to answer with.
    pub fn open(&mut self, record: &mut [u8]) -> Result<(u8, std::ops::Range<usize>), Alert> {
        let outer = *record.first().ok_or(Alert::DecodeError)?;
        let explicit = if self.is_explicit() { EXPLICIT } else { 0 };
        let length = record
            .len()
            .checked_sub(HEADER + explicit + TAG)
            .ok_or(Alert::BadRecordMac)?;
        let mut nonce = self.nonce();
        nonce[NONCE_LEN - explicit..].copy_from_slice(&record[HEADER..HEADER + explicit]);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let key = self.key()?;
        let (header, content) = record.split_at_mut(HEADER);
        let opened = if self.is_tls13() {
            if outer != kind::APPLICATION_DATA {
                return Err(Alert::UnexpectedMessage);
            }
            key.open_in_place(nonce, Aad::from(&*header), content)
        } else {
            let data = Aad::from(self.additional(outer, length));
            key.open_in_place(nonce, data, &mut content[explicit..])
        };
        let opened = opened.map_err(|_| Alert::BadRecordMac)?;
        self.sequence += 1;
        let start = HEADER + explicit;
        let (kind, length) = if self.is_tls13() {
            let kind = opened.iter().rposition(|byte| *byte != 0);
            let at = kind.ok_or(Alert::UnexpectedMessage)?;
            (opened[at], at)
        } else {
            (outer, opened.len())
        };
        if length > MAX_PLAINTEXT {
            return Err(Alert::RecordOverflow);
        }
        Ok((kind, start..start + length))
    }

    /// Replaces the keys by the next ones (RFC 8446, 7.2).
    ///
    /// # Errors
    /// If they are not those of TLS 1.3.
    pub fn update(&mut self) -> Result<(), Alert> {
        let mut next = [0; 48];
        let length = usize::from(self.hash);
        self.expand(b"traffic upd", &mut next[..length])?;
        self.secret = next;
        self.derive()
    }

    /// Derives key and initialization vector from the secret.
    fn derive(&mut self) -> Result<(), Alert> {
        let length = self.algorithm()?.key_len();
        let (mut key, mut iv) = ([0; 32], [0; NONCE_LEN]);
        self.expand(b"key", &mut key[..length])?;
        self.expand(b"iv", &mut iv)?;
        self.key = key;
        self.iv = iv;
        self.sequence = 0;
        Ok(())
    }

    /// Computes HKDF-Expand-Label of the secret with an empty context (RFC 8446, 7.1).
    fn expand(&self, label: &[u8], out: &mut [u8]) -> Result<(), Alert> {
        let algorithm = match self.hash {
            32 => hkdf::HKDF_SHA256,
            48 => hkdf::HKDF_SHA384,
            _ => return Err(Alert::InternalError),
        };
        let secret = &self.secret[..usize::from(self.hash)];
        let length = (out.len() as u16).to_be_bytes();
        let size = [(6 + label.len()) as u8];
        let info: [&[u8]; 5] = [&length, &size, b"tls13 ", label, &[0]];
        let secret = hkdf::Prk::new_less_safe(algorithm, secret);
        secret
            .expand(&info, Length(out.len()))
            .and_then(|bytes| bytes.fill(out))
            .map_err(|_| Alert::InternalError)
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}
