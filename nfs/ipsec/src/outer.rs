//! The headers around an ESP packet: IP, and UDP to pass NATs.

use std::net::IpAddr;

use nf_packet::{checksum, ethertype, protocol, Ipv4, Ipv6, MacAddress, Udp};

use crate::{config::NAT_TRAVERSAL, esp, sequence::Number};

/// IANA's number of ESP.
pub const ESP: u8 = 50;
pub const ETHERNET: usize = 14;
/// The flags of an IPv4 packet that must not be fragmented.
const DONT_FRAGMENT: u16 = 0x4000;

/// The other end of a tunnel, as NATs show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    pub port: u16,
}

/// The ends of outer packets.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    pub local: IpAddr,
    pub peer: Peer,
    pub udp: bool,
}

/// Returns the length of the outer headers.
#[inline]
#[must_use]
pub const fn length(is_ipv4: bool, udp: bool) -> usize {
    let network = if is_ipv4 {
        Ipv4::MIN_HEADER
    } else {
        Ipv6::HEADER
    };
    network + if udp { Udp::HEADER } else { 0 }
}

impl Outer {
    fn is_ipv4(&self) -> bool {
        self.local.is_ipv4()
    }

    /// Returns the length of Ethernet header and outer headers.
    #[must_use]
    pub fn front(&self) -> usize {
        ETHERNET + length(self.is_ipv4(), self.udp)
    }

    /// Writes Ethernet and outer headers before what is in place behind them. None: the frame is too long.
    #[inline]
    pub fn write(&self, frame: &mut [u8], to: MacAddress, from: MacAddress) -> Option<()> {
        let (ethernet, packet) = frame.split_at_mut_checked(ETHERNET)?;
        ethernet[..6].copy_from_slice(&to.0);
        ethernet[6..12].copy_from_slice(&from.0);
        let inside = if self.udp { protocol::UDP } else { ESP };
        let (kind, header) = match (self.local, self.peer.address) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let payload = packet.len().checked_sub(Ipv4::MIN_HEADER)?;
                Ipv4::write(&mut *packet, local, remote, inside, payload).ok()?;
                (ethertype::IPV4, Ipv4::MIN_HEADER)
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let payload = packet.len().checked_sub(Ipv6::HEADER)?;
                Ipv6::write(&mut *packet, local, remote, inside, payload).ok()?;
                (ethertype::IPV6, Ipv6::HEADER)
            }
            _ => return None,
        };
        ethernet[12..].copy_from_slice(&kind.to_be_bytes());
        if self.udp {
            self.write_udp(packet.get_mut(header..)?)?;
        }
        Some(())
    }

    fn write_udp(&self, datagram: &mut [u8]) -> Option<()> {
        let payload = datagram.len().checked_sub(Udp::HEADER)?;
        Udp::write(&mut *datagram, NAT_TRAVERSAL, self.peer.port, payload).ok()?;
        Some(())
    }
}

/// Fills in the checksum of a frame with a datagram over IPv6: receivers may drop datagrams without one. Over IPv4, it is zero (RFC 3948, 2.1).
pub fn sum_udp6(frame: &mut [u8]) {
    const DATAGRAM: usize = ETHERNET + Ipv6::HEADER;
    const ADDRESSES: usize = ETHERNET + 8;
    let Some((front, datagram)) = frame.split_at_mut_checked(DATAGRAM) else {
        return;
    };
    let Some(field) = datagram.get_mut(6..8) else {
        return;
    };
    field.fill(0);
    let pseudo = checksum::sum(&front[ADDRESSES..]);
    let pseudo = pseudo + u64::from(protocol::UDP) + datagram.len() as u64;
    let sum = !checksum::fold(checksum::sum(datagram) + pseudo);
    let sum = if sum == 0 { 0xffff } else { sum };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
}

/// The bytes before the encrypted part of an association's packets, from the Ethernet header to the IV: those that do not differ between packets.
pub struct Front {
    outer: Outer,
    bytes: [u8; LONGEST],
    length: usize,
    /// The sum of the IPv4 header.
    sum: u64,
}

/// Returns the length of all headers, from Ethernet's to the IV.
const fn total(is_ipv4: bool, udp: bool) -> usize {
    ETHERNET + length(is_ipv4, udp) + esp::FRONT
}

const LONGEST: usize = total(false, true);

/// The length of a frame without its Ethernet header, the traffic class, whether it must not be fragmented, and the number.
type Fields = (u16, u8, bool, Number);

impl Front {
    /// Prepares the headers of packets from an Ethernet station to another.
    #[must_use]
    pub fn new(outer: Outer, to: MacAddress, from: MacAddress, spi: u32) -> Option<Self> {
        let mut bytes = [0; LONGEST];
        let length = total(outer.is_ipv4(), outer.udp);
        outer.write(&mut bytes[..length], to, from)?;
        bytes[outer.front()..][..4].copy_from_slice(&spi.to_be_bytes());
        let mut sum = 0;
        if outer.is_ipv4() {
            let header = &mut bytes[ETHERNET..][..Ipv4::MIN_HEADER];
            // Length, flags and checksum come with each packet.
            for field in [2..4, 6..8, 10..12] {
                header[field].fill(0);
            }
            sum = checksum::sum(header);
        }
        Some(Self {
            outer,
            bytes,
            length,
            sum,
        })
    }

    #[inline]
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Tells whether [`sum_udp6`] must fill in a checksum when the frame is complete.
    #[inline]
    #[must_use]
    pub fn is_summed(&self) -> bool {
        self.outer.udp && !self.outer.is_ipv4()
    }

    /// Writes the headers of a frame whose other bytes are in place, encrypted or not. None: it is too long.
    #[inline(always)]
    pub fn write(
        &self,
        frame: &mut [u8],
        class: u8,
        dont_fragment: bool,
        number: Number,
    ) -> Option<()> {
        let length = u16::try_from(frame.len().checked_sub(ETHERNET)?).ok()?;
        let fields = (length, class, dont_fragment, number);
        // Constant lengths, which are copied without a call; most frames have the shortest headers.
        if self.length == total(true, false) {
            return self.fill::<{ total(true, false) }>(frame, fields);
        }
        self.write_long(frame, fields)
    }

    #[inline(never)]
    fn write_long(&self, frame: &mut [u8], fields: Fields) -> Option<()> {
        match (self.outer.is_ipv4(), self.outer.udp) {
            (true, false) => self.fill::<{ total(true, false) }>(frame, fields),
            (true, true) => self.fill::<{ total(true, true) }>(frame, fields),
            (false, false) => self.fill::<{ total(false, false) }>(frame, fields),
            (false, true) => self.fill::<{ total(false, true) }>(frame, fields),
        }
    }

    #[inline(always)]
    fn fill<const COUNT: usize>(
        &self,
        frame: &mut [u8],
        (length, class, dont_fragment, number): Fields,
    ) -> Option<()> {
        let front = frame.first_chunk_mut::<COUNT>()?;
        *front = *self.bytes.first_chunk()?;
        let low = number.sequence as u32;
        let numbers = front.last_chunk_mut::<12>()?;
        numbers[..4].copy_from_slice(&low.to_be_bytes());
        numbers[4..].copy_from_slice(&number.iv);
        let packet = &mut front[ETHERNET..];
        let header = if COUNT == total(true, false) || COUNT == total(true, true) {
            let (identification, flags) = match dont_fragment {
                true => (0, DONT_FRAGMENT),
                false => (low as u16, 0),
            };
            packet[1] = class;
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            packet[4..6].copy_from_slice(&identification.to_be_bytes());
            packet[6..8].copy_from_slice(&flags.to_be_bytes());
            let changed = [class.into(), length, identification, flags];
            let sum = self.sum + changed.map(u64::from).iter().sum::<u64>();
            packet[10..12].copy_from_slice(&(!checksum::fold(sum)).to_be_bytes());
            Ipv4::MIN_HEADER
        } else {
            let payload = length.checked_sub(Ipv6::HEADER as u16)?;
            packet[0] |= class >> 4;
            packet[1] |= class << 4;
            packet[4..6].copy_from_slice(&payload.to_be_bytes());
            Ipv6::HEADER
        };
        if COUNT == total(true, true) || COUNT == total(false, true) {
            let length = length.checked_sub(header as u16)?;
            packet[header + 4..header + 6].copy_from_slice(&length.to_be_bytes());
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use nf_packet::{dissect, Headers, Outcome};

    use super::*;

    /// The prepared headers are those that are written at once, for all classes and flags.
    #[test]
    fn prepared_headers_are_sound() {
        for (local, remote) in [
            ("192.0.2.1", "198.51.100.255"),
            ("2001:db8::1", "2001:db8::2"),
        ] {
            for udp in [false, true] {
                let outer = Outer {
                    local: local.parse().unwrap(),
                    peer: Peer {
                        address: remote.parse().unwrap(),
                        port: 61_234,
                    },
                    udp,
                };
                let macs = [2, 4].map(|first| MacAddress([first, 0, 0, 0, 0, 1]));
                let front = Front::new(outer, macs[0], macs[1], 0x1234_5678).unwrap();
                for (class, keep, length) in [(0, true, 40), (0xff, true, 1423), (7, false, 9000)] {
                    let mut frame = vec![0xa5; front.length() + length];
                    let number = Number {
                        sequence: 0x1_89ab_cdef,
                        iv: [9; 8],
                    };
                    front.write(&mut frame, class, keep, number).unwrap();
                    assert_eq!(front.is_summed(), udp && !outer.is_ipv4());
                    if front.is_summed() {
                        sum_udp6(&mut frame);
                    }
                    check(&frame, (outer, class, keep));
                    assert_eq!(frame[..12], [&macs[0].0[..], &macs[1].0].concat());
                    let esp = &frame[front.length() - esp::FRONT..];
                    assert_eq!(esp[..8], [0x12, 0x34, 0x56, 0x78, 0x89, 0xab, 0xcd, 0xef]);
                    assert_eq!(esp[8..16], [9; 8]);
                    assert!(esp[16..].iter().all(|byte| *byte == 0xa5));
                }
                let mut long = vec![0; 14 + 65_536];
                let number = Number {
                    sequence: 1,
                    iv: [0; 8],
                };
                assert!(front.write(&mut long, 0, true, number).is_none());
            }
        }
    }

    fn check(frame: &[u8], (outer, class, keep): (Outer, u8, bool)) {
        let Ok(Outcome::Ip(headers)) = dissect(frame) else {
            panic!("malformed"); // its checksum, too, was checked
        };
        let Headers {
            version, protocol, ..
        } = headers;
        assert_eq!(headers.end as usize, frame.len());
        assert_eq!(headers.source(frame), outer.local);
        assert_eq!(headers.destination(frame), outer.peer.address);
        let packet = headers.packet(frame);
        assert_eq!(crate::headers::class(packet, version), class);
        let is_kept = crate::headers::dont_fragment(packet, version);
        assert_eq!(is_kept, keep || !outer.local.is_ipv4());
        assert_eq!(protocol == ESP, !outer.udp);
        if outer.udp {
            assert_eq!(
                (headers.source_port, headers.destination_port),
                (4500, 61_234)
            );
            let segment = headers.segment(frame);
            let pseudo =
                checksum::pseudo_header(outer.local, outer.peer.address, 17, segment.len() as u32);
            match outer.local.is_ipv4() {
                true => assert_eq!(segment[6..8], [0, 0]),
                false => assert_eq!(checksum::fold(checksum::sum(segment) + pseudo), 0xffff),
            }
        }
    }
}
