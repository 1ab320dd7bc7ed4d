//! Connection records: interactions of packets in one batch, and references to backends.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::*;
use nf_l4lb::L4lb;
use nf_runtime::{
    testing::{Harness, Output},
    NetworkFunction,
};
use serde_json::{json, Value};

/// Processes packets in one batch; returns each one's backend.
fn batch(lb: &mut Harness<L4lb>, packets: &[Sent]) -> Vec<u8> {
    let frames: Vec<Vec<u8>> = packets.iter().map(Sent::frame).collect();
    let frames: Vec<(usize, &[u8])> = frames.iter().map(|frame| (0, &frame[..])).collect();
    let backend = |output: &Output| match output {
        Output::Sent(0, frame) => match read(frame).destination.0 {
            std::net::IpAddr::V4(address) => address.octets()[3],
            other => panic!("{other}"),
        },
        other => panic!("{other:?}"),
    };
    lb.process_all(&frames).iter().map(backend).collect()
}

fn active(lb: &Harness<L4lb>, backend: u8) -> u64 {
    lb.count(&format!(
        "backend_active{{vip=\"web\",backend=\"web{backend}\"}}"
    ))
}

/// Advances time until backend 11 has failed its check; 12 answers.
fn fail_11(lb: &mut Harness<L4lb>) {
    for _ in 0..10 {
        lb.tick();
        for (_, frame) in lb.take_emitted() {
            if frame[12..14] != [8, 0] {
                continue;
            }
            let seen = read(&frame);
            if seen.flags == SYN && seen.destination.0 == ip("10.0.0.12") {
                let answer = Sent {
                    source: seen.destination,
                    destination: seen.source,
                    from: mac_of(12),
                    ..Sent::client(0, SYN | ACK)
                };
                let answer = answer.numbers(1, seen.sequence.wrapping_add(1));
                lb.process(0, &answer.frame());
            }
        }
        lb.advance(SECOND / 2);
    }
    let open = |lb: &Harness<L4lb>| lb.count("vip_backends_open{vip=\"web\"}");
    assert_eq!(open(lb), 1);
}

fn checked() -> Value {
    let health = json!({"kind": "tcp", "interval": "1s", "timeout": "1s"});
    json!([with(vip("nat", &[11, 12]), "health", health)])
}

#[test]
fn a_record_that_changes_within_a_batch_is_counted_once() {
    let mut lb = lb(checked());
    let port = (1..50)
        .find(|port| lb.backend(&Sent::client(*port, SYN)) == 11)
        .unwrap();
    let others = active(&lb, 12);
    fail_11(&mut lb);
    let packets = [Sent::client(port, SYN), Sent::client(port, ACK)];
    assert_eq!(batch(&mut lb, &packets), [12, 12]);
    assert_eq!((active(&lb, 11), active(&lb, 12)), (0, others + 1));
    for _ in 0..10 {
        lb.advance(60 * SECOND);
        lb.tick();
    }
    assert_eq!((active(&lb, 11), active(&lb, 12)), (0, 0));
    assert_eq!(lb.count("vip_half_open{vip=\"web\"}"), 0);
}

#[test]
fn a_packet_sees_the_effects_of_earlier_packets_in_its_batch() {
    let mut lb = lb(json!([vip("nat", &[11, 12])]));
    let port = (1..50)
        .find(|port| lb.backend(&Sent::client(*port, SYN)) == 11)
        .unwrap();
    lb.pass(&Sent::client(port, ACK | FIN));
    lb.ask("drain", json!({"vip": "web", "backend": "web11"}));
    // The port is reused, and the SYN comes twice.
    let packets = [
        Sent::client(port, SYN),
        Sent::client(port, SYN),
        Sent::client(port, ACK),
        Sent::client(port, ACK),
    ];
    assert_eq!(batch(&mut lb, &packets), [12, 12, 12, 12]);
    // The connection is closed and opened again in one batch.
    let packets = [
        Sent::client(port, ACK | FIN),
        Sent::client(port, SYN),
        Sent::client(port, RST),
    ];
    batch(&mut lb, &packets);
    assert_eq!(lb.count("vip_half_open{vip=\"web\"}"), 0);
    let opened = [Sent::client(port, SYN), Sent::client(port, SYN)];
    batch(&mut lb, &opened);
    assert_eq!(lb.count("vip_half_open{vip=\"web\"}"), 1);
}

#[test]
fn half_open_connections_of_a_removed_backend_stop_counting() {
    let mut lb = lb(json!([other(&[12]), vip("ipip", &[11])]));
    let half_open = |lb: &Harness<L4lb>| {
        ["web", "other"].map(|vip| lb.count(&format!("vip_half_open{{vip=\"{vip}\"}}")))
    };
    lb.pass(&Sent::client(1, SYN));
    lb.pass(&Sent::client(2, SYN).to("192.0.2.2", 80));
    assert_eq!(half_open(&lb), [1, 1]);
    lb.reconfigure(json!([other(&[12]), vip("ipip", &[])]));
    lb.pass(&Sent::client(2, ACK).to("192.0.2.2", 80));
    lb.advance(60 * SECOND);
    lb.tick();
    assert_eq!(half_open(&lb), [0, 0]);
}

#[test]
fn show_and_backends_report_every_field() {
    let dns = json!({"name": "dns", "address": "192.0.2.3", "port": 53, "protocol": "udp", "mode": "gue",
        "backends": [{"name": "a", "address": "10.0.0.13", "weight": 7, "drain": true}]});
    let mut lb = lb(json!([checked()[0], dns]));
    lb.pass(&Sent::client(1, SYN));
    let shown = lb.ask("show", json!({}));
    let expected = json!([
        {"name": "web", "address": "192.0.2.1", "port": 80, "protocol": "tcp", "mode": "nat", "algorithm": "maglev",
            "backends": 2, "open": 2, "connections": 1, "half_open": 1},
        {"name": "dns", "address": "192.0.2.3", "port": 53, "protocol": "udp", "mode": "gue", "algorithm": "maglev",
            "backends": 1, "open": 0, "connections": 0, "half_open": 0},
    ]);
    assert_eq!(shown["vips"], expected);
    let four = json!({"used": 1, "capacity": 4096});
    assert_eq!(shown["tables"]["connections_ipv4"], four);
    let backends = lb.ask("backends", json!({"vip": "dns"}))["backends"].clone();
    let expected = json!([{"vip": "dns", "name": "a", "address": "10.0.0.13", "port": 53, "weight": 7,
        "health": "unchecked", "drained": true, "open": false, "mac": "02:bb:00:00:00:0d",
        "active": 0, "connections": 0, "packets": 0, "bytes": 0}]);
    assert_eq!(backends, expected);
    let health = |lb: &Harness<L4lb>| {
        let told = lb.ask("backends", json!({"vip": "web"}));
        [0, 1].map(|each| told["backends"][each]["health"].clone())
    };
    assert_eq!(health(&lb), ["unknown", "unknown"]);
    fail_11(&mut lb);
    assert_eq!(health(&lb), ["down", "up"]);
}

#[test]
fn a_reset_acknowledges_what_the_segment_takes() {
    let mut lb = lb(json!([with(vip("nat", &[11]), "snat", true)]));
    for (flags, payload, flags_back, numbers) in [
        (FIN, 10, RST | ACK, (0, 1011)),
        (0, 10, RST | ACK, (0, 1010)),
        (FIN, 0, RST | ACK, (0, 1001)),
        (ACK, 10, RST, (5000, 0)),
    ] {
        let sent = Sent::client(1, flags).payload(&vec![0; payload]);
        assert_eq!(lb.drops(&sent), "no session");
        let emitted = lb.take_emitted();
        let seen = read(&emitted.last().unwrap().1);
        assert_eq!(seen.flags, flags_back);
        assert_eq!((seen.sequence, seen.acknowledgement), numbers);
        assert_eq!(
            (seen.source, seen.destination),
            (sent.destination, sent.source)
        );
    }
}

/// Returns connections, packets, bytes, answers and their bytes of a VIP, then of its backend 11.
fn traffic(lb: &Harness<L4lb>) -> [[u64; 5]; 2] {
    let names = ["connections", "packets", "bytes", "answers", "answer_bytes"];
    let of_vip = names.map(|name| lb.count(&format!("vip_{name}{{vip=\"web\"}}")));
    let of_backend =
        names.map(|name| lb.count(&format!("backend_{name}{{vip=\"web\",backend=\"web11\"}}")));
    [of_vip, of_backend]
}

#[test]
fn traffic_is_counted_as_ip_packets() {
    for mode in ["ipip", "gue", "vxlan", "nat"] {
        let mut lb = lb(json!([vip(mode, &[11])]));
        // 20 bytes of IPv4 and 20 of TCP, without the frame's padding.
        lb.pass(&Sent::client(1, SYN));
        lb.pass(&Sent::client(1, ACK).payload(&[0; 100]));
        let mut expected = [1, 2, 180, 0, 0];
        if mode == "nat" {
            lb.pass(&answer(11, 1, SYN | ACK));
            lb.pass(&answer(11, 1, ACK).payload(&[0; 1000]));
            expected = [1, 2, 180, 2, 1080];
        }
        assert_eq!(traffic(&lb), [expected, expected], "{mode}");
        let told = &lb.ask("backends", json!({}))["backends"][0];
        let told = ["active", "connections", "packets", "bytes"].map(|name| told[name].clone());
        assert_eq!(told, [1, 1, 2, 180].map(|count| json!(count)), "{mode}");
    }
}

#[test]
fn traffic_of_a_removed_backend_stays_with_its_vip() {
    let vips = |backends: &[u8]| small(json!([vip("nat", backends), other(&[])]));
    let mut lb = start(vips(&[11]));
    lb.pass(&Sent::client(1, SYN));
    lb.pass(&answer(11, 1, SYN | ACK));
    let counted = traffic(&lb)[0];
    assert_eq!(counted, [1, 1, 40, 1, 40]);
    configure(&lb, vips(&[]));
    assert_eq!(traffic(&lb)[0], counted);
    // Its number is reused.
    lb.advance(1300 * SECOND);
    lb.tick();
    configure(&lb, vips(&[12, 13]));
    assert_eq!(traffic(&lb)[0], counted);
    assert_eq!(lb.count("vip_packets{vip=\"other\"}"), 0);
    lb.pass(&Sent::client(2, SYN));
    assert_eq!(traffic(&lb)[0], [2, 2, 80, 1, 40]);
}

#[test]
fn an_answer_of_another_backend_does_not_close_a_connection() {
    let mut lb = lb(json!([vip("nat", &[11, 12])]));
    let port = (1..50)
        .find(|port| lb.backend(&Sent::client(*port, SYN)) == 11)
        .unwrap();
    lb.pass(&Sent::client(port, ACK));
    lb.pass(&answer(12, port, RST));
    lb.advance(100 * SECOND);
    lb.tick();
    assert_eq!(active(&lb, 11), 1, "the record lives 300 s");
}

/// A configuration with two backend numbers, so that they are reused as soon as possible.
fn small(vips: Value) -> Value {
    let mut config = config(vips);
    config["tables"]["backends"] = json!(2);
    config["tables"]["vips"] = json!(2);
    config
}

fn other(backends: &[u8]) -> Value {
    with(
        with(vip("nat", backends), "address", "192.0.2.2"),
        "name",
        "other",
    )
}

fn configure(lb: &Harness<L4lb>, config: Value) {
    use nf_runtime::NetworkFunction;
    let config = serde_json::from_value(config).unwrap();
    lb.function().configure(config).unwrap();
}

#[test]
fn a_connection_never_reaches_a_backend_of_another_vip() {
    let mut lb = start(small(json!([vip("nat", &[11]), other(&[12])])));
    lb.pass(&Sent::client(4000, SYN));
    lb.pass(&Sent::client(4000, ACK));
    configure(&lb, small(json!([vip("nat", &[]), other(&[12])])));
    // The client keeps trying for longer than a number is quarantined.
    for _ in 0..25 {
        assert_eq!(lb.drops(&Sent::client(4000, ACK)), "no backend");
        lb.advance(60 * SECOND);
        lb.tick();
    }
    configure(&lb, small(json!([vip("nat", &[]), other(&[12, 13])])));
    assert_eq!(lb.drops(&Sent::client(4000, ACK)), "no backend");
}

#[test]
fn a_successor_with_other_backends_serves_without_mixing_vips() {
    let mut old = start(small(json!([vip("nat", &[11]), other(&[12])])));
    old.pass(&Sent::client(4000, SYN));
    old.pass(&Sent::client(4000, ACK));
    // Each number belongs to a backend that the new configuration has or lacks.
    let new = small(json!([vip("nat", &[]), other(&[12, 13])]));
    let mut new = old
        .adopting(serde_json::from_value(new).unwrap())
        .unwrap()
        .with_ports(1);
    let backend = new.backend(&Sent::client(4000, SYN).to("192.0.2.2", 80));
    assert!([12, 13].contains(&backend));
    assert_eq!(new.drops(&Sent::client(4000, ACK)), "no backend");
}

#[test]
fn packets_do_not_renew_the_record_of_a_removed_backend() {
    let vips = |backends: &[u8]| small(json!([vip("nat", backends)]));
    let mut lb = start(vips(&[11]));
    lb.pass(&Sent::client(4000, SYN));
    lb.pass(&Sent::client(4000, ACK));
    configure(&lb, vips(&[]));
    assert_eq!(lb.drops(&Sent::client(4000, ACK)), "no backend");
    let records = lb.ask("show", json!({}))["tables"]["connections_ipv4"]["used"].clone();
    assert_eq!(records, 0);
    // Another backend of the VIP may now have the number, and counts only its own connections.
    lb.advance(1300 * SECOND);
    lb.tick();
    configure(&lb, vips(&[12, 13]));
    assert_eq!((active(&lb, 12), active(&lb, 13)), (0, 0));
    lb.pass(&Sent::client(4000, ACK));
    assert_eq!(active(&lb, 12) + active(&lb, 13), 1);
}

#[test]
fn a_backend_number_is_not_reused_while_records_refer_to_it() {
    let mut lb = lb(json!([vip("ipip", &[11])]));
    let backend = |lb: &mut Harness<L4lb>, index: u16| {
        let [a, b] = index.to_be_bytes();
        let web = with(
            vip("ipip", &[]),
            "backends",
            json!([{"name": "x", "address": format!("10.9.{a}.{b}")}]),
        );
        lb.function()
            .configure(serde_json::from_value(config(json!([web]))).unwrap())
    };
    lb.pass(&Sent::client(1, SYN));
    // Of the 64 numbers, each new backend takes one.
    for index in 0..63 {
        backend(&mut lb, index).unwrap();
    }
    let refused = backend(&mut lb, 63).unwrap_err();
    assert_eq!(refused.code, "backends-exhausted");
    lb.advance(1300 * SECOND);
    lb.tick();
    backend(&mut lb, 63).unwrap();
}
