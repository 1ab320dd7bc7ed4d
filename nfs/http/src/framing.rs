//! Fields that decide where a message ends and whether its connection stays open.

use crate::{
    fault::Rejection,
    fields::{elements, Header},
    Fault,
};

/// A version that this parser speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Http10,
    Http11,
}

impl Version {
    /// Reads `HTTP/1.1` or `HTTP/1.0` (RFC 9112 2.3); 505 for other versions.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Rejection> {
        match text {
            b"HTTP/1.1" => Ok(Self::Http11),
            b"HTTP/1.0" => Ok(Self::Http10),
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
                Err(Rejection::new(505, "version", text, "HTTP/1.1 or HTTP/1.0"))
            }
            _ => Err(Fault::new("version", text, "HTTP/1.1 or HTTP/1.0").into()),
        }
    }
}

/// The bytes behind a request's head that belong to it (RFC 9112 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    None,
    Length(u64),
    Chunked,
}

/// The framing of a message, gathered from the fields of one head, read one after the other.
#[derive(Debug, Default)]
pub(crate) struct Framing<'a> {
    pub length: Option<u64>,
    pub chunked: bool,
    pub close: bool,
    pub keep_alive: bool,
    pub connection_upgrade: bool,
    pub upgrade: Option<&'a str>,
}

impl<'a> Framing<'a> {
    /// Reads a header if it is about framing. Refuses a second length or coding, whatever it says (RFC 9112 6.3).
    pub fn read(&mut self, header: &Header<'a>) -> Result<(), Rejection> {
        match header.name.len() {
            7 if header.is("upgrade") => self.read_upgrade(header.value)?,
            10 if header.is("connection") => self.read_connection(header.value),
            14 if header.is("content-length") => {
                let length = parse_length(header.value)?;
                if self.length.replace(length).is_some() {
                    let expected = "one such line";
                    return Err(Fault::new("Content-Length", header.value, expected).into());
                }
            }
            17 if header.is("transfer-encoding") => self.read_coding(header.value)?,
            _ => {}
        }
        Ok(())
    }

    fn read_coding(&mut self, value: &[u8]) -> Result<(), Rejection> {
        if !value.eq_ignore_ascii_case(b"chunked") {
            // RFC 9112 6.1: 501 for a coding that the recipient does not understand.
            let known = elements(value).any(|coding| coding.eq_ignore_ascii_case(b"chunked"));
            let status = if known || value.is_empty() { 400 } else { 501 };
            let expected = "\"chunked\" alone";
            return Err(Rejection::new(status, "Transfer-Encoding", value, expected));
        }
        if std::mem::replace(&mut self.chunked, true) {
            return Err(Fault::new("Transfer-Encoding", value, "one such line").into());
        }
        Ok(())
    }

    /// RFC 9110 7.6.1.
    fn read_connection(&mut self, value: &[u8]) {
        for option in elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.connection_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn read_upgrade(&mut self, value: &'a [u8]) -> Result<(), Rejection> {
        let value = crate::fields::text("Upgrade", value)?;
        if self.upgrade.replace(value).is_some() {
            return Err(Fault::new("Upgrade", value.as_bytes(), "one such line").into());
        }
        Ok(())
    }

    /// Refuses fields that contradict each other or the version (RFC 9112 6.1).
    pub fn check(&self, version: Version) -> Result<(), Rejection> {
        if !self.chunked {
            return Ok(());
        }
        if self.length.is_some() {
            let expected = "no Content-Length beside it";
            return Err(Fault::new("Transfer-Encoding", b"chunked", expected).into());
        }
        if version == Version::Http10 {
            let expected = "HTTP/1.1 with such a line";
            return Err(Fault::new("Transfer-Encoding", b"chunked", expected).into());
        }
        Ok(())
    }

    /// Tells whether the connection stays open behind the message (RFC 9112 9.3).
    pub fn persists(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

/// Reads a length: digits only, without leading zeros, which some readers take for another base.
fn parse_length(value: &[u8]) -> Result<u64, Fault> {
    let fault = || {
        let expected =
            "one decimal number below 2^63, without sign, list or leading zeros (RFC 9110 8.6)";
        Fault::new("Content-Length", value, expected)
    };
    if let [] | [b'0', _, ..] = value {
        return Err(fault());
    }
    let mut length: u64 = 0;
    for &byte in value {
        let digit = byte.wrapping_sub(b'0');
        let next = length
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(digit.into()));
        length = next
            .filter(|&next| digit <= 9 && next <= i64::MAX as u64)
            .ok_or_else(fault)?;
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(&'static str, &'static str)]) -> Result<Framing<'static>, u16> {
        let mut framing = Framing::default();
        for (name, value) in lines {
            let value = value.as_bytes();
            let header = Header {
                name,
                value,
                line: 0..0,
            };
            framing.read(&header).map_err(|r| r.status)?;
        }
        Ok(framing)
    }

    /// RFC 9110 8.6.
    #[test]
    fn a_length_is_one_decimal_number() {
        assert_eq!(parse_length(b"0"), Ok(0));
        assert_eq!(parse_length(b"9223372036854775807"), Ok(i64::MAX as u64));
        for wrong in [
            "",
            "9223372036854775808",
            "18446744073709551616",
            "99999999999999999999999",
            "+5",
            "-5",
            "5 ",
            "5 5",
            "5,5",
            "5, 6",
            "0x5",
            "5a",
            "05",
            "00",
            "5.0",
            "1e3",
            "\u{665}",
        ] {
            assert!(parse_length(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    /// RFC 9112 6.3, rule 5; RFC 9112 6.1.
    #[test]
    fn repeated_lengths_and_codings_are_refused_even_if_they_agree() {
        assert_eq!(
            read(&[("Content-Length", "5"), ("content-length", "5")]).unwrap_err(),
            400
        );
        assert_eq!(
            read(&[
                ("Transfer-Encoding", "chunked"),
                ("TRANSFER-ENCODING", "chunked")
            ])
            .unwrap_err(),
            400
        );
        assert_eq!(
            read(&[("Upgrade", "websocket"), ("Upgrade", "h2c")]).unwrap_err(),
            400
        );
    }

    /// RFC 9112 6.1, 7.
    #[test]
    fn the_only_coding_is_chunked() {
        for (value, status) in [
            ("gzip", 501),
            ("identity", 501),
            ("xchunked", 501),
            ("chunked;a=b", 501),
            ("\"chunked\"", 501),
            ("chun ked", 501),
            ("gzip, chunked", 400),
            ("chunked, gzip", 400),
            ("chunked, chunked", 400),
            ("chunked,", 400),
            (",chunked", 400),
            ("", 400),
        ] {
            assert_eq!(
                read(&[("Transfer-Encoding", value)]).unwrap_err(),
                status,
                "{value}"
            );
        }
        assert!(read(&[("Transfer-Encoding", "cHUNKED")]).unwrap().chunked);
    }

    /// RFC 9112 6.1: a length beside a coding, and a coding in HTTP/1.0.
    #[test]
    fn a_coding_needs_version_1_1_and_no_length() {
        let both = read(&[("Content-Length", "5"), ("Transfer-Encoding", "chunked")]).unwrap();
        assert_eq!(both.check(Version::Http11).unwrap_err().status, 400);
        let chunked = read(&[("Transfer-Encoding", "chunked")]).unwrap();
        assert_eq!(chunked.check(Version::Http11), Ok(()));
        assert_eq!(chunked.check(Version::Http10).unwrap_err().status, 400);
    }

    /// RFC 9112 9.3.
    #[test]
    fn connections_persist_by_version_and_options() {
        let persists = |value, version| read(&[("Connection", value)]).unwrap().persists(version);
        for (value, in_11, in_10) in [
            ("", true, false),
            ("keep-alive", true, true),
            ("close", false, false),
            ("Close, keep-alive", false, false),
            ("upgrade ,Keep-Alive", true, true),
            ("closed", true, false),
        ] {
            assert_eq!(persists(value, Version::Http11), in_11, "{value} 1.1");
            assert_eq!(persists(value, Version::Http10), in_10, "{value} 1.0");
        }
        let twice = read(&[("Connection", "keep-alive"), ("Connection", "close")]).unwrap();
        assert!(!twice.persists(Version::Http11), "RFC 9110 5.3: one list");
    }

    /// RFC 9112 2.3, RFC 9110 15.6.6.
    #[test]
    fn other_versions_are_refused() {
        assert_eq!(Version::parse(b"HTTP/1.0"), Ok(Version::Http10));
        for (version, status) in [
            ("HTTP/2.0", 505),
            ("HTTP/1.2", 505),
            ("HTTP/0.9", 505),
            ("http/1.1", 400),
            ("HTTP/1.10", 400),
            ("HTTP/1", 400),
            ("HTTP/1.1 ", 400),
            ("ICAP/1.0", 400),
            ("", 400),
        ] {
            let found = Version::parse(version.as_bytes()).unwrap_err().status;
            assert_eq!(found, status, "{version}");
        }
    }
}
