//! What a function keeps outside its state, such as keys, as a text that only holders of the migration's secret can read or change.
//!
//! The agent passes it from the old instance to the new one, beside the state. It has hexadecimal digits: salt (32 bytes), content, encrypted, and
//! tag (16 bytes). It uses AES-256-GCM with a key that is derived from the secret and the salt, so that no key encrypts two letters, and authenticates
//! the epoch.

use ring::aead::{Aad, Nonce, NONCE_LEN};
use zeroize::Zeroizing;

use super::secret::{nonce, Secret, NONCE_BYTES};
use crate::Refusal;

/// The longest content: its digits and a configuration fit into a line of the control socket.
pub(super) const LONGEST: usize = 1 << 20;

/// Encrypts content; returns None if it is too long, or if the system has no random numbers.
pub(super) fn seal(secret: &Secret, epoch: u64, content: &[u8]) -> Option<String> {
    if content.len() > LONGEST {
        return None;
    }
    let salt = nonce().ok()?;
    let key = secret.letter_key(&salt)?;
    // Encrypted in place: no copy of the content is left.
    let mut bytes = [&salt[..], content].concat();
    let (_, body) = bytes.split_at_mut(NONCE_BYTES);
    let tag = key
        .seal_in_place_separate_tag(only(), Aad::from(epoch.to_be_bytes()), body)
        .ok()?;
    bytes.extend_from_slice(tag.as_ref());
    Some(digits(&bytes))
}

/// Decrypts a letter of this epoch.
///
/// # Errors
/// If it is damaged, or another secret or epoch's.
pub(super) fn open(
    secret: &Secret,
    epoch: u64,
    letter: &str,
) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let refused = || {
        let detail = "\"sealed\" is not what \"prepare\" of this migration answered, or the secret is another one";
        Refusal::new("sealed", detail)
    };
    let bytes = bytes(letter).ok_or_else(refused)?;
    let (salt, body) = bytes.split_first_chunk().ok_or_else(refused)?;
    let key = secret.letter_key(salt).ok_or_else(refused)?;
    let mut content = Zeroizing::new(body.to_vec());
    let length = key
        .open_in_place(only(), Aad::from(epoch.to_be_bytes()), &mut content)
        .map_err(|_| refused())?
        .len();
    content.truncate(length);
    Ok(content)
}

/// Returns the nonce of the only record of a key.
fn only() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn digits(bytes: &[u8]) -> String {
    let all = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    all.filter_map(|half| char::from_digit(half.into(), 16))
        .collect()
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let halves: Option<Vec<u32>> = digits.chars().map(|digit| digit.to_digit(16)).collect();
    let halves = halves?;
    let pairs = halves.chunks(2).map(|pair| match pair {
        [high, low] => Some((high << 4 | low) as u8),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(digit: &str) -> Secret {
        Secret::parse(&digit.repeat(64)).unwrap()
    }

    #[test]
    fn only_the_secret_and_the_epoch_open_a_letter() {
        for content in [&b""[..], b"a key", &[7; 5000]] {
            let letter = seal(&secret("1"), 3, content).unwrap();
            assert_eq!(*open(&secret("1"), 3, &letter).unwrap(), content);
            assert!(!letter.contains(&digits(b"a key")));
            assert!(open(&secret("2"), 3, &letter).is_err());
            assert!(open(&secret("1"), 4, &letter).is_err());
        }
        let twice = [0, 1].map(|_| seal(&secret("1"), 3, b"a key").unwrap());
        assert_ne!(twice[0][64..], twice[1][64..]);
        assert!(seal(&secret("1"), 3, &vec![0; LONGEST + 1]).is_none());
    }

    #[test]
    fn a_changed_letter_is_refused() {
        let letter = seal(&secret("1"), 3, b"a key").unwrap();
        for at in 0..letter.len() {
            let digit = if &letter[at..=at] == "0" { "1" } else { "0" };
            let changed = format!("{}{digit}{}", &letter[..at], &letter[at + 1..]);
            assert!(open(&secret("1"), 3, &changed).is_err(), "{at}");
            assert!(open(&secret("1"), 3, &letter[..at]).is_err(), "{at}");
        }
        assert!(open(&secret("1"), 3, &format!("é{}", &letter[1..])).is_err());
    }
}
