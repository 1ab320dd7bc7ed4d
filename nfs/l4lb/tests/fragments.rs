//! Fragments, and VLAN tags in front of tunnels.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::*;
use nf_l4lb::L4lb;
use nf_packet::checksum;
use nf_runtime::testing::{Harness, Output};
use serde_json::json;

/// Reassembles the IPv4 packet from two frames.
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
    for (mode, snat) in [
        ("nat", false),
        ("nat", true),
        ("ipip", false),
        ("vxlan", false),
    ] {
        let dns = json!({"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "snat": snat,
            "algorithm": "round-robin", "backends": [{"name": "a", "address": "10.0.0.11"}, {"name": "b", "address": "10.0.0.12"}]});
        let mut lb = lb(json!([in_mode(dns, mode)]));
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
        let overhead = match mode {
            "ipip" => 20,
            "vxlan" => 50,
            _ => 0,
        };
        if overhead > 0 {
            let inner = 14 + overhead;
            assert_eq!(
                (&one[inner..], &two[inner..]),
                (&first[14..], &second[14..])
            );
            continue;
        }
        let seen = read(&whole(&one, &two));
        let backend = seen.destination;
        assert_eq!(
            (seen.payload.len(), snat),
            (300, seen.source.0 == ip("10.0.0.2"))
        );
        // The answer is fragmented as well.
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

/// Splits an IPv6 datagram, with destination options before its UDP header, behind this many bytes.
fn fragments_with_options(frame: &[u8], at: usize) -> [Vec<u8>; 2] {
    const UDP: u8 = 17;
    const FRAGMENT: u8 = 44;
    const OPTIONS: u8 = 60;
    let (head, udp) = frame.split_at(54);
    // One PadN option.
    let whole = [&[UDP, 0, 1, 4, 0, 0, 0, 0], udp].concat();
    let piece = |from: usize, part: &[u8], more: bool| {
        let mut piece = head.to_vec();
        piece[18..20].copy_from_slice(&(8 + part.len() as u16).to_be_bytes());
        piece[20] = FRAGMENT;
        piece.extend([OPTIONS, 0]);
        piece.extend((from as u16 | u16::from(more)).to_be_bytes());
        piece.extend(77_u32.to_be_bytes());
        piece.extend(part);
        piece
    };
    [piece(0, &whole[..at], true), piece(at, &whole[at..], false)]
}

#[test]
fn fragments_with_extension_headers_follow_their_first() {
    let mut lb = lb(
        json!([{"name": "dns", "address": "2001:db8::1", "port": 53, "protocol": "udp", "mode": "ipip",
            "backends": [{"name": "a", "address": "fd00::11"}]}]),
    );
    let sent = Sent::client(4000, 0)
        .udp()
        .of("2001:db8:1::7")
        .to("2001:db8::1", 53)
        .payload(&[5; 300]);
    for fragment in fragments_with_options(&sent.frame(), 104) {
        let Output::Sent(0, tunnelled) = lb.process(0, &fragment) else {
            panic!()
        };
        assert_eq!(tunnelled[54..], fragment[14..]);
    }
}

#[test]
fn fragments_without_a_first_are_dropped_and_counted() {
    let mut lb = lb(json!([vip("nat", &[11])]));
    let client = Sent::client(4000, ACK).payload(&[5; 300]);
    let dropped = |lb: &mut Harness<L4lb>, sent: &Sent| {
        let [_, second] = fragments(&sent.frame(), 104, 77);
        match lb.process(0, &second) {
            Output::Dropped(reason) => reason,
            sent => panic!("{sent:?}"),
        }
    };
    let of_backend = answer(11, 4000, ACK).payload(&[5; 300]);
    let of_others = [
        answer(12, 4000, ACK).payload(&[5; 300]),
        client.clone().to("192.0.2.9", 80),
    ];
    assert_eq!(dropped(&mut lb, &client), "fragment without first");
    assert_eq!(dropped(&mut lb, &of_backend), "fragment without first");
    assert_eq!(lb.count("events{event=\"fragment without first\"}"), 2);
    for sent in of_others {
        assert_eq!(dropped(&mut lb, &sent), "not for us");
    }
}

#[test]
fn fragments_count_as_traffic_both_ways() {
    for (mode, snat) in [
        ("nat", false),
        ("nat", true),
        ("ipip", false),
        ("vxlan", false),
    ] {
        let dns = json!({"name": "web", "address": "192.0.2.1", "port": 53, "protocol": "udp", "snat": snat,
            "backends": [{"name": "a", "address": "10.0.0.11"}]});
        let mut lb = lb(json!([in_mode(dns, mode)]));
        let counted = |lb: &Harness<L4lb>| {
            ["packets", "bytes", "answers", "answer_bytes"]
                .map(|name| lb.count(&format!("vip_{name}{{vip=\"web\"}}")))
        };
        let sent = Sent::client(4000, 0)
            .udp()
            .to("192.0.2.1", 53)
            .payload(&[5; 300]);
        let [first, second] = fragments(&sent.frame(), 104, 77);
        let Output::Sent(0, one) = lb.process(0, &first) else {
            panic!()
        };
        lb.process(0, &second);
        // 308 bytes of UDP in two packets with a header of 20 bytes each.
        assert_eq!(counted(&lb), [2, 348, 0, 0], "{mode} {snat}");
        if mode == "nat" {
            let port = u16::from_be_bytes([one[34], one[35]]);
            let source = if snat { "10.0.0.2" } else { "198.51.100.7" };
            let answer = Sent {
                source: (ip("10.0.0.11"), 53),
                from: mac_of(11),
                ..sent.clone().to(source, port)
            };
            for fragment in fragments(&answer.frame(), 200, 78) {
                assert!(matches!(lb.process(0, &fragment), Output::Sent(..)));
            }
            assert_eq!(counted(&lb), [2, 348, 2, 348], "{mode} {snat}");
        }
    }
}

#[test]
fn a_flood_of_fragmented_packets_does_not_block_new_ones() {
    let dns = json!({"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "mode": "nat",
        "backends": [{"name": "a", "address": "10.0.0.11"}]});
    let mut lb = lb(json!([dns]));
    let sent = Sent::client(4000, 0)
        .udp()
        .to("192.0.2.1", 53)
        .payload(&[5; 300]);
    // 200 Mb/s of 8,000-byte datagrams for 3 s, with a table for 256. No time passes, so none expires.
    for id in 1..=9_373 {
        for fragment in fragments(&sent.frame(), 104, id) {
            let Output::Sent(0, _) = lb.process(0, &fragment) else {
                panic!("{id}")
            };
        }
    }
    assert!(lb.count("events{event=\"fragments full\"}") > 8_000);
    // The newest packets are still known, so their later fragments pass.
    let [_, second] = fragments(&sent.frame(), 104, 9_373);
    for _ in 0..3 {
        lb.advance(2 * SECOND);
        assert!(matches!(lb.process(0, &second), Output::Sent(..)));
    }
    lb.advance(3 * SECOND);
    assert_eq!(
        lb.process(0, &second),
        Output::Dropped("fragment without first")
    );
}

#[test]
fn fragments_of_one_batch_follow_their_first() {
    for snat in [false, true] {
        let dns = json!({"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "mode": "nat", "snat": snat,
            "backends": [{"name": "a", "address": "10.0.0.11"}]});
        let mut lb = lb(json!([dns]));
        let sent = Sent::client(4000, 0)
            .udp()
            .to("192.0.2.1", 53)
            .payload(&[5; 300]);
        let pieces = fragments(&sent.frame(), 104, 77);
        let frames: Vec<(usize, &[u8])> = pieces.iter().map(|piece| (0, &piece[..])).collect();
        let outputs = lb.process_all(&frames);
        let [Output::Sent(0, one), Output::Sent(0, two)] = &outputs[..] else {
            panic!("{outputs:?}")
        };
        assert_eq!(read(&whole(one, two)).payload, [5; 300]);
    }
}

#[test]
fn fragments_of_different_packets_are_not_mixed() {
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
    for (mode, backend) in [
        ("ipip", "10.0.0.11"),
        ("ipip", "fd00::11"),
        ("vxlan", "10.0.0.11"),
        ("vxlan", "fd00::11"),
    ] {
        let backends = json!([{"name": "a", "address": backend}]);
        let web = with(vip("ipip", &[]), "backends", backends);
        let mut lb = lb(json!([in_mode(web, mode)]));
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
fn overlapping_fragments_pass_unless_they_overwrite_the_header() {
    let mut lb = lb(json!([vip("ipip", &[11])]));
    let frame = Sent::client(4000, ACK).payload(&[5; 100]).frame();
    let [first, second] = fragments(&frame, 64, 9);
    lb.process(0, &first);
    // It overlaps data but not the header: the backend judges it.
    let [_, overlapping] = fragments(&frame, 40, 9);
    assert!(matches!(lb.process(0, &overlapping), Output::Sent(..)));
    assert!(matches!(lb.process(0, &second), Output::Sent(..)));
    // It would overwrite the flags (RFC 1858).
    let [_, over_header] = fragments(&frame, 8, 9);
    assert_eq!(lb.process(0, &over_header), Output::Dropped("malformed"));
    // It is too short for the header.
    let [tiny, _] = fragments(&frame, 16, 10);
    assert_eq!(lb.process(0, &tiny), Output::Dropped("malformed"));
}
