//! Tunnels: IP in IP (RFC 2003, RFC 2473), IP directly in UDP (GUE variant 1, draft-ietf-intarea-gue), and Ethernet in UDP (VXLAN, RFC 7348).

use std::net::IpAddr;

use crate::{
    checksum::{self, Delta},
    ethertype, field, protocol, Headers, Ipv4, Ipv6, MacAddress, Malformed, Udp, Version,
};

/// The VXLAN header: flags, and the network's identifier (VNI).
const VXLAN: usize = 8;
const VXLAN_PORT: u16 = 4789;
/// The flag that says that the header has a network's identifier.
const HAS_NETWORK: u8 = 0x08;
const ETHERNET: usize = 14;
const LONGEST: usize = Ipv6::HEADER + Udp::HEADER + VXLAN + ETHERNET;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    Ipip,
    /// Sends to this UDP port; Linux decapsulates with `ip fou add port 6080 gue`.
    Gue {
        port: u16,
    },
    /// Sends frames to a station of an Ethernet network. The low 24 bits of `network` are its identifier.
    Vxlan {
        network: u32,
        station: MacAddress,
    },
}

impl TunnelKind {
    /// Returns the length of the headers between the outer IP header and the inner packet.
    fn shim(self) -> usize {
        match self {
            Self::Ipip => 0,
            Self::Gue { .. } => Udp::HEADER,
            Self::Vxlan { .. } => Udp::HEADER + VXLAN + ETHERNET,
        }
    }
}

/// An outer header, built once and written before each packet.
#[derive(Clone, Debug)]
#[repr(C)] // fields that each packet needs come first
pub struct Tunnel {
    version: Version,
    overhead: u8,
    kind: TunnelKind,
    template: [u8; LONGEST],
    source: IpAddr,
    destination: IpAddr,
}

impl Tunnel {
    /// # Errors
    /// [`Malformed::Version`] if one address is IPv4 and the other IPv6.
    pub fn new(source: IpAddr, destination: IpAddr, kind: TunnelKind) -> Result<Self, Malformed> {
        let mut template = [0; LONGEST];
        let inside = match kind {
            TunnelKind::Ipip => protocol::IPV4,
            TunnelKind::Gue { .. } | TunnelKind::Vxlan { .. } => protocol::UDP,
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
        match kind {
            TunnelKind::Ipip => {}
            TunnelKind::Gue { port } => {
                Udp::write(&mut template[transport..], 0, port, 0)?;
            }
            TunnelKind::Vxlan { network, station } => {
                Udp::write(&mut template[transport..], 0, VXLAN_PORT, 0)?;
                let vxlan = &mut template[transport + Udp::HEADER..];
                field::set(vxlan, 0, [HAS_NETWORK]);
                field::set32(vxlan, 4, network << 8);
                field::set(vxlan, VXLAN, station.0);
            }
        }
        Ok(Self {
            source,
            destination,
            kind,
            version,
            overhead: (transport + kind.shim()) as u8,
            template,
        })
    }

    #[must_use]
    pub fn kind(&self) -> TunnelKind {
        self.kind
    }

    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.source
    }

    #[must_use]
    pub fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Returns the length of the headers in front of the inner packet: 20, 28, 40, 48, 50 or 70.
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

    /// Tells whether the outer packet's source port identifies the flow.
    #[must_use]
    #[inline]
    pub fn has_entropy(&self) -> bool {
        self.kind != TunnelKind::Ipip
    }

    /// Returns the inner packet if this tunnel wrote `packet`, which may be cut as an ICMP error quotes it. `outer`: its headers.
    #[must_use]
    pub fn inner<'a>(&self, packet: &'a [u8], outer: &Headers) -> Option<&'a [u8]> {
        let transport = usize::from(outer.transport);
        let is_own = match self.kind {
            TunnelKind::Ipip => matches!(outer.protocol, protocol::IPV4 | protocol::IPV6),
            TunnelKind::Gue { port } => {
                outer.protocol == protocol::UDP && outer.destination_port == port
            }
            TunnelKind::Vxlan { .. } => {
                let at = self.overhead() - ETHERNET - VXLAN;
                let header: [u8; VXLAN] = field::get(&self.template, at);
                outer.protocol == protocol::UDP
                    && outer.destination_port == VXLAN_PORT
                    && field::get(packet, transport + Udp::HEADER) == header
            }
        };
        let is_own = is_own
            && outer.source(packet) == self.source
            && outer.destination(packet) == self.destination;
        packet
            .get(transport + self.kind.shim()..)
            .filter(|_| is_own)
    }

    /// Fills the first [`overhead`](Self::overhead) bytes of `packet`, which precede an IP packet of version `inner`. The outer packet must not be
    /// fragmented; its traffic class and ECN bits are the inner ones (RFC 6040, normal mode). `entropy` identifies the flow and becomes UDP's source
    /// port. `from` becomes the source of VXLAN's inner frame.
    ///
    /// # Errors
    /// If the headers do not fit, or the outer packet would exceed 65535 bytes.
    #[inline]
    pub fn write(
        &self,
        packet: &mut [u8],
        inner: Version,
        entropy: u16,
        from: MacAddress,
    ) -> Result<(), Malformed> {
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
            (TunnelKind::Gue { .. } | TunnelKind::Vxlan { .. }, _) => protocol::UDP,
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
        if let TunnelKind::Vxlan { .. } = self.kind {
            self.write_vxlan(&mut packet[transport + Udp::HEADER..], inner, from);
        }
        if self.has_entropy() {
            self.write_udp(packet, transport, entropy);
        }
        Ok(())
    }

    /// Writes the VXLAN header and the Ethernet header of the inner frame.
    fn write_vxlan(&self, bytes: &mut [u8], inner: Version, from: MacAddress) {
        let at = self.overhead() - ETHERNET - VXLAN;
        let headers: [u8; VXLAN + ETHERNET] = field::get(&self.template, at);
        field::set(bytes, 0, headers);
        field::set(bytes, VXLAN + 6, from.0);
        let ethertype = match inner {
            Version::V4 => ethertype::IPV4,
            Version::V6 => ethertype::IPV6,
        };
        field::set16(bytes, VXLAN + 12, ethertype);
    }

    /// Writes the UDP header. Over IPv4 it omits the checksum. RFC 6935 allows a tunnel to omit it over IPv6, too, but only toward receivers configured
    /// for that: others drop such datagrams, as Linux does by default (RFC 6936).
    fn write_udp(&self, packet: &mut [u8], transport: usize, entropy: u16) {
        let header: [u8; Udp::HEADER] = field::get(&self.template, transport);
        let Some(datagram) = packet.get_mut(transport..) else {
            return;
        };
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
