//! Targets of requests (RFC 9112 3.2) and the hosts that they name.

use std::net::Ipv6Addr;

use crate::{fields::text, Fault};

const MAX_HOST_BYTES: usize = 255;

/// One of the four forms of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, of CONNECT
    Authority,
    /// `*`, of OPTIONS
    Asterisk,
}

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The whole target as it stands in the request line.
    pub text: &'a str,
    pub form: Form,
    /// The path as it was sent, with its percent-encodings and dot segments; `/` if an absolute form has none,
    /// `*` for the asterisk form, empty for the authority form.
    pub path: &'a str,
    /// The part behind the first question mark.
    pub query: Option<&'a str>,
    /// The host of the absolute or the authority form.
    pub authority: Option<Authority<'a>>,
    /// The port of an authority without one, by its scheme.
    default_port: u16,
}

/// A host with an optional port: of a target or a Host header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// A name or an IPv4 address in the sender's spelling, or an IPv6 address with its brackets.
    pub host: &'a str,
    pub port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// Reads `host` or `host:port`. A name has letters, digits, dots, hyphens, underscores and tildes only: no backend expects the others of RFC 3986, and no user name.
    pub(crate) fn parse(thing: &'static str, value: &'a [u8]) -> Result<Self, Fault> {
        let fault = |expected| Fault::new(thing, value, expected);
        let (host, port) = split_port(value);
        let valid = match host {
            [b'[', address @ .., b']'] => std::str::from_utf8(address)
                .is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok()),
            _ => host.iter().all(|&byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
            }),
        };
        if host.is_empty() || host.len() > MAX_HOST_BYTES || !valid {
            return Err(fault("a host name or address, and a port at most"));
        }
        let port = match port {
            None | Some([]) => None,
            Some(digits) => Some(
                parse_port(digits)
                    .ok_or_else(|| fault("a port from 1 to 65535 without leading zeros"))?,
            ),
        };
        let host = text(thing, host)?;
        Ok(Self { host, port })
    }

    fn same_host(&self, other: &Self) -> bool {
        self.host.eq_ignore_ascii_case(other.host)
    }
}

/// Splits at the colon in front of a port; colons inside brackets belong to the address.
fn split_port(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    let bracket = value.iter().rposition(|&byte| byte == b']').unwrap_or(0);
    match value[bracket..].iter().position(|&byte| byte == b':') {
        Some(colon) => (
            &value[..bracket + colon],
            Some(&value[bracket + colon + 1..]),
        ),
        None => (value, None),
    }
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    if digits.first() == Some(&b'0') {
        return None;
    }
    let number = digits.iter().try_fold(0_u32, |number, &byte| {
        let next = number * 10 + u32::from(byte.wrapping_sub(b'0'));
        (byte.is_ascii_digit() && next <= 65535).then_some(next)
    })?;
    u16::try_from(number).ok()
}

impl<'a> Target<'a> {
    /// Reads a target in the form that its method requires.
    pub(crate) fn parse(method: &str, target: &'a [u8]) -> Result<Self, Fault> {
        let fault = |expected| Fault::new("target", target, expected);
        if !target
            .iter()
            .fold(true, |all, &byte| all & is_target_byte(byte))
        {
            return Err(fault("visible ASCII characters without # < > and quotes"));
        }
        let whole = text("target", target)?;
        if method == "CONNECT" {
            let authority = Authority::parse("target", target)?;
            if authority.port.is_none() {
                return Err(fault("host:port, the target of CONNECT"));
            }
            return Ok(Self::new(whole, Form::Authority, "").of(authority, 443));
        }
        if target == b"*" {
            if method != "OPTIONS" {
                return Err(fault("a path: only OPTIONS has the target *"));
            }
            return Ok(Self::new(whole, Form::Asterisk, "*"));
        }
        if target.first() == Some(&b'/') {
            return Self::new(whole, Form::Origin, whole).split_query();
        }
        Self::absolute(whole)
    }

    /// Reads `http://host:port/path?query` (RFC 9112 3.2.2).
    fn absolute(whole: &'a str) -> Result<Self, Fault> {
        let scheme = |name: &str| {
            let (scheme, rest) = whole.split_at_checked(name.len())?;
            scheme.eq_ignore_ascii_case(name).then_some(rest)
        };
        let found = scheme("http://").map(|rest| (rest, 80));
        let Some((rest, port)) = found.or_else(|| scheme("https://").map(|rest| (rest, 443)))
        else {
            let expected = "a path that begins with /, or an http or https URI";
            return Err(Fault::new("target", whole.as_bytes(), expected));
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority = Authority::parse("target's host", authority.as_bytes())?;
        Self::new(whole, Form::Absolute, path)
            .of(authority, port)
            .split_query()
    }

    fn new(text: &'a str, form: Form, path: &'a str) -> Self {
        Self {
            text,
            form,
            path,
            query: None,
            authority: None,
            default_port: 80,
        }
    }

    fn of(self, authority: Authority<'a>, default_port: u16) -> Self {
        let authority = Some(authority);
        Self {
            authority,
            default_port,
            ..self
        }
    }

    fn split_query(mut self) -> Result<Self, Fault> {
        if let Some((path, query)) = self.path.split_once('?') {
            (self.path, self.query) = (path, Some(query));
        }
        if self.path.contains('\\') {
            let expected = "a path without backslashes, which some servers take for slashes";
            return Err(Fault::new("target", self.text.as_bytes(), expected));
        }
        if self.path.is_empty() {
            self.path = "/";
        }
        Ok(self)
    }

    /// Compares the target's host with that of the Host header: one request must not name two (RFC 9112 3.2.2, 3.2.3).
    pub(crate) fn check_host(&self, host: &Authority<'_>) -> Result<(), Fault> {
        let Some(authority) = &self.authority else {
            return Ok(());
        };
        let port = |authority: &Authority<'_>| authority.port.unwrap_or(self.default_port);
        let same_port = match (self.form, host.port) {
            // CONNECT has no scheme: a Host without port stands for either default.
            (Form::Authority, None) => matches!(authority.port, Some(80 | 443)),
            _ => port(authority) == port(host),
        };
        if same_port && authority.same_host(host) {
            return Ok(());
        }
        let expected = "the host of the request's target";
        Err(Fault::new("Host", host.host.as_bytes(), expected))
    }
}

/// Tells whether a target may contain a byte: RFC 3986's characters, and those that browsers send without encoding them.
fn is_target_byte(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !matches!(byte, b'#' | b'"' | b'<' | b'>')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, target: &'static str) -> Result<Target<'static>, Fault> {
        Target::parse(method, target.as_bytes())
    }

    /// RFC 9112 3.2.1 to 3.2.4.
    #[test]
    fn targets_have_four_forms() {
        for (method, target, form, path, query, host) in [
            ("GET", "/", Form::Origin, "/", None, None),
            ("GET", "//a/b?", Form::Origin, "//a/b", Some(""), None),
            (
                "GET",
                "/a?b?c=%20",
                Form::Origin,
                "/a",
                Some("b?c=%20"),
                None,
            ),
            (
                "GET",
                "/a?{|}[]\\^`'",
                Form::Origin,
                "/a",
                Some("{|}[]\\^`'"),
                None,
            ),
            ("GET", "http://h", Form::Absolute, "/", None, Some("h")),
            (
                "GET",
                "http://h?q",
                Form::Absolute,
                "/",
                Some("q"),
                Some("h"),
            ),
            (
                "GET",
                "HTTPS://h.x:8/p?q",
                Form::Absolute,
                "/p",
                Some("q"),
                Some("h.x"),
            ),
            (
                "GET",
                "http://[::1]:80/",
                Form::Absolute,
                "/",
                None,
                Some("[::1]"),
            ),
            ("OPTIONS", "*", Form::Asterisk, "*", None, None),
            ("CONNECT", "h:443", Form::Authority, "", None, Some("h")),
        ] {
            let found = parse(method, target).unwrap();
            assert_eq!(
                (found.form, found.path, found.query),
                (form, path, query),
                "{target}"
            );
            assert_eq!(
                found.authority.map(|authority| authority.host),
                host,
                "{target}"
            );
            assert_eq!(found.text, target);
        }
    }

    /// RFC 9112 3.2, RFC 3986.
    #[test]
    fn other_targets_are_refused() {
        for (method, target) in [
            ("GET", ""),
            ("GET", "*"),
            ("GET", "a"),
            ("GET", "h:443"),
            ("GET", "?q"),
            ("GET", "/a#b"),
            ("GET", "/a\"b"),
            ("GET", "/<a>"),
            ("GET", "/a\\..\\b"),
            ("GET", "/\u{e9}"),
            ("GET", "/a\tb"),
            ("GET", "/a\x7f"),
            ("GET", "ftp://h/"),
            ("GET", "http:/h/"),
            ("GET", "http:///a"),
            ("GET", "http://u@h/"),
            ("GET", "http://u:p@h/"),
            ("GET", "http://h\\@x/"),
            ("GET", "http://h:80:80/"),
            ("GET", "http://h:x/"),
            ("CONNECT", "h"),
            ("CONNECT", "h:"),
            ("CONNECT", "/"),
            ("CONNECT", "http://h:443"),
            ("OPTIONS", "*/"),
        ] {
            assert!(parse(method, target).is_err(), "{method} {target}");
        }
    }

    /// RFC 9110 7.2, RFC 3986 3.2.2.
    #[test]
    fn hosts_are_names_or_addresses_with_a_port_at_most() {
        let parse = |value: &'static str| Authority::parse("Host", value.as_bytes());
        for (value, host, port) in [
            ("a", "a", None),
            ("A-b_c.example.", "A-b_c.example.", None),
            ("a:", "a", None),
            ("a:65535", "a", Some(65535)),
            ("10.0.0.1:80", "10.0.0.1", Some(80)),
            ("[::1]", "[::1]", None),
            ("[2001:db8::1]:8080", "[2001:db8::1]", Some(8080)),
        ] {
            assert_eq!(parse(value), Ok(Authority { host, port }), "{value}");
        }
        let long: &'static str = "a".repeat(256).leak();
        for value in [
            "",
            ":80",
            "a b",
            "a,b",
            "a/b",
            "a@b",
            "a%41",
            "a:65536",
            "a:0",
            "a:080",
            "a:8x",
            "a:+8",
            "a:80:80",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]80",
            "[fe80::1%25eth0]",
            "[a]",
            "[]",
            "a]",
            "[::1][::1]",
            "a\\b",
            "a?b",
            "\u{e9}",
            long,
        ] {
            assert!(parse(value).is_err(), "{value}");
        }
    }

    /// RFC 9112 3.2.2, 3.2.3; HAProxy refuses them, too.
    #[test]
    fn the_host_header_must_name_the_targets_host() {
        for (method, target, host, same) in [
            ("GET", "/", "any", true),
            ("GET", "http://a/", "A", true),
            ("GET", "http://a/", "a:80", true),
            ("GET", "http://a:80/", "a", true),
            ("GET", "https://a:443/", "a", true),
            ("GET", "http://a/", "b", false),
            ("GET", "http://a/", "a:443", false),
            ("GET", "http://a:8080/", "a", false),
            ("GET", "https://a/", "a:80", false),
            ("CONNECT", "a:443", "a", true),
            ("CONNECT", "a:8080", "a:8080", true),
            ("CONNECT", "a:8080", "a", false),
            ("CONNECT", "a:443", "a:80", false),
            ("CONNECT", "a:443", "b:443", false),
        ] {
            let host = Authority::parse("Host", host.as_bytes()).unwrap();
            let found = parse(method, target).unwrap().check_host(&host);
            assert_eq!(found.is_ok(), same, "{method} {target} {host:?}");
        }
    }
}
