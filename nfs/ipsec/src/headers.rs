//! The fields that a tunnel reads and changes in the headers of the packets that it carries: traffic class, congestion, fragmentation.

use nf_packet::{checksum::Delta, Headers, Version};

use crate::selecting::Address;

/// The bits of the traffic class that carry congestion (RFC 3168).
pub const ECN: u8 = 3;
const NOT_CAPABLE: u8 = 0;
const ECT_1: u8 = 1;
const CONGESTED: u8 = 3;

/// The fields of an IP header that decisions need, read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    pub source: Address,
    pub destination: Address,
    /// Of the packet, without padding of the frame.
    pub length: usize,
    pub class: u8,
    /// The time to live, or the hop limit.
    pub hops: u8,
    pub dont_fragment: bool,
}

impl Outline {
    /// Reads the header of a dissected packet.
    #[must_use]
    pub fn of(frame: &[u8], headers: &Headers) -> Self {
        let packet = headers.packet(frame);
        match headers.version {
            Version::V4 => Self::v4(packet.first_chunk().unwrap_or(&[0; 20]), packet.len()),
            Version::V6 => Self::v6(packet.first_chunk().unwrap_or(&[0; 40]), packet.len()),
        }
    }

    /// Reads the header of an IPv4 packet of this length.
    #[inline(always)]
    #[must_use]
    pub fn v4(header: &[u8; 20], length: usize) -> Self {
        let [.., a, b, c, d, e, f, g, h] = *header;
        Self {
            source: Address::v4([a, b, c, d]),
            destination: Address::v4([e, f, g, h]),
            length,
            class: header[1],
            hops: header[8],
            dont_fragment: header[6] & 0x40 != 0,
        }
    }

    fn v6(header: &[u8; 40], length: usize) -> Self {
        let address = |at: usize| {
            let octets = header.get(at..).and_then(<[u8]>::first_chunk);
            Address::v6(*octets.unwrap_or(&[0; 16]))
        };
        Self {
            source: address(8),
            destination: address(24),
            length,
            class: class(header, Version::V6),
            hops: header[7],
            dont_fragment: true,
        }
    }
}

/// Returns the traffic class of an IP packet.
#[inline]
#[must_use]
pub fn class(packet: &[u8], version: Version) -> u8 {
    match (version, packet) {
        (Version::V4, [_, class, ..]) => *class,
        (Version::V6, [high, low, ..]) => high << 4 | low >> 4,
        _ => 0,
    }
}

/// Tells whether an IP packet must not be fragmented. Routers never fragment IPv6.
#[inline]
#[must_use]
pub fn dont_fragment(packet: &[u8], version: Version) -> bool {
    version == Version::V6 || packet.get(6).is_some_and(|flags| flags & 0x40 != 0)
}

/// Tells whether the congestion bits of an outer packet can change those inside: without a mark, and with ECT(0), they cannot.
#[inline]
#[must_use]
pub fn changes_congestion(outer: u8) -> bool {
    outer & ECT_1 != 0
}

/// Combines congestion bits where a tunnel ends (RFC 6040, figure 4). None: the packet must be dropped.
#[inline]
#[must_use]
pub fn combined(outer: u8, inner: u8) -> Option<u8> {
    match (outer & ECN, inner & ECN) {
        (CONGESTED, NOT_CAPABLE) => None,
        (_, NOT_CAPABLE) => Some(NOT_CAPABLE),
        (CONGESTED, _) | (_, CONGESTED) => Some(CONGESTED),
        (ECT_1, _) => Some(ECT_1),
        (_, inner) => Some(inner),
    }
}

/// Sets the congestion bits of an IP packet.
#[inline]
pub fn set_congestion(packet: &mut [u8], version: Version, bits: u8) {
    match version {
        Version::V4 => {
            if let Some(header) = packet.first_chunk_mut::<20>() {
                let old = u16::from_be_bytes([header[0], header[1]]);
                let new = old & !u16::from(ECN) | u16::from(bits & ECN);
                if old != new {
                    let sum = u16::from_be_bytes([header[10], header[11]]);
                    let sum = Delta::default().replace16(old, new).apply(sum);
                    header[..2].copy_from_slice(&new.to_be_bytes());
                    header[10..12].copy_from_slice(&sum.to_be_bytes());
                }
            }
        }
        Version::V6 => {
            if let Some(byte) = packet.get_mut(1) {
                *byte = *byte & !(ECN << 4) | (bits & ECN) << 4;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nf_packet::{checksum, Ipv4, Ipv6};

    use super::*;

    /// RFC 6040, figure 4: rows are inner, columns outer: not capable, ECT(0), ECT(1), congested.
    #[test]
    fn congestion_is_combined_as_the_rfc_says() {
        let outer = [0, 2, 1, 3];
        let table = [
            (0, [Some(0), Some(0), Some(0), None]),
            (2, [Some(2), Some(2), Some(1), Some(3)]),
            (1, [Some(1), Some(1), Some(1), Some(3)]),
            (3, [Some(3), Some(3), Some(3), Some(3)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in outer.into_iter().zip(row) {
                assert_eq!(combined(outer, inner), expected, "{outer} {inner}");
                assert!(changes_congestion(outer) || expected == Some(inner));
            }
        }
    }

    #[test]
    fn congestion_bits_are_set_with_the_checksum() {
        let mut v4 = [0; 20];
        Ipv4::write(
            &mut v4[..],
            [10, 0, 0, 1].into(),
            [10, 0, 0, 2].into(),
            17,
            0,
        )
        .unwrap();
        let mut v6 = [0; 40];
        Ipv6::write(
            &mut v6[..],
            "::1".parse().unwrap(),
            "::2".parse().unwrap(),
            17,
            0,
        )
        .unwrap();
        for bits in [1, 3, 2, 0, 0] {
            set_congestion(&mut v4, Version::V4, bits);
            set_congestion(&mut v6, Version::V6, bits);
            assert_eq!(class(&v4, Version::V4), bits);
            assert_eq!(class(&v6, Version::V6), bits);
            assert!(checksum::holds(&v4));
        }
        assert!(dont_fragment(&v4, Version::V4) && dont_fragment(&v6, Version::V6));
        v4[6] = 0;
        assert!(!dont_fragment(&v4, Version::V4));
    }
}
