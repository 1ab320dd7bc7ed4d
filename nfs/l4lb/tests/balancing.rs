//! Choice of a backend for each connection, and that connections keep it.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use std::collections::HashMap;

use common::*;
use nf_runtime::testing::Output;
use serde_json::json;

fn shares(
    lb: &mut nf_runtime::testing::Harness<nf_l4lb::L4lb>,
    connections: u16,
) -> HashMap<u8, usize> {
    let mut shares = HashMap::new();
    for port in 1..=connections {
        *shares
            .entry(lb.backend(&Sent::client(port, SYN)))
            .or_default() += 1;
    }
    shares
}

#[test]
fn each_mode_delivers_to_the_backend() {
    for mode in ["ipip", "gue", "vxlan"] {
        let mut lb = lb(json!([vip(mode, &[11])]));
        let sent = Sent::client(4000, SYN);
        let seen = lb.pass(&sent);
        assert_eq!(
            seen.outer,
            Some((ip("10.0.0.2"), ip("10.0.0.11"))),
            "{mode}"
        );
        assert_eq!(
            (seen.source, seen.destination),
            (sent.source, sent.destination)
        );
        assert_eq!((seen.to, seen.ttl), (mac_of(11), 64));
    }
    let mut lb = lb(json!([with(
        vip("nat", &[11]),
        "backends",
        json!([{"name": "a", "address": "10.0.0.11", "port": 8080}])
    )]));
    let seen = lb.pass(&Sent::client(4000, SYN));
    assert_eq!(seen.outer, None);
    assert_eq!(seen.destination, (ip("10.0.0.11"), 8080));
    assert_eq!((seen.source, seen.ttl), ((ip("198.51.100.7"), 4000), 63));
}

#[test]
fn ipv6_and_mixed_tunnels_deliver() {
    let v6 = json!({"name": "six", "address": "2001:db8::1", "port": 80, "protocol": "tcp", "mode": "ipip",
        "backends": [{"name": "a", "address": "10.0.0.11"}]});
    let mut first = lb(json!([v6]));
    let sent = Sent::client(4000, SYN)
        .of("2001:db8:1::7")
        .to("2001:db8::1", 80);
    assert_eq!(
        first.pass(&sent).outer,
        Some((ip("10.0.0.2"), ip("10.0.0.11")))
    );
    for (mode, outer) in [
        ("nat", false),
        ("ipip", true),
        ("gue", true),
        ("vxlan", true),
    ] {
        let backends = json!([{"name": "a", "address": "fd00::11"}]);
        let v6 = with(v6.clone(), "backends", backends);
        let mut lb = lb(json!([in_mode(v6, mode)]));
        assert_eq!(lb.backend(&sent), 11, "{mode}");
        assert_eq!(lb.pass(&sent).outer.is_some(), outer);
    }
    for mode in ["gue", "vxlan"] {
        let backends = json!([{"name": "a", "address": "fd00::11"}]);
        let v4 = in_mode(with(vip("gue", &[]), "backends", backends), mode);
        assert_eq!(
            lb(json!([v4])).pass(&Sent::client(1, SYN)).outer,
            Some((ip("fd00::2"), ip("fd00::11")))
        );
    }
}

#[test]
fn round_robin_follows_weights() {
    let mut lb = lb(
        json!([{"name": "web", "address": "192.0.2.1", "port": 80, "protocol": "tcp", "mode": "ipip",
        "algorithm": "round-robin", "backends": [
            {"name": "a", "address": "10.0.0.11", "weight": 3},
            {"name": "b", "address": "10.0.0.12"},
            {"name": "c", "address": "10.0.0.13", "weight": 0}]}]),
    );
    let shares = shares(&mut lb, 40);
    assert_eq!((shares[&11], shares[&12], shares.get(&13)), (30, 10, None));
}

#[test]
fn a_syn_and_its_retransmission_in_one_batch_take_one_turn() {
    let web = with(vip("ipip", &[11, 12]), "algorithm", "round-robin");
    let mut lb = lb(json!([web]));
    let syn = Sent::client(1, SYN).frame();
    let sent = lb.process_all(&[(0, &syn), (0, &syn)]);
    assert!(matches!(&sent[..], [Output::Sent(..), Output::Sent(..)]));
    assert_eq!(sent[0], sent[1]);
    assert_eq!(lb.backend(&Sent::client(2, SYN)), 12);
    assert_eq!(lb.backend(&Sent::client(3, SYN)), 11);
}

#[test]
fn least_loaded_follows_connections_per_weight() {
    let web = json!({"name": "web", "address": "192.0.2.1", "port": 80, "protocol": "tcp", "mode": "ipip",
        "algorithm": "least-loaded", "backends": [
            {"name": "a", "address": "10.0.0.11", "weight": 3},
            {"name": "b", "address": "10.0.0.12"}]});
    let mut lb = lb(json!([web.clone()]));
    let first = shares(&mut lb, 40);
    assert_eq!((first[&11], first[&12]), (30, 10));
    // A new backend gets every new connection until it has its share.
    let mut more = web;
    more["backends"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "c", "address": "10.0.0.13"}));
    lb.reconfigure(json!([more]));
    for port in 100..110 {
        assert_eq!(lb.backend(&Sent::client(port, SYN)), 13);
    }
    // Ended connections stop counting when their records expire.
    lb.advance(60 * SECOND);
    lb.tick();
    let active =
        |lb: &nf_runtime::testing::Harness<nf_l4lb::L4lb>| lb.count("vip_active{vip=\"web\"}");
    assert_eq!(active(&lb), 0);
}

#[test]
fn the_flow_breaks_ties_between_equally_loaded_backends() {
    let numbers: Vec<u8> = (11..=20).collect();
    let web = with(vip("ipip", &numbers), "algorithm", "least-loaded");
    let mut lb = lb(json!([web]));
    let chosen: Vec<u8> = (1..=10)
        .map(|port| lb.backend(&Sent::client(port, SYN)))
        .collect();
    let mut sorted = chosen.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, numbers);
    assert_ne!(
        chosen, numbers,
        "the first in the configuration is favoured"
    );
}

#[test]
fn maglev_chooses_the_same_everywhere_and_spreads() {
    let backends: Vec<u8> = (11..=20).collect();
    let mut one = lb(json!([vip("ipip", &backends)]));
    let mut reversed = backends.clone();
    reversed.reverse();
    let mut other = lb(json!([vip("ipip", &reversed)]));
    for port in 1..300 {
        assert_eq!(
            one.backend(&Sent::client(port, SYN)),
            other.backend(&Sent::client(port, SYN))
        );
    }
    let shares = shares(&mut one, 4000);
    assert!(
        shares.values().all(|share| (300..500).contains(share)),
        "{shares:?}"
    );
}

#[test]
fn connections_stay_when_backends_come_and_go() {
    for mode in ["ipip", "nat", "gue", "vxlan"] {
        for algorithm in ["maglev", "round-robin", "least-loaded"] {
            let vip =
                |backends: &[u8]| json!([with(vip(mode, backends), "algorithm", json!(algorithm))]);
            let mut lb = lb(vip(&[11, 12, 13]));
            let before: Vec<u8> = (1..200)
                .map(|port| lb.backend(&Sent::client(port, SYN)))
                .collect();
            for port in 1..200 {
                lb.pass(&Sent::client(port, ACK));
            }
            lb.reconfigure(vip(&[14, 12, 11, 13, 15]));
            lb.reconfigure(vip(&[15, 11, 12, 16]));
            for (port, old) in (1..200).zip(&before) {
                let now = lb.backend(&Sent::client(port, ACK));
                if *old == 13 {
                    assert_ne!(now, 13, "{mode} {algorithm}: went to the removed backend");
                } else {
                    assert_eq!(now, *old, "{mode} {algorithm}");
                }
            }
            // The removed backend's connections have moved, and stay.
            let moved: Vec<u8> = (1..200)
                .map(|port| lb.backend(&Sent::client(port, ACK)))
                .collect();
            lb.reconfigure(vip(&[11, 12, 15, 16, 17, 18]));
            for (port, old) in (1..200).zip(moved) {
                assert_eq!(lb.backend(&Sent::client(port, ACK)), old);
            }
        }
    }
}

#[test]
fn a_returning_backend_gets_its_connections_back() {
    let mut lb = lb(json!([vip("ipip", &[11, 12])]));
    let owned: Vec<u16> = (1..100)
        .filter(|port| lb.backend(&Sent::client(*port, SYN)) == 11)
        .collect();
    lb.reconfigure(json!([vip("ipip", &[12])]));
    lb.reconfigure(json!([vip("ipip", &[12, 11])]));
    for port in owned {
        assert_eq!(lb.backend(&Sent::client(port, ACK)), 11);
    }
}

#[test]
fn a_draining_backend_keeps_its_connections_and_gets_no_new_ones() {
    let mut lb = lb(json!([vip("ipip", &[11, 12])]));
    let owned: Vec<u16> = (1..100)
        .filter(|port| lb.backend(&Sent::client(*port, SYN)) == 11)
        .collect();
    for port in &owned {
        lb.pass(&Sent::client(*port, ACK));
    }
    let answer = lb.ask("drain", json!({"vip": "web", "backend": "web11"}));
    assert_eq!(
        (&answer["drained"], &answer["active"]),
        (&json!(true), &json!(owned.len()))
    );
    for port in 1000..1100 {
        assert_eq!(lb.backend(&Sent::client(port, SYN)), 12);
    }
    for port in &owned {
        assert_eq!(lb.backend(&Sent::client(*port, ACK)), 11);
    }
    // A new configuration keeps the drain, and a request ends it.
    lb.reconfigure(json!([vip("ipip", &[11, 12, 13])]));
    assert!(!shares(&mut lb, 300).contains_key(&11) || owned.iter().all(|port| *port <= 300));
    lb.ask(
        "drain",
        json!({"vip": "web", "backend": "web11", "on": false}),
    );
    assert!((2000..2100).any(|port| lb.backend(&Sent::client(port, SYN)) == 11));
}

#[test]
fn drain_in_the_configuration_acts_like_the_request() {
    let mut drained = vip("ipip", &[11, 12]);
    drained["backends"][0]["drain"] = json!(true);
    let mut lb = lb(json!([drained]));
    assert_eq!(shares(&mut lb, 100)[&12], 100);
    lb.reconfigure(json!([with(vip("ipip", &[]), "backends", json!([]))]));
    assert_eq!(lb.drops(&Sent::client(5000, SYN)), "no backend");
}

#[test]
fn a_reused_port_is_a_new_connection() {
    let mut lb = lb(json!([vip("ipip", &[11, 12])]));
    let port = (1..50)
        .find(|port| lb.backend(&Sent::client(*port, SYN)) == 11)
        .unwrap();
    lb.pass(&Sent::client(port, ACK));
    lb.pass(&Sent::client(port, ACK | FIN));
    lb.ask("drain", json!({"vip": "web", "backend": "web11"}));
    assert_eq!(lb.backend(&Sent::client(port, ACK)), 11);
    assert_eq!(lb.backend(&Sent::client(port, SYN)), 12);
}

#[test]
fn a_flood_of_syns_leaves_established_connections_alone() {
    for algorithm in ["round-robin", "maglev"] {
        flood(algorithm);
    }
}

fn flood(algorithm: &str) {
    let web = with(vip("ipip", &[11, 12, 13]), "half_open_limit", 50);
    let mut lb = lb(json!([with(web, "algorithm", json!(algorithm))]));
    let owned: Vec<u8> = (1..=100)
        .map(|port| {
            let backend = lb.backend(&Sent::client(port, SYN));
            lb.pass(&Sent::client(port, ACK));
            backend
        })
        .collect();
    assert_eq!(lb.count("vip_half_open{vip=\"web\"}"), 0);
    for attacker in 0..20_000_u32 {
        let [.., a, b] = attacker.to_be_bytes();
        lb.backend(&Sent::client(9, SYN).of(&format!("203.0.{a}.{b}")));
    }
    assert_eq!(lb.count("vip_half_open{vip=\"web\"}"), 50);
    assert_eq!(
        lb.count("events{vip=\"web\",event=\"unrecorded\"}"),
        20_000 - 50
    );
    assert_eq!(lb.ask("full", json!({}))["full"], true);
    // A client that completes its handshake during the flood gets a record then, and keeps its SYN's backend.
    let during = Sent::client(500, SYN);
    let chosen = lb.backend(&during);
    assert_eq!(lb.backend(&Sent::client(500, ACK)), chosen);
    let web = with(
        vip("ipip", &[11, 12, 13, 14, 15, 16]),
        "half_open_limit",
        50,
    );
    lb.reconfigure(json!([web]));
    assert_eq!(lb.backend(&Sent::client(500, ACK)), chosen);
    for (port, backend) in (1..=100).zip(owned) {
        assert_eq!(lb.backend(&Sent::client(port, ACK)), backend);
    }
    lb.advance(60 * SECOND);
    lb.tick();
    assert_eq!(lb.count("vip_half_open{vip=\"web\"}"), 0);
    assert_eq!(lb.ask("full", json!({}))["full"], false);
}

#[test]
fn a_full_table_is_balanced_without_records() {
    let web = with(vip("ipip", &[11, 12, 13]), "half_open_limit", 1_000_000);
    let mut lb = lb(json!([web]));
    let mut choices = Vec::new();
    for client in 0..8000_u32 {
        let [.., a, b] = client.to_be_bytes();
        let sent = Sent::client(9, SYN).of(&format!("203.0.{a}.{b}"));
        choices.push((sent.clone(), lb.backend(&sent)));
    }
    assert!(lb.count("events{vip=\"web\",event=\"table full\"}") > 2000);
    for (sent, backend) in choices {
        assert_eq!(lb.backend(&sent), backend);
    }
    let full = lb.ask("full", json!({}));
    assert_eq!(full["full"], true);
    assert!(
        full["why"][0]
            .as_str()
            .unwrap()
            .contains("connections_ipv4"),
        "{full}"
    );
}

#[test]
fn udp_flows_keep_their_backend() {
    let dns = json!({"name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "mode": "nat", "algorithm": "round-robin",
        "backends": [{"name": "a", "address": "10.0.0.11"}, {"name": "b", "address": "10.0.0.12"}]});
    let mut lb = lb(json!([dns]));
    let sent = Sent::client(4000, 0)
        .udp()
        .to("192.0.2.1", 53)
        .payload(b"who?");
    let first = lb.backend(&sent);
    assert_eq!(lb.backend(&sent), first);
    let answer = Sent::client(53, 0)
        .udp()
        .of(&format!("10.0.0.{first}"))
        .to("198.51.100.7", 4000);
    let seen = lb.pass(&Sent {
        source: (ip(&format!("10.0.0.{first}")), 53),
        ..answer
    });
    assert_eq!(
        (seen.source, seen.destination),
        ((ip("192.0.2.1"), 53), (ip("198.51.100.7"), 4000))
    );
    lb.advance(100 * SECOND);
    assert_ne!(lb.backend(&sent), first);
}

#[test]
fn state_moves_to_another_instance() {
    let vips = json!([with(vip("ipip", &[11, 12, 13]), "algorithm", "round-robin")]);
    let mut old = lb(vips.clone());
    let owned: Vec<u8> = (1..100)
        .map(|port| old.backend(&Sent::client(port, SYN)))
        .collect();
    old.ask("drain", json!({"vip": "web", "backend": "web12"}));
    let before = old.counters();
    let new = serde_json::from_value(config(vips)).unwrap();
    let mut new = old.adopting(new).unwrap().with_ports(1);
    assert_eq!(new.counters(), before);
    for (port, backend) in (1..100).zip(owned) {
        assert_eq!(new.backend(&Sent::client(port, ACK)), backend);
    }
    for port in 1000..1050 {
        assert_ne!(new.backend(&Sent::client(port, SYN)), 12);
    }
}

#[test]
fn packets_for_other_addresses_are_dropped_and_counted() {
    let mut lb = lb(json!([vip("ipip", &[11])]));
    assert_eq!(
        lb.drops(&Sent::client(1, SYN).to("192.0.2.1", 81)),
        "not for us"
    );
    assert_eq!(
        lb.drops(&Sent::client(1, SYN).to("192.0.2.9", 80)),
        "not for us"
    );
    assert_eq!(lb.drops(&Sent::client(1, 0).udp()), "not for us");
    assert_eq!(lb.count("events{event=\"not for us\"}"), 3);
    assert!(matches!(lb.process(0, &[0; 60]), Output::Dropped(_)));
}

#[test]
fn it_reports_full_at_the_configured_shares() {
    let six = json!({"name": "six", "address": "fd77::1", "port": 80, "protocol": "tcp", "mode": "ipip",
        "backends": [{"name": "a", "address": "fd00::11"}]});
    // 41 of 4096 records; 11 of 1024 sessions.
    let shares = json!({"table": 0.01});
    let snat = with(vip("nat", &[11]), "snat", true);
    for (web, share, table) in [
        (vip("ipip", &[11]), 41, "connections_ipv4"),
        (six, 41, "connections_ipv6"),
        (snat, 11, "sessions"),
    ] {
        let address = web["address"].as_str().unwrap().to_owned();
        let mut lb = start(with(config(json!([web])), "full", shares.clone()));
        for port in 1..=share {
            let full = lb.ask("full", json!({}));
            assert_eq!(full["full"], false, "{port} of {share}: {full}");
            assert_eq!(lb.count("full"), 0);
            let from = if address.contains(':') {
                "fd99::9"
            } else {
                "198.51.100.7"
            };
            lb.pass(&Sent::client(port, SYN).of(from).to(&address, 80));
        }
        let full = lb.ask("full", json!({}));
        let why = full["why"][0].as_str().unwrap();
        assert!(
            why.starts_with(&format!("table {table} has {share} of ")),
            "{why}"
        );
        assert_eq!(lb.count("full"), 1);
        assert_eq!(full["tables"][table]["used"], share);
    }
}

#[test]
fn a_busy_second_reports_full() {
    use nf_runtime::{Batch, Context, NetworkFunction};
    let mut lb = lb(json!([vip("ipip", &[11])]));
    lb.tick();
    let frame = Sent::client(1, SYN).frame();
    // A second of full bursts that use `share` percent of its time.
    let mut busy = |share: u64| {
        for _ in 0..100 {
            let mut batch = Batch::new();
            while batch.push(0, &frame).is_ok() {}
            let macs = [PORT_MAC];
            let context =
                Context::new(lb.now(), 0, 1, &macs).with_last_turn(10_000_000 * share / 100);
            lb.function().process(&mut batch, &context);
            lb.advance(10_000_000);
        }
        lb.tick();
        lb.ask("full", json!({}))
    };
    let (half, all) = (busy(50), busy(100));
    assert!(
        (half["util_plus"].as_f64().unwrap() - 0.5).abs() < 0.01,
        "{half}"
    );
    assert_eq!(half["full"], false);
    assert!(
        all["why"][0].as_str().unwrap().starts_with("util+ is 1.00"),
        "{all}"
    );
}
