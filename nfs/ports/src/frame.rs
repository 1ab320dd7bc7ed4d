//! Frames with what their sender left to a network card: checksums, and the split into segments.

use std::num::NonZeroU16;

/// The longest frame with several segments: 64 KiB of IP, and an Ethernet header with tags. With the room in front of it, a packet's buffer is an odd number
/// of cache lines long.
pub const MAX_LARGE_FRAME: usize = 65_664;

/// A frame to send or to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The frame, from the destination MAC address on, without checksum.
    pub bytes: &'a [u8],
    pub offloads: Offloads,
}

/// The work at a frame that is left to a network card, or to the kernel in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// None: the frame is complete.
    #[default]
    None,
    /// The checksum.
    Checksum(PartialChecksum),
    /// The split into TCP segments, each with its checksum.
    Segments(PartialChecksum, Segments),
}

/// A checksum whose field contains only the sum of the pseudo-header, folded to 16 bits and not inverted (Linux: CHECKSUM_PARTIAL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// The offset of the TCP or UDP header in the frame; the checksum covers all bytes from there on.
    pub start: u16,
    /// The offset of the field from `start`: 16 for TCP, 6 for UDP.
    pub field: u16,
}

/// The split of a frame's TCP payload. The frame has the headers of the first segment, except that lengths are those of the whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    pub network: Network,
    /// The payload of each segment except the last, in bytes.
    pub size: NonZeroU16,
    /// Whether the flag CWR belongs to the first segment only (RFC 3168).
    pub is_ecn: bool,
}

/// The protocol that carries the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Ipv4,
    Ipv6,
}

impl PartialChecksum {
    /// The offset of TCP's checksum.
    pub const TCP: u16 = 16;

    /// Tells whether the field is inside a frame of this length.
    pub(crate) fn fits(self, length: usize) -> bool {
        usize::from(self.start) + usize::from(self.field) + 2 <= length
    }
}

impl Offloads {
    #[inline]
    #[must_use]
    pub fn checksum(self) -> Option<PartialChecksum> {
        match self {
            Self::None => None,
            Self::Checksum(checksum) | Self::Segments(checksum, _) => Some(checksum),
        }
    }

    #[must_use]
    pub fn segments(self) -> Option<Segments> {
        match self {
            Self::None | Self::Checksum(_) => None,
            Self::Segments(_, segments) => Some(segments),
        }
    }

    /// Returns the same with at most this many bytes of payload per segment: the receiver may take less than the sender believed.
    #[must_use]
    pub fn with_segments_of(self, most: usize) -> Self {
        match (self, u16::try_from(most).ok().and_then(NonZeroU16::new)) {
            (Self::Segments(checksum, segments), Some(most)) => {
                let size = segments.size.min(most);
                Self::Segments(checksum, Segments { size, ..segments })
            }
            _ => self,
        }
    }

    #[inline]
    #[must_use]
    pub fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the same with the checksum's start at another place, as headers in front of it have come or gone.
    #[must_use]
    pub(crate) fn with_start(self, start: u16) -> Self {
        let at = |checksum: PartialChecksum| PartialChecksum { start, ..checksum };
        match self {
            Self::None => Self::None,
            Self::Checksum(checksum) => Self::Checksum(at(checksum)),
            Self::Segments(checksum, segments) => Self::Segments(at(checksum), segments),
        }
    }

    /// Encodes it for a ring or a connection; zero is [`None`](Self::None).
    ///
    /// ```text
    /// bits 0-15: segment size | 16-31: start | 32-47: field | 48: checksum | 49: IPv4 | 50: IPv6 | 51: ECN
    /// ```
    #[must_use]
    pub fn to_bits(self) -> u64 {
        let checksum = self.checksum().map_or(0, |checksum| {
            CHECKSUM | u64::from(checksum.start) << 16 | u64::from(checksum.field) << 32
        });
        let segments = self.segments().map_or(0, |segments| {
            let network = match segments.network {
                Network::Ipv4 => IPV4,
                Network::Ipv6 => IPV6,
            };
            let ecn = if segments.is_ecn { ECN } else { 0 };
            u64::from(segments.size.get()) | network | ecn
        });
        checksum | segments
    }

    /// Decodes what [`to_bits`](Self::to_bits) has encoded. Other bits are ignored.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        if bits & CHECKSUM == 0 {
            return Self::None;
        }
        let checksum = PartialChecksum {
            start: (bits >> 16) as u16,
            field: (bits >> 32) as u16,
        };
        let network = match bits & (IPV4 | IPV6) {
            IPV4 => Network::Ipv4,
            IPV6 => Network::Ipv6,
            _ => return Self::Checksum(checksum),
        };
        let segments = |size| Segments {
            network,
            size,
            is_ecn: bits & ECN != 0,
        };
        match NonZeroU16::new(bits as u16) {
            Some(size) => Self::Segments(checksum, segments(size)),
            None => Self::Checksum(checksum),
        }
    }
}

const CHECKSUM: u64 = 1 << 48;
const IPV4: u64 = 1 << 49;
const IPV6: u64 = 1 << 50;
const ECN: u64 = 1 << 51;

impl<'a> From<&'a [u8]> for Frame<'a> {
    /// A complete frame.
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            offloads: Offloads::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_offloads_are_decoded() {
        let checksum = PartialChecksum {
            start: 0xfffe,
            field: 6,
        };
        let mut all = vec![Offloads::None, Offloads::Checksum(checksum)];
        for network in [Network::Ipv4, Network::Ipv6] {
            for is_ecn in [false, true] {
                for size in [1, 1448, u16::MAX] {
                    let segments = Segments {
                        network,
                        size: NonZeroU16::new(size).unwrap(),
                        is_ecn,
                    };
                    all.push(Offloads::Segments(checksum, segments));
                }
            }
        }
        for (index, offloads) in all.iter().enumerate() {
            let bits = offloads.to_bits();
            assert_eq!(Offloads::from_bits(bits), *offloads);
            assert_eq!(Offloads::from_bits(bits | 0xfff << 52), *offloads);
            let same = |other: &Offloads| other.to_bits() == bits;
            assert_eq!(all.iter().position(same), Some(index));
        }
        assert_eq!(Offloads::None.to_bits(), 0);
        let without_size = Offloads::from_bits(CHECKSUM | IPV4 | 6 << 32);
        assert!(without_size.segments().is_none());
    }
}
