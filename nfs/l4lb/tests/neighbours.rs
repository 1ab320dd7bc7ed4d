//! A load balancer and its neighbours: ARP, neighbour discovery, announcements.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::*;
use nf_l4lb::L4lb;
use nf_packet::{Arp, ArpOperation, MacAddress, NeighbourMessage, NeighbourSolicitation};
use nf_runtime::testing::{Harness, Output};
use serde_json::{json, Value};

/// Nobody's MAC address is known.
fn unknown(vips: Value) -> Harness<L4lb> {
    start(with(config(vips), "neighbours", json!([])))
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
