//! The header in front of each frame of a socket with PACKET_VNET_HDR: its offloads as the kernel writes them.

use std::num::NonZeroU16;

use crate::frame::{Frame, Network, Offloads, PartialChecksum, Segments};

/// `struct virtio_net_hdr`, native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct VirtioHeader {
    flags: u8,
    segmentation: u8,
    header_length: u16,
    segment_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

// linux/virtio_net.h
const NEEDS_CHECKSUM: u8 = 1;
const TCP_IPV4: u8 = 1;
const TCP_IPV6: u8 = 4;
const ECN: u8 = 0x80;

impl VirtioHeader {
    /// The header of a complete frame.
    pub(super) const COMPLETE: Self = Self {
        flags: 0,
        segmentation: 0,
        header_length: 0,
        segment_size: 0,
        checksum_start: 0,
        checksum_offset: 0,
    };

    pub(super) fn has_segments(&self) -> bool {
        self.segmentation != 0
    }

    /// Returns the offloads of a received frame of this length; None if they are not TCP's, or not inside the frame.
    pub(super) fn offloads(&self, length: usize) -> Option<Offloads> {
        let checksum = PartialChecksum {
            start: self.checksum_start,
            field: self.checksum_offset,
        };
        let is_partial = self.flags & NEEDS_CHECKSUM != 0 && checksum.fits(length);
        let network = match self.segmentation & !ECN {
            0 if is_partial => return Some(Offloads::Checksum(checksum)),
            0 => return Some(Offloads::None),
            TCP_IPV4 => Network::Ipv4,
            TCP_IPV6 => Network::Ipv6,
            _ => return None,
        };
        let segments = Segments {
            network,
            size: NonZeroU16::new(self.segment_size)?,
            is_ecn: self.segmentation & ECN != 0,
        };
        (is_partial && checksum.field == PartialChecksum::TCP)
            .then_some(Offloads::Segments(checksum, segments))
    }

    /// Returns the header for sending a frame. The kernel refuses a header that does not fit the frame.
    pub(super) fn of(frame: &Frame<'_>) -> Self {
        let Some(checksum) = frame.offloads.checksum() else {
            return Self::COMPLETE;
        };
        let (segmentation, segment_size) = match frame.offloads.segments() {
            None => (0, 0),
            Some(segments) => {
                let network = match segments.network {
                    Network::Ipv4 => TCP_IPV4,
                    Network::Ipv6 => TCP_IPV6,
                };
                let ecn = if segments.is_ecn { ECN } else { 0 };
                (network | ecn, segments.size.get())
            }
        };
        Self {
            flags: NEEDS_CHECKSUM,
            segmentation,
            header_length: header_length(frame.bytes, checksum),
            segment_size,
            checksum_start: checksum.start,
            checksum_offset: checksum.field,
        }
    }
}

/// Returns the length of all headers, which the kernel keeps together.
fn header_length(frame: &[u8], checksum: PartialChecksum) -> u16 {
    const DATA_OFFSET: usize = 12;
    let start = usize::from(checksum.start);
    let header = match checksum.field {
        PartialChecksum::TCP => frame
            .get(start + DATA_OFFSET)
            .map_or(0, |byte| usize::from(byte >> 4) * 4),
        field => usize::from(field) + 2,
    };
    u16::try_from(start + header).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(offloads: Offloads) -> Frame<'static> {
        const BYTES: [u8; 100] = {
            let mut bytes = [0; 100];
            // The TCP header at 34 has 32 bytes.
            bytes[46] = 8 << 4;
            bytes
        };
        Frame {
            bytes: &BYTES,
            offloads,
        }
    }

    #[test]
    fn the_header_of_a_sent_frame_is_read_as_its_offloads() {
        let tcp = PartialChecksum {
            start: 34,
            field: 16,
        };
        let udp = PartialChecksum {
            start: 42,
            field: 6,
        };
        let segments = |network, is_ecn| Segments {
            network,
            size: NonZeroU16::MIN,
            is_ecn,
        };
        for (offloads, headers) in [
            (Offloads::None, 0),
            (Offloads::Checksum(tcp), 66),
            (Offloads::Checksum(udp), 50),
            (Offloads::Segments(tcp, segments(Network::Ipv4, false)), 66),
            (Offloads::Segments(tcp, segments(Network::Ipv6, true)), 66),
        ] {
            let header = VirtioHeader::of(&frame(offloads));
            assert_eq!(header.offloads(100), Some(offloads));
            assert_eq!(header.header_length, headers, "{offloads:?}");
            assert_eq!(header.has_segments(), offloads.segments().is_some());
        }
    }

    #[test]
    fn offloads_that_are_not_inside_the_frame_or_not_of_tcp_are_not_used() {
        let good = VirtioHeader {
            flags: NEEDS_CHECKSUM,
            segmentation: TCP_IPV4,
            header_length: 54,
            segment_size: 1000,
            checksum_start: 34,
            checksum_offset: 16,
        };
        assert!(good.offloads(52).is_some());
        assert!(good.offloads(51).is_none());
        let bad = |change: fn(&mut VirtioHeader)| {
            let mut header = good;
            change(&mut header);
            header.offloads(2000)
        };
        // UDP (3, 5) has no segments here.
        for change in [
            (|header: &mut VirtioHeader| header.segmentation = 3) as fn(&mut VirtioHeader),
            |header| header.segmentation = 5,
            |header| header.segment_size = 0,
            |header| header.flags = 0,
            |header| header.checksum_offset = 6,
        ] {
            assert_eq!(bad(change), None);
        }
        // A checksum outside the frame is left as it is, since there is nothing to complete.
        let short = VirtioHeader {
            segmentation: 0,
            ..good
        };
        assert_eq!(short.offloads(51), Some(Offloads::None));
    }
}
