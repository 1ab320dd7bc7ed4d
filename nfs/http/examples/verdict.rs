//! The parser as a filter, for comparisons with other servers: one stream of requests in hexadecimal digits a line in, one line out.
//!
//! It answers with words: for each accepted request its method, target and Host in hexadecimal digits and the length of its body, joined by
//! commas; then, unless the stream ends there, `waits` or the status of the refusal.

use std::{fmt::Write, io};

#[path = "../tests/smuggling/walk.rs"]
mod walk;

use walk::{walk, End};

fn main() -> io::Result<()> {
    for line in io::stdin().lines() {
        let walk = walk(&from_hex(&line?)?);
        let mut words = Vec::new();
        for request in walk.accepted {
            let (method, target) = (
                hex(request.method.as_bytes()),
                hex(request.target.as_bytes()),
            );
            words.push(format!(
                "{method},{target},{},{}",
                hex(&request.host),
                request.body
            ));
        }
        words.extend(walk.end.map(|end| match end {
            End::Waits => "waits".to_owned(),
            End::Refused(status, reason) => {
                eprintln!("{reason}");
                status.to_string()
            }
        }));
        println!("{}", words.join(" "));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> io::Result<Vec<u8>> {
    let digits = |at| text.get(at..at + 2).unwrap_or_default();
    let bytes = (0..text.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(digits(at), 16));
    bytes.collect::<Result<_, _>>().map_err(io::Error::other)
}
