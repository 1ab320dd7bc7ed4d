//! Receive side scaling: the Toeplitz hash by which NICs spread flows over queues (Microsoft, "RSS hashing types"), with the standard key.

use std::net::IpAddr;

use crate::{field, protocol, Fragment, Headers, Version};

const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];
/// Two IPv6 addresses and two ports.
const LONGEST: usize = 36;

/// The contribution of each value of each input byte.
static PARTS: [[u32; 256]; LONGEST] = parts();

const fn parts() -> [[u32; 256]; LONGEST] {
    let mut parts = [[0; 256]; LONGEST];
    let mut at = 0;
    while at < LONGEST {
        let mut value = 0;
        while value < 256 {
            let mut bit = 0;
            while bit < 8 {
                if value & (0x80 >> bit) != 0 {
                    parts[at][value] ^= window(8 * at + bit);
                }
                bit += 1;
            }
            value += 1;
        }
        at += 1;
    }
    parts
}

/// Returns the 32 bits of the key from this bit on.
const fn window(bit: usize) -> u32 {
    let at = bit / 8;
    let mut bits = 0;
    let mut byte = 0;
    while byte < 5 {
        let next = if at + byte < KEY.len() {
            KEY[at + byte]
        } else {
            0
        };
        bits = bits << 8 | next as u64;
        byte += 1;
    }
    (bits >> (8 - bit % 8)) as u32
}

fn add(hash: u32, at: usize, bytes: &[u8]) -> u32 {
    let parts = PARTS[at..].iter().zip(bytes);
    parts.fold(hash, |hash, (part, byte)| hash ^ part[usize::from(*byte)])
}

/// Hashes the ends of a flow. Addresses of different IP versions hash as IPv6.
#[must_use]
pub fn rss_hash(source: (IpAddr, u16), destination: (IpAddr, u16)) -> u32 {
    let ports = [source.1.to_be_bytes(), destination.1.to_be_bytes()].concat();
    match (source.0, destination.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let hash = add(add(0, 0, &from.octets()), 4, &to.octets());
            add(hash, 8, &ports)
        }
        (from, to) => {
            let [from, to] = [from, to].map(|address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            });
            add(add(add(0, 0, &from), 16, &to), 32, &ports)
        }
    }
}

impl Headers {
    /// Returns the packet's RSS hash: over addresses and ports for whole packets of TCP and UDP, and over the addresses for all others, so that the
    /// fragments of a packet have the same.
    #[must_use]
    #[inline]
    pub fn rss(&self, frame: &[u8]) -> u32 {
        let network = usize::from(self.network);
        let (hash, length) = match self.version {
            Version::V4 => (add(0, 0, &field::get::<8>(frame, network + 12)), 8),
            Version::V6 => (add(0, 0, &field::get::<32>(frame, network + 8)), 32),
        };
        let has_ports = matches!(self.protocol, protocol::TCP | protocol::UDP);
        match has_ports && self.fragment == Fragment::Whole {
            true => add(hash, length, &field::get::<4>(frame, self.transport.into())),
            false => hash,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dissect_ip, Ipv4, Ipv6, Udp};

    /// Microsoft, "Verifying the RSS hash calculation": source, destination, the hash of addresses, and that with TCP's ports.
    const VECTORS: [(&str, u16, &str, u16, u32, u32); 5] = [
        (
            "66.9.149.187",
            2794,
            "161.142.100.80",
            1766,
            0x323e_8fc2,
            0x51cc_c178,
        ),
        (
            "199.92.111.2",
            14230,
            "65.69.140.83",
            4739,
            0xd718_262a,
            0xc626_b0ea,
        ),
        (
            "24.19.198.95",
            12898,
            "12.22.207.184",
            38024,
            0xd2d0_a5de,
            0x5c2b_394a,
        ),
        (
            "3ffe:2501:200:1fff::7",
            2794,
            "3ffe:2501:200:3::1",
            1766,
            0x2cc1_8cd5,
            0x4020_7d3d,
        ),
        (
            "3ffe:501:8::260:97ff:fe40:efab",
            14230,
            "ff02::1",
            4739,
            0x0f0c_461c,
            0xdde5_1bbf,
        ),
    ];

    fn packet(source: IpAddr, destination: IpAddr, ports: (u16, u16)) -> Vec<u8> {
        let mut bytes = vec![0; 60];
        let at = match (source, destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                Ipv4::write(&mut bytes[..], from, to, protocol::UDP, 40).unwrap();
                20
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Ipv6::write(&mut bytes[..], from, to, protocol::UDP, 20).unwrap();
                40
            }
            _ => unreachable!(),
        };
        let length = (bytes.len() - at) as u16;
        Udp::write(&mut bytes[at..], ports.0, ports.1, usize::from(length) - 8).unwrap();
        bytes
    }

    #[test]
    fn hashes_are_those_that_microsoft_lists() {
        for (source, from, destination, to, addresses, all) in VECTORS {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(rss_hash((source, from), (destination, to)), all);
            let bytes = packet(source, destination, (from, to));
            let headers = dissect_ip(&bytes).unwrap();
            assert_eq!(headers.rss(&bytes), all);
            let fragment = Headers {
                fragment: Fragment::First,
                ..headers
            };
            assert_eq!(fragment.rss(&bytes), addresses);
        }
    }
}
