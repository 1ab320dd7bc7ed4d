//! Reads headers, more strictly than the specification asks: the reader and the sender must agree where the connection's bytes begin.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use super::{LONGEST_TEXT, SIGNATURE};

/// The longest header of version 2 that is accepted, with its additional fields.
const LONGEST_BINARY: usize = 2048;

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Its bytes.
    pub length: usize,
    /// The address and the port of the client. None: the sender speaks for itself, or does not know them.
    pub client: Option<(IpAddr, u16)>,
}

/// Bytes that do not begin a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reads a header at the beginning of a connection. `Ok(None)`: more bytes are needed.
///
/// # Errors
/// If the bytes do not begin a header.
pub fn parse(bytes: &[u8]) -> Result<Option<Parsed>, Malformed> {
    match bytes.first() {
        None => Ok(None),
        Some(b'P') => text(bytes),
        Some(b'\r') => binary(bytes),
        Some(_) => Err(Malformed),
    }
}

fn text(bytes: &[u8]) -> Result<Option<Parsed>, Malformed> {
    const BEGIN: &[u8] = b"PROXY ";
    let begins = bytes.iter().zip(BEGIN).all(|(one, other)| one == other);
    if !begins {
        return Err(Malformed);
    }
    let seen = &bytes[..bytes.len().min(LONGEST_TEXT)];
    let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
        return if seen.len() == LONGEST_TEXT {
            Err(Malformed)
        } else {
            Ok(None)
        };
    };
    let line = seen[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let line = std::str::from_utf8(line).map_err(|_| Malformed)?;
    let mut words = line.split(' ').skip(1);
    let client = match words.next() {
        // The rest of the line has no meaning.
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(ends::<Ipv4Addr>(&mut words)?),
        Some("TCP6") => Some(ends::<Ipv6Addr>(&mut words)?),
        _ => return Err(Malformed),
    };
    if client.is_some() && words.next().is_some() {
        return Err(Malformed);
    }
    Ok(Some(Parsed {
        length: end + 1,
        client,
    }))
}

/// Reads the four words behind the protocol.
fn ends<'a, A: FromStr + Into<IpAddr>>(
    words: &mut impl Iterator<Item = &'a str>,
) -> Result<(IpAddr, u16), Malformed> {
    let mut address = || words.next().and_then(|word| A::from_str(word).ok());
    let (source, destination) = (address(), address());
    let mut port = || words.next().and_then(port_of);
    match (source, destination, port(), port()) {
        (Some(source), Some(_), Some(port), Some(_)) => Ok((source.into(), port)),
        _ => Err(Malformed),
    }
}

/// Reads a port without signs and leading zeros.
fn port_of(word: &str) -> Option<u16> {
    let is_plain =
        word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain)
}

fn binary(bytes: &[u8]) -> Result<Option<Parsed>, Malformed> {
    if bytes.iter().zip(SIGNATURE).any(|(one, other)| one != other) {
        return Err(Malformed);
    }
    let Some((begin, rest)) = bytes.split_first_chunk::<16>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([begin[14], begin[15]]));
    if !matches!(begin[12], 0x20 | 0x21) || 16 + length > LONGEST_BINARY {
        return Err(Malformed);
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let is_local = begin[12] == 0x20;
    let (client, fields) = match begin[13] {
        // Neither addresses nor fields have a meaning here.
        _ if is_local => (None, &[][..]),
        0x00 => (None, &[][..]),
        0x11 => {
            let (ends, fields) = body.split_first_chunk::<12>().ok_or(Malformed)?;
            let [a, b, c, d, _, _, _, _, high, low, ..] = *ends;
            let port = u16::from_be_bytes([high, low]);
            (Some((Ipv4Addr::new(a, b, c, d).into(), port)), fields)
        }
        0x21 => {
            let (ends, fields) = body.split_first_chunk::<36>().ok_or(Malformed)?;
            let (source, _) = ends.split_first_chunk::<16>().ok_or(Malformed)?;
            let port = u16::from_be_bytes([ends[32], ends[33]]);
            (Some((Ipv6Addr::from(*source).to_canonical(), port)), fields)
        }
        _ => return Err(Malformed),
    };
    check_fields(fields)?;
    Ok(Some(Parsed {
        length: 16 + length,
        client,
    }))
}

/// Checks that additional fields, of a type, a length and a value each, fill their place (2.2.7).
fn check_fields(mut fields: &[u8]) -> Result<(), Malformed> {
    while let [_, high, low, rest @ ..] = fields {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        fields = rest.get(length..).ok_or(Malformed)?;
    }
    if fields.is_empty() {
        Ok(())
    } else {
        Err(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{header, text_header};
    use super::*;

    fn client(address: &str, port: u16) -> Option<(IpAddr, u16)> {
        Some((address.parse().unwrap(), port))
    }

    #[test]
    fn own_headers_are_read_and_every_prefix_waits() {
        for address in ["198.51.100.7", "2001:db8::7"] {
            let end = (address.parse().unwrap(), 1234);
            let (text, length) = text_header(end, end);
            let (binary, binary_length) = header(end, end);
            for bytes in [&text[..length], &binary[..binary_length]] {
                for cut in 0..bytes.len() {
                    assert_eq!(parse(&bytes[..cut]), Ok(None), "{cut} bytes");
                }
                let all = [bytes, b"GET / HTTP/1.1\r\n"].concat();
                let expected = Parsed {
                    length: bytes.len(),
                    client: Some(end),
                };
                assert_eq!(parse(&all), Ok(Some(expected)));
            }
        }
    }

    #[test]
    fn lines_are_read_strictly() {
        for (line, expected) in [
            (
                "PROXY TCP4 1.2.3.4 5.6.7.8 0 65535\r\n",
                Ok(client("1.2.3.4", 0)),
            ),
            ("PROXY TCP6 ::1 ::2 80 443\r\n", Ok(client("::1", 80))),
            ("PROXY UNKNOWN\r\n", Ok(None)),
            ("PROXY UNKNOWN ffff:: whatever\r\n", Ok(None)),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n", Err(Malformed)),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n", Err(Malformed)),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n", Err(Malformed)),
            ("PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n", Err(Malformed)),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n", Err(Malformed)),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n", Err(Malformed)),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 65536 2\r\n", Err(Malformed)),
            ("PROXY TCP4 ::1 ::2 1 2\r\n", Err(Malformed)),
            ("PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n", Err(Malformed)),
            ("PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n", Err(Malformed)),
            ("proxy TCP4 1.2.3.4 5.6.7.8 1 2\r\n", Err(Malformed)),
            ("POST / HTTP/1.1\r\n", Err(Malformed)),
            ("GET / HTTP/1.1\r\n", Err(Malformed)),
            ("\r\n", Ok(None)),
        ] {
            let found = parse(line.as_bytes());
            if line == "\r\n" {
                assert_eq!(found, Ok(None), "may begin version 2");
            } else {
                let expected = expected.map(|client| {
                    Some(Parsed {
                        length: line.len(),
                        client,
                    })
                });
                assert_eq!(found, expected, "{line:?}");
            }
        }
        let endless = format!("PROXY UNKNOWN {}", "x".repeat(200));
        assert_eq!(parse(endless.as_bytes()), Err(Malformed));
        assert_eq!(parse(&endless.as_bytes()[..106]), Ok(None));
    }

    #[test]
    fn binary_headers_are_read_strictly() {
        let built = |command: u8, family: u8, body: &[u8]| {
            let length = (body.len() as u16).to_be_bytes();
            [SIGNATURE.as_slice(), &[command, family], &length, body].concat()
        };
        let ends = [1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 0, 10];
        let with = |more: &[u8]| [&ends[..], more].concat();
        for (bytes, expected) in [
            (built(0x21, 0x11, &ends), Ok(client("1.2.3.4", 9))),
            (
                built(0x21, 0x11, &with(&[4, 0, 1, 7, 5, 0, 0])),
                Ok(client("1.2.3.4", 9)),
            ),
            (built(0x20, 0x00, b""), Ok(None)),
            (built(0x20, 0x11, b"anything"), Ok(None)),
            (built(0x21, 0x00, b"anything"), Ok(None)),
            (built(0x21, 0x11, &ends[..11]), Err(Malformed)),
            (built(0x21, 0x21, &ends), Err(Malformed)),
            (built(0x21, 0x11, &with(&[4, 0, 2, 7])), Err(Malformed)),
            (built(0x21, 0x11, &with(&[4, 0])), Err(Malformed)),
            (built(0x21, 0x12, &ends), Err(Malformed)),
            (built(0x21, 0x31, &[0; 216]), Err(Malformed)),
            (built(0x22, 0x11, &ends), Err(Malformed)),
            (built(0x11, 0x11, &ends), Err(Malformed)),
            (built(0x20, 0x00, &[0; 2033]), Err(Malformed)),
        ] {
            let length = bytes.len();
            let expected = expected.map(|client| Some(Parsed { length, client }));
            assert_eq!(parse(&bytes), expected, "{bytes:?}");
        }
        let mut other = built(0x21, 0x11, &ends);
        other[4] = b'x';
        assert_eq!(parse(&other), Err(Malformed));
        assert_eq!(parse(&other[..5]), Err(Malformed));
    }
}
