//! Parses requests: bytes, lines, JSON.

use serde_json::{Map, Value};

use crate::Refusal;

/// The maximum length of a line without its end.
pub const MAX_LINE: usize = 4 << 20;

/// Splits a stream of bytes into lines.
#[derive(Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// The number of leading bytes already returned.
    used: usize,
    /// The number of leading bytes searched for the end of a line.
    searched: usize,
}

impl Lines {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.used);
        self.searched = self.searched.saturating_sub(self.used);
        self.used = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the number of complete lines.
    #[must_use]
    pub fn complete(&self) -> usize {
        let from = self.searched.max(self.used);
        self.bytes[from..]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
    }

    /// Returns the next complete line, without its end.
    #[allow(clippy::should_implement_trait)] // The line borrows from it.
    pub fn next(&mut self) -> Option<&[u8]> {
        let from = self.searched.max(self.used);
        let Some(length) = self.bytes[from..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let (start, end) = (self.used, from + length);
        self.used = end + 1;
        Some(&self.bytes[start..end])
    }

    /// # Errors
    /// If the current line is too long.
    pub fn check(&self) -> Result<(), Refusal> {
        let length = self.bytes.len() - self.used;
        if length <= MAX_LINE {
            return Ok(());
        }
        let detail = format!("a line of more than {length} bytes, expected at most {MAX_LINE}; the connection is closed");
        Err(Refusal::new("line-too-long", detail))
    }
}

/// Returns the verb of a request, and the whole request.
///
/// # Errors
/// If it is not a JSON object with a string `do`; says where.
pub fn parse(line: &[u8]) -> Result<(String, Map<String, Value>), Refusal> {
    let malformed = |detail: String| Refusal::new("malformed", detail);
    let value: Value =
        serde_json::from_slice(line).map_err(|error| malformed(format!("not JSON: {error}")))?;
    let Value::Object(arguments) = value else {
        let detail = "not a JSON object; expected {\"do\": VERB, ...}";
        return Err(malformed(detail.into()));
    };
    match arguments.get("do") {
        Some(Value::String(verb)) => Ok((verb.clone(), arguments)),
        Some(other) => Err(malformed(format!(
            "\"do\" is {}, expected a string",
            shortened(other)
        ))),
        None => Err(malformed(
            "\"do\" is missing: expected {\"do\": VERB, ...}".into(),
        )),
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_are_complete_however_the_bytes_are_split(
            lines in prop::collection::vec("[a-z{}]{0,40}", 0..20),
            cuts in prop::collection::vec(1_usize..50, 1..20),
        ) {
            let stream: Vec<u8> = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            let (mut reader, mut got, mut rest) = (Lines::default(), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at(rest.len().min(*cut));
                reader.push(now);
                let expected = reader.complete();
                let before = got.len();
                while let Some(line) = reader.next() {
                    got.push(String::from_utf8(line.to_vec()).unwrap());
                }
                prop_assert_eq!(got.len() - before, expected);
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, lines);
            prop_assert!(reader.next().is_none());
        }
    }

    #[test]
    fn errors_name_the_fault() {
        for (line, expected) in [
            (&b"{"[..], "not JSON"),
            (b"", "not JSON"),
            (b"\xff\xfe", "not JSON"),
            (b"[1]", "not a JSON object"),
            (b"{}", "\"do\" is missing"),
            (b"{\"do\": {\"x\": [1, 2]}}", "\"do\" is {\"x\":[1,2]}"),
        ] {
            let refusal = parse(line).unwrap_err();
            assert_eq!(refusal.code, "malformed");
            assert!(refusal.detail.contains(expected), "{refusal}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes())
            .unwrap_err()
            .detail
            .contains("recursion"));
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MAX_LINE]);
        assert!(lines.check().is_ok());
        lines.push(b"x");
        assert_eq!(lines.check().unwrap_err().code, "line-too-long");
    }
}
