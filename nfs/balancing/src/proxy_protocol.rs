//! The header of the PROXY protocol (haproxy's proxy-protocol.txt), versions 1 and 2.

mod parse;

use std::{io::Write, net::IpAddr};

pub use parse::{parse, Malformed, Parsed};

/// The first bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header of version 1.
const LONGEST_TEXT: usize = 107;

/// Builds the header of version 1 (2.1).
#[must_use]
pub fn text_header(client: (IpAddr, u16), vip: (IpAddr, u16)) -> ([u8; LONGEST_TEXT], usize) {
    let mut header = [0; LONGEST_TEXT];
    let mut rest = header.as_mut_slice();
    // The longest addresses and ports fit.
    let _ = match (client.0, vip.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ports = (client.1, vip.1);
            write!(
                rest,
                "PROXY TCP4 {source} {destination} {} {}\r\n",
                ports.0, ports.1
            )
        }
        (source, destination) => {
            let (source, destination) = (ipv6(source), ipv6(destination));
            let ports = (client.1, vip.1);
            write!(
                rest,
                "PROXY TCP6 {source} {destination} {} {}\r\n",
                ports.0, ports.1
            )
        }
    };
    let left = rest.len();
    (header, LONGEST_TEXT - left)
}

/// Returns an address as one of IPv6: mapped, if it is of IPv4.
fn ipv6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Builds the header of version 2 (2.2): PROXY, TCP.
#[must_use]
pub fn header(client: (IpAddr, u16), vip: (IpAddr, u16)) -> ([u8; 52], usize) {
    let mut header = [0; 52];
    header[..12].copy_from_slice(SIGNATURE);
    header[12] = 0x21;
    let length = match (client.0, vip.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            header[13] = 0x11;
            header[16..20].copy_from_slice(&source.octets());
            header[20..24].copy_from_slice(&destination.octets());
            8
        }
        (source, destination) => {
            header[13] = 0x21;
            header[16..32].copy_from_slice(&ipv6(source).octets());
            header[32..48].copy_from_slice(&ipv6(destination).octets());
            32
        }
    };
    header[16 + length..][..2].copy_from_slice(&client.1.to_be_bytes());
    header[18 + length..][..2].copy_from_slice(&vip.1.to_be_bytes());
    header[14..16].copy_from_slice(&(length as u16 + 4).to_be_bytes());
    (header, 20 + length)
}

/// The length of [`header`] for clients of this IP version.
#[must_use]
pub const fn header_length(is_ipv4: bool) -> u16 {
    if is_ipv4 {
        28
    } else {
        52
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_version_1_are_lines() {
        let end = |text: &str, port| (text.parse::<IpAddr>().unwrap(), port);
        let longest = "ffff:f:f:f:f:f:f:ffff";
        for (client, vip, line) in [
            (
                end("198.51.100.7", 65535),
                end("192.0.2.1", 80),
                "PROXY TCP4 198.51.100.7 192.0.2.1 65535 80\r\n",
            ),
            (
                end("2001:db8::7", 1),
                end("2001:db8::1", 443),
                "PROXY TCP6 2001:db8::7 2001:db8::1 1 443\r\n",
            ),
            (
                end("::ffff:1.2.3.4", 1),
                end("1.2.3.5", 2),
                "PROXY TCP6 ::ffff:1.2.3.4 ::ffff:1.2.3.5 1 2\r\n",
            ),
            (
                end(longest, 1),
                end(longest, 2),
                &format!("PROXY TCP6 {longest} {longest} 1 2\r\n"),
            ),
        ] {
            let (bytes, length) = text_header(client, vip);
            assert_eq!(std::str::from_utf8(&bytes[..length]), Ok(line));
        }
    }

    #[test]
    fn headers_have_the_bytes_of_the_specification() {
        let end = |text: &str, port| (text.parse::<IpAddr>().unwrap(), port);
        let (bytes, length) = header(end("198.51.100.7", 0x1234), end("192.0.2.1", 80));
        assert_eq!(length, usize::from(header_length(true)));
        assert_eq!(
            bytes[..length],
            *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc6\x33\x64\x07\xc0\x00\x02\x01\x12\x34\x00\x50"
        );
        let (bytes, length) = header(end("2001:db8::7", 1), end("2001:db8::1", 443));
        assert_eq!(length, usize::from(header_length(false)));
        assert_eq!(bytes[12..20], *b"\x21\x21\x00\x24\x20\x01\x0d\xb8");
        assert_eq!(bytes[28..36], *b"\0\0\0\x07\x20\x01\x0d\xb8");
        assert_eq!(bytes[44..length], *b"\0\0\0\x01\x00\x01\x01\xbb");
    }
}
