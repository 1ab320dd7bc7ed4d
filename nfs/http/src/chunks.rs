//! The chunked coding (RFC 9112 7.1), decoded as it arrives.

use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::fields::{is_field_text, is_token_byte};

/// Bytes of extensions on one chunk's line.
pub const MAX_EXTENSION_BYTES: u32 = 256;
/// Bytes of all trailer lines.
pub const MAX_TRAILER_BYTES: u32 = 8 << 10;
/// Digits of a chunk's size, leading zeros included.
const MAX_SIZE_DIGITS: u32 = 16;

// States: the part of the coding to which the next byte belongs.
const SIZE: u8 = 0;
const EXTENSION: u8 = 1;
const SIZE_LF: u8 = 2;
const DATA: u8 = 3;
const DATA_CR: u8 = 4;
const DATA_LF: u8 = 5;
const TRAILER_START: u8 = 6;
const TRAILER_NAME: u8 = 7;
const TRAILER_VALUE: u8 = 8;
const TRAILER_LF: u8 = 9;
const END_LF: u8 = 10;
const ENDED: u8 = 11;

/// Fields that a trailer must not set (RFC 9110 6.5.1), because they decide where messages end, for whom they are, and what follows.
const FORBIDDEN_TRAILERS: [&[u8]; 7] = [
    b"connection",
    b"content-length",
    b"host",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

/// The part of a body and the bytes that were expected there.
type Mistake = (&'static str, &'static str);

/// A place in a chunked body. Plain data, so that it can be kept in an arena; zeroed, it is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Chunks {
    /// The size read so far, then the bytes of data that are missing.
    remaining: u64,
    /// Bytes of the digits, the extensions or the trailers so far.
    counted: u32,
    state: u8,
    /// Bytes of the current trailer's name so far.
    name_bytes: u8,
    /// The forbidden names that begin with these bytes, a bit each.
    candidates: u8,
    unused: u8,
}

/// The result of reading some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The bytes that belong to the body: all of them, unless it has ended.
    pub consumed: usize,
    pub ended: bool,
}

/// A byte that breaks the coding: the end of the body is unknown from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The place of the byte in the bytes given.
    pub at: usize,
    byte: u8,
    thing: &'static str,
    expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let byte = self.byte.escape_ascii();
        write!(
            out,
            "{} of a chunked body, byte \"{byte}\": expected {}",
            self.thing, self.expected
        )
    }
}

impl std::error::Error for Malformed {}

impl Chunks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next bytes of the body, except those of data, which it skips.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Progress, Malformed> {
        let mut at = 0;
        while at < bytes.len() && self.state != ENDED {
            if self.state == DATA {
                at += self.skip((bytes.len() - at) as u64) as usize;
            } else {
                let byte = bytes[at];
                self.step(byte).map_err(|(thing, expected)| Malformed {
                    at,
                    byte,
                    thing,
                    expected,
                })?;
                at += 1;
            }
        }
        Ok(Progress {
            consumed: at,
            ended: self.state == ENDED,
        })
    }

    /// Returns the number of bytes from here that certainly belong to the current chunk's data.
    pub fn certain(&self) -> u64 {
        if self.state == DATA {
            self.remaining
        } else {
            0
        }
    }

    /// Skips bytes of the current chunk's data that need not be at hand, at most [`certain`](Self::certain). Returns their number.
    pub fn skip(&mut self, bytes: u64) -> u64 {
        let skipped = bytes.min(self.certain());
        if self.state == DATA {
            self.remaining -= skipped;
            if self.remaining == 0 {
                self.state = DATA_CR;
            }
        }
        skipped
    }

    pub fn has_ended(&self) -> bool {
        self.state == ENDED
    }

    /// Reads one byte that is not data.
    fn step(&mut self, byte: u8) -> Result<(), Mistake> {
        let crlf = "CRLF";
        self.state = match (self.state, byte) {
            (SIZE, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => return self.add_digit(byte),
            (SIZE, b';') if self.counted > 0 => self.begin(EXTENSION),
            (SIZE, b'\r') if self.counted > 0 => SIZE_LF,
            (SIZE, _) => return Err(("size", "hexadecimal digits, then CRLF or \";\"")),
            (EXTENSION, b'\r') => SIZE_LF,
            (EXTENSION, _) if is_field_text(&[byte]) => {
                self.count(MAX_EXTENSION_BYTES, "extension", EXTENSION)?
            }
            (EXTENSION, _) => return Err(("extension", "no control character but CRLF")),
            (SIZE_LF, b'\n') if self.remaining > 0 => DATA,
            (SIZE_LF, b'\n') => self.begin(TRAILER_START),
            (SIZE_LF, _) => return Err(("size", crlf)),
            (DATA_CR, b'\r') => DATA_LF,
            (DATA_LF, b'\n') => self.begin(SIZE),
            (DATA_CR | DATA_LF, _) => {
                return Err(("data", "CRLF behind as many bytes as its size says"))
            }
            (TRAILER_START, b'\r') => END_LF,
            (TRAILER_START | TRAILER_NAME, _) => self.step_name(byte)?,
            (TRAILER_VALUE, b'\r') => TRAILER_LF,
            (TRAILER_VALUE, _) if is_field_text(&[byte]) => {
                self.count(MAX_TRAILER_BYTES, "trailer", TRAILER_VALUE)?
            }
            (TRAILER_VALUE, _) => return Err(("trailer", "no control character but CRLF")),
            (TRAILER_LF, b'\n') => TRAILER_START,
            (END_LF, b'\n') => ENDED,
            (TRAILER_LF | END_LF, _) => return Err(("trailer", crlf)),
            _ => return Err(("state", "a body whose coding is known")),
        };
        Ok(())
    }

    /// Reads one byte of a trailer's name, or the colon behind it.
    fn step_name(&mut self, byte: u8) -> Result<u8, Mistake> {
        if self.state == TRAILER_START {
            (self.name_bytes, self.candidates) = (0, u8::MAX);
        }
        let length = usize::from(self.name_bytes);
        let mut candidates = FORBIDDEN_TRAILERS.iter().enumerate();
        if byte == b':' && length > 0 {
            if candidates.any(|(bit, name)| self.candidates >> bit & 1 == 1 && name.len() == length)
            {
                return Err((
                    "trailer",
                    "a field that is not about framing, host or connection",
                ));
            }
            return self.count(MAX_TRAILER_BYTES, "trailer", TRAILER_VALUE);
        }
        if !is_token_byte(byte) {
            return Err(("trailer", "lines of a name, a colon and a value"));
        }
        for (bit, name) in candidates {
            if name.get(length) != Some(&byte.to_ascii_lowercase()) {
                self.candidates &= !(1 << bit);
            }
        }
        // Longer names than the forbidden ones have no candidates left.
        self.name_bytes = self.name_bytes.saturating_add(1);
        self.count(MAX_TRAILER_BYTES, "trailer", TRAILER_NAME)
    }

    fn begin(&mut self, state: u8) -> u8 {
        self.counted = 0;
        if state == SIZE {
            self.remaining = 0;
        }
        state
    }

    fn count(&mut self, limit: u32, thing: &'static str, next: u8) -> Result<u8, Mistake> {
        self.counted += 1;
        if self.counted > limit {
            return Err((thing, "fewer bytes"));
        }
        Ok(next)
    }

    fn add_digit(&mut self, digit: u8) -> Result<(), Mistake> {
        self.state = self.count(MAX_SIZE_DIGITS, "size", SIZE)?;
        if self.remaining > i64::MAX as u64 >> 4 {
            return Err(("size", "a number below 2^63"));
        }
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            _ => (digit | 0x20) - b'a' + 10,
        };
        self.remaining = self.remaining << 4 | u64::from(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"5\r\nhello\r\nA;x=\"y\"\r\n0123456789\r\n000\r\nX-Sum: 1\r\nY:\r\n\r\n";

    #[test]
    fn it_is_plain_data_of_at_most_16_bytes() {
        assert_eq!(std::mem::size_of::<Chunks>(), 16);
        assert_eq!(Chunks::zeroed(), Chunks::new());
    }

    /// RFC 9112 7.1 to 7.1.2.
    #[test]
    fn the_end_is_behind_the_trailers_and_the_next_message_stays() {
        let bytes = [BODY, b"GET / HTTP/1.1\r\n"].concat();
        let mut chunks = Chunks::new();
        let progress = chunks.advance(&bytes).unwrap();
        assert_eq!(
            progress,
            Progress {
                consumed: BODY.len(),
                ended: true
            }
        );
        let more = chunks.advance(b"x").unwrap();
        assert_eq!(
            more,
            Progress {
                consumed: 0,
                ended: true
            }
        );
        assert!(chunks.has_ended());
    }

    #[test]
    fn every_cut_gives_the_same_end() {
        for cut in 0..BODY.len() {
            let mut chunks = Chunks::new();
            let first = chunks.advance(&BODY[..cut]).unwrap();
            assert_eq!((first.consumed, first.ended), (cut, false), "cut at {cut}");
            let last = chunks.advance(&BODY[cut..]).unwrap();
            assert_eq!(
                (last.consumed, last.ended),
                (BODY.len() - cut, true),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn data_is_skipped_without_looking_at_it() {
        let mut chunks = Chunks::new();
        assert_eq!(chunks.certain(), 0);
        chunks.advance(b"10000000000\r\nab").unwrap();
        assert_eq!(chunks.certain(), (1 << 40) - 2);
        assert_eq!(chunks.skip(1 << 39), 1 << 39);
        assert_eq!(chunks.skip(1 << 40), (1 << 39) - 2);
        assert_eq!((chunks.certain(), chunks.skip(1)), (0, 0));
        chunks.advance(b"\r\n1\r\n\0\r\n").unwrap();
        assert_eq!(chunks.certain(), 0);
    }

    #[test]
    fn malformed_codings_are_refused() {
        let zeros = "0".repeat(17);
        let extension = format!("5;{}\r\n", "x".repeat(257));
        for (body, rule) in [
            ("\r\n", "RFC 9112 7.1: no size"),
            ("g\r\n", "no digit"),
            ("0x5\r\n", "no prefix"),
            ("-1\r\n", "no sign"),
            ("+1\r\n", "no sign"),
            (" 5\r\n", "no space in front"),
            ("5 \r\n", "no space behind"),
            ("5\t;a\r\n", "no bad whitespace"),
            ("5 5\r\n", "one size"),
            ("5\n", "RFC 9112 2.2: bare LF"),
            ("5\r5", "RFC 9112 2.2: bare CR"),
            ("5\r\r\n", "RFC 9112 2.2: bare CR"),
            (";a\r\n", "an extension without size"),
            ("5;a\nb\r\n", "bare LF in an extension"),
            ("5;a\rb\r\n", "bare CR in an extension"),
            ("5;a\0b\r\n", "NUL in an extension"),
            ("8000000000000000\r\n", "2^63"),
            ("ffffffffffffffff\r\n", "2^64 - 1"),
            ("10000000000000005\r\n", "2^64 + 5"),
            (&zeros, "17 digits"),
            (&extension, "257 bytes of extensions"),
            ("1\r\nabc", "more data than the size"),
            ("1\r\na\n", "bare LF behind data"),
            ("1\r\na\rb", "bare CR behind data"),
            ("2\r\na\r\n0\r\n\r\n", "less data than the size"),
            ("0\r\n\n", "bare LF at the end"),
            ("0\r\n\rx", "bare CR at the end"),
            ("0\r\na\r\n", "a trailer without colon"),
            ("0\r\n: a\r\n", "a trailer without name"),
            ("0\r\na : b\r\n", "a space before the colon"),
            ("0\r\n a: b\r\n", "a folded trailer"),
            ("0\r\na: b\r\n c\r\n", "a folded trailer"),
            ("0\r\na: b\nc: d\r\n", "a bare LF in trailers"),
            ("0\r\na: b\0\r\n", "NUL in trailers"),
        ] {
            let fault = Chunks::new().advance(body.as_bytes());
            assert!(fault.is_err(), "{body:?} {rule}");
        }
        for name in [
            "Transfer-Encoding",
            "content-length",
            "HOST",
            "TE",
            "Trailer",
            "Connection",
            "Upgrade",
        ] {
            let trailers = [format!("{name}: x"), format!("A: b\r\n{name}:")];
            for trailer in trailers {
                let fault = Chunks::new().advance(format!("0\r\n{trailer}\r\n").as_bytes());
                assert!(fault.is_err(), "RFC 9110 6.5.1: {trailer:?}");
            }
            for other in [
                format!("{name}s: x"),
                format!("X{name}: x"),
                name[1..].to_owned() + ": x",
            ] {
                let body = format!("0\r\n{other}\r\n\r\n");
                assert!(
                    Chunks::new().advance(body.as_bytes()).unwrap().ended,
                    "{other:?}"
                );
            }
        }
        let long = format!("0\r\n{}host: x\r\n\r\n", "a".repeat(256));
        assert!(Chunks::new().advance(long.as_bytes()).unwrap().ended);
        let fault = Chunks::new().advance(b"5;a\0").unwrap_err();
        let expected =
            r#"extension of a chunked body, byte "\x00": expected no control character but CRLF"#;
        assert_eq!((fault.at, fault.to_string().as_str()), (3, expected));
    }

    #[test]
    fn limits_hold_exactly() {
        let advance = |body: String| Chunks::new().advance(body.as_bytes());
        assert!(advance(format!("5;{}\r\n", "x".repeat(256))).is_ok());
        assert!(advance("7fffffffffffffff\r\n".to_owned()).is_ok());
        assert!(advance(format!("{}5\r\n", "0".repeat(15))).is_ok());
        let trailer = |bytes: usize| format!("0\r\na:{}\r\nb:\r\n\r\n", "x".repeat(bytes - 4));
        assert!(advance(trailer(8 << 10)).unwrap().ended);
        assert!(advance(trailer((8 << 10) + 1)).is_err());
    }

    #[test]
    fn a_state_that_does_not_exist_is_refused() {
        let mut chunks = Chunks::new();
        chunks.state = 12;
        assert!(chunks.advance(b"5").is_err());
    }
}
