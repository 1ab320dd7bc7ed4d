//! Reads streams for which parsers are known to disagree; `tests/l7lb/test_smuggling.py` compares the same verdicts with HAProxy's.

#![allow(clippy::unwrap_used)]

#[path = "smuggling/walk.rs"]
#[allow(dead_code)] // only the example prints what was read
mod walk;

use walk::{walk, End};

const CORPUS: &str = include_str!("smuggling/corpus.txt");

/// Reads `\r`, `\n`, `\t`, `\\` and `\xNN`.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, byte == b'\\') {
            (byte, false) => byte,
            _ => match rest.next().unwrap() {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'\\' => b'\\',
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => unreachable!("escape \\{}", char::from(other)),
            },
        });
    }
    bytes
}

fn verdict(stream: &[u8]) -> String {
    let walk = walk(stream);
    let mut words: Vec<String> = walk.accepted.iter().map(|_| "ok".to_owned()).collect();
    words.extend(walk.end.map(|end| match end {
        End::Waits => "waits".to_owned(),
        End::Refused(status, reason) => {
            assert!(!reason.is_empty());
            status.to_string()
        }
    }));
    words.join(" ")
}

#[test]
fn each_stream_of_the_corpus_gets_its_verdict() {
    let mut count = 0;
    for line in CORPUS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (name, rest) = line.split_once(" | ").unwrap();
        let (expected, stream) = rest.split_once(" | ").unwrap();
        assert_eq!(verdict(&unescape(stream)), expected, "{name}: {stream}");
        count += 1;
    }
    assert!(count >= 80, "{count} streams");
}
