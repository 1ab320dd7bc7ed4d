//! Key material as written: hexadecimal digits, never shown.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The digits of a key and its salt. Debug output hides them. Their memory is overwritten at the end.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(Zeroizing<String>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("\"********\"")
    }
}

impl From<&str> for Secret {
    fn from(digits: &str) -> Self {
        Self(Zeroizing::new(digits.to_owned()))
    }
}

/// The longest file of a key that makes sense.
const LONGEST_FILE: u64 = 4096;

impl Secret {
    /// Reads the digits from a file.
    ///
    /// # Errors
    /// The reason, without any content.
    pub fn read(path: &Path) -> Result<Self, String> {
        let long = fs::metadata(path).is_ok_and(|file| file.len() > LONGEST_FILE);
        if long {
            return Err(format!(
                "{} is longer than {LONGEST_FILE} bytes; expected the hexadecimal digits of one key",
                path.display()
            ));
        }
        let read = fs::read_to_string(path);
        let text = read.map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
        Ok(Self(Zeroizing::new(text)))
    }

    /// Decodes the digits, white space and `0x` aside.
    ///
    /// # Errors
    /// The reason, without any digit.
    pub fn bytes(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let text = self.0.trim();
        let text = text.strip_prefix("0x").unwrap_or(text);
        let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
        let mut high = None;
        for digit in text.chars().filter(|each| !each.is_whitespace()) {
            let Some(value) = digit.to_digit(16) else {
                return Err("a character is not a hexadecimal digit".into());
            };
            match high.take() {
                None => high = Some(value),
                Some(high) => bytes.push((high << 4 | value) as u8),
            }
        }
        if high.is_some() {
            return Err("an odd number of hexadecimal digits".into());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named_before_the_reason() {
        // nfagent takes errors of this form (nfagent/checking.py) for files that another location may have.
        let reason = Secret::read(Path::new("/nonexistent/key")).unwrap_err();
        assert!(
            reason.starts_with("/nonexistent/key: cannot be read: No such file"),
            "{reason}"
        );
    }

    #[test]
    fn digits_are_decoded_and_never_shown() {
        let secret = Secret::from("0x00ffA b\n");
        assert_eq!(*secret.bytes().unwrap(), [0, 255, 171]);
        assert_eq!(format!("{secret:?}"), "\"********\"");
        for wrong in ["0x123", "xyz9"] {
            let reason = Secret::from(wrong).bytes().unwrap_err();
            assert!(!reason.contains(wrong), "{reason}");
        }
    }
}
