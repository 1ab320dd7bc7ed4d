//! Tunnels: IP in IP (RFC 2003, RFC 2473), and IP directly in UDP (GUE variant 1, draft-ietf-intarea-gue).

use std::net::IpAddr;

use crate::{
    checksum::{self, Delta},
    field, protocol, Ipv4, Ipv6, Malformed, Udp, Version,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    Ipip,
    /// Sends to this UDP port; Linux decapsulates with `ip fou add port 6080 gue`.
    Gue {
        port: u16,
    },
}

/// An outer header, built once and written before each packet.
#[derive(Clone, Debug)]
#[repr(C)] // fields that each packet needs come first
pub struct Tunnel {
    version: Version,
    overhead: u8,
    kind: TunnelKind,
    template: [u8; 48],
    source: IpAddr,
    destination: IpAddr,
}

impl Tunnel {
    /// # Errors
    /// [`Malformed::Version`] if one address is IPv4 and the other IPv6.
    pub fn new(source: IpAddr, destination: IpAddr, kind: TunnelKind) -> Result<Self, Malformed> {
        let mut template = [0; 48];
        let inside = match kind {
            TunnelKind::Ipip => protocol::IPV4,
            TunnelKind::Gue { .. } => protocol::UDP,
        };
        let (version, transport) = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Ipv4::write(&mut template[..], source, destination, inside, 0)?;
                (Version::V4, Ipv4::MIN_HEADER)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Ipv6::write(&mut template[..], source, destination, inside, 0)?;
                (Version::V6, Ipv6::HEADER)
            }
            _ => return Err(Malformed::Version),
        };
        let mut overhead = transport;
        if let TunnelKind::Gue { port } = kind {
            Udp::write(&mut template[transport..], 0, port, 0)?;
            overhead += Udp::HEADER;
        }
        Ok(Self {
            source,
            destination,
            kind,
            version,
            overhead: overhead as u8,
            template,
        })
    }

    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.source
    }

    #[must_use]
    pub fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Returns the length of the outer headers: 20, 28, 40 or 48.
    #[must_use]
    #[inline]
    pub fn overhead(&self) -> usize {
        usize::from(self.overhead)
    }

    /// Returns the IP version of the outer packet.
    #[must_use]
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Fills the first [`overhead`](Self::overhead) bytes of `packet`, which precede an IP packet of version `inner`. The outer packet must not be
    /// fragmented; its traffic class and ECN bits are the inner ones (RFC 6040, normal mode). `entropy` identifies the flow and becomes GUE's source port.
    ///
    /// # Errors
    /// If the headers do not fit, or the outer packet would exceed 65535 bytes.
    #[inline]
    pub fn write(&self, packet: &mut [u8], inner: Version, entropy: u16) -> Result<(), Malformed> {
        let overhead = self.overhead();
        let length = u16::try_from(packet.len()).map_err(|_| Malformed::Length)?;
        if packet.len() < overhead + 20 {
            return Err(Malformed::Truncated);
        }
        let class = match inner {
            Version::V4 => packet[overhead + 1],
            Version::V6 => (field::get16(packet, overhead) >> 4) as u8,
        };
        let inside = match (self.kind, inner) {
            (TunnelKind::Gue { .. }, _) => protocol::UDP,
            (TunnelKind::Ipip, Version::V4) => protocol::IPV4,
            (TunnelKind::Ipip, Version::V6) => protocol::IPV6,
        };
        let transport = match self.version() {
            Version::V4 => {
                let header: [u8; 20] = field::get(&self.template, 0);
                field::set(packet, 0, header);
                field::set(packet, 1, [class]);
                field::set16(packet, 2, length);
                field::set(packet, 9, [inside]);
                let delta = Delta::default()
                    .replace16(0x4500, 0x4500 | u16::from(class))
                    .replace16(field::get16(&header, 2), length)
                    .replace16(u16::from(header[9]), u16::from(inside));
                field::set16(packet, 10, delta.apply(field::get16(&header, 10)));
                Ipv4::MIN_HEADER
            }
            Version::V6 => {
                let header: [u8; 40] = field::get(&self.template, 0);
                field::set(packet, 0, header);
                field::set16(packet, 0, 0x6000 | u16::from(class) << 4);
                field::set16(packet, 4, length - Ipv6::HEADER as u16);
                field::set(packet, 6, [inside]);
                Ipv6::HEADER
            }
        };
        if matches!(self.kind, TunnelKind::Gue { .. }) {
            self.write_udp(&mut packet[transport..], entropy);
        }
        Ok(())
    }

    /// Writes the UDP header. Over IPv4 it omits the checksum; over IPv6 receivers drop datagrams without one unless configured otherwise (RFC 6936).
    fn write_udp(&self, datagram: &mut [u8], entropy: u16) {
        let header: [u8; 8] = field::get(&self.template, self.overhead() - Udp::HEADER);
        field::set(datagram, 0, header);
        // The source port is a dynamic port (RFC 6335).
        field::set16(datagram, 0, 0xc000 | entropy);
        let length = datagram.len() as u32;
        field::set16(datagram, 4, length as u16);
        if self.version() == Version::V6 {
            let pseudo =
                checksum::pseudo_header(self.source, self.destination, protocol::UDP, length);
            let sum = !checksum::fold(checksum::sum(datagram) + pseudo);
            field::set16(datagram, 6, if sum == 0 { 0xffff } else { sum });
        }
    }
}
