//! Mode vxlan: the outer and the inner headers, and the configuration of the network.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use std::{collections::BTreeSet, net::IpAddr};

use common::*;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use nf_l4lb::L4lb;
use nf_runtime::testing::{Harness, Output};
use proptest::prelude::*;
use serde_json::{json, Value};

/// Returns the frame that comes out.
fn forwarded(lb: &mut Harness<L4lb>, frame: &[u8]) -> Vec<u8> {
    match lb.process(0, frame) {
        Output::Sent(0, frame) => frame,
        other => panic!("{other:?}"),
    }
}

/// Returns the source port of the outer packet, after checks of its UDP header.
fn outer_port(frame: &[u8]) -> u16 {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Udp(udp)) = sliced.transport else {
        panic!("no UDP")
    };
    let expected = match sliced.net.unwrap() {
        NetSlice::Ipv4(_) => 0,
        NetSlice::Ipv6(ip) => udp
            .to_header()
            .calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
            .unwrap(),
    };
    assert_eq!(udp.checksum(), expected, "UDP checksum");
    assert_eq!(udp.destination_port(), 4789);
    udp.source_port()
}

fn with_backend(address: &str) -> Value {
    let backends = json!([{"name": "a", "address": address}]);
    in_mode(with(vip("ipip", &[]), "backends", backends), "vxlan")
}

#[test]
fn a_frame_goes_to_the_backends_station_in_the_network() {
    let mut lb = lb(json!([with(
        vip("vxlan", &[11, 12]),
        "algorithm",
        "round-robin"
    )]));
    let mut seen = BTreeSet::new();
    for port in [4000, 4001] {
        let sent = Sent::client(port, SYN);
        let frame = forwarded(&mut lb, &sent.frame());
        let read = read(&frame);
        let position = usize::from(read.to[5]) - 11;
        seen.insert(position);
        assert_eq!(
            read.inner,
            Some((NETWORK, PORT_MAC, inner_mac_of(position)))
        );
        assert_eq!(frame[64..], sent.frame()[14..], "the packet is unchanged");
        // The padding of a short frame stays behind, and the outer packet must not be fragmented.
        assert_eq!((frame.len(), frame[20]), (14 + 50 + 40, 0x40));
        assert_eq!(frame[6..12], PORT_MAC);
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_short_frames_padding_is_left_out() {
    let mut lb = lb(json!([vip("vxlan", &[11])]));
    let mut padded = Sent::client(4000, SYN).frame();
    let plain = forwarded(&mut lb, &padded);
    padded.extend_from_slice(&[9; 6]);
    assert_eq!(forwarded(&mut lb, &padded), plain);
}

#[test]
fn the_network_and_the_station_follow_the_configuration() {
    let mut lb = lb(json!([vip("vxlan", &[11])]));
    lb.pass(&Sent::client(4000, SYN));
    for (network, station) in [
        (0, [2, 9, 9, 9, 9, 9]),
        (0xff_ffff, [0x52, 0x54, 0, 1, 2, 3]),
    ] {
        let mut web = with(vip("vxlan", &[11]), "vni", network);
        web["backends"][0]["inner_mac"] = json!(text(station));
        lb.reconfigure(json!([web]));
        let seen = lb.pass(&Sent::client(4000, ACK));
        assert_eq!(seen.inner, Some((network, PORT_MAC, station)));
    }
}

#[test]
fn an_ipv6_checksum_covers_the_frame() {
    let mut lb = lb(json!([with_backend("fd00::11")]));
    for length in 0..8 {
        let sent = Sent::client(4000, ACK).payload(&vec![0xa5; length]);
        let frame = forwarded(&mut lb, &sent.frame());
        assert_eq!(frame[14 + 70..], sent.frame()[14..]);
        outer_port(&frame);
    }
}

#[test]
fn source_ports_spread_flows_and_stay_the_same_for_each() {
    for backend in ["10.0.0.11", "fd00::11"] {
        let mut lb = lb(json!([with_backend(backend)]));
        let ports: Vec<u16> = (1..=2000)
            .map(|port| outer_port(&forwarded(&mut lb, &Sent::client(port, SYN).frame())))
            .collect();
        for (port, before) in (1..=2000).zip(&ports) {
            let sent = Sent::client(port, ACK).payload(b"more");
            assert_eq!(outer_port(&forwarded(&mut lb, &sent.frame())), *before);
        }
        assert!(ports.iter().all(|port| *port >= 49_152));
        // 2,000 of 16,384 random ports are 1,883 different ones on average, with a standard deviation of 10.
        let distinct: BTreeSet<u16> = ports.into_iter().collect();
        assert!(distinct.len() > 1800, "{}", distinct.len());
    }
    // Clients that use the same port differ, too.
    let mut lb = lb(json!([vip("vxlan", &[11])]));
    let ports: BTreeSet<u16> = (1..=200)
        .map(|host| Sent::client(4000, SYN).of(&format!("198.51.100.{host}")))
        .map(|sent| outer_port(&forwarded(&mut lb, &sent.frame())))
        .collect();
    assert!(ports.len() > 190, "{}", ports.len());
}

#[test]
fn errors_from_the_path_of_another_network_are_not_for_its_clients() {
    let mut lb = lb(json!([vip("vxlan", &[11])]));
    let sent = Sent::client(4000, ACK).payload(&[7; 600]);
    let outer = forwarded(&mut lb, &sent.frame());
    // The router quotes the outer packet; `change` alters one byte of the quote.
    let error = |change: Option<usize>| {
        let mut quote = outer[14..14 + 120].to_vec();
        if let Some(at) = change {
            quote[at] ^= 1;
        }
        let mut frame = Vec::new();
        etherparse::PacketBuilder::ethernet2(GATEWAY_MAC, PORT_MAC)
            .ipv4([203, 0, 113, 254], [10, 0, 0, 2], 60)
            .icmpv4(etherparse::Icmpv4Type::DestinationUnreachable(
                etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded {
                    next_hop_mtu: 1400,
                },
            ))
            .write(&mut frame, &quote)
            .unwrap();
        frame
    };
    // The header of UDP starts at 20, that of VXLAN at 28.
    for at in [23, 28, 34] {
        assert_eq!(
            lb.process(0, &error(Some(at))),
            Output::Dropped("icmp error orphan"),
            "{at}"
        );
    }
    assert!(lb.take_emitted().is_empty());
    lb.process(0, &error(None));
    let (_, frame) = lb.take_emitted().pop().unwrap();
    assert_eq!(read(&frame).destination.0, ip("198.51.100.7"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn another_parser_reads_the_same_packet(
        six in any::<(bool, bool)>(), port in any::<u16>(), flags in prop_oneof![Just(SYN), Just(ACK)], ttl in 1..=255_u8,
        network in 0..=0xff_ffff_u32, station in any::<[u8; 6]>(), tag in proptest::option::of(any::<[u8; 2]>()),
        payload in proptest::collection::vec(any::<u8>(), 0..1200),
    ) {
        let (outer_six, inner_six) = six;
        let station = [station[0] & 0xfe | 2, station[1], station[2], station[3], station[4], station[5]];
        let mut web = with(with_backend(if outer_six { "fd00::11" } else { "10.0.0.11" }), "vni", network);
        web["backends"][0]["inner_mac"] = json!(text(station));
        let mut sent = Sent { ttl, ..Sent::client(port, flags) }.payload(&payload);
        if inner_six {
            web["address"] = json!("2001:db8::1");
            sent = sent.of("2001:db8:1::7").to("2001:db8::1", 80);
        }
        let mut lb = lb(json!([web]));
        let plain = sent.frame();
        let mut frame = plain[..12].to_vec();
        if let Some(tag) = tag {
            frame.extend_from_slice(&[0x81, 0]);
            frame.extend_from_slice(&tag);
        }
        frame.extend_from_slice(&plain[12..]);
        let mut out = forwarded(&mut lb, &frame);
        if let Some(tag) = tag {
            prop_assert_eq!(&out[12..16], &[0x81, 0, tag[0], tag[1]]);
            out.drain(12..16);
        }
        prop_assert!(outer_port(&out) >= 49_152);
        let seen = read(&out);
        let (from, to): (IpAddr, IpAddr) = if outer_six { (ip("fd00::2"), ip("fd00::11")) } else { (ip("10.0.0.2"), ip("10.0.0.11")) };
        prop_assert_eq!((seen.to, seen.outer), (mac_of(11), Some((from, to))));
        prop_assert_eq!(seen.inner, Some((network, PORT_MAC, station)));
        prop_assert_eq!((seen.source, seen.destination), (sent.source, sent.destination));
        prop_assert_eq!((seen.flags, seen.sequence, seen.ttl, seen.payload), (flags, 1000, ttl, payload));
    }
}

#[test]
fn packets_are_those_of_the_switch_beside_it() {
    let mut lb = beside_switch();
    let sent = Sent::client(4000, SYN);
    let frame = forwarded(&mut lb, &sent.frame());
    assert_eq!(frame[26..30], [10, 0, 0, 3]);
    assert_eq!(frame[56..62], VTEP_MAC);
    let rss = nf_packet::rss_hash(sent.source, sent.destination) as u16;
    assert_eq!(outer_port(&frame), 0xc000 | rss);
    let expected = Sent {
        ttl: 63,
        ..sent.to("10.8.0.11", 8080)
    };
    assert_eq!(frame[64..], expected.frame()[14..]);
}
