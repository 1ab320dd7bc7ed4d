//! The headers around an ESP packet: IP, and UDP to pass NATs.

use std::net::IpAddr;

use nf_packet::{checksum, protocol, Ipv4, Ipv6, Udp};

use crate::config::NAT_TRAVERSAL;

/// IANA's number of ESP.
pub const ESP: u8 = 50;

/// The other end of a tunnel, as NATs show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    pub port: u16,
}

/// The outer headers of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    pub local: IpAddr,
    pub peer: Peer,
    pub udp: bool,
    pub class: u8,
    pub dont_fragment: bool,
    /// The identification of a packet that may be fragmented.
    pub identification: u16,
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
    /// Writes the headers before an ESP packet that is in place behind them. None: the packet is too long.
    #[inline]
    pub fn write(&self, packet: &mut [u8]) -> Option<()> {
        let inside = if self.udp { protocol::UDP } else { ESP };
        match (self.local, self.peer.address) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let payload = packet.len().checked_sub(Ipv4::MIN_HEADER)?;
                let header = packet.get_mut(..Ipv4::MIN_HEADER)?;
                Ipv4::write(&mut *header, local, remote, inside, payload).ok()?;
                header[1] = self.class;
                if !self.dont_fragment {
                    header[4..6].copy_from_slice(&self.identification.to_be_bytes());
                    header[6] = 0;
                }
                if self.class != 0 || !self.dont_fragment {
                    Ipv4::new_checked(&mut *packet).ok()?.fill_checksum();
                }
                self.write_udp(packet.get_mut(Ipv4::MIN_HEADER..)?)
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let payload = packet.len().checked_sub(Ipv6::HEADER)?;
                let header = packet.get_mut(..Ipv6::HEADER)?;
                Ipv6::write(&mut *header, local, remote, inside, payload).ok()?;
                header[0] |= self.class >> 4;
                header[1] |= self.class << 4;
                self.write_udp(packet.get_mut(Ipv6::HEADER..)?)
            }
            _ => None,
        }
    }

    /// Writes the UDP header. Its checksum is zero over IPv4 (RFC 3948, 2.1); receivers of IPv6 may drop datagrams without one.
    #[inline]
    fn write_udp(&self, datagram: &mut [u8]) -> Option<()> {
        if !self.udp {
            return Some(());
        }
        let payload = datagram.len().checked_sub(Udp::HEADER)?;
        Udp::write(&mut *datagram, NAT_TRAVERSAL, self.peer.port, payload).ok()?;
        if self.local.is_ipv6() {
            let length = datagram.len() as u32;
            let pseudo =
                checksum::pseudo_header(self.local, self.peer.address, protocol::UDP, length);
            let sum = !checksum::fold(checksum::sum(datagram) + pseudo);
            let sum = if sum == 0 { 0xffff } else { sum };
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        Some(())
    }
}
