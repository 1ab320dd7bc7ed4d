//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624, equation 3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the one's complement sum of bytes, not folded. Sums of parts may be added if every part but the last has an even length.
#[must_use]
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let mut total = 0_u64;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        total += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    total
        + match *words.remainder() {
            [a] => u64::from(a) << 24,
            [a, b] => u64::from(u16::from_be_bytes([a, b])) << 16,
            [a, b, c] => u64::from(u32::from_be_bytes([a, b, c, 0])),
            _ => 0,
        }
}

/// Folds a sum to 16 bits.
#[must_use]
#[inline]
pub fn fold(sum: u64) -> u16 {
    // The upper half of a number plus its halves exchanged is their sum with the carry added.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Computes the checksum of bytes whose checksum field is zero.
#[must_use]
#[inline]
pub fn of(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Verifies bytes that contain their checksum.
#[must_use]
#[inline]
pub fn holds(bytes: &[u8]) -> bool {
    fold(sum(bytes)) == 0xffff
}

/// Verifies an IPv4 header without options. The order of bytes in the words does not matter to that (RFC 1071, 2).
#[must_use]
#[inline]
pub(crate) fn holds_plain(header: &[u8; 20]) -> bool {
    let words = header.chunks_exact(4);
    let word = |word: &[u8]| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
    fold(words.map(|each| u64::from(word(each))).sum()) == 0xffff
}

/// Returns the sum of the pseudo header before TCP, UDP and ICMPv6: `length` bytes of `protocol` (RFC 9293, RFC 8200 8.1).
#[must_use]
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: u32) -> u64 {
    let addresses = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => of_ipv4(source) + of_ipv4(destination),
        (IpAddr::V6(source), IpAddr::V6(destination)) => of_ipv6(source) + of_ipv6(destination),
        _ => 0,
    };
    addresses + u64::from(protocol) + u64::from(length)
}

fn of_ipv4(address: Ipv4Addr) -> u64 {
    sum(&address.octets())
}

fn of_ipv6(address: Ipv6Addr) -> u64 {
    sum(&address.octets())
}

/// A change of checksummed fields: collects replacements, then [`apply`](Self::apply) updates each checksum that covers them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delta(u64);

impl Delta {
    #[must_use]
    #[inline]
    pub fn replace16(self, old: u16, new: u16) -> Self {
        Self(self.0 + u64::from(!old) + u64::from(new))
    }

    #[must_use]
    #[inline]
    pub fn replace32(self, old: u32, new: u32) -> Self {
        Self(self.0 + u64::from(!old) + u64::from(new))
    }

    /// Adds a replacement. Both slices have the same, even length, at an even offset of the checksummed bytes.
    #[must_use]
    #[inline]
    pub fn replace(self, old: &[u8], new: &[u8]) -> Self {
        debug_assert!(old.len() == new.len() && old.len() % 2 == 0);
        // For even lengths, the complement of the sum is the sum of the complements (modulo 0xffff).
        Self(self.0 + u64::from(!fold(sum(old))) + u64::from(fold(sum(new))))
    }

    /// Returns the updated checksum: HC' = ~(~HC + ~m + m').
    #[must_use]
    #[inline]
    pub fn apply(self, checksum: u16) -> u16 {
        !fold(u64::from(!checksum) + self.0)
    }

    /// Returns the updated sum of a pseudo-header: the field of a checksum that is left to a network card. Collect changes of addresses and of the length
    /// only, since the field covers nothing else.
    #[must_use]
    #[inline]
    pub fn apply_to_sum(self, sum: u16) -> u16 {
        fold(u64::from(sum) + self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_updated_sum_is_that_of_the_new_pseudo_header() {
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, last));
        let bytes = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        for (from, old, new) in [
            (address(1), address(2), address(250)),
            (v6(1), v6(2), v6(0xfffe)),
        ] {
            let sum = |to, length| fold(pseudo_header(from, to, 6, length));
            let delta = Delta::default()
                .replace(&bytes(old), &bytes(new))
                .replace16(60_000, 1_480);
            assert_eq!(delta.apply_to_sum(sum(old, 60_000)), sum(new, 1_480));
        }
    }
}
