//! Sessions: the owner of an answer, the lifetime of local ports, and the end of a connection.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::*;
use nf_l4lb::L4lb;
use nf_runtime::testing::{Harness, Output};
use serde_json::{json, Value};

fn snat(backends: &[u8]) -> Value {
    with(vip("nat", backends), "snat", true)
}

/// Another VIP, 192.0.2.2:80.
fn second(vip: Value) -> Value {
    with(with(vip, "address", "192.0.2.2"), "name", "second")
}

/// Builds the backend's reply to a packet.
fn reply(seen: &Seen, flags: u8) -> Sent {
    Sent {
        source: seen.destination,
        destination: seen.source,
        from: seen.to,
        ..Sent::client(0, flags)
    }
    .numbers(5000, 1001)
}

/// Completes a handshake; returns what the backend saw. The client's next byte is 1001, the backend's 5001.
fn establish(lb: &mut Harness<L4lb>, syn: &Sent) -> Seen {
    let seen = lb.pass(syn);
    let back = lb.pass(&reply(&seen, SYN | ACK));
    assert_eq!(
        (back.source, back.destination),
        (syn.destination, syn.source)
    );
    let ack = Sent {
        flags: ACK,
        ..syn.clone()
    };
    lb.pass(&ack.numbers(1001, 5001))
}

#[test]
fn an_answer_leaves_from_the_vip_of_its_request() {
    for first in [vip("nat", &[11]), snat(&[11])] {
        let mut lb = lb(json!([first, second(snat(&[11]))]));
        let (one, two) = (
            Sent::client(4000, SYN),
            Sent::client(4000, SYN).to("192.0.2.2", 80),
        );
        let (to_one, to_two) = (lb.pass(&one), lb.pass(&two));
        assert_ne!(to_one.source, to_two.source);
        for (seen, sent) in [(to_one, one), (to_two, two)] {
            let back = lb.pass(&reply(&seen, SYN | ACK));
            assert_eq!(
                (back.source, back.destination),
                (sent.destination, sent.source)
            );
        }
    }
}

/// A large load balancer with `count` established connections, each of its own client.
fn many(count: u32) -> (Harness<L4lb>, Vec<(Sent, Seen)>) {
    let web = with(snat(&[11]), "half_open_limit", 100_000);
    let mut config = config(json!([web]));
    config["tables"]["sessions"] = json!(4096);
    let mut lb = start(config);
    let connections = (0..count)
        .map(|number| {
            let [.., a, b] = number.to_be_bytes();
            let syn = Sent::client(4000, SYN).of(&format!("203.0.{a}.{b}"));
            let seen = establish(&mut lb, &syn);
            (syn, seen)
        })
        .collect();
    (lb, connections)
}

#[test]
fn the_search_for_a_port_leaves_other_connections_alone() {
    // With so many clients, some try a port that is taken.
    let (mut lb, connections) = many(1500);
    lb.advance(200 * SECOND);
    lb.tick();
    for (sent, seen) in &connections {
        let back = lb.pass(&reply(seen, ACK).numbers(5001, 1001));
        assert_eq!(back.destination, sent.source);
    }
}

#[test]
fn a_port_is_held_as_long_as_the_connection() {
    let mut lb = lb(json!([snat(&[11])]));
    let seen = establish(&mut lb, &Sent::client(4000, SYN));
    lb.advance(80 * SECOND);
    lb.tick();
    lb.pass(&Sent::client(4000, ACK).numbers(1001, 5001));
    lb.advance(295 * SECOND);
    lb.tick();
    let back = lb.pass(&reply(&seen, ACK).numbers(5001, 1001));
    assert_eq!(back.destination, (ip("198.51.100.7"), 4000));
}

#[test]
fn answers_alone_keep_a_udp_session_alive() {
    let mut lb = lb(json!([with(snat(&[11]), "protocol", "udp")]));
    let sent = Sent::client(4000, 0).udp();
    let seen = lb.pass(&sent);
    for _ in 0..10 {
        lb.advance(40 * SECOND);
        lb.tick();
        assert_eq!(
            lb.pass(&reply(&seen, 0).udp()).destination,
            (ip("198.51.100.7"), 4000)
        );
    }
    assert_eq!(lb.pass(&sent).source, seen.source);
}

#[test]
fn a_full_session_table_reports_full() {
    let web = with(snat(&[11]), "half_open_limit", 100_000);
    let mut config = config(json!([web]));
    config["tables"]["sessions"] = json!(40);
    let mut lb = start(config);
    assert_eq!(lb.ask("full", json!({}))["full"], false);
    let refused = (0..200_u32).any(|client| {
        let syn = Sent::client(4000, SYN).of(&format!("203.0.113.{client}"));
        match lb.process(0, &syn.frame()) {
            Output::Sent(..) => false,
            Output::Dropped(reason) => {
                assert_eq!(reason, "sessions full");
                true
            }
        }
    });
    assert!(refused);
    let full = lb.ask("full", json!({}));
    assert_eq!(full["full"], true);
    let why = full["why"][0].as_str().unwrap();
    assert!(why.starts_with("table sessions has "), "{why}");
    let used = full["tables"]["sessions"]["used"].as_u64().unwrap();
    assert!(used >= 40);
    assert_eq!(lb.count("sessions_used"), used);
    assert_eq!(lb.count("sessions_capacity"), 40);
    lb.advance(60 * SECOND);
    lb.tick();
    assert_eq!(lb.ask("full", json!({}))["full"], false);
}

#[test]
fn a_port_is_released_when_its_session_cannot_be_stored() {
    let proxied = with(vip("nat", &[12]), "proxy_protocol", true);
    let wide = |vip: Value| with(vip, "half_open_limit", 100_000);
    let mut config = config(json!([wide(snat(&[11])), wide(second(proxied))]));
    config["tables"]["sessions"] = json!(40);
    let mut lb = start(config);
    let syn = |client: u8| Sent::client(4000, SYN).of(&format!("203.0.113.{client}"));
    // Sessions without local ports fill their table.
    let fills = |client: u8| match lb.process(0, &syn(client).to("192.0.2.2", 80).frame()) {
        Output::Sent(..) => true,
        Output::Dropped(reason) => {
            assert_eq!(reason, "sessions full");
            false
        }
    };
    assert!((0..200).map(fills).any(|has_room| !has_room));
    for client in 0..200 {
        assert_eq!(lb.drops(&syn(client)), "sessions full");
    }
    // Half-open sessions have expired; leaked ports would not have.
    lb.advance(20 * SECOND);
    lb.tick();
    for client in 200..220 {
        lb.pass(&syn(client));
    }
}

#[test]
fn answers_of_the_previous_backend_are_dropped() {
    let mut lb = lb(json!([snat(&[11, 12])]));
    let port = (1..50)
        .find(|port| lb.backend(&Sent::client(*port, SYN)) == 11)
        .unwrap();
    let syn = Sent::client(port, SYN);
    let seen = establish(&mut lb, &syn);
    lb.pass(&Sent::client(port, FIN | ACK).numbers(1001, 5001));
    lb.ask("drain", json!({"vip": "web", "backend": "web11"}));
    let again = lb.pass(&syn);
    assert_eq!(again.to, mac_of(12));
    assert_eq!(
        lb.drops(&reply(&seen, ACK).numbers(5001, 1002)),
        "no session"
    );
    let back = lb.pass(&reply(&again, SYN | ACK));
    assert_eq!(back.destination, syn.source);
}

/// Tells whether the connection is alive a minute later with its session intact.
fn survives(lb: &mut Harness<L4lb>, seen: &Seen) -> bool {
    lb.advance(60 * SECOND);
    lb.tick();
    let segment = Sent::client(4000, ACK).numbers(1001, 5001);
    match lb.process(0, &segment.frame()) {
        Output::Sent(0, frame) => read(&frame).source == seen.source,
        Output::Sent(..) => false,
        Output::Dropped(reason) => {
            assert_eq!(reason, "no session");
            false
        }
    }
}

#[test]
fn a_forged_segment_does_not_end_a_connection() {
    for flags in [RST, RST | ACK, FIN | ACK, SYN] {
        for sequence in [1000, 1002, 1500, 70_000, 0x8000_0000, 0xffff_0000] {
            let mut lb = lb(json!([snat(&[11])]));
            let seen = establish(&mut lb, &Sent::client(4000, SYN));
            // The backend gets the segment and decides.
            lb.pass(&Sent::client(4000, flags).numbers(sequence, 9));
            assert!(survives(&mut lb, &seen), "{flags} at {sequence}");
        }
        if flags != SYN {
            let mut lb = lb(json!([snat(&[11])]));
            let seen = establish(&mut lb, &Sent::client(4000, SYN));
            lb.pass(&reply(&seen, flags).numbers(90_000, 1001));
            assert!(survives(&mut lb, &seen), "{flags} from the backend");
        }
    }
}

#[test]
fn a_genuine_fin_or_reset_ends_a_connection() {
    for flags in [RST, RST | ACK, FIN | ACK] {
        let mut lb = lb(json!([snat(&[11])]));
        let seen = establish(&mut lb, &Sent::client(4000, SYN));
        let data = Sent::client(4000, ACK).numbers(1001, 5001);
        lb.pass(&data.payload(b"GET /"));
        // With and without the data before it.
        lb.pass(&Sent::client(4000, flags).numbers(1006, 5001));
        assert!(!survives(&mut lb, &seen), "{flags}");
    }
    for flags in [RST, FIN | ACK] {
        let mut lb = lb(json!([snat(&[11])]));
        let seen = establish(&mut lb, &Sent::client(4000, SYN));
        lb.pass(&reply(&seen, flags).numbers(5001, 1001));
        assert!(!survives(&mut lb, &seen), "{flags} from the backend");
    }
    // The backend refuses the connection.
    let mut lb = lb(json!([with(snat(&[11]), "half_open_limit", 1)]));
    let seen = lb.pass(&Sent::client(4000, SYN));
    lb.pass(&reply(&seen, RST | ACK).numbers(0, 1001));
    assert_eq!(lb.count("vip_half_open{vip=\"web\"}"), 0);
}

#[test]
fn a_client_that_reconnects_after_a_crash_is_served() {
    let mut lb = lb(json!([with(snat(&[11]), "proxy_protocol", true)]));
    let seen = establish(&mut lb, &Sent::client(4000, SYN));
    // The record still belongs to the established connection; the backend has forgotten it and accepts the SYN.
    lb.pass(&Sent::client(4000, SYN).numbers(700_000, 0));
    let back = lb.pass(&reply(&seen, SYN | ACK).numbers(9000, 700_001));
    assert_eq!((back.acknowledgement, back.flags), (700_001, SYN | ACK));
    let first = lb.pass(&Sent::client(4000, ACK).numbers(700_001, 9001));
    assert_eq!((first.sequence, first.payload.len()), (700_001, 28));
    lb.pass(&Sent::client(4000, RST).numbers(700_001, 0));
    assert!(!survives(&mut lb, &seen));
}

#[test]
fn a_session_is_not_used_after_its_vip_changed() {
    let proxied = |snat: bool| {
        with(
            with(vip("nat", &[11]), "proxy_protocol", true),
            "snat",
            json!(snat),
        )
    };
    let plain = || vip("nat", &[11]);
    // (before, after): an established connection is reset, and its port can be reused.
    let changes = [
        (snat(&[11]), proxied(true)),
        (proxied(true), snat(&[11])),
        (proxied(false), proxied(true)),
        (proxied(true), proxied(false)),
        (snat(&[11]), plain()),
        (proxied(false), plain()),
        (proxied(true), plain()),
    ];
    for (before, after) in changes {
        let mut lb = lb(json!([before]));
        lb.pass(&Sent::client(4000, SYN));
        lb.pass(&Sent::client(4000, ACK).numbers(1001, 5001));
        lb.reconfigure(json!([after]));
        let stray = Sent::client(4000, ACK).numbers(1001, 5001);
        for _ in 0..2 {
            assert_eq!(lb.drops(&stray), "no session", "{before} {after}");
        }
        let seen = lb.pass(&Sent::client(4000, SYN).numbers(5000, 0));
        assert_eq!(seen.source.0 == ip("10.0.0.2"), after["snat"] == true);
        let first = lb.pass(&Sent::client(4000, ACK).numbers(5001, 5001));
        assert_eq!(first.payload.len() == 28, after["proxy_protocol"] == true);
        // Another configuration with the same options changes nothing.
        lb.reconfigure(json!([after]));
        lb.pass(&Sent::client(4000, ACK).numbers(5001, 5001));
    }
}

#[test]
fn a_session_that_its_vip_does_not_allow_ends_with_its_lifetime() {
    let mut lb = lb(json!([snat(&[11])]));
    establish(&mut lb, &Sent::client(4000, SYN));
    lb.reconfigure(json!([vip("nat", &[11])]));
    lb.advance(400 * SECOND);
    lb.tick();
    // The record has expired, too, so the packet goes where Maglev sends it.
    lb.pass(&Sent::client(4000, ACK).numbers(1001, 5001));
}

#[test]
fn answers_of_a_connection_that_had_a_header_do_not_pass_without_it() {
    let proxied = with(vip("nat", &[11]), "proxy_protocol", true);
    let mut lb = lb(json!([proxied]));
    let seen = establish(&mut lb, &Sent::client(4000, SYN));
    lb.reconfigure(json!([vip("nat", &[11])]));
    assert_eq!(
        lb.drops(&reply(&seen, ACK).numbers(5001, 1001)),
        "no session"
    );
}

#[test]
fn no_fragment_of_a_connection_with_a_header_passes() {
    let mut lb = lb(json!([with(vip("nat", &[11]), "proxy_protocol", true)]));
    establish(&mut lb, &Sent::client(4000, SYN));
    let whole = Sent::client(4000, ACK)
        .numbers(1001, 5001)
        .payload(&[7; 300]);
    let reasons = ["protocol unsupported", "fragment without first"];
    for (fragment, reason) in fragments(&whole.frame(), 104, 77).iter().zip(reasons) {
        assert_eq!(lb.process(0, fragment), Output::Dropped(reason));
    }
}

#[test]
fn a_connection_older_than_source_nat_can_reconnect() {
    let mut lb = lb(json!([vip("nat", &[11])]));
    lb.pass(&Sent::client(4000, SYN));
    lb.pass(&Sent::client(4000, ACK));
    lb.reconfigure(json!([snat(&[11])]));
    assert_eq!(lb.drops(&Sent::client(4000, ACK)), "no session");
    lb.reconfigure(json!([vip("nat", &[11])]));
    lb.pass(&Sent::client(4001, SYN));
    lb.pass(&Sent::client(4001, ACK));
    lb.reconfigure(json!([snat(&[11])]));
    assert_eq!(lb.pass(&Sent::client(4001, SYN)).source.0, ip("10.0.0.2"));
}
