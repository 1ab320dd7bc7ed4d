//! Feeds arbitrary bytes, split arbitrarily, to the control socket as requests.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nf_runtime::control::{parse, Lines, MAX_LINE};

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, stream)) = bytes.split_first() else {
        return;
    };
    let mut whole = Vec::new();
    let mut lines = Lines::default();
    for piece in stream.chunks(usize::from(*cut).max(1)) {
        lines.push(piece);
        let complete = lines.complete();
        let before = whole.len();
        while let Some(line) = lines.next() {
            whole.push(line.to_vec());
        }
        assert_eq!(whole.len() - before, complete);
        assert!(lines.check().is_ok() || stream.len() > MAX_LINE);
    }
    let mut expected: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    // The bytes after the last line end are not a line yet.
    expected.pop();
    assert_eq!(whole, expected);
    for line in &whole {
        match parse(line) {
            Ok((verb, arguments)) => assert_eq!(arguments["do"], verb),
            Err(refusal) => assert_eq!(refusal.code, "malformed"),
        }
    }
});
