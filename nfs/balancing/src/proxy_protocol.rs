//! The header of the PROXY protocol, version 2.

use std::net::IpAddr;

/// Builds the header of the PROXY protocol, version 2 (haproxy's proxy-protocol.txt, 2.2): PROXY, TCP.
#[must_use]
pub fn header(client: (IpAddr, u16), vip: (IpAddr, u16)) -> ([u8; 52], usize) {
    let mut header = [0; 52];
    header[..12].copy_from_slice(b"\r\n\r\n\0\r\nQUIT\n");
    header[12] = 0x21;
    let length = match (client.0, vip.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            header[13] = 0x11;
            header[16..20].copy_from_slice(&source.octets());
            header[20..24].copy_from_slice(&destination.octets());
            8
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            header[13] = 0x21;
            header[16..32].copy_from_slice(&octets(source));
            header[32..48].copy_from_slice(&octets(destination));
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
