//! A load balancer and its neighbours: ARP, neighbour discovery, announcements.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::*;
use nf_l4lb::L4lb;
use nf_packet::{
    Arp, ArpOperation, MacAddress, NeighbourAdvertisement, NeighbourMessage, NeighbourSolicitation,
};
use nf_runtime::testing::{Harness, Output};
use serde_json::{json, Value};

/// A load balancer without configured neighbours.
fn unknown(vips: Value) -> Harness<L4lb> {
    start(with(config(vips), "neighbours", json!([])))
}

#[test]
fn it_answers_only_for_its_own_addresses() {
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
    assert!(asked(&mut lb).is_empty(), "asked more than once a second");
    lb.advance(SECOND);
    lb.tick();
    assert_eq!(asked(&mut lb), ["10.0.0.1", "10.0.0.11"]);
    lb.process(
        0,
        &arp(ArpOperation::Reply, ("10.0.0.11", mac_of(11)), "10.0.0.2"),
    );
    assert_eq!(lb.backend(&Sent::client(1, SYN)), 11);
    // A known neighbour is confirmed now and then, and forgotten if it does not answer.
    lb.advance(40 * SECOND);
    lb.tick();
    assert_eq!(asked(&mut lb), ["10.0.0.1", "10.0.0.11"]);
    assert_eq!(lb.backend(&Sent::client(1, ACK)), 11);
    for _ in 0..4 {
        lb.advance(30 * SECOND);
        lb.tick();
    }
    assert_eq!(lb.drops(&Sent::client(1, ACK)), "neighbour unresolved");
    // A station off the link is not learnt.
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
fn neighbour_discovery_answers_asks_and_learns() {
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
    assert_eq!(result, Output::Dropped("for the function itself"));
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
    // A message from beyond a router is refused.
    assert_eq!(
        lb.process(0, &icmpv6("fd00::77", "ff02::1:ff00:1", &solicitation, 64)),
        Output::Dropped("malformed")
    );
    // It asks, and learns from the answer.
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

const FORGER: [u8; 6] = [2, 0xee, 0, 0, 0, 1];

/// A load balancer that knows backend 11 and its gateway.
fn acquainted() -> Harness<L4lb> {
    let mut lb = unknown(json!([vip("nat", &[11])]));
    lb.tick();
    for (address, mac) in [("10.0.0.11", mac_of(11)), ("10.0.0.1", GATEWAY_MAC)] {
        lb.process(0, &arp(ArpOperation::Reply, (address, mac), "10.0.0.2"));
    }
    lb.advance(5 * SECOND);
    lb.take_emitted();
    lb
}

/// Returns the MAC address to which a client's segment to the VIP goes.
fn next(lb: &mut Harness<L4lb>) -> [u8; 6] {
    lb.pass(&Sent::client(1, SYN)).to
}

/// Returns the stations that were asked for an address.
fn asked_stations(lb: &mut Harness<L4lb>, address: &str) -> Vec<[u8; 6]> {
    let address: std::net::Ipv4Addr = address.parse().unwrap();
    let frames = lb.take_emitted();
    let asks = frames.iter().filter(|(_, frame)| {
        Arp::parse(&frame[14..]).is_ok_and(|request| {
            request.operation == ArpOperation::Request
                && request.target == address
                && request.sender != address
        })
    });
    asks.map(|(_, frame)| frame[..6].try_into().unwrap())
        .collect()
}

#[test]
fn an_announced_move_of_a_backend_is_believed_at_once() {
    let mut lb = acquainted();
    let moved = [2, 0xbb, 1, 0, 0, 11];
    let announcement = arp(ArpOperation::Request, ("10.0.0.11", moved), "10.0.0.11");
    assert_eq!(
        lb.process(0, &announcement),
        Output::Dropped("not for us"),
        "a one-armed load balancer has no other port"
    );
    assert_eq!(next(&mut lb), moved);
    // It asks the former station as well. That stays silent, so the new one is kept.
    assert_eq!(asked_stations(&mut lb, "10.0.0.11"), [mac_of(11)]);
    for _ in 0..5 {
        lb.advance(SECOND);
        lb.tick();
        assert_eq!(next(&mut lb), moved);
    }
    // An announcement of an address whose owner still answers.
    lb.process(
        0,
        &arp(ArpOperation::Request, ("10.0.0.11", FORGER), "10.0.0.11"),
    );
    lb.process(
        0,
        &arp(ArpOperation::Reply, ("10.0.0.11", moved), "10.0.0.2"),
    );
    assert_eq!(next(&mut lb), moved);
    lb.process(
        0,
        &arp(ArpOperation::Request, ("10.0.0.11", FORGER), "10.0.0.11"),
    );
    assert_eq!(next(&mut lb), moved);
}

#[test]
fn a_claim_to_the_load_balancer_alone_is_verified() {
    for operation in [ArpOperation::Reply, ArpOperation::Request] {
        let mut lb = acquainted();
        let forged = arp(operation, ("10.0.0.11", FORGER), "10.0.0.2");
        lb.process(0, &forged);
        assert_eq!(asked_stations(&mut lb, "10.0.0.11"), [mac_of(11)]);
        lb.process(
            0,
            &arp(ArpOperation::Reply, ("10.0.0.11", mac_of(11)), "10.0.0.2"),
        );
        for _ in 0..20 {
            lb.advance(SECOND);
            lb.tick();
            assert_eq!(next(&mut lb), mac_of(11));
        }
        // The former owner is gone: it is asked twice.
        lb.take_emitted();
        lb.process(0, &forged);
        assert_eq!(next(&mut lb), mac_of(11));
        lb.advance(SECOND);
        lb.tick();
        assert_eq!(asked_stations(&mut lb, "10.0.0.11"), [mac_of(11); 2]);
        lb.advance(SECOND);
        lb.tick();
        assert_eq!(next(&mut lb), FORGER);
    }
}

#[test]
fn mac_addresses_are_not_learnt_from_other_packets() {
    let mut lb = acquainted();
    for (source, flags) in [("10.0.0.11", SYN), ("10.0.0.1", SYN), ("10.0.0.11", ACK)] {
        let forged = Sent::client(7, flags).of(source).station(FORGER);
        lb.process(0, &forged.frame());
    }
    let backends = lb.ask("backends", json!({}));
    assert_eq!(backends["backends"][0]["mac"], "02:bb:00:00:00:0b");
    // Packets for a client behind the gateway go to the gateway.
    lb.backend(&Sent::client(1, SYN));
    assert_eq!(lb.pass(&answer(11, 1, SYN | ACK)).to, GATEWAY_MAC);
}

#[test]
fn a_client_on_the_link_is_resolved_before_its_answer_comes() {
    let mut lb = acquainted();
    let client = Sent::client(9, SYN).of("10.0.0.77").station(FORGER);
    lb.backend(&client);
    assert_eq!(asked_stations(&mut lb, "10.0.0.77"), [[0xff; 6]]);
    let mac = [2, 0xcc, 0, 0, 0, 77];
    lb.process(0, &arp(ArpOperation::Reply, ("10.0.0.77", mac), "10.0.0.2"));
    let mut answer = answer(11, 9, SYN | ACK);
    answer.destination.0 = ip("10.0.0.77");
    assert_eq!(lb.pass(&answer).to, mac);
    // It is asked again while needed, and forgotten if it does not answer.
    lb.advance(40 * SECOND);
    assert_eq!(lb.pass(&answer).to, mac);
    assert_eq!(asked_stations(&mut lb, "10.0.0.77"), [[0xff; 6]]);
    lb.advance(90 * SECOND);
    assert_eq!(lb.drops(&answer), "neighbour unresolved");
}

#[test]
fn a_flood_of_stations_displaces_neither_backends_nor_clients() {
    let mut lb = acquainted();
    let mac = [2, 0xcc, 0, 0, 0, 77];
    lb.process(
        0,
        &arp(ArpOperation::Request, ("10.0.0.77", mac), "192.0.2.1"),
    );
    let six = json!({"name": "six", "address": "2001:db8::1", "port": 80, "protocol": "tcp", "mode": "nat",
        "backends": [{"name": "a", "address": "fd00::11"}]});
    let new = with(
        config(json!([vip("nat", &[11]), six])),
        "neighbours",
        json!([{"address": "fd00::11", "mac": "02:bb:00:00:00:0b"}]),
    );
    use nf_runtime::NetworkFunction;
    lb.function()
        .configure(serde_json::from_value(new).unwrap())
        .unwrap();
    for client in 0..3000 {
        let forged = Sent::client(7, SYN)
            .of(&format!("fd00::1:{client:x}"))
            .to("2001:db8::1", 80);
        lb.process(0, &forged.frame());
    }
    lb.take_emitted();
    assert_eq!(next(&mut lb), mac_of(11));
    lb.backend(&Sent::client(9, SYN).of("10.0.0.77"));
    let mut answer = answer(11, 9, SYN | ACK);
    answer.destination.0 = ip("10.0.0.77");
    assert_eq!(lb.pass(&answer).to, mac);
    // A client that asks for the VIP later is learnt, too.
    let late = [2, 0xcc, 0, 0, 0, 78];
    lb.process(
        0,
        &arp(ArpOperation::Request, ("10.0.0.78", late), "192.0.2.1"),
    );
    lb.backend(&Sent::client(9, SYN).of("10.0.0.78"));
    answer.destination.0 = ip("10.0.0.78");
    assert_eq!(lb.pass(&answer).to, late);
}

#[test]
fn neighbour_discovery_is_verified_like_arp() {
    let six = json!({"name": "six", "address": "2001:db8::1", "port": 80, "protocol": "tcp", "mode": "nat",
        "backends": [{"name": "a", "address": "fd00::11"}]});
    let mut lb = unknown(json!([six]));
    lb.tick();
    let client = Sent::client(1, SYN)
        .of("2001:db8:1::7")
        .to("2001:db8::1", 80);
    let advertisement = |mac: [u8; 6], to: &str, group: bool| {
        let mut message = [0; NeighbourMessage::BYTES];
        NeighbourMessage::Advertisement(NeighbourAdvertisement {
            target: "fd00::11".parse().unwrap(),
            target_mac: Some(MacAddress(mac)),
            solicited: !group,
        })
        .write(&mut message);
        let mut frame = icmpv6("fd00::11", to, &message, 255);
        if group {
            frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
        }
        frame
    };
    lb.process(0, &advertisement(mac_of(11), "fd00::2", false));
    assert_eq!(lb.pass(&client).to, mac_of(11));
    lb.advance(5 * SECOND);
    lb.take_emitted();
    // A forged message to the load balancer alone: the owner is asked, and answers.
    lb.process(0, &advertisement(FORGER, "fd00::2", false));
    let asked = lb.take_emitted();
    assert_eq!((asked.len(), &asked[0].1[..6]), (1, &mac_of(11)[..]));
    lb.process(0, &advertisement(mac_of(11), "fd00::2", false));
    for _ in 0..70 {
        lb.advance(SECOND);
        lb.process(0, &advertisement(mac_of(11), "fd00::2", false));
        lb.tick();
    }
    assert_eq!(lb.pass(&client).to, mac_of(11));
    // The owner moves and announces it.
    let moved = [2, 0xbb, 1, 0, 0, 11];
    lb.process(0, &advertisement(moved, "ff02::1", true));
    assert_eq!(lb.pass(&client).to, moved);
}

#[test]
fn impossible_neighbours_are_not_learnt() {
    let mut config = config(json!([vip("nat", &[11])]));
    config["neighbours"] = json!([]);
    let second = json!({"addresses": ["10.5.0.2/24"], "gateways": ["10.5.0.1"]});
    config["interfaces"].as_array_mut().unwrap().push(second);
    let mut lb = Harness::<L4lb>::new(serde_json::from_value(config).unwrap()).unwrap();
    let tell = |mac, target| arp(ArpOperation::Reply, ("10.0.0.11", mac), target);
    // A multicast MAC address, and an interface that the backend is not on.
    lb.process(0, &tell([3, 0, 0, 0, 0, 1], "10.0.0.2"));
    lb.process(0, &tell([0; 6], "10.0.0.2"));
    lb.process(1, &tell(mac_of(11), "10.5.0.2"));
    assert_eq!(lb.drops(&Sent::client(1, SYN)), "neighbour unresolved");
    lb.process(0, &tell(mac_of(11), "10.0.0.2"));
    assert_eq!(lb.backend(&Sent::client(1, SYN)), 11);
    // A message between others does not teach an unknown station.
    let passing = arp(
        ArpOperation::Request,
        ("10.0.0.77", [2, 0xcc, 0, 0, 0, 7]),
        "10.0.0.99",
    );
    lb.process(0, &passing);
    let mut answer = answer(11, 1, SYN | ACK);
    answer.destination.0 = ip("10.0.0.77");
    assert_eq!(lb.drops(&answer), "neighbour unresolved");
}
