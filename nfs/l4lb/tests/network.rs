//! What a load balancer owes the network: neighbours, control messages, fragments, and patience with bad input.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use std::net::IpAddr;

use common::*;
use etherparse::{Icmpv4Slice, PacketBuilder, SlicedPacket, TransportSlice};
use nf_l4lb::L4lb;
use nf_packet::{
    checksum, Arp, ArpOperation, Icmp, MacAddress, NeighbourMessage, NeighbourSolicitation,
};
use nf_runtime::testing::{Harness, Output};
use proptest::prelude::*;
use serde_json::{json, Value};

/// Nobody's MAC address is known.
fn unknown(vips: Value) -> Harness<L4lb> {
    start(with(config(vips), "neighbours", json!([])))
}

fn arp(operation: ArpOperation, sender: (&str, [u8; 6]), target: &str) -> Vec<u8> {
    let address = |text: &str| text.parse().unwrap();
    let message = Arp {
        operation,
        sender_mac: MacAddress(sender.1),
        sender: address(sender.0),
        target_mac: MacAddress(if operation == ArpOperation::Reply {
            PORT_MAC
        } else {
            [0; 6]
        }),
        target: address(target),
    };
    let mut frame = Vec::new();
    let to = if operation == ArpOperation::Reply {
        PORT_MAC
    } else {
        [0xff; 6]
    };
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&sender.1);
    frame.extend_from_slice(&[8, 6]);
    let mut bytes = [0; Arp::BYTES];
    message.write(&mut bytes);
    frame.extend_from_slice(&bytes);
    frame
}

#[test]
fn it_answers_for_its_addresses_and_for_no_others() {
    let mut lb = unknown(json!([vip("ipip", &[11])]));
    let asker = ("10.0.0.77", [2, 0xcc, 0, 0, 0, 7]);
    for address in ["192.0.2.1", "10.0.0.2"] {
        let Output::Sent(0, frame) = lb.process(0, &arp(ArpOperation::Request, asker, address))
        else {
            panic!()
        };
        let answer = Arp::parse(&frame[14..]).unwrap();
        assert_eq!((&frame[..6], &frame[6..12]), (&asker.1[..], &PORT_MAC[..]));
        assert_eq!(
            (answer.operation, answer.sender_mac, answer.sender),
            (
                ArpOperation::Reply,
                MacAddress(PORT_MAC),
                address.parse().unwrap()
            )
        );
        assert_eq!(
            (answer.target_mac, answer.target),
            (MacAddress(asker.1), "10.0.0.77".parse().unwrap())
        );
    }
    assert_eq!(
        lb.process(0, &arp(ArpOperation::Request, asker, "10.0.0.3")),
        Output::Dropped("not for us")
    );
}

#[test]
fn it_asks_for_backends_and_gateways_and_learns() {
    let mut lb = unknown(json!([vip("nat", &[11])]));
    assert_eq!(lb.drops(&Sent::client(1, SYN)), "neighbour unresolved");
    lb.tick();
    let asked = |lb: &mut Harness<L4lb>| {
        let frames = lb.take_emitted();
        let requests = frames
            .iter()
            .filter_map(|(_, frame)| Arp::parse(frame.get(14..)?).ok());
        let mut targets: Vec<String> = requests
            .filter(|request| request.sender != request.target)
            .map(|request| request.target.to_string())
            .collect();
        targets.sort();
        targets
    };
    assert_eq!(asked(&mut lb), ["10.0.0.1", "10.0.0.11"]);
    lb.tick();
    assert!(asked(&mut lb).is_empty(), "once a second");
    lb.advance(SECOND);
    lb.tick();
    assert_eq!(asked(&mut lb), ["10.0.0.1", "10.0.0.11"]);
    lb.process(
        0,
        &arp(ArpOperation::Reply, ("10.0.0.11", mac_of(11)), "10.0.0.2"),
    );
    assert_eq!(lb.backend(&Sent::client(1, SYN)), 11);
    // Known, but to be confirmed now and then; forgotten without an answer.
    lb.advance(40 * SECOND);
    lb.tick();
    assert_eq!(asked(&mut lb), ["10.0.0.1", "10.0.0.11"]);
    assert_eq!(lb.backend(&Sent::client(1, ACK)), 11);
    for _ in 0..4 {
        lb.advance(30 * SECOND);
        lb.tick();
    }
    assert_eq!(lb.drops(&Sent::client(1, ACK)), "neighbour unresolved");
    // A station that is not on the link teaches nothing.
    lb.process(
        0,
        &arp(ArpOperation::Reply, ("203.0.113.1", mac_of(11)), "10.0.0.2"),
    );
}

#[test]
fn neighbours_survive_a_move() {
    let mut old = unknown(json!([vip("ipip", &[11])]));
    old.process(
        0,
        &arp(ArpOperation::Reply, ("10.0.0.11", mac_of(11)), "10.0.0.2"),
    );
    let new = with(config(json!([vip("ipip", &[11])])), "neighbours", json!([]));
    let mut new = old
        .adopting(serde_json::from_value(new).unwrap())
        .unwrap()
        .with_ports(1);
    assert_eq!(new.backend(&Sent::client(1, SYN)), 11);
}

#[test]
fn vips_are_announced_at_start_and_after_a_change() {
    let mut lb = lb(json!([vip("ipip", &[11])]));
    lb.tick();
    let announced = |lb: &mut Harness<L4lb>| {
        let frames = lb.take_emitted();
        frames
            .iter()
            .filter(|(_, frame)| {
                Arp::parse(&frame[14..]).is_ok_and(|message| message.sender == message.target)
            })
            .count()
    };
    assert_eq!(announced(&mut lb), 1);
    lb.tick();
    assert_eq!(announced(&mut lb), 0);
    lb.reconfigure(json!([vip("ipip", &[11, 12])]));
    lb.tick();
    assert_eq!(announced(&mut lb), 1);
}

fn icmpv6(source: &str, destination: &str, message: &[u8], hop_limit: u8) -> Vec<u8> {
    let (source, destination): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
        (source.parse().unwrap(), destination.parse().unwrap());
    let mut message = message.to_vec();
    Icmp::new_checked(&mut message[..])
        .unwrap()
        .fill_checksum(source.into(), destination.into());
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(GATEWAY_MAC, PORT_MAC)
        .ipv6(source.octets(), destination.octets(), hop_limit)
        .write(&mut frame, etherparse::IpNumber::IPV6_ICMP, &message)
        .unwrap();
    frame
}

#[test]
fn neighbour_discovery() {
    let six = json!({"name": "six", "address": "2001:db8::1", "port": 80, "protocol": "tcp", "mode": "nat",
        "backends": [{"name": "a", "address": "fd00::11"}]});
    let mut lb = unknown(json!([six]));
    let mut solicitation = [0; NeighbourMessage::BYTES];
    let asker = MacAddress(GATEWAY_MAC);
    NeighbourMessage::Solicitation(NeighbourSolicitation {
        target: "2001:db8::1".parse().unwrap(),
        source_mac: Some(asker),
    })
    .write(&mut solicitation);
    let result = lb.process(0, &icmpv6("fd00::77", "ff02::1:ff00:1", &solicitation, 255));
    assert_eq!(result, Output::Dropped("for the load balancer"));
    let (_, answer) = lb.take_emitted().pop().unwrap();
    assert_eq!((&answer[..6], answer[21]), (&asker.0[..], 255));
    let Ok(Some(NeighbourMessage::Advertisement(answer))) = NeighbourMessage::parse(&answer[54..])
    else {
        panic!()
    };
    assert_eq!(
        (answer.target_mac, answer.solicited),
        (Some(MacAddress(PORT_MAC)), true)
    );
    // From beyond a router: refused.
    assert_eq!(
        lb.process(0, &icmpv6("fd00::77", "ff02::1:ff00:1", &solicitation, 64)),
        Output::Dropped("malformed")
    );
    // Its own question, and the answer to it.
    lb.tick();
    let frames = lb.take_emitted();
    assert!(
        frames
            .iter()
            .any(|(_, frame)| frame[..6] == [0x33, 0x33, 0xff, 0, 0, 0x11]),
        "{frames:?}"
    );
    let mut advertisement = solicitation;
    advertisement[0] = 136;
    advertisement[8..24]
        .copy_from_slice(&"fd00::11".parse::<std::net::Ipv6Addr>().unwrap().octets());
    advertisement[24] = 2;
    advertisement[26..32].copy_from_slice(&mac_of(11));
    lb.process(0, &icmpv6("fd00::11", "fd00::2", &advertisement, 255));
    assert_eq!(
        lb.backend(
            &Sent::client(1, SYN)
                .of("2001:db8:1::7")
                .to("2001:db8::1", 80)
        ),
        11
    );
}

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

/// "Fragmentation needed" from a router about `lost`, an Ethernet frame, to whoever sent it.
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
    for mode in ["ipip", "gue"] {
        let mut lb = lb(json!([with(
            vip(mode, &[11, 12, 13]),
            "algorithm",
            json!("round-robin")
        )]));
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
    let mut lb = lb(json!([with(
        vip("nat", &[11, 12, 13]),
        "algorithm",
        json!("round-robin")
    )]));
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
    // About a connection of nobody's.
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
        // Once from a router on the way, once from the backend itself.
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
fn a_tunnel_that_is_too_narrow_is_reported_to_the_client() {
    let mut lb = lb(json!([vip("ipip", &[11])]));
    let Output::Sent(0, outer) = lb.process(0, &Sent::client(4000, ACK).payload(&[7; 600]).frame())
    else {
        panic!()
    };
    lb.process(0, &too_big(&outer, 100, ROUTER));
    let (_, frame) = lb.take_emitted().pop().unwrap();
    let seen = read(&frame);
    assert_eq!(
        (seen.source.0, seen.destination.0, seen.to),
        (ip("192.0.2.1"), ip("198.51.100.7"), GATEWAY_MAC)
    );
    let (inner, mtu) = quoted(&frame);
    assert_eq!((mtu, &inner[12..16]), (1380, &[198, 51, 100, 7][..]));
}

#[test]
fn what_does_not_fit_the_tunnel_is_reported_too() {
    let mut lb = lb(json!([vip("ipip", &[11])]));
    assert!(matches!(
        lb.process(0, &Sent::client(4000, ACK).payload(&[7; 1440]).frame()),
        Output::Sent(..)
    ));
    assert_eq!(
        lb.drops(&Sent::client(4000, ACK).payload(&[7; 1441])),
        "too big"
    );
    let (_, frame) = lb.take_emitted().pop().unwrap();
    assert_eq!(
        (quoted(&frame).1, read(&frame).destination.0),
        (1480, ip("198.51.100.7"))
    );
}

/// The fragments of an IPv4 frame: the payload cut after `at` bytes, a multiple of 8.
fn fragments(frame: &[u8], at: usize, id: u16) -> [Vec<u8>; 2] {
    let piece = |from: usize, to: usize, more: bool| {
        let mut piece = frame[..34].to_vec();
        piece.extend_from_slice(&frame[34 + from..34 + to]);
        let length = (piece.len() - 14) as u16;
        piece[16..18].copy_from_slice(&length.to_be_bytes());
        piece[18..20].copy_from_slice(&id.to_be_bytes());
        let field = (from as u16 / 8) | u16::from(more) << 13;
        piece[20..22].copy_from_slice(&field.to_be_bytes());
        piece[24..26].fill(0);
        let sum = checksum::of(&piece[14..34]);
        piece[24..26].copy_from_slice(&sum.to_be_bytes());
        piece
    };
    [piece(0, at, true), piece(at, frame.len() - 34, false)]
}

/// Puts the IPv4 packets of two frames together again.
fn whole(first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut frame = first.to_vec();
    frame.extend_from_slice(&second[34..]);
    let length = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[20..22].fill(0);
    frame[24..26].fill(0);
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn fragments_follow_their_first() {
    for (mode, snat) in [("nat", false), ("nat", true), ("ipip", false)] {
        let dns = json!({"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "mode": mode, "snat": snat,
            "algorithm": "round-robin", "backends": [{"name": "a", "address": "10.0.0.11"}, {"name": "b", "address": "10.0.0.12"}]});
        let mut lb = lb(json!([dns]));
        let sent = Sent::client(4000, 0)
            .udp()
            .to("192.0.2.1", 53)
            .payload(&[5; 300]);
        let [first, second] = fragments(&sent.frame(), 104, 77);
        assert_eq!(
            lb.process(0, &second),
            Output::Dropped("fragment without first")
        );
        let Output::Sent(0, one) = lb.process(0, &first) else {
            panic!()
        };
        let Output::Sent(0, two) = lb.process(0, &second) else {
            panic!("{mode} {snat}")
        };
        assert_eq!(one[..6], two[..6], "the same backend");
        if mode == "ipip" {
            assert_eq!((&one[34..], &two[34..]), (&first[14..], &second[14..]));
            continue;
        }
        let seen = read(&whole(&one, &two));
        let backend = seen.destination;
        assert_eq!(
            (seen.payload.len(), snat),
            (300, seen.source.0 == ip("10.0.0.2"))
        );
        // The answer is in fragments too.
        let answer = Sent {
            source: backend,
            destination: seen.source,
            from: seen.to,
            ..sent.clone()
        };
        let [first, second] = fragments(&answer.frame(), 200, 78);
        let Output::Sent(0, one) = lb.process(0, &first) else {
            panic!()
        };
        let Output::Sent(0, two) = lb.process(0, &second) else {
            panic!()
        };
        let seen = read(&whole(&one, &two));
        assert_eq!(
            (seen.source, seen.destination),
            (sent.destination, sent.source)
        );
    }
}

#[test]
fn packets_in_fragments_are_told_apart() {
    let dns = json!({"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "mode": "ipip", "algorithm": "round-robin",
        "backends": [{"name": "a", "address": "10.0.0.11"}, {"name": "b", "address": "10.0.0.12"}]});
    let mut lb = lb(json!([dns]));
    let sent = |port: u16| {
        Sent::client(port, 0)
            .udp()
            .to("192.0.2.1", 53)
            .payload(&[5; 300])
            .frame()
    };
    let one = fragments(&sent(4000), 104, 1);
    let other = fragments(&sent(4001), 104, 2);
    let to: Vec<Vec<u8>> = [&one[0], &other[0], &one[1], &other[1]]
        .map(|frame| match lb.process(0, frame) {
            Output::Sent(0, frame) => frame[..6].to_vec(),
            dropped => panic!("{dropped:?}"),
        })
        .to_vec();
    assert_ne!(to[0], to[1]);
    assert_eq!((&to[0], &to[1]), (&to[2], &to[3]));
}

#[test]
fn tags_stay_in_front_of_a_tunnel() {
    for backend in ["10.0.0.11", "fd00::11"] {
        let web = with(
            vip("ipip", &[]),
            "backends",
            json!([{"name": "a", "address": backend}]),
        );
        let mut lb = lb(json!([web]));
        let plain = Sent::client(4000, SYN).frame();
        let mut tagged = plain[..12].to_vec();
        tagged.extend_from_slice(&[0x81, 0, 0, 7]);
        tagged.extend_from_slice(&plain[12..]);
        let Output::Sent(0, tagged) = lb.process(0, &tagged) else {
            panic!()
        };
        let Output::Sent(0, plain) = lb.process(0, &plain) else {
            panic!()
        };
        assert_eq!(
            (&tagged[..12], &tagged[12..16]),
            (&plain[..12], &[0x81, 0, 0, 7][..])
        );
        assert_eq!(tagged[16..], plain[12..]);
    }
}

#[test]
fn overlapping_fragments_go_on_or_are_refused() {
    let mut lb = lb(json!([vip("ipip", &[11])]));
    let frame = Sent::client(4000, ACK).payload(&[5; 100]).frame();
    let [first, second] = fragments(&frame, 64, 9);
    lb.process(0, &first);
    // Overlaps what was sent, but not the header: the backend's to judge.
    let [_, overlapping] = fragments(&frame, 40, 9);
    assert!(matches!(lb.process(0, &overlapping), Output::Sent(..)));
    assert!(matches!(lb.process(0, &second), Output::Sent(..)));
    // Would overwrite the flags (RFC 1858).
    let [_, over_header] = fragments(&frame, 8, 9);
    assert_eq!(lb.process(0, &over_header), Output::Dropped("malformed"));
    // Too short for the header.
    let [tiny, _] = fragments(&frame, 16, 10);
    assert_eq!(lb.process(0, &tiny), Output::Dropped("malformed"));
}

#[test]
fn bad_input_is_dropped_under_its_name() {
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
    // A jumbo frame of 9,000 bytes is a packet like any other.
    assert!(matches!(
        lb.process(0, &Sent::client(4000, ACK).payload(&[1; 8900]).frame()),
        Output::Sent(..)
    ));
    // A wrong TCP checksum is the backend's to refuse: it stays wrong.
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
    fn nothing_makes_it_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..300),
    ) {
        let six = json!({"name": "six", "address": "2001:db8::1", "port": 80, "protocol": "tcp", "mode": "gue", "backends": [{"name": "a", "address": "fd00::11"}]});
        let proxied = with(with(with(vip("nat", &[11, 12]), "snat", json!(true)), "proxy_protocol", json!(true)), "health", json!({"kind": "http"}));
        let udp = json!({"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "mode": "ipip", "backends": [{"name": "a", "address": "10.0.0.11"}]});
        let mut lb = lb(json!([proxied, six, udp]));
        let lost = Sent { source: (ip("192.0.2.1"), 80), destination: (ip("198.51.100.7"), 4000), ..Sent::client(0, ACK) }.frame();
        let seeds = [
            Sent::client(4000, SYN).frame(), Sent::client(4000, ACK).payload(b"data").frame(),
            Sent::client(53, SYN | ACK).of("10.0.0.11").to("10.0.0.2", 61000).frame(),
            Sent { source: (ip("10.0.0.11"), 80), ..Sent::client(0, ACK) }.to("10.0.0.2", 2000).frame(),
            Sent::client(4000, SYN).of("2001:db8:1::7").to("2001:db8::1", 80).frame(), too_big(&lost, 60, ROUTER),
            arp(ArpOperation::Request, ("10.0.0.9", [2; 6]), "192.0.2.1"), fragments(&Sent::client(4000, 0).udp().to("192.0.2.1", 53).payload(&[1; 99]).frame(), 64, 3)[0].clone(),
            icmpv6("fd00::77", "2001:db8::1", &[135; 40], 255),
        ];
        for (which, at, value, cut) in changes {
            let mut frame = seeds[which.index(seeds.len())].clone();
            let at = at.index(frame.len());
            frame[at] = value;
            // The IPv4 checksum put right again, so that more than the checksum is tried.
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
