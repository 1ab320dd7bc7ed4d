//! Writing a checked head again, with other lines.

use std::fmt;

use crate::{
    fields::{is_field_text, is_token},
    Fault, Head, Header,
};

/// A change of a head. Removals come before additions, whatever their order in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<'a> {
    /// Replaces the target of a request line.
    Target(&'a str),
    /// Removes all lines with this name.
    Remove(&'a str),
    /// Adds a line behind the others.
    Add(&'a str, &'a [u8]),
    /// Adds lines behind the others.
    AddLines(&'a Lines),
}

/// Header lines that were checked once, to be added to many heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// Checks and joins lines, given as names and values.
    ///
    /// # Errors
    /// If a name or a value has bytes that it must not contain.
    pub fn new<'a>(
        lines: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, Unwritable> {
        let mut joined = Vec::new();
        for (name, value) in lines {
            check(&Edit::Add(name, value))?;
            for part in line(name, value) {
                joined.extend_from_slice(part);
            }
        }
        Ok(Self(joined))
    }

    /// Returns their length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn line<'a>(name: &'a str, value: &'a [u8]) -> [&'a [u8]; 4] {
    [name.as_bytes(), b": ", value, b"\r\n"]
}

/// The reason why a head cannot be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritable {
    /// The output is too short; the new head would have at least this many bytes.
    TooLong(usize),
    /// A target, a name or a value with bytes that it must not contain, such as a line end.
    Invalid(Fault),
}

impl fmt::Display for Unwritable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(bytes) => write!(
                out,
                "rewritten head of {bytes} bytes: expected fewer; add fewer or shorter headers"
            ),
            Self::Invalid(fault) => fault.fmt(out),
        }
    }
}

impl std::error::Error for Unwritable {}

/// Writes a head with edits into `out`, and returns its length. Empty lines in front of it are left out.
pub fn rewrite(head: &Head<'_>, edits: &[Edit<'_>], out: &mut [u8]) -> Result<usize, Unwritable> {
    edits.iter().try_for_each(check)?;
    let mut output = Output { out, length: 0 };
    let target = edits.iter().rev().find_map(|edit| match edit {
        Edit::Target(target) => Some(target.as_bytes()),
        _ => None,
    });
    match target {
        Some(target) if head.target.1 > 0 => {
            output.write(&head.bytes[head.start..head.target.0]);
            output.write(target);
            output.write(&head.bytes[head.target.1..head.fields]);
        }
        _ => output.write(&head.bytes[head.start..head.fields]),
    }
    write_lines(head, edits, &mut output);
    for edit in edits {
        match edit {
            Edit::Add(name, value) => {
                let parts = line(name, value);
                parts.iter().for_each(|part| output.write(part));
            }
            Edit::AddLines(lines) => output.write(&lines.0),
            _ => {}
        }
    }
    output.write(b"\r\n");
    output.finish()
}

/// Copies the lines that stay, neighbours at once.
fn write_lines(head: &Head<'_>, edits: &[Edit<'_>], output: &mut Output<'_>) {
    let removed = |header: &Header<'_>| {
        edits
            .iter()
            .any(|edit| matches!(edit, Edit::Remove(name) if header.is(name)))
    };
    let mut kept = head.fields;
    if edits.iter().any(|edit| matches!(edit, Edit::Remove(_))) {
        for header in head.headers().filter(removed) {
            output.write(&head.bytes[kept..header.line.start]);
            kept = header.line.end;
        }
    }
    output.write(&head.bytes[kept..head.insertion()]);
}

/// Refuses an edit that would write more lines than it says, or another target.
fn check(edit: &Edit<'_>) -> Result<(), Unwritable> {
    let (thing, value, valid) = match edit {
        Edit::Remove(_) | Edit::AddLines(_) => return Ok(()),
        Edit::Target(target) => {
            let visible = target.bytes().all(|byte| byte.is_ascii_graphic());
            ("target", target.as_bytes(), visible && !target.is_empty())
        }
        Edit::Add(name, value) if is_token(name.as_bytes()) => {
            ("header value", *value, is_field_text(value))
        }
        Edit::Add(name, _) => ("header name", name.as_bytes(), false),
    };
    if valid {
        return Ok(());
    }
    let expected = "no line ends, control characters, or bytes that end it";
    Err(Unwritable::Invalid(Fault::new(thing, value, expected)))
}

/// Counts the bytes, and writes those for which there is room.
struct Output<'a> {
    out: &'a mut [u8],
    length: usize,
}

impl Output<'_> {
    fn write(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        if let Some(room) = self.out.get_mut(self.length..end) {
            room.copy_from_slice(part);
        }
        self.length = end;
    }

    fn finish(self) -> Result<usize, Unwritable> {
        if self.length > self.out.len() {
            return Err(Unwritable::TooLong(self.length));
        }
        Ok(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_request, parse_response, Limits};

    const HEAD: &str =
        "\r\nGET /a?b HTTP/1.1\r\nX-A: 1\r\nHost: h\r\nx-a: 2\r\nAccept: */*\r\nX-A:3\r\n\r\n";

    fn rewritten(edits: &[Edit<'_>]) -> Result<String, Unwritable> {
        let request = parse_request(HEAD.as_bytes(), &Limits::default()).unwrap();
        let mut out = [0; 200];
        let length = rewrite(&request.head, edits, &mut out)?;
        let text = String::from_utf8(out[..length].to_vec()).unwrap();
        assert!(
            out[length..].iter().all(|&byte| byte == 0),
            "nothing behind it"
        );
        Ok(text)
    }

    #[test]
    fn a_head_without_edits_loses_only_empty_lines() {
        assert_eq!(rewritten(&[]).unwrap(), HEAD.trim_start());
    }

    #[test]
    fn lines_are_removed_and_added_and_the_target_is_replaced() {
        let edits = [
            Edit::Add("X-A", b"4"),
            Edit::Remove("x-A"),
            Edit::Target("/new"),
            Edit::Add("X-Forwarded-For", b"10.0.0.1"),
        ];
        let expected = "GET /new HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nX-A: 4\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n";
        assert_eq!(rewritten(&edits).unwrap(), expected);
    }

    #[test]
    fn a_response_keeps_its_status_line() {
        let head = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n";
        let response = parse_response(head, "GET").unwrap();
        let mut out = [0; 100];
        let edits = [
            Edit::Remove("Server"),
            Edit::Target("/"),
            Edit::Add("A", b""),
        ];
        let length = rewrite(&response.head, &edits, &mut out).unwrap();
        assert_eq!(&out[..length], b"HTTP/1.1 200 OK\r\nA: \r\n\r\n");
    }

    #[test]
    fn lines_are_checked_once_and_added_in_order() {
        let lines = Lines::new([("B", b"1".as_slice()), ("C", b"2")]).unwrap();
        let edits = [
            Edit::Remove("X-A"),
            Edit::AddLines(&lines),
            Edit::Add("D", b"3"),
        ];
        let found = rewritten(&edits).unwrap();
        assert!(
            found.ends_with("*/*\r\nB: 1\r\nC: 2\r\nD: 3\r\n\r\n"),
            "{found:?}"
        );
        assert!(!lines.is_empty() && Lines::new([]).unwrap().is_empty());
        for (name, value) in [("A", b"b\r\nC: d".as_slice()), ("A: b", b"c"), ("", b"d")] {
            let found = Lines::new([(name, value)]);
            assert!(matches!(found, Err(Unwritable::Invalid(_))), "{name:?}");
        }
    }

    #[test]
    fn an_output_too_short_tells_the_length() {
        let request = parse_request(HEAD.as_bytes(), &Limits::default()).unwrap();
        let needed = HEAD.len() - 2;
        for room in [0, 1, needed - 1] {
            let found = rewrite(&request.head, &[], &mut vec![0; room]);
            assert_eq!(found, Err(Unwritable::TooLong(needed)), "{room}");
        }
        assert_eq!(
            rewrite(&request.head, &[], &mut vec![0; needed]),
            Ok(needed)
        );
    }

    #[test]
    fn an_edit_cannot_smuggle_lines() {
        for edit in [
            Edit::Add("A", b"b\r\nC: d"),
            Edit::Add("A", b"b\nC: d"),
            Edit::Add("A", b"b\0"),
            Edit::Add("A: b\r\nC", b"d"),
            Edit::Add("", b"d"),
            Edit::Target("/ HTTP/1.1\r\nA:"),
            Edit::Target("/ a"),
            Edit::Target(""),
        ] {
            let found = rewritten(&[edit]);
            assert!(matches!(found, Err(Unwritable::Invalid(_))), "{edit:?}");
        }
    }
}
