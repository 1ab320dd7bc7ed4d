//! Heads of responses.

use crate::{
    fields::{check_bytes, check_lines, line_end, Head},
    framing::Framing,
    BadGateway, Fault, Rejection, Version,
};

/// The bytes behind a response's head (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// No bytes belong to it: the next response follows.
    None,
    Length(u64),
    Chunked,
    /// All bytes up to the end of the connection.
    UntilClose,
    /// An interim response (1xx): none, and another response to the same request follows.
    Interim,
    /// All bytes of both directions, in another protocol: after 101, and after 2xx to CONNECT.
    Tunnel,
}

/// A checked response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    pub head: Head<'a>,
    pub status: u16,
    pub version: Version,
    pub body: ResponseBody,
    /// The backend accepts further requests on this connection.
    pub keep_alive: bool,
}

/// Reads a complete head of a response to a request with this method.
pub fn parse_response<'a>(
    head: &'a [u8],
    request_method: &str,
) -> Result<Response<'a>, BadGateway> {
    check_bytes(head)?;
    let end = line_end(head, 0, "status line")?;
    let line = &head[..end];
    let (version, status) = parse_status_line(line)?;
    let places = Head {
        bytes: head,
        start: 0,
        fields: end + 2,
        target: (0, 0),
    };
    let mut framing = Framing::default();
    check_lines(head, places.fields, |header| framing.read(&header))?;
    framing.check(version)?;
    let body = body(status, request_method, &framing);
    if status == 101 && framing.upgrade.is_none() {
        let expected = "an Upgrade header with status 101 (RFC 9110 15.2.2)";
        return Err(Fault::new("status line", line, expected).into());
    }
    let ends = !matches!(body, ResponseBody::UntilClose | ResponseBody::Tunnel);
    Ok(Response {
        head: places,
        status,
        version,
        body,
        keep_alive: ends && framing.persists(version),
    })
}

/// Reads `HTTP/1.1 200 OK`; the reason may be missing, with its space (RFC 9112 4).
fn parse_status_line(line: &[u8]) -> Result<(Version, u16), Rejection> {
    let fault = || {
        Fault::new(
            "status line",
            line,
            "HTTP/1.1, a status from 100 to 999, and a reason",
        )
    };
    let (version, rest) = line.split_at_checked(8).ok_or_else(fault)?;
    let version = Version::parse(version)?;
    match rest {
        [b' ', hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9']
        | [b' ', hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b' ', ..] => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            let status = digit(hundreds) * 100 + digit(tens) * 10 + digit(ones);
            Ok((version, status))
        }
        _ => Err(fault().into()),
    }
}

/// RFC 9112 6.3, its rules in their order.
fn body(status: u16, request_method: &str, framing: &Framing<'_>) -> ResponseBody {
    match (status, request_method) {
        (101, _) => ResponseBody::Tunnel,
        (100..=199, _) => ResponseBody::Interim,
        (_, "HEAD") | (204 | 304, _) => ResponseBody::None,
        (200..=299, "CONNECT") => ResponseBody::Tunnel,
        _ => match (framing.chunked, framing.length) {
            (true, _) => ResponseBody::Chunked,
            (false, Some(0)) => ResponseBody::None,
            (false, Some(length)) => ResponseBody::Length(length),
            (false, None) => ResponseBody::UntilClose,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<'a>(head: &'a str, method: &str) -> Result<Response<'a>, BadGateway> {
        parse_response(head.as_bytes(), method)
    }

    #[test]
    fn a_response_is_read_completely() {
        let head = "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\n";
        let response = parse(head, "GET").unwrap();
        assert_eq!((response.status, response.version), (200, Version::Http11));
        assert_eq!(
            (response.body, response.keep_alive),
            (ResponseBody::Length(5), true)
        );
        assert_eq!(&head[response.head.insertion()..], "\r\n");
        assert_eq!(response.head.headers().count(), 2);
    }

    /// RFC 9112 4.
    #[test]
    fn status_lines() {
        for (line, status) in [
            ("HTTP/1.1 200 OK", Some(200)),
            ("HTTP/1.0 404 Not Found", Some(404)),
            ("HTTP/1.1 200 ", Some(200)),
            ("HTTP/1.1 200", Some(200)),
            ("HTTP/1.1 999 \u{e9}", Some(999)),
            ("HTTP/1.1 2000", None),
            ("HTTP/1.1 20 OK", None),
            ("HTTP/1.1 099 OK", None),
            ("HTTP/1.1  200 OK", None),
            ("HTTP/1.1 +20 OK", None),
            ("HTTP/1.1 200\tOK", None),
            ("HTTP/1.1 200 O\x00K", None),
            ("HTTP/1.1 200 O\nK", None),
            ("HTTP/2.0 200 OK", None),
            ("HTTP/1.1", None),
            ("ICY 200 OK", None),
            ("", None),
        ] {
            let found = parse(&format!("{line}\r\nContent-Length: 0\r\n\r\n"), "GET")
                .ok()
                .map(|r| r.status);
            assert_eq!(found, status, "{line:?}");
        }
    }

    /// RFC 9112 6.3.
    #[test]
    fn the_body_is_told_by_status_method_and_fields() {
        use ResponseBody::{Chunked, Interim, Length, None, Tunnel, UntilClose};
        let length = "Content-Length: 5\r\n";
        let chunked = "Transfer-Encoding: chunked\r\n";
        for (status, method, fields, body) in [
            (200, "GET", length, Length(5)),
            (200, "GET", "Content-Length: 0\r\n", None),
            (200, "GET", chunked, Chunked),
            (200, "GET", "", UntilClose),
            (500, "POST", "", UntilClose),
            (200, "HEAD", length, None),
            (200, "HEAD", chunked, None),
            (200, "HEAD", "", None),
            (204, "GET", length, None),
            (204, "GET", "", None),
            (304, "GET", length, None),
            (100, "POST", "", Interim),
            (103, "GET", "Link: x\r\n", Interim),
            (103, "HEAD", "", Interim),
            (101, "GET", "Upgrade: websocket\r\n", Tunnel),
            (200, "CONNECT", length, Tunnel),
            (404, "CONNECT", length, Length(5)),
        ] {
            let head = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
            let found = parse(&head, method).unwrap();
            assert_eq!(found.body, body, "{status} to {method} with {fields:?}");
            let open = !matches!(body, UntilClose | Tunnel);
            assert_eq!(found.keep_alive, open, "{status} to {method}");
        }
    }

    /// RFC 9112 6.1, 6.3; RFC 9110 15.2.2.
    #[test]
    fn contradictions_are_refused() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 101 x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
            "HTTP/1.1 200 OK\nA: b\n\n",
            "\r\nHTTP/1.1 200 OK\r\n\r\n",
        ] {
            assert!(parse(head, "GET").is_err(), "{head:?}");
        }
    }

    /// RFC 9112 9.3.
    #[test]
    fn persistence_depends_on_version_and_connection() {
        for (version, fields, open) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
        ] {
            let head = format!("HTTP/{version} 200 x\r\nContent-Length: 1\r\n{fields}\r\n");
            assert_eq!(parse(&head, "GET").unwrap().keep_alive, open, "{head:?}");
        }
    }
}
