//! The secret shared by the two instances of a migration and the agent: it yields the keys of markers and of the copied state.

use ring::{
    aead::{LessSafeKey, UnboundKey, AES_256_GCM},
    hkdf, hmac,
    rand::{SecureRandom, SystemRandom},
};
use serde_json::Value;

use super::arguments::{missing, text};
use crate::Refusal;

pub(super) const NONCE_BYTES: usize = 32;
/// The length of a marker's code in bytes.
pub(super) const CODE_BYTES: usize = 32;
const SECRET_BYTES: usize = 32;
/// The purposes of keys, so that no key serves two.
const MARKERS: &[u8] = b"nf migration: markers";
const TO_NEW: &[u8] = b"nf migration: old to new";
const TO_OLD: &[u8] = b"nf migration: new to old";
const LETTER: &[u8] = b"nf migration: letter";

/// The secret of one migration.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

/// The keys of one connection, one per direction.
pub(super) struct Keys {
    pub(super) to_new: LessSafeKey,
    pub(super) to_old: LessSafeKey,
}

impl Secret {
    /// Reads `secret`, 64 hexadecimal digits.
    ///
    /// # Errors
    /// If it is missing or wrong; the error does not repeat its value.
    pub(super) fn of(arguments: &Value) -> Result<Self, Refusal> {
        let digits = text(arguments, "secret")?
            .ok_or_else(|| missing("secret", "expected 64 hexadecimal digits"))?;
        Self::parse(digits).ok_or_else(|| {
            Refusal::new(
                "malformed",
                format!(
                    "\"secret\" is a text of {} characters, expected 64 hexadecimal digits",
                    digits.chars().count()
                ),
            )
        })
    }

    /// Reads 64 hexadecimal digits; None for anything else.
    #[must_use]
    pub fn parse(digits: &str) -> Option<Self> {
        let mut bytes = [0; SECRET_BYTES];
        if digits.len() != 2 * SECRET_BYTES || !digits.is_ascii() {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = digits
                .get(2 * index..2 * index + 2)
                .filter(|pair| !pair.starts_with('+'))
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())?;
        }
        Some(Self(bytes))
    }

    /// Returns the key that authenticates markers.
    pub(super) fn marker_key(&self) -> hmac::Key {
        let outer = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&outer, MARKERS).as_ref())
    }

    /// Derives the keys of a connection. Each side contributes a nonce, so no two connections share a key.
    pub(super) fn keys(
        &self,
        of_old: &[u8; NONCE_BYTES],
        of_new: &[u8; NONCE_BYTES],
    ) -> Option<Keys> {
        let salt = [&of_old[..], &of_new[..]].concat();
        Some(Keys {
            to_new: self.key(&salt, TO_NEW)?,
            to_old: self.key(&salt, TO_OLD)?,
        })
    }

    /// Derives the key of a letter.
    pub(super) fn letter_key(&self, salt: &[u8; NONCE_BYTES]) -> Option<LessSafeKey> {
        self.key(salt, LETTER)
    }

    fn key(&self, salt: &[u8], purpose: &[u8]) -> Option<LessSafeKey> {
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0);
        let info = [purpose];
        let key = extracted.expand(&info, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(key)))
    }
}

/// Generates a nonce: a number used once.
pub(super) fn nonce() -> std::io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    let filled = SystemRandom::new().fill(&mut nonce);
    filled.map_err(|_| std::io::Error::other("the system provides no random numbers"))?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_64_hexadecimal_digits_and_errors_do_not_repeat_it() {
        let refusal = |value: Value| Secret::of(&value).err().unwrap().detail;
        assert!(refusal(json!({})).contains("\"secret\" is missing"));
        for wrong in [
            "ab".repeat(31),
            "ab".repeat(33),
            "xy".repeat(32),
            "+1".repeat(32),
            "é".repeat(32),
        ] {
            let detail = refusal(json!({"secret": wrong}));
            assert!(
                detail.contains("expected 64 hexadecimal digits"),
                "{detail}"
            );
            assert!(!detail.contains(&wrong), "{detail}");
        }
        assert!(refusal(json!({"secret": 5})).contains("expected a text"));
        let secret = Secret::of(&json!({"secret": "0a".repeat(31) + "Ff"}))
            .ok()
            .unwrap();
        assert_eq!((secret.0[0], secret.0[31]), (10, 255));
    }
}
