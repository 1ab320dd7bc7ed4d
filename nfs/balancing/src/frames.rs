//! Frames that a function originates.

use std::net::IpAddr;

use nf_packet::{
    ethertype, protocol, Arp, ArpOperation, Ethernet, Fragment, Headers, Icmp, Ipv4, Ipv6,
    MacAddress, NeighbourAdvertisement, NeighbourMessage, NeighbourSolicitation, Tcp, Version,
};

const ETHERNET: usize = 14;
/// The MAC address of the group of all IPv6 nodes.
const ALL_NODES: MacAddress = MacAddress([0x33, 0x33, 0, 0, 0, 1]);

/// A TCP segment to send.
pub struct Segment {
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
    pub payload: Vec<u8>,
}

/// A frame under construction, long enough for an ICMP message or a health check's request.
pub struct Frame {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl Frame {
    const MOST: usize = 1500;

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Writes the Ethernet and IP headers for `payload` bytes, which the caller appends.
    fn ip(
        macs: (MacAddress, MacAddress),
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        payload: usize,
    ) -> Option<(Self, usize)> {
        let mut frame = Self {
            bytes: [0; Self::MOST],
            length: 0,
        };
        let header = if source.is_ipv4() {
            Ipv4::MIN_HEADER
        } else {
            Ipv6::HEADER
        };
        let start = ETHERNET + header;
        frame.length = start + payload;
        if frame.length > Self::MOST {
            return None;
        }
        let written = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.ethernet(macs, ethertype::IPV4);
                let header = &mut frame.bytes[ETHERNET..start];
                Ipv4::write(header, source, destination, protocol, payload).map(drop)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.ethernet(macs, ethertype::IPV6);
                let header = &mut frame.bytes[ETHERNET..start];
                Ipv6::write(header, source, destination, protocol, payload).map(drop)
            }
            _ => return None,
        };
        written.ok()?;
        Some((frame, start))
    }

    fn ethernet(&mut self, (from, to): (MacAddress, MacAddress), ethertype: u16) {
        self.bytes[..6].copy_from_slice(&to.0);
        self.bytes[6..12].copy_from_slice(&from.0);
        self.bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
    }

    /// Builds a TCP segment. `macs`: from, to.
    #[must_use]
    pub fn tcp(
        macs: (MacAddress, MacAddress),
        source: (IpAddr, u16),
        destination: (IpAddr, u16),
        sequence: (u32, u32),
        flags: u8,
        payload: &[u8],
    ) -> Option<Self> {
        let length = Tcp::MIN_HEADER + payload.len();
        let (mut frame, start) = Self::ip(macs, source.0, destination.0, protocol::TCP, length)?;
        let segment = &mut frame.bytes[start..start + length];
        segment[Tcp::MIN_HEADER..].copy_from_slice(payload);
        let ports = (source.1, destination.1);
        Tcp::write(segment, ports, sequence.0, sequence.1, flags, 0xffff)
            .ok()?
            .fill_checksum(source.0, destination.0);
        Some(frame)
    }

    /// Builds an ICMP message with a body.
    #[must_use]
    pub fn icmp(
        macs: (MacAddress, MacAddress),
        source: IpAddr,
        destination: IpAddr,
        (kind, code, argument): (u8, u8, u32),
        body: &[u8],
    ) -> Option<Self> {
        let number = if source.is_ipv4() {
            protocol::ICMP
        } else {
            protocol::ICMPV6
        };
        let length = Icmp::HEADER + body.len();
        let (mut frame, start) = Self::ip(macs, source, destination, number, length)?;
        let message = &mut frame.bytes[start..start + length];
        message[Icmp::HEADER..].copy_from_slice(body);
        let mut message = Icmp::new_checked(message).ok()?;
        message.set(kind, code, argument);
        message.fill_checksum(source, destination);
        Some(frame)
    }

    /// Builds a neighbour discovery message, with hop limit 255.
    #[must_use]
    pub fn neighbour(
        macs: (MacAddress, MacAddress),
        source: IpAddr,
        destination: IpAddr,
        message: NeighbourMessage,
    ) -> Option<Self> {
        let length = NeighbourMessage::BYTES;
        let (mut frame, start) = Self::ip(macs, source, destination, protocol::ICMPV6, length)?;
        Ipv6::new_cut(&mut frame.bytes[ETHERNET..start])
            .ok()?
            .set_hop_limit(255);
        let mut bytes = [0; NeighbourMessage::BYTES];
        message.write(&mut bytes);
        frame.bytes[start..start + length].copy_from_slice(&bytes);
        Icmp::new_checked(&mut frame.bytes[start..start + length])
            .ok()?
            .fill_checksum(source, destination);
        Some(frame)
    }

    #[must_use]
    pub fn arp(macs: (MacAddress, MacAddress), message: &Arp) -> Self {
        let mut frame = Self {
            bytes: [0; Self::MOST],
            length: ETHERNET + Arp::BYTES,
        };
        frame.ethernet(macs, ethertype::ARP);
        let mut bytes = [0; Arp::BYTES];
        message.write(&mut bytes);
        frame.bytes[ETHERNET..ETHERNET + Arp::BYTES].copy_from_slice(&bytes);
        frame
    }

    /// Builds the announcement of an own address to all stations (RFC 5227, RFC 4861, 7.2.6).
    #[must_use]
    pub fn announcement(mac: MacAddress, own: IpAddr) -> Option<Self> {
        match own {
            IpAddr::V4(_) => Self::question((mac, MacAddress::BROADCAST), own, own, own),
            IpAddr::V6(target) => {
                let to = IpAddr::from([0xff02, 0, 0, 0, 0, 0, 0, 1]);
                let message = NeighbourMessage::Advertisement(NeighbourAdvertisement {
                    target,
                    target_mac: Some(mac),
                    solicited: false,
                });
                Self::neighbour((mac, ALL_NODES), own, to, message)
            }
        }
    }

    /// Builds a request for `target` from `own` to all stations.
    #[must_use]
    pub fn solicitation(mac: MacAddress, own: IpAddr, target: IpAddr) -> Option<Self> {
        match target {
            IpAddr::V4(_) => Self::question((mac, MacAddress::BROADCAST), own, target, target),
            IpAddr::V6(address) => {
                let [.., a, b, c] = address.octets();
                let mut group = [0; 16];
                group[..2].copy_from_slice(&[0xff, 0x02]);
                group[11..].copy_from_slice(&[1, 0xff, a, b, c]);
                let to = MacAddress([0x33, 0x33, 0xff, a, b, c]);
                Self::question((mac, to), own, target, IpAddr::from(group))
            }
        }
    }

    /// Builds a request for `target` from `own` to one station. `macs`: from, to.
    #[must_use]
    pub fn probe(macs: (MacAddress, MacAddress), own: IpAddr, target: IpAddr) -> Option<Self> {
        Self::question(macs, own, target, target)
    }

    /// Builds a request. `to`: the destination of an IPv6 solicitation.
    fn question(
        macs: (MacAddress, MacAddress),
        own: IpAddr,
        target: IpAddr,
        to: IpAddr,
    ) -> Option<Self> {
        match (own, target) {
            (IpAddr::V4(sender), IpAddr::V4(target)) => Some(Self::arp(
                macs,
                &Arp {
                    operation: ArpOperation::Request,
                    sender_mac: macs.0,
                    sender,
                    target_mac: MacAddress::default(),
                    target,
                },
            )),
            (IpAddr::V6(_), IpAddr::V6(target)) => {
                let message = NeighbourMessage::Solicitation(NeighbourSolicitation {
                    target,
                    source_mac: Some(macs.0),
                });
                Self::neighbour(macs, own, to, message)
            }
            _ => None,
        }
    }

    /// Builds a reset in the name of the segment's destination (RFC 9293, 3.10.7.1). None where the segment is a reset.
    #[must_use]
    pub fn reset(request: &[u8], headers: &Headers) -> Option<Self> {
        let tcp = Tcp::new_checked(headers.segment(request)).ok()?;
        if tcp.flags() & nf_packet::tcp_flags::RST != 0 {
            return None;
        }
        let (sequence, flags) = if tcp.flags() & nf_packet::tcp_flags::ACK != 0 {
            ((tcp.acknowledgement(), 0), nf_packet::tcp_flags::RST)
        } else {
            let counted = tcp.flags() & (nf_packet::tcp_flags::SYN | nf_packet::tcp_flags::FIN);
            let length = tcp.payload().len() as u32 + counted.count_ones();
            let acknowledged = tcp.sequence().wrapping_add(length);
            let flags = nf_packet::tcp_flags::RST | nf_packet::tcp_flags::ACK;
            ((0, acknowledged), flags)
        };
        Self::tcp(
            back(request)?,
            (headers.destination(request), tcp.destination_port()),
            (headers.source(request), tcp.source_port()),
            sequence,
            flags,
            &[],
        )
    }

    /// Builds a "packet too big" or "fragmentation needed" in the name of the packet's destination. None: no error may answer the packet.
    #[must_use]
    pub fn too_big(request: &[u8], headers: &Headers, mtu: usize) -> Option<Self> {
        let kind = match headers.version {
            Version::V4 => (3, nf_packet::icmp4::FRAGMENTATION_NEEDED, mtu as u32),
            Version::V6 => (nf_packet::icmp6::PACKET_TOO_BIG, 0, mtu as u32),
        };
        Self::error(request, headers, headers.destination(request), kind)
    }

    /// Builds a "time exceeded in transit" from an address of the router. None: no error may answer the packet.
    #[must_use]
    pub fn time_exceeded(request: &[u8], headers: &Headers, own: IpAddr) -> Option<Self> {
        let kind = match headers.version {
            Version::V4 => nf_packet::icmp4::TIME_EXCEEDED,
            Version::V6 => nf_packet::icmp6::TIME_EXCEEDED,
        };
        Self::error(request, headers, own, (kind, 0, 0))
    }

    /// Builds an ICMP error about a packet, which it quotes.
    fn error(
        request: &[u8],
        headers: &Headers,
        source: IpAddr,
        kind: (u8, u8, u32),
    ) -> Option<Self> {
        if !may_be_answered(request, headers) {
            return None;
        }
        let most = match headers.version {
            Version::V4 => 548,
            Version::V6 => 1232,
        };
        let packet = headers.packet(request);
        let quoted = &packet[..packet.len().min(most)];
        let sender = headers.source(request);
        Self::icmp(back(request)?, source, sender, kind, quoted)
    }
}

/// Tells whether an error may answer a packet: none may answer errors and later fragments (RFC 1122, 3.2.2).
fn may_be_answered(frame: &[u8], headers: &Headers) -> bool {
    let is_icmp = matches!(headers.protocol, protocol::ICMP | protocol::ICMPV6);
    let message = Icmp::new_checked(headers.segment(frame));
    let is_error = is_icmp && message.is_ok_and(|message| message.is_error(headers.version));
    !is_error && headers.fragment != Fragment::Later
}

/// Returns the MAC addresses of an answer: from, to.
fn back(request: &[u8]) -> Option<(MacAddress, MacAddress)> {
    let ethernet = Ethernet::new_checked(request).ok()?;
    // An answer would have the same VLAN tags, but this module writes none.
    Some((ethernet.destination(), ethernet.source()))
}
