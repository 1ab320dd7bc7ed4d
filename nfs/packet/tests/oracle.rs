//! Compares parser, rewriter and tunnels with etherparse, an independent implementation of the same RFCs.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use nf_packet::{
    checksum, decrement_ttl, dissect, dissect_ip, dissect_quoted, rewrite_address,
    rewrite_sequence, Fragment, Headers, MacAddress, Outcome, Side, Tcp, TcpOption, Tunnel,
    TunnelKind, Udp, Version,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Sample {
    version: Version,
    tags: usize,
    tcp: bool,
    ports: (u16, u16),
    addresses: ([u8; 16], [u8; 16]),
    ttl: u8,
    payload: Vec<u8>,
}

impl Sample {
    fn frame(&self) -> Vec<u8> {
        let (source, destination) = (self.addresses.0, self.addresses.1);
        let ethernet = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ip = |ip: etherparse::IpHeaders| match self.tags {
            0 => ethernet().ip(ip),
            1 => ethernet()
                .single_vlan(etherparse::VlanId::try_new(7).unwrap())
                .ip(ip),
            _ => ethernet()
                .double_vlan(
                    etherparse::VlanId::try_new(7).unwrap(),
                    etherparse::VlanId::try_new(8).unwrap(),
                )
                .ip(ip),
        };
        let headers = match self.version {
            Version::V4 => etherparse::IpHeaders::Ipv4(
                etherparse::Ipv4Header::new(
                    0,
                    self.ttl,
                    etherparse::IpNumber::TCP,
                    source[..4].try_into().unwrap(),
                    destination[..4].try_into().unwrap(),
                )
                .unwrap(),
                etherparse::Ipv4Extensions::default(),
            ),
            Version::V6 => etherparse::IpHeaders::Ipv6(
                etherparse::Ipv6Header {
                    source,
                    destination,
                    hop_limit: self.ttl,
                    ..Default::default()
                },
                etherparse::Ipv6Extensions::default(),
            ),
        };
        let mut frame = Vec::new();
        if self.tcp {
            ip(headers)
                .tcp(self.ports.0, self.ports.1, 7, 1000)
                .options(&[etherparse::TcpOptionElement::Timestamp(1, 2)])
                .unwrap()
                .syn()
                .write(&mut frame, &self.payload)
                .unwrap();
        } else {
            ip(headers)
                .udp(self.ports.0, self.ports.1)
                .write(&mut frame, &self.payload)
                .unwrap();
        }
        frame
    }

    fn address(&self, bytes: [u8; 16]) -> IpAddr {
        match self.version {
            Version::V4 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
            Version::V6 => Ipv6Addr::from(bytes).into(),
        }
    }
}

prop_compose! {
    fn sample()(
        v6 in any::<bool>(), tags in 0..3_usize, tcp in any::<bool>(), ports in any::<(u16, u16)>(),
        addresses in any::<([u8; 16], [u8; 16])>(), ttl in 2..=255_u8, payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) -> Sample {
        let version = if v6 { Version::V6 } else { Version::V4 };
        Sample { version, tags, tcp, ports, addresses, ttl, payload }
    }
}

/// The source of inner frames.
const FROM: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

fn kind() -> impl Strategy<Value = TunnelKind> {
    prop_oneof![
        Just(TunnelKind::Ipip),
        prop_oneof![Just(6080_u16), 1..=65_535_u16].prop_map(|port| TunnelKind::Gue { port }),
        (0..=0xff_ffff_u32, any::<[u8; 6]>()).prop_map(|(network, station)| TunnelKind::Vxlan {
            network,
            station: MacAddress(station)
        }),
    ]
}

/// Tells whether packets of two kinds of tunnel differ only in the inner frame's addresses.
fn same_wire(one: TunnelKind, other: TunnelKind) -> bool {
    match (one, other) {
        (TunnelKind::Vxlan { network: one, .. }, TunnelKind::Vxlan { network: other, .. }) => {
            one == other
        }
        (TunnelKind::Vxlan { .. }, TunnelKind::Gue { port }) => port == 4789,
        (one, other) => one == other,
    }
}

fn ends(v6: bool) -> (IpAddr, IpAddr) {
    if v6 {
        (
            Ipv6Addr::from([1; 16]).into(),
            Ipv6Addr::from([2; 16]).into(),
        )
    } else {
        (Ipv4Addr::from([1; 4]).into(), Ipv4Addr::from([2; 4]).into())
    }
}

/// Sets the traffic class of a frame's packet.
fn set_class(frame: &mut [u8], found: &Headers, class: u8) {
    let packet = &mut frame[usize::from(found.network)..];
    match found.version {
        Version::V4 => {
            packet[1] = class;
            packet[10..12].fill(0);
            let sum = checksum::of(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Version::V6 => {
            packet[0] = 0x60 | class >> 4;
            packet[1] = packet[1] & 0x0f | class << 4;
        }
    }
}

fn headers(frame: &[u8]) -> Headers {
    match dissect(frame) {
        Ok(Outcome::Ip(headers)) => headers,
        other => panic!("not IP: {other:?}"),
    }
}

/// Parses with etherparse, and checks every checksum with it.
fn assert_sound(frame: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let transport = sliced.transport.clone().unwrap();
    match (sliced.net.unwrap(), transport) {
        (NetSlice::Ipv4(ip), transport) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            match transport {
                TransportSlice::Tcp(tcp) => assert_eq!(
                    tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination())
                        .unwrap(),
                    tcp.checksum()
                ),
                TransportSlice::Udp(udp) => assert_eq!(
                    udp.to_header()
                        .calc_checksum_ipv4(&header, udp.payload())
                        .unwrap(),
                    udp.checksum()
                ),
                other => panic!("{other:?}"),
            }
        }
        (NetSlice::Ipv6(ip), TransportSlice::Tcp(tcp)) => assert_eq!(
            tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination())
                .unwrap(),
            tcp.checksum()
        ),
        (NetSlice::Ipv6(ip), TransportSlice::Udp(udp)) => assert_eq!(
            udp.to_header()
                .calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
                .unwrap(),
            udp.checksum()
        ),
        (_, other) => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn parsed_fields_match_the_built_frame(sample in sample(), padding in 0..20_usize) {
        let mut frame = sample.frame();
        let whole = frame.len();
        frame.resize(whole + padding, 0xaa);
        let found = headers(&frame);
        prop_assert_eq!(found.version, sample.version);
        prop_assert_eq!(found.fragment, Fragment::Whole);
        prop_assert_eq!((found.source_port, found.destination_port), sample.ports);
        prop_assert_eq!(found.protocol, if sample.tcp { 6 } else { 17 });
        prop_assert_eq!(usize::from(found.network), 14 + 4 * sample.tags);
        prop_assert_eq!(found.end as usize, whole);
        prop_assert_eq!(found.source(&frame), sample.address(sample.addresses.0));
        prop_assert_eq!(found.destination(&frame), sample.address(sample.addresses.1));
        let segment = found.segment(&frame);
        let (source, destination) = (found.source(&frame), found.destination(&frame));
        if sample.tcp {
            let tcp = Tcp::new_checked(segment).unwrap();
            prop_assert_eq!(tcp.payload(), &sample.payload[..]);
            prop_assert!(tcp.checksum_holds(source, destination));
            prop_assert_eq!(found.tcp_flags, nf_packet::tcp_flags::SYN);
            prop_assert_eq!(tcp.options().map(|option: TcpOption<'_>| option.kind).collect::<Vec<_>>(), vec![8]);
        } else {
            let udp = Udp::new_checked(segment).unwrap();
            prop_assert_eq!(udp.payload(), &sample.payload[..]);
            prop_assert!(udp.checksum_holds(source, destination));
        }
    }

    #[test]
    fn a_rewritten_packet_is_sound(sample in sample(), new in any::<[u8; 16]>(), port in any::<u16>(), source in any::<bool>()) {
        let mut frame = sample.frame();
        let found = headers(&frame);
        let side = if source { Side::Source } else { Side::Destination };
        rewrite_address(&mut frame, &found, side, sample.address(new), port);
        prop_assert!(decrement_ttl(&mut frame, &found));
        assert_sound(&frame);
        let again = headers(&frame);
        let (address, rewritten) = if source {
            (again.source(&frame), again.source_port)
        } else {
            (again.destination(&frame), again.destination_port)
        };
        prop_assert_eq!(address, sample.address(new));
        prop_assert_eq!(rewritten, port);
    }

    #[test]
    fn a_rewritten_icmpv6_message_is_sound(addresses in any::<([u8; 16], [u8; 16], [u8; 16])>(), body in proptest::collection::vec(any::<u8>(), 0..50), source in any::<bool>()) {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv6(addresses.0, addresses.1, 64)
            .icmpv6_echo_request(7, 8)
            .write(&mut frame, &body)
            .unwrap();
        let found = headers(&frame);
        let side = if source { Side::Source } else { Side::Destination };
        rewrite_address(&mut frame, &found, side, addresses.2.into(), 9);
        let (from, to) = if source { (addresses.2, addresses.1) } else { (addresses.0, addresses.2) };
        let Some(TransportSlice::Icmpv6(message)) = SlicedPacket::from_ethernet(&frame).unwrap().transport else { panic!("no ICMPv6") };
        prop_assert_eq!(message.icmp_type().calc_checksum(from, to, message.payload()).unwrap(), message.checksum());
        prop_assert_eq!((found.source(&frame), found.destination(&frame)), (from.into(), to.into()));
        prop_assert_eq!(message.payload(), &body[..]);
    }

    #[test]
    fn rewriting_a_sequence_number_updates_the_checksum(mut sample in sample(), new in any::<u32>()) {
        sample.tcp = true;
        let mut frame = sample.frame();
        let found = headers(&frame);
        rewrite_sequence(&mut frame, &found, |_| new);
        assert_sound(&frame);
        prop_assert_eq!(Tcp::new_checked(found.segment(&frame)).unwrap().sequence(), new);
    }

    #[test]
    fn setting_tcp_fields_updates_the_checksum(mut sample in sample(), values in any::<(u32, u32, u32)>(), flags in any::<u8>()) {
        sample.tcp = true;
        let mut frame = sample.frame();
        let found = headers(&frame);
        let mut tcp = Tcp::new_checked(found.segment_mut(&mut frame)).unwrap();
        tcp.set_sequence(values.0);
        tcp.set_acknowledgement(values.1);
        tcp.set_flags(flags & 0x3f);
        let odd = tcp.options().next().unwrap().at + 1; // including an odd offset
        tcp.replace32(odd, values.2);
        prop_assert_eq!((tcp.sequence(), tcp.acknowledgement(), tcp.flags()), (values.0, values.1, flags & 0x3f));
        assert_sound(&frame);
    }

    #[test]
    fn a_wrong_checksum_stays_wrong(mut sample in sample(), error in 1..0xfffe_u16) {
        sample.tcp = true;
        let mut frame = sample.frame();
        let found = headers(&frame);
        let at = usize::from(found.transport) + 16;
        let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
        // Adds in one's complement, which never gives the same value.
        let (sum, carry) = old.overflowing_add(error);
        frame[at..at + 2].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        rewrite_address(&mut frame, &found, Side::Destination, sample.address([9; 16]), 99);
        let again = headers(&frame);
        let tcp = Tcp::new_checked(again.segment(&frame)).unwrap();
        prop_assert!(!tcp.checksum_holds(again.source(&frame), again.destination(&frame)));
    }

    #[test]
    fn another_parser_accepts_the_tunnel(sample in sample(), kind in kind(), outer_v6 in any::<bool>(), entropy in any::<u16>(), class in any::<u8>()) {
        let mut frame = sample.frame();
        let found = headers(&frame);
        set_class(&mut frame, &found, class);
        let (from, to) = ends(outer_v6);
        let tunnel = Tunnel::new(from, to, kind).unwrap();
        let mut packet = vec![0; tunnel.overhead()];
        packet.extend_from_slice(found.packet(&frame));
        tunnel.write(&mut packet, found.version, entropy, FROM).unwrap();
        let outer = dissect_ip(&packet).unwrap();
        prop_assert_eq!(outer.source(&packet), from);
        prop_assert_eq!(outer.destination(&packet), to);
        prop_assert_eq!(outer.end as usize, packet.len());
        prop_assert_eq!(tunnel.inner(&packet, &outer), Some(found.packet(&frame)));
        let sliced = SlicedPacket::from_ip(&packet).unwrap();
        let (outer_class, payload) = match sliced.net.unwrap() {
            NetSlice::Ipv4(ip) => (ip.header().dcp().value() << 2 | ip.header().ecn().value(), ip.payload().payload),
            NetSlice::Ipv6(ip) => (ip.header().traffic_class(), ip.payload().payload),
        };
        prop_assert_eq!(outer_class, class);
        if kind == TunnelKind::Ipip {
            prop_assert_eq!(outer.protocol, if found.version == Version::V4 { 4 } else { 41 });
            prop_assert_eq!(outer.segment(&packet), found.packet(&frame));
            prop_assert_eq!(payload, found.packet(&frame));
            return Ok(());
        }
        prop_assert!(outer.source_port >= 0xc000);
        let udp = Udp::new_checked(outer.segment(&packet)).unwrap();
        prop_assert!(udp.checksum_holds(from, to));
        prop_assert_eq!(udp.checksum() == 0, !outer_v6);
        let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP") };
        match kind {
            TunnelKind::Ipip => unreachable!(),
            TunnelKind::Gue { port } => {
                prop_assert_eq!(udp.destination_port(), port);
                prop_assert_eq!(udp.payload(), found.packet(&frame));
            }
            TunnelKind::Vxlan { network, station } => {
                prop_assert_eq!(udp.destination_port(), 4789);
                // RFC 7348, section 5: flags with only I set, 24 reserved bits, the identifier, 8 reserved bits.
                let [_, a, b, c] = network.to_be_bytes();
                prop_assert_eq!(&udp.payload()[..8], &[0x08, 0, 0, 0, a, b, c, 0]);
                let inner = SlicedPacket::from_ethernet(&udp.payload()[8..]).unwrap();
                let link = inner.link.unwrap().to_header().unwrap().ethernet2().unwrap();
                prop_assert_eq!((link.source, link.destination), (FROM.0, station.0));
                let version = if found.version == Version::V4 { etherparse::EtherType::IPV4 } else { etherparse::EtherType::IPV6 };
                prop_assert_eq!(link.ether_type, version);
                prop_assert_eq!(&udp.payload()[22..], found.packet(&frame));
            }
        }
    }

    #[test]
    fn a_tunnel_knows_its_own_packets(sample in sample(), kinds in (kind(), kind()), outer_v6 in any::<bool>(), cut in any::<prop::sample::Index>()) {
        let frame = sample.frame();
        let found = headers(&frame);
        let (from, to) = ends(outer_v6);
        let tunnel = Tunnel::new(from, to, kinds.0).unwrap();
        let mut packet = vec![0; tunnel.overhead()];
        packet.extend_from_slice(found.packet(&frame));
        tunnel.write(&mut packet, found.version, 7, FROM).unwrap();
        // An ICMP error quotes the start of the packet.
        packet.truncate(tunnel.overhead() + cut.index(packet.len() - tunnel.overhead() + 1));
        let Ok(outer) = dissect_quoted(&packet) else { return Ok(()) };
        prop_assert_eq!(tunnel.inner(&packet, &outer), Some(&packet[tunnel.overhead()..]));
        let same = same_wire(kinds.0, kinds.1);
        let other = Tunnel::new(from, to, kinds.1).unwrap();
        prop_assert_eq!(other.inner(&packet, &outer).is_some(), same);
        for (from, to) in [(to, to), (from, from)] {
            let elsewhere = Tunnel::new(from, to, kinds.0).unwrap();
            prop_assert_eq!(elsewhere.inner(&packet, &outer), None);
        }
    }

    #[test]
    fn no_input_makes_it_read_out_of_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..200), first in prop_oneof![Just(0x45_u8), Just(0x46), Just(0x60), any::<u8>()]) {
        let mut packet = bytes.clone();
        if let Some(byte) = packet.first_mut() { *byte = first; }
        for found in [dissect_ip(&packet), dissect_quoted(&packet)].into_iter().flatten() {
            prop_assert!(found.end as usize <= packet.len());
            prop_assert!(usize::from(found.transport) <= packet.len());
            rewrite_address(&mut packet.clone(), &found, Side::Source, IpAddr::from([1, 2, 3, 4]), 5);
        }
        let _ = dissect(&bytes);
    }

    #[test]
    fn a_damaged_packet_is_refused_or_parsed_the_same(sample in sample(), at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut frame = sample.frame();
        let at = at.index(frame.len());
        frame[at] = value;
        frame.truncate(cut.index(frame.len()) + 1);
        if let Ok(Outcome::Ip(found)) = dissect(&frame) {
            // Where both find TCP or UDP, they agree.
            if let Ok(sliced) = SlicedPacket::from_ethernet(&frame) {
                match sliced.transport {
                    Some(TransportSlice::Tcp(tcp)) => prop_assert_eq!((tcp.source_port(), tcp.destination_port()), (found.source_port, found.destination_port)),
                    Some(TransportSlice::Udp(udp)) => prop_assert_eq!((udp.source_port(), udp.destination_port()), (found.source_port, found.destination_port)),
                    _ => {}
                }
            }
        }
    }
}
