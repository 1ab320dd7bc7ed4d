//! The header between a T-NIC and its switch (Tiara, section 4.2, Fig. 8), between the Ethernet header and the IP header.
//!
//! ```text
//! Ethernet, EtherType 0x88B5 | RS_Index, 4 bytes | RS_Port, 2 | RSS, 2 | EtherType of IPv4 or IPv6, 2 | IP
//! ```
//!
//! 0x88B5 is the first EtherType for local experiments (IEEE 802). The markers of migrations have it, too, with "nfmg" where RS_Index is. No server has
//! that number ([`is_index`]), and the runtime takes only markers that it has authenticated, so neither is taken for the other.

use nf_packet::{ethertype, MacAddress, Version};
use nf_runtime::Packet;

pub const ETHERTYPE: u16 = 0x88b5;
/// The length of the header: T-NIC and switch need so much more MTU between them.
pub const BYTES: usize = 10;

const ETHERNET: usize = 14;
/// The number of no server: the frame is a [`Barrier`].
const BARRIER: u32 = u32::MAX;
/// The first bytes of a migration's marker.
const MARKER: u32 = u32::from_be_bytes(*b"nfmg");

/// Tells whether a server can have this number.
#[must_use]
pub const fn is_index(number: u32) -> bool {
    number != BARRIER && number != MARKER
}

/// A T-NIC's decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The server's row in the switch's table.
    pub rs_index: u32,
    pub rs_port: u16,
    /// The last 2 bytes of the packet's RSS hash.
    pub rss: u16,
}

impl Metadata {
    /// Inserts the header into a frame with a plain Ethernet header. False: it has no room.
    #[must_use]
    pub fn insert(self, packet: &mut Packet, version: Version) -> bool {
        let Some(frame) = packet.push_front(BYTES) else {
            return false;
        };
        frame.copy_within(BYTES..BYTES + ETHERNET - 2, 0);
        let inside = match version {
            Version::V4 => ethertype::IPV4,
            Version::V6 => ethertype::IPV6,
        };
        let Some(header) = frame.get_mut(ETHERNET - 2..ETHERNET + BYTES) else {
            return false;
        };
        header[..2].copy_from_slice(&ETHERTYPE.to_be_bytes());
        header[2..6].copy_from_slice(&self.rs_index.to_be_bytes());
        header[6..8].copy_from_slice(&self.rs_port.to_be_bytes());
        header[8..10].copy_from_slice(&self.rss.to_be_bytes());
        header[10..].copy_from_slice(&inside.to_be_bytes());
        true
    }

    /// Removes the header of a frame. None: the frame has none, and stays as it is.
    #[must_use]
    pub fn remove(packet: &mut Packet) -> Option<Self> {
        let found = Self::read(packet.bytes())?;
        let frame = packet.bytes_mut();
        frame.copy_within(..ETHERNET - 2, BYTES);
        packet.pop_front(BYTES)?;
        Some(found)
    }

    fn read(frame: &[u8]) -> Option<Self> {
        let [e, f, a, b, c, d, p, q, r, s, i, j] =
            *frame.get(ETHERNET - 2..)?.first_chunk::<{ BYTES + 2 }>()?;
        let inside = u16::from_be_bytes([i, j]);
        let found = Self {
            rs_index: u32::from_be_bytes([a, b, c, d]),
            rs_port: u16::from_be_bytes([p, q]),
            rss: u16::from_be_bytes([r, s]),
        };
        let is_one = u16::from_be_bytes([e, f]) == ETHERTYPE
            && is_index(found.rs_index)
            && matches!(inside, ethertype::IPV4 | ethertype::IPV6);
        is_one.then_some(found)
    }
}

/// A frame that the switch sends back: then all frames that the T-NIC sent before have left the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier(pub u64);

impl Barrier {
    const BYTES: usize = 60;
    const NUMBER: usize = ETHERNET + BYTES;

    /// Builds the frame. `macs`: from, to.
    #[must_use]
    pub fn frame(self, macs: (MacAddress, MacAddress)) -> [u8; Self::BYTES] {
        let mut frame = [0; Self::BYTES];
        frame[..6].copy_from_slice(&macs.1 .0);
        frame[6..12].copy_from_slice(&macs.0 .0);
        frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
        frame[14..18].copy_from_slice(&BARRIER.to_be_bytes());
        frame[Self::NUMBER..Self::NUMBER + 8].copy_from_slice(&self.0.to_be_bytes());
        frame
    }

    #[must_use]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let head = frame.get(12..18)?;
        let number = *frame.get(Self::NUMBER..)?.first_chunk::<8>()?;
        let is_one = head[..2] == ETHERTYPE.to_be_bytes() && head[2..] == BARRIER.to_be_bytes();
        is_one.then(|| Self(u64::from_be_bytes(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 34] = {
        let mut frame = [7; 34];
        frame[12] = 8;
        frame[13] = 0;
        frame
    };
    const METADATA: Metadata = Metadata {
        rs_index: 0x0102_0304,
        rs_port: 0x0506,
        rss: 0x0708,
    };

    fn packet(frame: &[u8]) -> Packet {
        let mut packet = Packet::new();
        assert!(packet.fill(0, frame));
        packet
    }

    #[test]
    fn the_header_is_that_of_the_paper_and_comes_off_again() {
        let mut packet = packet(&FRAME);
        assert!(METADATA.insert(&mut packet, Version::V4));
        assert_eq!(packet.bytes()[..12], FRAME[..12]);
        let header = [0x88, 0xb5, 1, 2, 3, 4, 5, 6, 7, 8, 8, 0];
        assert_eq!(packet.bytes()[12..24], header);
        assert_eq!(packet.bytes()[24..], FRAME[14..]);
        assert_eq!(Metadata::remove(&mut packet), Some(METADATA));
        assert_eq!(packet.bytes(), FRAME);
    }

    #[test]
    fn other_frames_stay_as_they_are() {
        let mut with = packet(&FRAME);
        assert!(METADATA.insert(&mut with, Version::V6));
        let whole = with.bytes().to_vec();
        // Another EtherType, another protocol inside, a migration's marker, and a barrier.
        for (at, bytes) in [
            (12, &[0x88, 0xb6][..]),
            (22, &[8, 6]),
            (14, b"nfmg"),
            (14, &[0xff; 4]),
        ] {
            let mut other = whole.clone();
            other[at..at + bytes.len()].copy_from_slice(bytes);
            let mut packet = packet(&other);
            assert_eq!(Metadata::remove(&mut packet), None);
            assert_eq!(packet.bytes(), other);
        }
        for length in 0..24 {
            assert_eq!(Metadata::read(&whole[..length]), None);
        }
    }

    #[test]
    fn a_barrier_has_its_number() {
        let macs = (MacAddress([2; 6]), MacAddress([4; 6]));
        let frame = Barrier(0x0102_0304_0506_0708).frame(macs);
        assert_eq!(Barrier::read(&frame), Some(Barrier(0x0102_0304_0506_0708)));
        assert_eq!(
            (frame[..6].to_vec(), frame[6..12].to_vec()),
            (vec![4; 6], vec![2; 6])
        );
        assert_eq!(Barrier::read(&frame[..31]), None);
        assert_eq!(Metadata::read(&frame), None);
        let mut with = packet(&FRAME);
        assert!(METADATA.insert(&mut with, Version::V4));
        assert_eq!(Barrier::read(with.bytes()), None);
    }
}
