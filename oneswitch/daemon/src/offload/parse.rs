//! Lines of a writer.

use std::net::IpAddr;

use oneswitch_core::{
    Clients, FlowEnd, FlowKey, FlowProtocol, OffloadHello, OffloadRequest, OffloadRewrite,
    OffloadTarget,
};
use serde::de::IgnoredAny;
use serde::Deserialize;

/// The longest line, in bytes.
pub const LINE: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Hello(Hello),
    List(()),
    Target((u16, Target)),
    Pass((u16, u32)),
    Deny(u16),
    Drop(u16),
    Install((u64, Protocol, IpAddr, u16, IpAddr, u16, u16, End, u16)),
    Remove(u64),
    Alive(()),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hello {
    port: u32,
    owner: Option<String>,
    instance: String,
    epoch: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    eth_src: Mac,
    eth_dst: Mac,
    source: Option<(IpAddr, u16)>,
    destination: Option<(IpAddr, u16)>,
    tunnel: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Mac([u8; 6]);

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let octet = |part: &str| match part.len() {
            2 => u8::from_str_radix(part, 16).ok(),
            _ => None,
        };
        let octets: Option<Vec<u8>> = text.split(':').map(octet).collect();
        let octets = octets.and_then(|octets| octets.try_into().ok());
        octets.map(Self).ok_or_else(|| {
            let shown = shortened(&text);
            format!("{shown:?}, expected a MAC address such as \"02:00:00:00:00:01\"")
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    Tcp,
    Udp,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Source,
    Destination,
}

/// A line of a writer, read.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    Hello(OffloadHello),
    Request(OffloadRequest),
}

/// Reads a line without its end.
///
/// # Errors
/// The part of the line that is wrong, its value and what was expected.
pub fn parse(line: &[u8]) -> Result<Parsed, String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| explain(line, &error))?;
    Ok(Parsed::Request(match line {
        Line::Hello(hello) => return hello_of(hello).map(Parsed::Hello),
        Line::List(()) => OffloadRequest::List,
        Line::Alive(()) => OffloadRequest::Alive,
        Line::Drop(target) => OffloadRequest::Drop(target),
        Line::Remove(rule) => OffloadRequest::Remove(number("remove", rule)?),
        Line::Target((number, target)) => {
            let Target {
                eth_src: Mac(eth_src),
                eth_dst: Mac(eth_dst),
                source,
                destination,
                tunnel,
            } = target;
            let rewrite = OffloadRewrite {
                eth_src,
                eth_dst,
                source: source.map(end),
                destination: destination.map(end),
            };
            // Open vSwitch cannot encapsulate and then treat the packet as if the port had sent it.
            let rewrite = tunnel.is_none().then_some(rewrite);
            OffloadRequest::Target(number, rewrite.map(OffloadTarget::Rewrite))
        }
        Line::Pass((number, port)) => {
            OffloadRequest::Target(number, Some(OffloadTarget::Pass(port)))
        }
        Line::Deny(number) => OffloadRequest::Target(number, Some(OffloadTarget::Deny)),
        Line::Install((rule, protocol, from, from_port, to, to_port, target, clients, counter)) => {
            let key = FlowKey {
                protocol: match protocol {
                    Protocol::Tcp => FlowProtocol::Tcp,
                    Protocol::Udp => FlowProtocol::Udp,
                },
                source: end((from, from_port)),
                destination: end((to, to_port)),
            };
            if !key.is_of_one_version() {
                return Err(format!(
                    "install: the addresses {from} and {to}; expected two of one IP version"
                ));
            }
            OffloadRequest::Install {
                rule: number("install", rule)?,
                key,
                target,
                clients: match clients {
                    End::Source => Clients::Source,
                    End::Destination => Clients::Destination,
                },
                counter,
            }
        }
    }))
}

/// Open vSwitch takes a cookie of all ones for none.
fn number(kind: &str, rule: u64) -> Result<u64, String> {
    match rule {
        u64::MAX => Err(format!(
            "{kind}: the rule's number {rule}; expected 0 to {}",
            u64::MAX - 1
        )),
        rule => Ok(rule),
    }
}

/// An IPv4 address may be written as a mapped one (RFC 4291, 2.5.5.2).
fn end((address, port): (IpAddr, u16)) -> FlowEnd {
    (address.to_canonical(), port)
}

fn hello_of(hello: Hello) -> Result<OffloadHello, String> {
    let text = &hello.instance;
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let instance = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
    Ok(OffloadHello {
        port: hello.port,
        owner: hello.owner,
        instance: instance.ok_or_else(|| {
            let shown = shortened(text);
            format!("hello: the instance {shown:?}; expected 32 hex digits")
        })?,
        epoch: hello.epoch,
    })
}

/// Names the part of a line that could not be read.
fn explain(line: &[u8], error: &serde_json::Error) -> String {
    let shown = shortened(&String::from_utf8_lossy(line));
    let at = error.column().saturating_sub(1);
    let column = format!(" at line 1 column {}", error.column());
    let what = error.to_string();
    let what = shortened(what.strip_suffix(&column).unwrap_or(&what));
    format!("{what}, at byte {at} of the line {shown:?}; expected one object of hello, list, target, pass, deny, drop, install, remove or alive")
}

/// Returns the beginning of a text: a complaint must not be as long as the line.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 160;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::Index;

    fn complaint(line: &str) -> String {
        parse(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn lines_are_read() {
        let install =
            r#"{"install": [7, "tcp", "10.0.0.1", 1234, "::ffff:10.0.0.9", 80, 3, "source", 6]}"#;
        let key = FlowKey {
            protocol: FlowProtocol::Tcp,
            source: ("10.0.0.1".parse().unwrap(), 1234),
            destination: ("10.0.0.9".parse().unwrap(), 80),
        };
        let expected = OffloadRequest::Install {
            rule: 7,
            key,
            target: 3,
            clients: Clients::Source,
            counter: 6,
        };
        assert_eq!(parse(install.as_bytes()), Ok(Parsed::Request(expected)));
        let target = r#"{"target": [7, {"eth_src": "02:00:00:00:00:0a", "eth_dst": "02:00:00:00:00:0b", "source": null, "destination": ["10.0.0.11", 8080], "tunnel": null}]}"#;
        let expected = OffloadRewrite {
            eth_src: [2, 0, 0, 0, 0, 10],
            eth_dst: [2, 0, 0, 0, 0, 11],
            source: None,
            destination: Some(("10.0.0.11".parse().unwrap(), 8080)),
        };
        let expected = Parsed::Request(OffloadRequest::Target(
            7,
            Some(OffloadTarget::Rewrite(expected)),
        ));
        assert_eq!(parse(target.as_bytes()), Ok(expected));
        let tunnel = target.replace(r#""tunnel": null"#, r#""tunnel": {"network": 5}"#);
        let expected = Parsed::Request(OffloadRequest::Target(7, None));
        assert_eq!(parse(tunnel.as_bytes()), Ok(expected));
        let hello = r#"{"hello": {"port": 1000, "owner": null, "instance": "000000000000000000000000000000ff", "epoch": 7}}"#;
        let expected = OffloadHello {
            port: 1000,
            owner: None,
            instance: 255,
            epoch: 7,
        };
        assert_eq!(parse(hello.as_bytes()), Ok(Parsed::Hello(expected)));
        for (line, expected) in [
            (r#"{"list": null}"#, OffloadRequest::List),
            (r#"{"alive":null}"#, OffloadRequest::Alive),
            (r#"{"drop": 7}"#, OffloadRequest::Drop(7)),
            (
                r#"{"pass": [7, 1001]}"#,
                OffloadRequest::Target(7, Some(OffloadTarget::Pass(1001))),
            ),
            (
                r#"{"deny": 7}"#,
                OffloadRequest::Target(7, Some(OffloadTarget::Deny)),
            ),
            (r#"{"remove": 9}"#, OffloadRequest::Remove(9)),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(Parsed::Request(expected)));
        }
    }

    #[test]
    fn a_complaint_names_the_part_the_value_and_what_was_expected() {
        for (line, parts) in [
            (
                "GET / HTTP/1.1",
                &["expected value", "GET /", "expected one object"][..],
            ),
            (r#"{"raise": 1}"#, &["unknown variant `raise`", "`install`"]),
            (
                r#"{"drop": 70000}"#,
                &["70000", "expected u16", "at byte 13"],
            ),
            (
                r#"{"install": [7, "sctp", "10.0.0.1", 1, "10.0.0.2", 1, 3, "source", 6]}"#,
                &["unknown variant `sctp`", "`tcp` or `udp`"],
            ),
            (
                r#"{"install": [7, "tcp", "10.0.0.x", 1, "10.0.0.2", 1, 3, "source", 6]}"#,
                &["invalid IP address"],
            ),
            (
                r#"{"install": [7, "tcp", "10.0.0.1", 1, "2001:db8::1", 1, 3, "source", 6]}"#,
                &["10.0.0.1 and 2001:db8::1", "one IP version"],
            ),
            (
                r#"{"remove": 18446744073709551615}"#,
                &["remove", "18446744073709551615", "expected 0 to"],
            ),
            (
                r#"{"hello": {"port": 1, "owner": null, "instance": "abc", "epoch": 7}}"#,
                &["instance \"abc\"", "32 hex digits"],
            ),
            (
                r#"{"target": [7, {"eth_src": "2:0:0:0:0:1", "eth_dst": "02:00:00:00:00:0b"}]}"#,
                &["2:0:0:0:0:1", "MAC address"],
            ),
        ] {
            let complaint = complaint(line);
            for part in parts {
                assert!(complaint.contains(part), "{line}: {complaint}");
            }
        }
    }

    #[test]
    fn a_complaint_is_short_however_long_the_value_is() {
        let long = "\u{7f}".repeat(10_000);
        for line in [
            long.clone(),
            format!(r#"{{"{long}": 1}}"#),
            format!(r#"{{"target": [5, {{"eth_src": "{long}", "eth_dst": "{long}"}}]}}"#),
            format!(
                r#"{{"install": [7, "{long}", "10.0.0.1", 1, "10.0.0.2", 1, 3, "source", 6]}}"#
            ),
            format!(
                r#"{{"hello": {{"port": 1, "owner": null, "instance": "{long}", "epoch": 7}}}}"#
            ),
        ] {
            let complaint = complaint(&line);
            assert!(complaint.len() < 2_500, "{} bytes", complaint.len());
        }
    }

    const LINES: [&str; 4] = [
        r#"{"hello": {"port": 1000, "owner": "a/b", "instance": "000000000000000000000000000000ff", "epoch": 7}}"#,
        r#"{"target": [7, {"eth_src": "02:00:00:00:00:0a", "eth_dst": "02:00:00:00:00:0b", "destination": ["10.0.0.11", 8080]}]}"#,
        r#"{"install": [7, "udp", "2001:db8::1", 1234, "2001:db8::2", 53, 3, "destination", 65535]}"#,
        r#"{"remove": 9}"#,
    ];

    proptest! {
        /// A part of a line is replaced by any other bytes.
        #[test]
        fn no_line_makes_it_fail(
            line in 0..LINES.len(),
            at in any::<Index>(),
            gone in 0..8usize,
            new in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let mut line = LINES[line].as_bytes().to_vec();
            let start = at.index(line.len());
            let end = (start + gone).min(line.len());
            line.splice(start..end, new);
            if let Err(complaint) = parse(&line) {
                prop_assert!(complaint.len() < 2_500, "{}", complaint);
            }
        }
    }
}
