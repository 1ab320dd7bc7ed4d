//! Where the headers of a frame are, as PRADS finds them: it trusts the lengths in them, and looks at fragments and at packets in packets like at any other.

use crate::octets::Octets;

/// Numbers of IP protocols.
pub mod protocol {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const GRE: u8 = 47;
    pub const ICMP6: u8 = 58;
    /// IP within IP (PRADS has 94 for it; the usual 4 is another protocol to it).
    pub const IP_IN_IP: u8 = 94;
}

/// The most bytes of a frame that count for the lengths in its headers.
const SNAP: usize = 1604;

const ETHERNET: usize = 14;
const IPV6_HEADER: usize = 40;

/// A frame and its time.
#[derive(Clone, Copy)]
pub struct Captured<'a> {
    pub octets: Octets<'a>,
    /// The number of bytes that were captured.
    pub captured: usize,
    /// Its length on the wire.
    pub length: usize,
    /// Seconds since 1970.
    pub time: u64,
}

impl<'a> Captured<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8], length: usize, time: u64) -> Self {
        Self {
            octets: Octets::new(bytes),
            captured: bytes.len(),
            length,
            time,
        }
    }

    /// Creates one whose memory has bytes of earlier frames behind its own: PRADS reads them where a frame is cut.
    #[must_use]
    pub fn in_memory(memory: &'a [u8], captured: usize, length: usize, time: u64) -> Self {
        Self {
            captured,
            ..Self::new(memory, length, time)
        }
    }

    /// Returns where the frame ends.
    #[must_use]
    pub fn end(&self) -> usize {
        self.length.min(SNAP)
    }

    /// Returns the number of captured bytes behind a place; below zero: it wraps.
    pub(crate) fn behind(&self, place: usize) -> u32 {
        (self.captured as u32).wrapping_sub(place as u32)
    }
}

/// The contents of a frame behind its Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Ip(Ip),
    /// ARP, from this offset on, with its VLAN tag.
    Arp(usize, u16),
    Other,
}

/// The version of IP, and where its header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    pub is_v6: bool,
    pub at: usize,
    /// Where the length of the frame's other headers counts from: a packet in a packet counts from its own start.
    pub from: usize,
    /// The VLAN tag with its priority; 0: none.
    pub vlan: u16,
}

/// Finds what a frame has behind its Ethernet header.
#[must_use]
pub fn content(frame: &Captured<'_>) -> Content {
    let octets = frame.octets;
    if frame.end() < ETHERNET {
        return Content::Other;
    }
    let (kind, at, vlan) = match octets.two(12) {
        0x8100 => (octets.two(16), 18, octets.two(14)),
        // All the values of outer tags, or-ed together.
        0x9ba8 => (octets.two(20), 22, 0),
        kind => (kind, ETHERNET, 0),
    };
    let ip = |is_v6| {
        Content::Ip(Ip {
            is_v6,
            at,
            from: 0,
            vlan,
        })
    };
    match kind {
        0x0800 => ip(false),
        0x86dd => ip(true),
        0x0806 => Content::Arp(at, vlan),
        _ => Content::Other,
    }
}

impl Ip {
    /// Returns where the transport header is.
    #[must_use]
    pub fn transport(&self, octets: Octets<'_>) -> usize {
        self.at + self.header(octets)
    }

    fn header(&self, octets: Octets<'_>) -> usize {
        if self.is_v6 {
            IPV6_HEADER
        } else {
            4 * self.words(octets)
        }
    }

    /// Returns the length of an IPv4 header in words.
    #[must_use]
    pub fn words(&self, octets: Octets<'_>) -> usize {
        usize::from(octets.byte(self.at) & 15)
    }

    #[must_use]
    pub fn protocol(&self, octets: Octets<'_>) -> u8 {
        octets.byte(self.at + if self.is_v6 { 6 } else { 9 })
    }

    #[must_use]
    pub fn ttl(&self, octets: Octets<'_>) -> u8 {
        octets.byte(self.at + if self.is_v6 { 7 } else { 8 })
    }

    /// Returns the IPv4 packet's length, or that of the IPv6 packet's payload.
    #[must_use]
    pub fn length(&self, octets: Octets<'_>) -> u16 {
        octets.two(self.at + if self.is_v6 { 4 } else { 2 })
    }

    /// Returns the addresses, source first. IPv4's are mapped into IPv6's.
    #[must_use]
    pub fn addresses(&self, octets: Octets<'_>) -> [[u8; 16]; 2] {
        if self.is_v6 {
            [octets.array(self.at + 8), octets.array(self.at + 24)]
        } else {
            [12, 16].map(|offset| mapped(octets.array(self.at + offset)))
        }
    }

    /// Returns the packet in this one.
    #[must_use]
    pub fn inner(&self, octets: Octets<'_>, is_v6: bool) -> Self {
        let at = self.transport(octets);
        Self {
            is_v6,
            at,
            from: at,
            vlan: 0,
        }
    }

    /// Returns the payload behind a transport header of some bytes: where it starts, and its length by the frame's. A wrong length is huge.
    #[must_use]
    pub fn payload(&self, frame: &Captured<'_>, header: usize) -> (usize, u32) {
        let start = self.transport(frame.octets) + header;
        (start, frame.behind(start - self.from))
    }
}

/// Maps an IPv4 address into IPv6's.
#[must_use]
pub fn mapped(address: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}
