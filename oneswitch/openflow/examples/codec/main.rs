//! The codec as a filter: a command per line in, a JSON object per line out.
//! `tests/codec/` drives it. Bytes are hexadecimal.
//!
//! - `decode FRAME`: the message's content, and its bytes when encoded again;
//!   or why it is refused, and the error message to answer with.
//! - `relate OXM OXM`: how two matches relate.
//! - `samples`: messages written by the library's builders, by name.
//! - `replies`: replies of many different numbers, by name.
//! - `errors`: an error message of every known code, by name.

mod fields;
mod json;
mod samples;

use std::io::{BufRead, Write};

use json::{hex, object, unhex, Json};
use openflow13::{decode, encode, encode_error, Match, Refusal};

fn refused(refusal: &Refusal) -> json::Object {
    fields::error(refusal.error, refusal.error.experimenter()).with("detail", &*refusal.detail)
}

fn decode_line(frame: &[u8]) -> String {
    match decode(frame) {
        Ok((header, message)) => {
            let again = encode(header.xid, &message).unwrap_or_default();
            format!(
                "{{\"kind\":{},\"xid\":{},\"hex\":{},\"fields\":{}}}",
                header.kind,
                header.xid,
                hex(&again).json(),
                fields::fields(&message)
            )
        }
        Err(refusal) => {
            let xid = openflow13::Header::parse(frame).map_or(0, |header| header.xid);
            let answer = encode_error(xid, refusal.error, frame);
            object! { "refused": refused(&refusal), "answer": hex(&answer) }.json()
        }
    }
}

fn relate(a: &[u8], b: &[u8]) -> Result<String, Refusal> {
    let (a, b) = (Match::checked(a)?, Match::checked(b)?);
    let in_port = a.in_port();
    let (a, b) = (a.canonical()?, b.canonical()?);
    Ok(object! {
        "in_port": in_port,
        "key_in_port": a.in_port(),
        "empty": a.is_empty(),
        "equal": a == b,
        "covers": a.covers(&b),
        "overlaps": a.overlaps(&b),
    }
    .json())
}

fn answer(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    let command = words.next()?;
    let mut bytes = || unhex(words.next()?);
    Some(match command {
        "decode" => decode_line(&bytes()?),
        "relate" => match relate(&bytes()?, &bytes()?) {
            Ok(relation) => relation,
            Err(refusal) => object! { "refused": refused(&refusal) }.json(),
        },
        "samples" => samples::samples().json(),
        "replies" => samples::replies().json(),
        "errors" => samples::errors().json(),
        _ => return None,
    })
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = answer(&line).unwrap_or_else(|| "{\"misunderstood\":true}".into());
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
