//! Stations of Ethernet, compared as numbers.

use nf_packet::MacAddress;

/// The address of a station as a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Station(u64);

impl Station {
    /// No frame has it as its destination.
    const NONE: Self = Self(u64::MAX);

    /// Returns a port's own station; one that no frame is for, if its address is a group's.
    #[must_use]
    pub fn own(mac: MacAddress) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        let is_group = a & 1 != 0;
        let own = Self(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]));
        if is_group {
            Self::NONE
        } else {
            own
        }
    }

    /// Returns the destination of a frame.
    #[inline(always)]
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        frame.first_chunk().map_or(Self(0), |first| {
            Self(u64::from_le_bytes(*first) & 0xffff_ffff_ffff)
        })
    }
}
