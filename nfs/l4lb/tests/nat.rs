//! Mode nat: both directions, and source NAT.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use std::collections::HashSet;

use common::*;
use nf_runtime::testing::Output;
use serde_json::{json, Value};

#[test]
fn answers_come_from_the_vip() {
    let mut lb = lb(json!([vip("nat", &[11, 12])]));
    let backend = lb.backend(&Sent::client(4000, SYN));
    let seen = lb.pass(&answer(backend, 4000, SYN | ACK));
    assert_eq!(
        (seen.source, seen.destination),
        ((ip("192.0.2.1"), 80), (ip("198.51.100.7"), 4000))
    );
    assert_eq!((seen.to, seen.ttl), (GATEWAY_MAC, 63));
    assert_eq!(lb.count("vip_answers{vip=\"web\"}"), 1);
    // A reset from the backend shortens the record's lifetime.
    lb.pass(&Sent::client(4000, ACK));
    lb.pass(&answer(backend, 4000, RST));
    lb.advance(60 * SECOND);
    lb.tick();
    assert_eq!(lb.count("vip_active{vip=\"web\"}"), 0);
}

#[test]
fn a_client_on_the_link_is_answered_directly() {
    let mut lb = lb(json!([vip("nat", &[11])]));
    let client = [2, 0xcc, 0, 0, 0, 9];
    let asks = arp(
        nf_packet::ArpOperation::Request,
        ("10.0.0.99", client),
        "192.0.2.1",
    );
    lb.process(0, &asks);
    lb.pass(&Sent::client(4000, SYN).of("10.0.0.99").station(client));
    let seen = lb.pass(&answer(11, 4000, SYN | ACK).to("10.0.0.99", 4000));
    assert_eq!(seen.to, client);
}

#[test]
fn answers_come_back_during_a_flood_without_records() {
    let web = with(vip("nat", &[11]), "half_open_limit", 0);
    let mut lb = lb(json!([web]));
    lb.pass(&Sent::client(4000, SYN));
    assert_eq!(lb.count("vip_active{vip=\"web\"}"), 0);
    assert_eq!(
        lb.pass(&answer(11, 4000, SYN | ACK)).source,
        (ip("192.0.2.1"), 80)
    );
    lb.pass(&Sent::client(4000, ACK));
    assert_eq!(lb.count("vip_active{vip=\"web\"}"), 1);
}

#[test]
fn only_backends_are_routed() {
    let mut lb = lb(json!([vip("nat", &[11])]));
    let asks = Sent {
        source: (ip("10.0.0.11"), 5353),
        from: mac_of(11),
        ..Sent::client(0, 0)
    }
    .udp()
    .to("203.0.113.53", 53);
    let seen = lb.pass(&asks);
    assert_eq!(
        (seen.to, seen.source.0, seen.ttl),
        (GATEWAY_MAC, ip("10.0.0.11"), 63)
    );
    let back = Sent {
        source: asks.destination,
        destination: asks.source,
        ..asks.clone()
    };
    assert_eq!(
        lb.pass(&Sent {
            from: GATEWAY_MAC,
            ..back
        })
        .to,
        mac_of(11)
    );
    assert_eq!(
        lb.drops(&Sent {
            source: (ip("198.51.100.9"), 1),
            ..asks.clone()
        }),
        "not for us"
    );
    assert_eq!(lb.drops(&Sent { ttl: 1, ..asks }), "time to live");
}

#[test]
fn a_bump_in_the_wire_passes_other_traffic_through() {
    let two = json!([
        {"addresses": ["203.0.113.2/24"], "gateways": ["203.0.113.1"]},
        {"addresses": ["10.0.0.2/24"]}]);
    let neighbours = json!([
        {"address": "203.0.113.1", "mac": "02:aa:00:00:00:01"},
        {"address": "10.0.0.11", "mac": "02:bb:00:00:00:0b", "interface": 1}]);
    let config = with(
        with(config(json!([vip("nat", &[11])])), "interfaces", two),
        "neighbours",
        neighbours,
    );
    let mut lb = start(config).with_ports(2);
    let Output::Sent(1, frame) = lb.process(0, &Sent::client(4000, SYN).frame()) else {
        panic!()
    };
    assert_eq!(
        (read(&frame).to, &frame[6..12]),
        (mac_of(11), &[2, 0, 0, 0, 0, 1][..])
    );
    // Addressed to the router's MAC address: rewritten and passed on.
    let mut reply = answer(11, 4000, SYN | ACK).frame();
    reply[..6].copy_from_slice(&GATEWAY_MAC);
    let Output::Sent(0, frame) = lb.process(1, &reply) else {
        panic!()
    };
    let seen = read(&frame);
    assert_eq!(
        (seen.to, seen.source, seen.ttl),
        (GATEWAY_MAC, (ip("192.0.2.1"), 80), 64)
    );
    // Addressed to the load balancer's MAC address: routed.
    reply[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    let Output::Sent(0, frame) = lb.process(1, &reply) else {
        panic!()
    };
    assert_eq!((read(&frame).to, read(&frame).ttl), (GATEWAY_MAC, 63));
    // Frames between two other stations pass unchanged.
    for port in [0, 1] {
        let mut frame = vec![2, 0xdd, 0, 0, 0, 1, 2, 0xdd, 0, 0, 0, 2, 0x88, 0xcc];
        frame.extend_from_slice(&[9; 50]);
        assert_eq!(lb.process(port, &frame), Output::Sent(1 - port, frame));
        let mut other = Sent::client(1, SYN).to("203.0.113.77", 80).frame();
        other[..6].copy_from_slice(&[2, 0xdd, 0, 0, 0, 1]);
        assert_eq!(lb.process(port, &other), Output::Sent(1 - port, other));
    }
}

fn snat() -> Value {
    with(vip("nat", &[11, 12]), "snat", true)
}

#[test]
fn source_nat_returns_answers() {
    let mut lb = lb(json!([snat()]));
    let mut locals = HashSet::new();
    for client in ["198.51.100.7", "198.51.100.8", "198.51.100.9"] {
        for port in [4000, 4001] {
            let sent = Sent::client(port, SYN).of(client);
            let seen = lb.pass(&sent);
            assert_eq!(seen.source.0, ip("10.0.0.2"));
            assert!((1024..61000).contains(&seen.source.1));
            assert!(
                locals.insert((seen.source, seen.destination)),
                "each connection has its own local port"
            );
            assert_eq!(lb.pass(&sent).source, seen.source, "and keeps them");
            let reply = Sent {
                source: seen.destination,
                destination: seen.source,
                flags: SYN | ACK,
                from: seen.to,
                ..sent.clone()
            };
            let back = lb.pass(&reply);
            assert_eq!(
                (back.source, back.destination),
                (sent.destination, sent.source)
            );
            assert_eq!(lb.pass(&Sent { flags: ACK, ..sent }).source, seen.source);
        }
    }
    assert_eq!(
        lb.drops(&answer(11, 1, ACK).to("10.0.0.2", 1025)),
        "no session"
    );
}

#[test]
fn a_translated_connection_lives_while_packets_come() {
    let mut lb = lb(json!([snat()]));
    let sent = Sent::client(4000, SYN);
    let seen = lb.pass(&sent);
    let reply = Sent {
        source: seen.destination,
        destination: seen.source,
        flags: SYN | ACK,
        from: seen.to,
        ..sent
    };
    lb.pass(&reply);
    for _ in 0..20 {
        assert_eq!(lb.pass(&Sent::client(4000, ACK)).source, seen.source);
        lb.advance(100 * SECOND);
        lb.tick();
    }
    // Packets from one side are enough.
    for _ in 0..20 {
        lb.pass(&Sent {
            flags: ACK,
            ..reply.clone()
        });
        lb.advance(100 * SECOND);
        lb.tick();
    }
    assert_eq!(lb.pass(&Sent::client(4000, ACK)).source, seen.source);
    // Without packets it expires, and the client is reset.
    lb.advance(1000 * SECOND);
    lb.tick();
    assert_eq!(
        lb.drops(&Sent::client(4000, ACK).numbers(1, 7777)),
        "no session"
    );
    let emitted = lb.take_emitted();
    let reset = read(&emitted.last().unwrap().1);
    assert_eq!(
        (reset.flags, reset.sequence, reset.destination),
        (RST, 7777, (ip("198.51.100.7"), 4000))
    );
}

#[test]
fn translated_sessions_survive_a_move() {
    let mut old = lb(json!([snat()]));
    let seen = old.pass(&Sent::client(4000, SYN));
    let new = serde_json::from_value(config(json!([snat()]))).unwrap();
    let mut new = old.adopting(new).unwrap().with_ports(1);
    let reply = Sent {
        source: seen.destination,
        destination: seen.source,
        flags: SYN | ACK,
        from: seen.to,
        ..Sent::client(0, 0)
    };
    assert_eq!(new.pass(&reply).destination, (ip("198.51.100.7"), 4000));
    assert_eq!(new.pass(&Sent::client(4000, ACK)).source, seen.source);
}

#[test]
fn half_open_sessions_are_bounded_and_established_ones_kept() {
    let mut lb = lb(json!([with(snat(), "half_open_limit", 10)]));
    let sent = Sent::client(4000, SYN);
    let seen = lb.pass(&sent);
    lb.pass(&Sent::client(4000, ACK));
    for attacker in 0..5000_u32 {
        let [.., a, b] = attacker.to_be_bytes();
        let spoofed = Sent::client(9, SYN).of(&format!("203.0.{a}.{b}"));
        match lb.process(0, &spoofed.frame()) {
            Output::Sent(..) => assert!(attacker < 10),
            Output::Dropped(reason) => assert_eq!(reason, "half-open limit"),
        }
    }
    assert_eq!(lb.pass(&Sent::client(4000, ACK)).source, seen.source);
}
