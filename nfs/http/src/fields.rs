//! Lines of a head: cut, checked, and read again.

use std::ops::Range;

use memchr::{memchr, memchr2};

use crate::Fault;

/// Bytes of a token (RFC 9110 5.6.2): methods and names of fields.
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
};

pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| is_token_byte(byte))
}

/// Tells whether text has only bytes that a value may contain (RFC 9110 5.5): visible ones, spaces, tabs, and those above ASCII.
pub(crate) fn is_field_text(text: &[u8]) -> bool {
    // Without an early exit the compiler vectorises it.
    let bad = |&byte: &u8| (byte < b' ') & (byte != b'\t') | (byte == 0x7f);
    !text.iter().fold(false, |found, byte| found | bad(byte))
}

/// Returns text without the spaces and tabs around it.
pub(crate) fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Returns validated bytes as text; everything that is given to it is a token or visible ASCII.
pub(crate) fn text<'a>(thing: &'static str, bytes: &'a [u8]) -> Result<&'a str, Fault> {
    std::str::from_utf8(bytes).map_err(|_| Fault::new(thing, bytes, "visible ASCII characters"))
}

/// Returns the elements of a comma-separated list (RFC 9110 5.6.1), trimmed; empty ones are included.
pub(crate) fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b',').map(trim)
}

/// Refuses control characters anywhere in a head. Line ends, which [`line_end`] checks, and tabs may pass.
pub(crate) fn check_bytes(head: &[u8]) -> Result<(), Fault> {
    let bad = |&byte: &u8| {
        (byte < b' ') & (byte != b'\t') & (byte != b'\r') & (byte != b'\n') | (byte == 0x7f)
    };
    if !head.iter().fold(false, |found, byte| found | bad(byte)) {
        return Ok(());
    }
    let at = head.iter().position(bad).unwrap_or_default();
    let around = &head[at.saturating_sub(16)..head.len().min(at + 16)];
    Err(Fault::new("head", around, "no control characters"))
}

/// Cuts the line at `at` off: its end, in front of CRLF. Refuses CR and LF that are not a pair (RFC 9112 2.2).
pub(crate) fn line_end(head: &[u8], at: usize, thing: &'static str) -> Result<usize, Fault> {
    let rest = head.get(at..).unwrap_or_default();
    let length = memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
    match rest[length..] {
        [b'\r', b'\n', ..] => Ok(at + length),
        _ => {
            let line = &rest[..rest.len().min(length + 2)];
            Err(Fault::new(thing, line, "CRLF at the end of a line"))
        }
    }
}

/// A complete head: the bytes, and the places where it can be edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    pub(crate) bytes: &'a [u8],
    /// The place of the start line, behind empty lines.
    pub(crate) start: usize,
    /// The place of the first header line.
    pub(crate) fields: usize,
    /// The place of the target in a request line.
    pub(crate) target: (usize, usize),
}

impl<'a> Head<'a> {
    /// The head with its final empty line.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The start line without its CRLF.
    pub fn start_line(&self) -> &'a [u8] {
        &self.bytes[self.start..self.fields - 2]
    }

    /// The place of the final empty line, where lines can be added.
    pub fn insertion(&self) -> usize {
        self.bytes.len() - 2
    }

    pub fn headers(&self) -> Headers<'a> {
        Headers {
            bytes: self.bytes,
            at: self.fields,
        }
    }

    /// Finds the first header line of a name.
    pub fn find(&self, name: &str) -> Option<Header<'a>> {
        self.headers().find(|header| header.is(name))
    }
}

/// A header line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name, a token, in the sender's spelling.
    pub name: &'a str,
    /// The value without the whitespace around it; it may contain bytes above ASCII.
    pub value: &'a [u8],
    /// The place of the line in the head, its CRLF included.
    pub line: Range<usize>,
}

impl Header<'_> {
    /// Compares the name without regard to case (RFC 9110 5.1).
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// The header lines of a checked head, in their order.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        let rest = self.bytes.get(self.at..)?;
        let end = memchr(b'\r', rest)?;
        // The empty line has none.
        let colon = memchr(b':', &rest[..end])?;
        let line = self.at..self.at + end + 2;
        self.at = line.end;
        Some(Header {
            name: std::str::from_utf8(&rest[..colon]).ok()?,
            value: trim(&rest[colon + 1..end]),
            line,
        })
    }
}

/// Reads the header line at `at` for the first time, and checks it (RFC 9112 5).
fn check_line(head: &[u8], at: usize) -> Result<Header<'_>, Fault> {
    if let Some(b' ' | b'\t') = head.get(at) {
        let rest = &head[at..];
        let line = &rest[..memchr(b'\n', rest).unwrap_or(rest.len())];
        let expected = "a header on one line: folded lines are obsolete (RFC 9112 5.2)";
        return Err(Fault::new("header line", line, expected));
    }
    let end = line_end(head, at, "header line")?;
    let line = &head[at..end];
    let length = line.iter().position(|&byte| !is_token_byte(byte));
    match length.map(|length| (length, line[length])) {
        Some((length, b':')) if length > 0 => Ok(Header {
            name: text("header name", &line[..length])?,
            value: trim(&line[length + 1..]),
            line: at..end + 2,
        }),
        _ => {
            let expected = "a name (letters, digits, marks of a token) and a colon right behind it";
            Err(Fault::new("header line", line, expected))
        }
    }
}

/// Reads and checks all header lines from `at` on, and gives each to `visit`. The head must end with its first empty line.
pub(crate) fn check_lines<'a, E: From<Fault>>(
    head: &'a [u8],
    mut at: usize,
    mut visit: impl FnMut(Header<'a>) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        match head.get(at..).unwrap_or_default() {
            b"\r\n" => return Ok(()),
            [b'\r', b'\n', rest @ ..] => {
                let expected = "nothing behind the empty line";
                return Err(Fault::new("head", rest, expected).into());
            }
            _ => {}
        }
        let header = check_line(head, at)?;
        at = header.line.end;
        visit(header)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Fault> {
        check_bytes(lines)?;
        let mut found = Vec::new();
        check_lines(lines, 0, |header| {
            assert!(lines[header.line.clone()].ends_with(b"\r\n"));
            found.push((header.name.to_owned(), header.value.to_owned()));
            Ok::<(), Fault>(())
        })?;
        let head = Head {
            bytes: lines,
            start: 0,
            fields: 0,
            target: (0, 0),
        };
        let again = head
            .headers()
            .map(|h| (h.name.to_owned(), h.value.to_owned()));
        assert_eq!(again.collect::<Vec<_>>(), found, "read again");
        Ok(found)
    }

    /// RFC 9112 5, 5.1; RFC 9110 5.5.
    #[test]
    fn names_and_values_are_cut_at_the_colon_and_trimmed() {
        let found =
            check(b"Host:a\r\nX-A!#$%&'*+-.^_`|~9: \t b: c\xff \t\r\nEmpty:\r\n\r\n").unwrap();
        let expected: [(&str, &[u8]); 3] = [
            ("Host", b"a"),
            ("X-A!#$%&'*+-.^_`|~9", b"b: c\xff"),
            ("Empty", b""),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(check(b"\r\n"), Ok(vec![]));
    }

    #[test]
    fn malformed_lines_are_refused() {
        let cases: [(&[u8], &str); 20] = [
            (
                b"Host : a\r\n\r\n",
                "RFC 9112 5.1: whitespace before the colon",
            ),
            (b"Host\t: a\r\n\r\n", "RFC 9112 5.1"),
            (b": a\r\n\r\n", "RFC 9110 5.1: empty name"),
            (b"Host\r\n\r\n", "RFC 9112 5: no colon"),
            (b"Ho st: a\r\n\r\n", "RFC 9110 5.6.2: space in the name"),
            (b"Ho\x80st: a\r\n\r\n", "RFC 9110 5.6.2: a name above ASCII"),
            (b"Ho(st: a\r\n\r\n", "RFC 9110 5.6.2: delimiter"),
            (b"Ho\0st: a\r\n\r\n", "RFC 9110 5.6.2: NUL in the name"),
            (
                b" Host: a\r\n\r\n",
                "RFC 9112 2.2: whitespace in front of the first line",
            ),
            (b"A: a\r\n b\r\n\r\n", "RFC 9112 5.2: obs-fold"),
            (
                b"A: a\r\n\tb: c\r\n\r\n",
                "RFC 9112 5.2: obs-fold that looks like a line",
            ),
            (b"A: a\nB: b\r\n\r\n", "RFC 9112 2.2: bare LF"),
            (b"A: a\r\n\n", "RFC 9112 2.2: bare LF at the end"),
            (b"A: a\rB: b\r\n\r\n", "RFC 9112 2.2: bare CR"),
            (b"A: a\r\r\n\r\n", "RFC 9112 2.2: bare CR"),
            (b"A: a\0b\r\n\r\n", "RFC 9110 5.5: NUL"),
            (b"A: a\x0bb\r\n\r\n", "RFC 9110 5.5: control character"),
            (b"A: a\x7fb\r\n\r\n", "RFC 9110 5.5: DEL"),
            (b"A: a\r\n\r\nB: b\r\n\r\n", "bytes behind the head"),
            (b"A: a\r\n", "the head has no end"),
        ];
        for (lines, rule) in cases {
            assert!(check(lines).is_err(), "{} {rule}", lines.escape_ascii());
        }
    }

    #[test]
    fn an_even_number_of_control_characters_is_refused_and_the_first_is_named() {
        let head = b"A long name: with NUL\0 and DEL\x7f, and a long value behind\r\n\r\n";
        let fault = check(head).unwrap_err().to_string();
        assert!(fault.contains(r#" name: with NUL\x00 and DEL"#), "{fault}");
        let fault = check(b"A: b\nC: d\r\n\r\n").unwrap_err().to_string();
        assert!(fault.contains(r#""A: b\nC""#), "{fault}");
    }
}
