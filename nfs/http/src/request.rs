//! Heads of requests.

use memchr::memchr;

use crate::{
    end::empty_lines,
    fields::{check_bytes, check_lines, elements, is_token, line_end, text, Head, Header},
    framing::Framing,
    target::Authority,
    Body, Fault, Limits, Rejection, Target, Version,
};

/// A checked request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    pub head: Head<'a>,
    /// The method, a token; methods are case-sensitive (RFC 9110 9.1).
    pub method: &'a str,
    pub target: Target<'a>,
    /// The host that the request is for; HTTP/1.0 may omit it.
    pub host: Option<Authority<'a>>,
    pub version: Version,
    pub body: Body,
    /// The client wants to send further requests on this connection.
    pub keep_alive: bool,
    /// The client waits for 100 (Continue) before it sends the body.
    pub expects_continue: bool,
    /// The protocols that the client offers to change to, if it asks for that on this connection.
    pub upgrade: Option<&'a str>,
}

/// The facts in fields that only requests have.
#[derive(Default)]
struct Fields<'a> {
    host: Option<Authority<'a>>,
    framing: Framing<'a>,
    expects_continue: bool,
    websocket_key: bool,
    count: usize,
}

/// Reads a complete head, as [`find_end`](crate::find_end) cuts it. A refused one leaves the end of the request unknown: answer, and close the connection.
pub fn parse_request<'a>(head: &'a [u8], limits: &Limits) -> Result<Request<'a>, Rejection> {
    if head.len() > limits.head_bytes {
        return Err(limits.head_too_long(head));
    }
    check_bytes(head)?;
    let start = empty_lines(head);
    let end = line_end(head, start, "request line")?;
    let line = &head[start..end];
    let [method, target, version] = split_line(line)?;
    if target.len() > limits.target_bytes {
        return Err(limits.target_too_long(target));
    }
    let version = Version::parse(version)?;
    let method = text("method", method)?;
    let at = start + method.len() + 1;
    let places = Head {
        bytes: head,
        start,
        fields: end + 2,
        target: (at, at + target.len()),
    };
    let target = Target::parse(method, target)?;
    let mut fields = Fields::default();
    check_lines(head, places.fields, |header| fields.read(&header, limits))?;
    fields.framing.check(version)?;
    let host = fields.check_host(&target, version, line)?;
    let body = fields.body(method, version)?;
    Ok(Request {
        head: places,
        method,
        target,
        host,
        version,
        body,
        keep_alive: fields.framing.persists(version),
        expects_continue: fields.expects_continue && version == Version::Http11,
        upgrade: fields.upgrade(version)?,
    })
}

/// Splits at single spaces: method, target, version (RFC 9112 3).
fn split_line(line: &[u8]) -> Result<[&[u8]; 3], Fault> {
    let fault = || {
        Fault::new(
            "request line",
            line,
            "METHOD TARGET HTTP/1.1 between single spaces",
        )
    };
    let first = memchr(b' ', line).ok_or_else(fault)?;
    let (method, rest) = (&line[..first], &line[first + 1..]);
    let second = memchr(b' ', rest).ok_or_else(fault)?;
    let (target, version) = (&rest[..second], &rest[second + 1..]);
    if !is_token(method) || target.is_empty() {
        return Err(fault());
    }
    Ok([method, target, version])
}

impl<'a> Fields<'a> {
    fn read(&mut self, header: &Header<'a>, limits: &Limits) -> Result<(), Rejection> {
        self.count += 1;
        if self.count > limits.headers {
            let expected = "fewer header lines, see the limit of headers";
            return Err(Rejection::new(
                431,
                "header line",
                header.name.as_bytes(),
                expected,
            ));
        }
        match header.name.len() {
            4 if header.is("host") => {
                let host = Authority::parse("Host", header.value)?;
                if self.host.replace(host).is_some() {
                    return Err(Fault::new("Host", header.value, "one such line").into());
                }
            }
            6 if header.is("expect") => {
                self.expects_continue |= header.value.eq_ignore_ascii_case(b"100-continue");
            }
            17 if header.is("sec-websocket-key") => {
                self.websocket_key = is_websocket_key(header.value);
            }
            _ => self.framing.read(header)?,
        }
        Ok(())
    }

    /// RFC 9112 3.2: HTTP/1.1 requires a Host header; RFC 9112 3.3: the target's host comes before it.
    fn check_host(
        &self,
        target: &Target<'a>,
        version: Version,
        line: &[u8],
    ) -> Result<Option<Authority<'a>>, Fault> {
        match &self.host {
            Some(host) => target.check_host(host)?,
            None if version == Version::Http11 => {
                return Err(Fault::new(
                    "request line",
                    line,
                    "a Host header with HTTP/1.1",
                ));
            }
            None => {}
        }
        Ok(target.authority.or(self.host))
    }

    fn body(&self, method: &str, version: Version) -> Result<Body, Rejection> {
        let body = match (self.framing.chunked, self.framing.length) {
            (true, _) => Body::Chunked,
            (false, Some(0)) | (false, None) => Body::None,
            (false, Some(length)) => Body::Length(length),
        };
        if body == Body::None {
            return Ok(body);
        }
        match method {
            // RFC 9110 9.3.6, 9.3.8.
            "CONNECT" | "TRACE" => {
                Err(Fault::new("body of", method.as_bytes(), "a request without body").into())
            }
            // Servers of HTTP/1.0 did not look for one, and took it for the next request.
            "GET" | "HEAD" | "DELETE" if version == Version::Http10 => {
                let expected = "HTTP/1.1 with a body of this method";
                Err(Rejection::new(413, "body of", method.as_bytes(), expected))
            }
            _ => Ok(body),
        }
    }

    /// RFC 9110 7.8: on this connection only, and never in HTTP/1.0.
    fn upgrade(&self, version: Version) -> Result<Option<&'a str>, Fault> {
        let asked = self.framing.connection_upgrade;
        let Some(protocols) = self.framing.upgrade.filter(|_| asked) else {
            return Ok(None);
        };
        let websocket = |protocol: &[u8]| protocol.eq_ignore_ascii_case(b"websocket");
        if elements(protocols.as_bytes()).any(websocket) && !self.websocket_key {
            // Without a handshake, a backend that ignores Upgrade would read the tunnel as requests.
            let expected = "a Sec-WebSocket-Key of 16 bytes in base64 beside it (RFC 6455 4.1)";
            return Err(Fault::new("Upgrade", protocols.as_bytes(), expected));
        }
        Ok((version == Version::Http11).then_some(protocols))
    }
}

/// Tells whether a key encodes 16 bytes in base64, as HAProxy and backends expect.
fn is_websocket_key(value: &[u8]) -> bool {
    let digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    value.len() == 24 && value[..22].iter().all(digit) && value.ends_with(b"==")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Form;

    fn parse(head: &str) -> Result<Request<'_>, Rejection> {
        parse_request(head.as_bytes(), &Limits::default())
    }

    fn status(head: &str) -> u16 {
        parse(head)
            .map(|_| 200)
            .unwrap_or_else(|rejection| rejection.status)
    }

    #[test]
    fn a_request_is_read_completely() {
        let head = "\r\nPOST /a/b?c=d HTTP/1.1\r\nHost: Example.com:8080\r\nContent-Length: 17\r\nExpect: 100-Continue\r\n\r\n";
        let request = parse(head).unwrap();
        assert_eq!((request.method, request.version), ("POST", Version::Http11));
        let target = request.target;
        assert_eq!(
            (target.form, target.path, target.query),
            (Form::Origin, "/a/b", Some("c=d"))
        );
        let host = request.host.unwrap();
        assert_eq!((host.host, host.port), ("Example.com", Some(8080)));
        assert_eq!((request.body, request.keep_alive), (Body::Length(17), true));
        assert_eq!((request.expects_continue, request.upgrade), (true, None));
        assert_eq!(request.head.bytes(), head.as_bytes());
        assert_eq!(&head[request.head.insertion()..], "\r\n");
        assert_eq!(request.head.start_line(), b"POST /a/b?c=d HTTP/1.1");
        let (from, to) = request.head.target;
        assert_eq!(&head[from..to], "/a/b?c=d");
        let lines: Vec<&str> = request
            .head
            .headers()
            .map(|header| &head[header.line])
            .collect();
        let expected = [
            "Host: Example.com:8080\r\n",
            "Content-Length: 17\r\n",
            "Expect: 100-Continue\r\n",
        ];
        assert_eq!(lines, expected);
        assert_eq!(request.head.find("EXPECT").unwrap().value, b"100-Continue");
    }

    /// RFC 9112 3: single spaces, token, no more words; RFC 9112 2.2: empty lines before.
    #[test]
    fn malformed_request_lines_are_refused() {
        for (line, expected) in [
            ("GET / HTTP/1.1", 200),
            ("\r\n\r\n\r\n\r\nGET / HTTP/1.1", 200),
            ("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1", 400),
            ("\nGET / HTTP/1.1", 400),
            (" GET / HTTP/1.1", 400),
            ("GET  / HTTP/1.1", 400),
            ("GET /  HTTP/1.1", 400),
            ("GET\t/ HTTP/1.1", 400),
            ("GET / HTTP/1.1 ", 400),
            ("GET / x HTTP/1.1", 400),
            ("GET /", 400),
            ("GET / ", 400),
            ("GET", 400),
            ("GET HTTP/1.1", 400),
            ("G(T / HTTP/1.1", 400),
            (" / HTTP/1.1", 400),
            ("get / HTTP/1.1", 200),
            ("M-SEARCH / HTTP/1.1", 200),
            ("GET /\x01 HTTP/1.1", 400),
            ("GET / HTTP/2.0", 505),
            ("GET / HTTP/1.9", 505),
            ("PRI * HTTP/2.0", 505),
            ("GET /\r / HTTP/1.1", 400),
            ("GET /\n HTTP/1.1", 400),
        ] {
            assert_eq!(
                status(&format!("{line}\r\nHost: a\r\n\r\n")),
                expected,
                "{line:?}"
            );
        }
    }

    /// RFC 9112 3.2.
    #[test]
    fn http_1_1_has_exactly_one_host() {
        for (rest, expected) in [
            ("HTTP/1.1\r\nHost: a\r\n\r\n", 200),
            ("HTTP/1.1\r\n\r\n", 400),
            ("HTTP/1.0\r\n\r\n", 200),
            ("HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400),
            ("HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("HTTP/1.1\r\nHost:\r\n\r\n", 400),
            ("HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
            ("HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ] {
            assert_eq!(status(&format!("GET / {rest}")), expected, "{rest:?}");
        }
        assert_eq!(status("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
        assert_eq!(status("GET http://b/ HTTP/1.1\r\n\r\n"), 400);
        let host = parse("GET http://b/ HTTP/1.0\r\n\r\n")
            .unwrap()
            .host
            .unwrap();
        assert_eq!(host.host, "b");
    }

    /// RFC 9112 6.3; RFC 9110 9.3.6, 9.3.8.
    #[test]
    fn the_body_is_told_by_fields_and_method() {
        let body = |method: &str, version: &str, fields: &str| {
            let target = if method == "CONNECT" { "a:443" } else { "/" };
            let head = format!("{method} {target} HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
            parse(&head)
                .map(|request| request.body)
                .map_err(|rejection| rejection.status)
        };
        let length = "Content-Length: 3\r\n";
        let chunked = "Transfer-Encoding: chunked\r\n";
        assert_eq!(body("POST", "1.1", ""), Ok(Body::None));
        assert_eq!(body("POST", "1.1", "Content-Length: 0\r\n"), Ok(Body::None));
        assert_eq!(body("POST", "1.1", length), Ok(Body::Length(3)));
        assert_eq!(body("GET", "1.1", length), Ok(Body::Length(3)));
        assert_eq!(body("POST", "1.0", length), Ok(Body::Length(3)));
        assert_eq!(body("POST", "1.1", chunked), Ok(Body::Chunked));
        assert_eq!(body("POST", "1.0", chunked), Err(400));
        assert_eq!(body("GET", "1.0", length), Err(413));
        assert_eq!(body("DELETE", "1.0", length), Err(413));
        assert_eq!(body("HEAD", "1.0", length), Err(413));
        assert_eq!(body("TRACE", "1.1", length), Err(400));
        assert_eq!(body("CONNECT", "1.1", chunked), Err(400));
        assert_eq!(body("CONNECT", "1.1", ""), Ok(Body::None));
        assert_eq!(body("POST", "1.1", &format!("{length}{chunked}")), Err(400));
        assert_eq!(body("POST", "1.1", &format!("{chunked}{length}")), Err(400));
        assert_eq!(
            body("POST", "1.1", &format!("{chunked}Content-Length: 0\r\n")),
            Err(400)
        );
    }

    /// RFC 9110 7.8, 10.1.1; RFC 6455 4.1.
    #[test]
    fn upgrade_and_expect_need_version_1_1() {
        let head = |version: &str, fields: &str| {
            format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n")
        };
        let asked = "Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n";
        assert_eq!(parse(&head("1.1", asked)).unwrap().upgrade, Some("h2c"));
        assert_eq!(parse(&head("1.0", asked)).unwrap().upgrade, None);
        assert_eq!(
            parse(&head("1.1", "Upgrade: h2c\r\n")).unwrap().upgrade,
            None
        );
        let websocket = "Connection: Upgrade\r\nUpgrade: WebSocket\r\n";
        assert_eq!(status(&head("1.1", websocket)), 400);
        assert_eq!(status(&head("1.0", websocket)), 400);
        let listed = "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n";
        assert_eq!(status(&head("1.1", listed)), 400);
        let keyed = |key: &str| format!("{websocket}Sec-WebSocket-Key: {key}\r\n");
        let valid = head("1.1", &keyed("dGhlIHNhbXBsZSBub25jZQ=="));
        assert_eq!(parse(&valid).unwrap().upgrade, Some("WebSocket"));
        for key in [
            "",
            "x",
            "dGhlIHNhbXBsZSBub25jZQ=",
            "dGhlIHNhbXBsZSBub25jZQ=a",
            "dGhlIHNhbXBsZSBub25j;Q==",
            "dGhlIHNhbXBsZSBub25jZ===",
        ] {
            assert_eq!(status(&head("1.1", &keyed(key))), 400, "{key}");
        }
        assert!(
            !parse(&head("1.0", "Expect: 100-continue\r\n"))
                .unwrap()
                .expects_continue
        );
    }

    #[test]
    fn limits_have_their_statuses() {
        let limits = Limits {
            head_bytes: 100,
            target_bytes: 10,
            headers: 3,
        };
        let status = |head: String| {
            parse_request(head.as_bytes(), &limits)
                .map(|_| 200)
                .unwrap_or_else(|r| r.status)
        };
        let target = |length: usize| {
            format!(
                "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
                "a".repeat(length - 1)
            )
        };
        assert_eq!((status(target(10)), status(target(11))), (200, 414));
        let headers = |count: usize| {
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
                "A: b\r\n".repeat(count - 1)
            )
        };
        assert_eq!((status(headers(3)), status(headers(4))), (200, 431));
        let head = |length: usize| {
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n",
                "a".repeat(length - 32)
            )
        };
        assert_eq!((status(head(100)), status(head(101))), (200, 431));
    }

    #[test]
    fn the_reason_names_the_field_and_its_value() {
        let rejection =
            parse("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\n").unwrap_err();
        let text = rejection.to_string();
        assert!(
            text.starts_with("400: Content-Length \"5, 6\": expected one decimal number"),
            "{text}"
        );
    }
}
