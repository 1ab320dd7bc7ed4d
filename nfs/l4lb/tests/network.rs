//! Behaviour toward the network: ICMP, and robustness against bad input.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use std::net::IpAddr;

use common::*;
use etherparse::{Icmpv4Slice, PacketBuilder, SlicedPacket, TransportSlice};
use nf_packet::{checksum, ArpOperation, Icmp};
use nf_runtime::testing::Output;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn echoes_are_answered() {
    let mut lb = lb(json!([vip("ipip", &[11])]));
    for address in ["192.0.2.1", "10.0.0.2"] {
        let mut frame = Vec::new();
        let IpAddr::V4(to) = ip(address) else {
            panic!()
        };
        PacketBuilder::ethernet2(GATEWAY_MAC, PORT_MAC)
            .ipv4([198, 51, 100, 7], to.octets(), 64)
            .icmpv4_echo_request(7, 8)
            .write(&mut frame, b"ping")
            .unwrap();
        let Output::Sent(0, answer) = lb.process(0, &frame) else {
            panic!()
        };
        let Some(TransportSlice::Icmpv4(icmp)) =
            SlicedPacket::from_ethernet(&answer).unwrap().transport
        else {
            panic!()
        };
        assert!(
            matches!(icmp.icmp_type(), etherparse::Icmpv4Type::EchoReply(header) if header.id == 7 && header.seq == 8)
        );
        assert_eq!(icmp.payload(), b"ping");
        assert_eq!(checksum::fold(checksum::sum(icmp.slice())), 0xffff);
        let seen = read(&answer);
        assert_eq!(
            (seen.source.0, seen.destination.0, seen.to),
            (ip(address), ip("198.51.100.7"), GATEWAY_MAC)
        );
    }
    let mut echo = [0; 16];
    echo[0] = 128;
    let vips = json!([{"name": "six", "address": "2001:db8::1", "port": 80, "protocol": "tcp", "mode": "nat", "backends": []}]);
    let mut lb = common::lb(vips);
    let Output::Sent(0, answer) = lb.process(0, &icmpv6("2001:db8:1::7", "2001:db8::1", &echo, 64))
    else {
        panic!()
    };
    let message = Icmp::new_checked(&answer[54..]).unwrap();
    assert_eq!(message.kind(), 129);
    assert!(message.checksum_holds(ip("2001:db8::1"), ip("2001:db8:1::7")));
}

/// Builds a router's "fragmentation needed" about `lost`, an Ethernet frame, to its sender.
fn too_big(lost: &[u8], quoted: usize, router: [u8; 4]) -> Vec<u8> {
    let lost = &lost[14..];
    let to: [u8; 4] = lost[12..16].try_into().unwrap();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(GATEWAY_MAC, PORT_MAC)
        .ipv4(router, to, 60)
        .icmpv4(etherparse::Icmpv4Type::DestinationUnreachable(
            etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1400 },
        ))
        .write(&mut frame, &lost[..quoted.min(lost.len())])
        .unwrap();
    frame
}

fn quoted(frame: &[u8]) -> (Vec<u8>, u16) {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Icmpv4(icmp)) = sliced.transport else {
        panic!()
    };
    assert_eq!(
        checksum::fold(checksum::sum(icmp.slice())),
        0xffff,
        "ICMP checksum"
    );
    let mtu = u16::from_be_bytes([icmp.slice()[6], icmp.slice()[7]]);
    let _: &Icmpv4Slice<'_> = &icmp;
    (icmp.payload().to_vec(), mtu)
}

const ROUTER: [u8; 4] = [203, 0, 113, 254];

#[test]
fn an_error_finds_the_backend_whose_answer_was_lost() {
    let lost = Sent {
        source: (ip("192.0.2.1"), 80),
        destination: (ip("198.51.100.7"), 4000),
        ..Sent::client(0, ACK)
    }
    .payload(&[7; 100])
    .frame();
    for mode in ["ipip", "gue", "vxlan"] {
        let web = with(vip(mode, &[11, 12, 13]), "algorithm", "round-robin");
        let mut lb = lb(json!([web]));
        lb.pass(&Sent::client(1, SYN));
        let backend = lb.backend(&Sent::client(4000, SYN));
        let Output::Sent(0, frame) = lb.process(0, &too_big(&lost, 28, ROUTER)) else {
            panic!()
        };
        assert_eq!(frame[..6], mac_of(backend));
        assert_eq!(
            lb.count("events{vip=\"web\",event=\"icmp error forwarded\"}"),
            1
        );
    }
    let web = with(vip("nat", &[11, 12, 13]), "algorithm", "round-robin");
    let mut lb = lb(json!([web]));
    lb.pass(&Sent::client(1, SYN));
    let backend = lb.backend(&Sent::client(4000, SYN));
    let Output::Sent(0, frame) = lb.process(0, &too_big(&lost, 28, ROUTER)) else {
        panic!()
    };
    let seen = read(&frame);
    assert_eq!(
        (seen.to, seen.source.0, seen.destination.0),
        (
            mac_of(backend),
            IpAddr::from(ROUTER),
            ip(&format!("10.0.0.{backend}"))
        )
    );
    let (inner, mtu) = quoted(&frame);
    assert_eq!(
        (&inner[12..16], &inner[16..20], mtu),
        (&[10, 0, 0, backend][..], &[198, 51, 100, 7][..], 1400)
    );
    assert!(checksum::holds(&inner[..20]));
    // About an unknown connection.
    let other = Sent {
        source: (ip("192.0.2.1"), 81),
        destination: (ip("198.51.100.7"), 4000),
        ..Sent::client(0, ACK)
    }
    .frame();
    assert_eq!(
        lb.process(0, &too_big(&other, 28, ROUTER)),
        Output::Dropped("icmp error orphan")
    );
    let mut broken = too_big(&lost, 28, ROUTER);
    let last = broken.len() - 1;
    broken[last] ^= 1;
    assert_eq!(lb.process(0, &broken), Output::Dropped("malformed"));
}

#[test]
fn an_error_finds_the_client_whose_packet_was_lost() {
    for snat in [false, true] {
        let mut lb = lb(json!([with(vip("nat", &[11]), "snat", json!(snat))]));
        let Output::Sent(0, rewritten) =
            lb.process(0, &Sent::client(4000, SYN).payload(&[7; 60]).frame())
        else {
            panic!()
        };
        // Once from a router, once from the backend itself.
        for router in [ROUTER, [10, 0, 0, 11]] {
            let Output::Sent(0, frame) = lb.process(0, &too_big(&rewritten, 100, router)) else {
                panic!("snat {snat}")
            };
            let seen = read(&frame);
            let source = if router == ROUTER {
                IpAddr::from(ROUTER)
            } else {
                ip("192.0.2.1")
            };
            assert_eq!(
                (seen.source.0, seen.destination.0, seen.to),
                (source, ip("198.51.100.7"), GATEWAY_MAC)
            );
            let (inner, _) = quoted(&frame);
            assert_eq!(
                (&inner[12..16], &inner[16..20]),
                (&[198, 51, 100, 7][..], &[192, 0, 2, 1][..])
            );
            assert_eq!(&inner[20..24], &[0x0f, 0xa0, 0, 80]);
            assert!(checksum::holds(&inner[..20]));
        }
    }
}

#[test]
fn an_error_about_an_answer_quotes_the_packet_as_it_was_behind_the_tunnel() {
    let mut lb = beside_switch();
    lb.pass(&Sent::client(4000, SYN));
    let answer = |address, port| Sent {
        source: (ip(address), port),
        destination: (ip("198.51.100.7"), 4000),
        ..Sent::client(0, ACK)
    };
    let lost = answer("192.0.2.1", 80).payload(&[7; 100]).frame();
    let Output::Sent(0, frame) = lb.process(0, &too_big(&lost, 140, ROUTER)) else {
        panic!()
    };
    let inner = &frame[50..];
    assert_eq!(inner[30..34], [10, 8, 0, 11]);
    let (inner, _) = quoted(inner);
    let expected = answer("10.8.0.11", 8080).payload(&[7; 100]).frame();
    assert_eq!(inner, expected[14..]);
}

#[test]
fn an_error_about_an_answer_quotes_the_backends_own_packet() {
    let mut lb = lb(json!([with(vip("nat", &[11]), "snat", true)]));
    let seen = lb.pass(&Sent::client(4000, SYN));
    let lost = Sent {
        source: (ip("192.0.2.1"), 80),
        destination: (ip("198.51.100.7"), 4000),
        ..Sent::client(0, ACK)
    };
    let lost = lost.payload(&[7; 100]).frame();
    for quote in [28, 140] {
        let Output::Sent(0, frame) = lb.process(0, &too_big(&lost, quote, ROUTER)) else {
            panic!()
        };
        assert_eq!(read(&frame).to, mac_of(11));
        let (inner, _) = quoted(&frame);
        let [high, low] = seen.source.1.to_be_bytes();
        assert_eq!(
            (&inner[12..16], &inner[20..22]),
            (&[10, 0, 0, 11][..], &[0, 80][..])
        );
        assert_eq!(
            (&inner[16..20], &inner[22..24]),
            (&[10, 0, 0, 2][..], &[high, low][..])
        );
        assert!(checksum::holds(&inner[..20]));
        if quote == 140 {
            // Quoted whole: its TCP checksum is right, too.
            let mut answer = frame[..14].to_vec();
            answer.extend_from_slice(&inner);
            assert_eq!(read(&answer).destination, seen.source);
        }
    }
}

#[test]
fn an_error_about_a_shifted_segment_quotes_the_clients_numbers() {
    for snat in [false, true] {
        let proxy = with(vip("nat", &[11]), "proxy_protocol", true);
        let mut lb = lb(json!([with(proxy, "snat", json!(snat))]));
        lb.pass(&Sent::client(4000, SYN).numbers(999, 0));
        lb.pass(&Sent::client(4000, ACK).numbers(1000, 5001));
        let data = Sent::client(4000, ACK).numbers(1005, 5001);
        let Output::Sent(0, shifted) = lb.process(0, &data.payload(&[7; 100]).frame()) else {
            panic!()
        };
        assert_eq!(read(&shifted).sequence, 1033);
        // Routers may quote as little as 8 bytes of the segment (RFC 792).
        for quote in [28, 140] {
            let Output::Sent(0, frame) = lb.process(0, &too_big(&shifted, quote, ROUTER)) else {
                panic!()
            };
            let (inner, _) = quoted(&frame);
            assert_eq!(
                inner[24..28],
                1005_u32.to_be_bytes(),
                "{quote} bytes quoted"
            );
            if quote == 140 {
                let mut lost = frame[..14].to_vec();
                lost.extend_from_slice(&inner);
                assert_eq!(read(&lost).source, (ip("198.51.100.7"), 4000));
            }
        }
    }
}

/// The tunnels over IPv4, with their overheads.
const TUNNELS: [(&str, u16); 3] = [("ipip", 20), ("gue", 28), ("vxlan", 50)];

#[test]
fn a_narrow_tunnel_path_is_reported_to_the_client() {
    for (mode, overhead) in TUNNELS {
        let mut lb = lb(json!([vip(mode, &[11])]));
        let frame = Sent::client(4000, ACK).payload(&[7; 600]).frame();
        let Output::Sent(0, outer) = lb.process(0, &frame) else {
            panic!()
        };
        lb.process(0, &too_big(&outer, 120, ROUTER));
        let (_, frame) = lb.take_emitted().pop().unwrap();
        let seen = read(&frame);
        assert_eq!(
            (seen.source.0, seen.destination.0, seen.to),
            (ip("192.0.2.1"), ip("198.51.100.7"), GATEWAY_MAC)
        );
        let (inner, mtu) = quoted(&frame);
        assert_eq!(
            (mtu, &inner[12..16]),
            (1400 - overhead, &[198, 51, 100, 7][..])
        );
    }
}

#[test]
fn a_narrow_path_is_reported_less_the_overhead_of_the_tunnel_in_question() {
    // All tunnels lead to the same backend.
    let vips = TUNNELS.iter().enumerate().map(|(index, (mode, _))| {
        let web = with(vip(mode, &[11]), "name", *mode);
        with(web, "port", json!(80 + index))
    });
    let mut lb = lb(vips.collect());
    for (index, (_, overhead)) in TUNNELS.iter().enumerate() {
        let sent = Sent::client(4000, ACK).to("192.0.2.1", 80 + index as u16);
        let Output::Sent(0, outer) = lb.process(0, &sent.payload(&[7; 600]).frame()) else {
            panic!()
        };
        lb.process(0, &too_big(&outer, 120, ROUTER));
        let (_, frame) = lb.take_emitted().pop().unwrap();
        assert_eq!(quoted(&frame).1, 1400 - overhead);
    }
}

#[test]
fn a_packet_too_big_for_the_tunnel_is_reported() {
    for (mode, overhead) in TUNNELS {
        let mut lb = lb(json!([vip(mode, &[11])]));
        let sent = |length: u16| Sent::client(4000, ACK).payload(&vec![7; length.into()]);
        let most = 1500 - overhead - 40;
        assert!(matches!(
            lb.process(0, &sent(most).frame()),
            Output::Sent(..)
        ));
        assert_eq!(lb.drops(&sent(most + 1)), "too big");
        let (_, frame) = lb.take_emitted().pop().unwrap();
        assert_eq!(
            (quoted(&frame).1, read(&frame).destination.0),
            (1500 - overhead, ip("198.51.100.7"))
        );
        let whole = Sent::client(4000, ACK).payload(&[7; 1600]).frame();
        let [first, later] = fragments(&whole, 104, 77);
        assert!(matches!(lb.process(0, &first), Output::Sent(..)));
        assert_eq!(lb.process(0, &later), Output::Dropped("too big"));
        assert!(lb.take_emitted().is_empty(), "no error answers it");
    }
}

#[test]
fn bad_input_is_dropped_and_counted_by_reason() {
    let mut lb = lb(json!([vip("nat", &[11])]));
    let good = Sent::client(4000, SYN).frame();
    let damaged: Vec<Vec<u8>> = vec![
        vec![],
        vec![0; 13],
        good[..20].to_vec(),
        good[..40].to_vec(),
        {
            let mut bytes = good.clone();
            bytes[24] ^= 1;
            bytes
        }, // checksum
        {
            let mut bytes = good.clone();
            bytes[14] = 0x44;
            bytes
        }, // header length
        {
            let mut bytes = good.clone();
            bytes[14] = 0x65;
            bytes
        }, // version
        {
            let mut bytes = good.clone();
            bytes[16..18].copy_from_slice(&[0xff, 0xff]);
            bytes
        }, // length
    ];
    for (index, frame) in damaged.iter().enumerate() {
        assert_eq!(
            lb.process(0, frame),
            Output::Dropped("malformed"),
            "{index}"
        );
    }
    assert_eq!(
        lb.count("events{event=\"malformed\"}"),
        damaged.len() as u64
    );
    // A jumbo frame of 9,000 bytes is processed like any other.
    assert!(matches!(
        lb.process(0, &Sent::client(4000, ACK).payload(&[1; 8900]).frame()),
        Output::Sent(..)
    ));
    // A wrong TCP checksum stays wrong: the backend refuses it.
    let mut wrong = good.clone();
    wrong[50] ^= 0x55;
    let Output::Sent(0, frame) = lb.process(0, &wrong) else {
        panic!()
    };
    assert!(std::panic::catch_unwind(|| read(&frame)).is_err());
    // Other protocols to a VIP.
    let mut other = good;
    other[23] = 132;
    other[24..26].fill(0);
    let sum = checksum::of(&other[14..34]);
    other[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(
        lb.process(0, &other),
        Output::Dropped("protocol unsupported")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_input_makes_it_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..300),
    ) {
        let six = json!({"name": "six", "address": "2001:db8::1", "port": 80, "protocol": "tcp", "mode": "gue", "backends": [{"name": "a", "address": "fd00::11"}]});
        let proxied = with(with(with(vip("nat", &[11, 12]), "snat", true), "proxy_protocol", true), "health", json!({"kind": "http"}));
        let udp = json!({"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "mode": "ipip", "backends": [{"name": "a", "address": "10.0.0.11"}]});
        let vxlan = with(with(vip("vxlan", &[13]), "name", "vxlan"), "port", 8080);
        let mut lb = lb(json!([proxied, six, udp, vxlan]));
        let lost = Sent { source: (ip("192.0.2.1"), 80), destination: (ip("198.51.100.7"), 4000), ..Sent::client(0, ACK) }.frame();
        let Output::Sent(0, tunnelled) = lb.process(0, &Sent::client(4000, ACK).to("192.0.2.1", 8080).frame()) else { panic!() };
        let seeds = [
            Sent::client(4000, SYN).frame(), Sent::client(4000, ACK).payload(b"data").frame(),
            Sent::client(53, SYN | ACK).of("10.0.0.11").to("10.0.0.2", 61000).frame(),
            Sent { source: (ip("10.0.0.11"), 80), ..Sent::client(0, ACK) }.to("10.0.0.2", 2000).frame(),
            Sent::client(4000, SYN).of("2001:db8:1::7").to("2001:db8::1", 80).frame(), too_big(&lost, 60, ROUTER),
            arp(ArpOperation::Request, ("10.0.0.9", [2; 6]), "192.0.2.1"), fragments(&Sent::client(4000, 0).udp().to("192.0.2.1", 53).payload(&[1; 99]).frame(), 64, 3)[0].clone(),
            icmpv6("fd00::77", "2001:db8::1", &[135; 40], 255), Sent::client(4000, SYN).to("192.0.2.1", 8080).frame(), too_big(&tunnelled, 120, ROUTER),
        ];
        for (which, at, value, cut) in changes {
            let mut frame = seeds[which.index(seeds.len())].clone();
            let at = at.index(frame.len());
            frame[at] = value;
            // Repairs the IPv4 checksum, so that the checks behind it are reached.
            if frame[12..14] == [8, 0] && value & 1 == 0 {
                frame[24..26].fill(0);
                let sum = checksum::of(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            if cut { frame.truncate(at); }
            lb.process(0, &frame);
            lb.advance(SECOND / 10);
            lb.tick();
        }
    }
}

#[test]
fn flooded_frames_are_not_forwarded() {
    let mut lb = lb(json!([vip("nat", &[11])]));
    for to in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1]] {
        for sent in [
            Sent::client(4000, SYN),
            Sent::client(4000, ACK).of("10.0.0.11"),
            Sent::client(4000, SYN).to("10.0.0.255", 80),
        ] {
            let mut frame = sent.frame();
            frame[..6].copy_from_slice(&to);
            assert_eq!(lb.process(0, &frame), Output::Dropped("not for us"));
        }
    }
    assert!(lb.take_emitted().is_empty());
}
