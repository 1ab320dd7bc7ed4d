//! Cookies of requests (RFC 6265).

use crate::{fields::trim, Head};

/// Finds the first cookie of a name in all `Cookie` lines; names are case-sensitive. Quotes around the value belong to it.
#[must_use]
pub fn cookie<'a>(head: &Head<'a>, name: &str) -> Option<&'a [u8]> {
    let lines = head.headers().filter(|header| header.is("Cookie"));
    let mut pairs = lines.flat_map(|header| header.value.split(|&byte| byte == b';'));
    pairs.find_map(|pair| {
        let at = memchr::memchr(b'=', pair)?;
        (trim(&pair[..at]) == name.as_bytes()).then(|| trim(&pair[at + 1..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_request, Limits};

    #[test]
    fn cookies_are_found_by_their_exact_name() {
        for (lines, value) in [
            ("Cookie: SRV=a", Some("a")),
            ("cookie: x=1; SRV=b; y=2", Some("b")),
            ("Cookie: x=1\r\nCookie: SRV=c", Some("c")),
            ("Cookie: SRV=first; SRV=second", Some("first")),
            ("Cookie:SRV = d ;", Some("d")),
            ("Cookie: SRV=", Some("")),
            ("Cookie: SRV=a=b", Some("a=b")),
            ("Cookie: srv=a", None),
            ("Cookie: XSRV=a; SRVX=b", None),
            ("Cookie: SRV", None),
            ("Cookies: SRV=a", None),
            ("Cookie:", None),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n");
            let request = parse_request(head.as_bytes(), &Limits::default()).unwrap();
            let found = cookie(&request.head, "SRV");
            assert_eq!(found, value.map(str::as_bytes), "{lines:?}");
        }
    }
}
