//! Reads a stream of requests to its end, as a receiver of all its bytes does.

use nf_http::{check_partial, find_end, parse_request, Body, Chunks, Limits, Request};

/// An accepted request, without reference to its bytes.
pub struct Accepted {
    pub method: String,
    pub target: String,
    /// The value of the Host header, empty without one.
    pub host: Vec<u8>,
    /// The bytes of its body without the chunked coding.
    pub body: u64,
}

/// The requests of a stream, and its end: None if it ends with a request, else the reason.
pub struct Walk {
    pub accepted: Vec<Accepted>,
    pub end: Option<End>,
}

pub enum End {
    /// More bytes of a head or a body are expected.
    Waits,
    /// The status and the reason.
    Refused(u16, String),
}

pub fn walk(mut stream: &[u8]) -> Walk {
    let mut accepted = Vec::new();
    while !stream.is_empty() {
        match read_one(&mut stream) {
            Ok(request) => accepted.push(request),
            Err(end) => {
                let end = Some(end);
                return Walk { accepted, end };
            }
        }
    }
    let end = None;
    Walk { accepted, end }
}

fn read_one(stream: &mut &[u8]) -> Result<Accepted, End> {
    let limits = Limits::default();
    let Some(end) = find_end(stream, 0) else {
        let refused =
            |rejection: nf_http::Rejection| End::Refused(rejection.status, rejection.to_string());
        return Err(check_partial(stream, &limits).map_or_else(refused, |()| End::Waits));
    };
    let (head, rest) = stream.split_at(end);
    let request = parse_request(head, &limits)
        .map_err(|rejection| End::Refused(rejection.status, rejection.to_string()))?;
    let (body, consumed) = read_body(&request, rest)?;
    *stream = &rest[consumed..];
    let host = request.head.find("host").map(|host| host.value.to_vec());
    Ok(Accepted {
        method: request.method.to_owned(),
        target: request.target.text.to_owned(),
        host: host.unwrap_or_default(),
        body,
    })
}

/// Returns the bytes of the body, and the bytes that they take in the stream.
fn read_body(request: &Request<'_>, rest: &[u8]) -> Result<(u64, usize), End> {
    match request.body {
        Body::None => Ok((0, 0)),
        Body::Length(length) if length > rest.len() as u64 => Err(End::Waits),
        Body::Length(length) => Ok((length, length as usize)),
        Body::Chunked => read_chunks(rest),
    }
}

fn read_chunks(rest: &[u8]) -> Result<(u64, usize), End> {
    let mut chunks = Chunks::new();
    let mut data = 0;
    for (at, byte) in rest.iter().enumerate() {
        data += chunks.certain().min(1);
        let progress = chunks
            .advance(std::slice::from_ref(byte))
            .map_err(|fault| End::Refused(400, fault.to_string()))?;
        if progress.ended {
            return Ok((data, at + 1));
        }
    }
    Err(End::Waits)
}
