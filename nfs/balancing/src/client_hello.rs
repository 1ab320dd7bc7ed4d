//! The first message of a TLS connection: which server the client asks for (RFC 8446, 4.1.2; RFC 6066, 3).
//!
//! The reader is strict: whatever another reader could understand differently is malformed, since the name decides where the connection goes.

/// The longest message, without the headers of its records.
pub const LONGEST: usize = 16 << 10;
/// The most bytes of a message with the headers of its records, of which none may be empty.
pub const LONGEST_RECORDS: usize = LONGEST + RECORDS * RECORD_HEADER;

/// The most records of one message.
const RECORDS: usize = 64;
const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// A complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The bytes of its records.
    pub length: usize,
    /// The name of the server, as the client wrote it.
    pub server: Option<&'a str>,
}

/// Bytes that do not begin a connection of TLS 1.0 to 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reads the message at the beginning of a connection; `message` becomes its bytes without the headers of records. `Ok(None)`: more bytes are needed.
///
/// # Errors
/// If the bytes do not begin a connection.
pub fn parse<'a>(bytes: &[u8], message: &'a mut Vec<u8>) -> Result<Option<Hello<'a>>, Malformed> {
    message.clear();
    let mut length = 0;
    for _ in 0..RECORDS {
        let Some(record) = record(&bytes[length..])? else {
            // The bytes so far must be right, so that a client with another protocol does not wait.
            check_begin(message)?;
            return Ok(None);
        };
        length += RECORD_HEADER + record.len();
        message.extend_from_slice(record);
        if let Some(wanted) = check_begin(message)? {
            if message.len() >= wanted {
                // Nothing may follow in the same record (RFC 8446, 5.1).
                if message.len() > wanted {
                    return Err(Malformed);
                }
                let server = server(&message[4..])?;
                return Ok(Some(Hello { length, server }));
            }
        }
    }
    Err(Malformed)
}

/// Cuts off the first record's content. None: it is not complete.
fn record(bytes: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let is_right = |at: usize, holds: fn(u8) -> bool| bytes.get(at).is_none_or(|byte| holds(*byte));
    if !is_right(0, |kind| kind == HANDSHAKE) || !is_right(1, |major| major == 3) {
        return Err(Malformed);
    }
    let Some((header, rest)) = bytes.split_first_chunk::<RECORD_HEADER>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if length == 0 || length > LONGEST {
        return Err(Malformed);
    }
    Ok(rest.get(..length))
}

/// Checks the type and the length of the message; returns its bytes, once they are known.
fn check_begin(message: &[u8]) -> Result<Option<usize>, Malformed> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(Malformed);
    }
    let Some([_, high, middle, low]) = message.first_chunk() else {
        return Ok(None);
    };
    let length = 4 + u32::from_be_bytes([0, *high, *middle, *low]) as usize;
    if length > LONGEST {
        return Err(Malformed);
    }
    Ok(Some(length))
}

/// Finds the server's name in the body of the message.
fn server(body: &[u8]) -> Result<Option<&str>, Malformed> {
    let mut body = Reader(body);
    let version = body.take(2)?;
    let _random = body.take(32)?;
    let session = body.vector8()?;
    let ciphers = body.vector16()?;
    let compressions = body.vector8()?;
    let is_right = version[0] == 3
        && session.len() <= 32
        && !ciphers.is_empty()
        && ciphers.len() % 2 == 0
        && !compressions.is_empty();
    if !is_right {
        return Err(Malformed);
    }
    if body.0.is_empty() {
        // TLS 1.0 to 1.2 do not require extensions.
        return Ok(None);
    }
    let mut extensions = Reader(body.vector16()?);
    body.end()?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.vector16()?;
        if kind != SERVER_NAME {
            continue;
        }
        if found.is_some() {
            return Err(Malformed);
        }
        found = Some(name(content)?);
    }
    Ok(found)
}

/// Reads the only name of a list.
fn name(content: &[u8]) -> Result<&str, Malformed> {
    let mut content = Reader(content);
    let mut list = Reader(content.vector16()?);
    content.end()?;
    let kind = list.take(1)?;
    let name = list.vector16()?;
    list.end()?;
    let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    let is_right = kind[0] == HOST_NAME
        && (1..=255).contains(&name.len())
        && name.iter().all(is_host)
        && !name.ends_with(b".");
    if !is_right {
        return Err(Malformed);
    }
    std::str::from_utf8(name).map_err(|_| Malformed)
}

/// The rest of a structure.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Takes a vector whose length is one byte.
    fn vector8(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.take(1)?[0];
        self.take(length.into())
    }

    /// Takes a vector whose length is two bytes.
    fn vector16(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number()?;
        self.take(length.into())
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector(content)].concat()
    }

    fn names(names: &[(u8, &str)]) -> Vec<u8> {
        let entries = names
            .iter()
            .flat_map(|(kind, name)| [&[*kind][..], &vector(name.as_bytes())].concat());
        extension(0, &vector(&entries.collect::<Vec<u8>>()))
    }

    fn message(extensions: &[u8]) -> Vec<u8> {
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[1, 9],
            &[0, 2, 0x13, 1],
            &[1, 0],
            &vector(extensions),
        ]
        .concat();
        [&[1, 0][..], &vector(&body)].concat()
    }

    /// Puts a message into records of at most this size.
    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[22, 3, 1][..], &vector(part)].concat();
        message.chunks(size).flat_map(record).collect()
    }

    fn server_of(bytes: &[u8]) -> Result<Option<Option<String>>, Malformed> {
        let mut scratch = Vec::new();
        let hello = parse(bytes, &mut scratch)?;
        if let Some(hello) = hello {
            assert!(hello.length <= bytes.len());
        }
        Ok(hello.map(|hello| hello.server.map(str::to_owned)))
    }

    #[test]
    fn the_name_is_found_over_records_and_every_prefix_waits() {
        let extensions = [
            extension(43, &[2, 3, 4]),
            names(&[(0, "www.Example-1.org")]),
        ]
        .concat();
        let message = message(&extensions);
        for size in [1, 2, 3, 5, 50, 1000] {
            let bytes = records(&message, size);
            if message.len().div_ceil(size) > RECORDS {
                assert_eq!(server_of(&bytes), Err(Malformed));
                continue;
            }
            for cut in 0..bytes.len() {
                assert_eq!(
                    server_of(&bytes[..cut]),
                    Ok(None),
                    "{cut} of records of {size}"
                );
            }
            assert_eq!(
                server_of(&bytes),
                Ok(Some(Some("www.Example-1.org".into())))
            );
            let with_more = [&bytes[..], &[20, 3, 3, 0, 1, 1]].concat();
            let mut scratch = Vec::new();
            let hello = parse(&with_more, &mut scratch).unwrap().unwrap();
            assert_eq!(hello.length, bytes.len());
        }
    }

    #[test]
    fn a_hello_without_a_name_is_read() {
        assert_eq!(server_of(&records(&message(&[]), 500)), Ok(Some(None)));
        assert_eq!(
            server_of(&records(&message(&extension(43, &[2, 3, 4])), 500)),
            Ok(Some(None))
        );
        let mut old = message(&[]);
        old.truncate(old.len() - 2);
        old[3] -= 2;
        assert_eq!(
            server_of(&records(&old, 500)),
            Ok(Some(None)),
            "without extensions"
        );
    }

    #[test]
    fn names_are_read_strictly() {
        let longest = "a".repeat(255);
        for (extensions, is_right) in [
            (names(&[(0, "a")]), true),
            (names(&[(0, "127.0.0.1")]), true),
            (names(&[(0, &longest)]), true),
            (names(&[(0, &format!("{longest}a"))]), false),
            (names(&[(0, "")]), false),
            (names(&[(0, "a.")]), false),
            (names(&[(0, "a b")]), false),
            (names(&[(0, "a\0")]), false),
            (names(&[(0, "\u{e4}")]), false),
            (names(&[(0, "::1")]), false),
            (names(&[(1, "a")]), false),
            (names(&[(0, "a"), (0, "b")]), false),
            (names(&[(0, "a"), (1, "b")]), false),
            (names(&[]), false),
            (extension(0, &[]), false),
            (extension(0, &[0, 4, 0, 0, 1, b'a', 0]), false),
            ([names(&[(0, "a")]), names(&[(0, "a")])].concat(), false),
            (names(&[(0, "a")])[..8].to_vec(), false),
        ] {
            let found = server_of(&records(&message(&extensions), 900));
            assert_eq!(found.is_ok(), is_right, "{extensions:?}");
        }
    }

    #[test]
    fn other_protocols_are_malformed_at_once() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\x80\x2e\x01\x03\x01",
            b"\x16\x02",
            b"\x15\x03\x01\0\x02",
            b"\x16\x03\x01\0\0",
            b"\x16\x03\x01\x40\x01",
            b"\x16\x03\x01\0\x05\x02\0\0\0\0",
            b"\x16\x03\x01\0\x04\x01\0\x40\0",
        ] {
            assert_eq!(server_of(bytes), Err(Malformed), "{bytes:?}");
        }
        let mut joined = message(&[]);
        joined.extend_from_slice(&[0; 3]);
        assert_eq!(
            server_of(&records(&joined, 500)),
            Err(Malformed),
            "more in the record"
        );
        for (at, byte) in [(4, 2), (38, 33), (41, 3), (41, 0), (44, 0)] {
            let mut changed = message(&[]);
            changed[at] = byte;
            assert_eq!(
                server_of(&records(&changed, 500)),
                Err(Malformed),
                "byte {at}: {byte}"
            );
        }
    }
}
