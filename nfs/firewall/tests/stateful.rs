//! Rules without applications, and the states of connections.

#![allow(clippy::unwrap_used, clippy::panic)] // tests

mod common;

use common::*;
use nf_runtime::NetworkFunction;
use serde_json::json;

const CLIENT: End = (1, 40_000);
const SERVER: End = (2, 80);

fn web(action: &str) -> serde_json::Value {
    json!({
        "zones": {"inside": {"ports": [0]}},
        "rules": [{"name": "web", "from": ["inside"], "protocols": ["tcp"], "ports": [80], "action": action}],
    })
}

#[test]
fn answers_pass_and_other_connections_do_not() {
    let mut nf = firewall(web("allow"));
    assert_eq!(
        dropped(&nf.process(1, &tcp(SERVER, CLIENT, SYN | ACK, 500, 101, b""))),
        "of no connection"
    );
    for (port, frame) in handshake(CLIENT, SERVER) {
        assert!(passes(&mut nf, port, &frame));
    }
    assert!(passes(
        &mut nf,
        1,
        &tcp(SERVER, CLIENT, ACK, 501, 101, b"hello")
    ));
    let other = tcp((1, 40_001), (2, 22), SYN, 1, 0, b"");
    assert_eq!(dropped(&nf.process(0, &other)), "denied by a rule");
    // The rule is for connections from inside.
    let from_outside = tcp((2, 40_000), (1, 80), SYN, 1, 0, b"");
    assert_eq!(dropped(&nf.process(1, &from_outside)), "denied by a rule");
    let christmas = tcp((1, 40_002), SERVER, SYN | FIN, 1, 0, b"");
    assert_eq!(dropped(&nf.process(0, &christmas)), "impossible TCP flags");
    let rules = nf.function().control("rules", &json!({})).unwrap().unwrap();
    assert_eq!(rules["rules"][0]["packets"], 4);
    assert_eq!(rules["rules"][0]["connections"], 1);
    assert_eq!(rules["rules"][1]["packets"], 2);
}

#[test]
fn a_closed_connection_makes_room_for_a_new_one_with_the_same_ports() {
    let mut nf = firewall(web("allow"));
    let ended = [
        (0, tcp(CLIENT, SERVER, FIN | ACK, 101, 501, b"")),
        (1, tcp(SERVER, CLIENT, FIN | ACK, 501, 102, b"")),
        (0, tcp(CLIENT, SERVER, ACK, 102, 502, b"")),
    ];
    for _ in 0..2 {
        for (port, frame) in handshake(CLIENT, SERVER).into_iter().chain(ended.clone()) {
            assert!(passes(&mut nf, port, &frame));
        }
    }
    let rules = nf.function().control("rules", &json!({})).unwrap().unwrap();
    assert_eq!(rules["rules"][0]["connections"], 2);
    nf.advance(11_000_000_000);
    assert_eq!(
        dropped(&nf.process(1, &tcp(SERVER, CLIENT, ACK, 502, 102, b""))),
        "of no connection"
    );
}

#[test]
fn a_rejected_sender_is_told() {
    let mut nf = firewall(json!({"default": "reject"}));
    let (output, sent) = run(&mut nf, 0, &tcp(CLIENT, SERVER, SYN, 100, 0, b""));
    assert_eq!(dropped(&output), "rejected by a rule");
    assert_eq!(
        sent,
        [(0, {
            let mut reset = Segment {
                from: SERVER,
                to: CLIENT,
                flags: RST | ACK,
                sequence: 0,
                acknowledgement: 101,
                payload: b"",
                ttl: 64,
            }
            .frame();
            zero_window(&mut reset);
            reset
        })]
    );
    let asked = udp((1, 5000), (2, 53), b"question");
    let (_, sent) = run(&mut nf, 0, &asked);
    let (port, error) = &sent[0];
    assert_eq!((*port, error[34], error[35]), (0, 3, 13));
    assert_eq!(error[42..], asked[14..]);
    let parsed = etherparse::SlicedPacket::from_ethernet(error).unwrap();
    let Some(etherparse::TransportSlice::Icmpv4(icmp)) = parsed.transport else {
        panic!()
    };
    assert_eq!(
        icmp.icmp_type().calc_checksum(icmp.payload()),
        icmp.checksum()
    );
    // Nothing answers an answer.
    let (_, sent) = run(&mut nf, 0, &tcp(CLIENT, SERVER, RST | ACK, 100, 1, b""));
    assert!(sent.is_empty());
}

/// Sets the window to 0 and computes the checksum, as etherparse would.
fn zero_window(frame: &mut Vec<u8>) {
    let mut header = etherparse::TcpHeader::from_slice(&frame[34..]).unwrap().0;
    header.window_size = 0;
    let ip = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap().0;
    header.checksum = header.calc_checksum_ipv4(&ip, &[]).unwrap();
    frame.truncate(34);
    header.write(frame).unwrap();
    frame[20] = 0x40; // RSTs have "do not fragment", as etherparse's packets do
}

#[test]
fn errors_pass_only_about_connections() {
    let mut nf = firewall(
        json!({"rules": [{"name": "dns", "protocols": ["udp"], "ports": [53], "action": "allow"}]}),
    );
    let asked = udp((1, 5000), (2, 53), b"question");
    let about = unreachable(2, 1, &asked);
    assert_eq!(dropped(&nf.process(1, &about)), "of no connection");
    assert!(passes(&mut nf, 0, &asked));
    assert!(passes(&mut nf, 1, &about));
    // From a router on the way, but not to another host than the sender of the quoted packet.
    assert!(passes(&mut nf, 1, &unreachable(9, 1, &asked)));
    assert_eq!(
        dropped(&nf.process(1, &unreachable(2, 3, &asked))),
        "of no connection"
    );
}

#[test]
fn echo_replies_need_requests() {
    let mut nf = firewall(
        json!({"zones": {"in": {"ports": [0]}}, "rules": [{"name": "ping", "from": ["in"], "protocols": ["icmp"], "action": "allow"}]}),
    );
    assert_eq!(
        dropped(&nf.process(1, &icmp_echo(2, 1, true, 7))),
        "of no connection"
    );
    assert!(passes(&mut nf, 0, &icmp_echo(1, 2, false, 7)));
    assert!(passes(&mut nf, 1, &icmp_echo(2, 1, true, 7)));
    assert_eq!(
        dropped(&nf.process(1, &icmp_echo(2, 1, true, 8))),
        "of no connection"
    );
    assert_eq!(
        dropped(&nf.process(1, &icmp_echo(2, 1, false, 9))),
        "denied by a rule"
    );
}

#[test]
fn arp_passes_and_other_frames_only_if_allowed() {
    let arp = [&[0xff; 6][..], &[2, 9, 0, 0, 0, 1], &[8, 6], &[0; 28]].concat();
    let lldp = [
        &[1, 0x80, 0xc2, 0, 0, 14][..],
        &[2, 9, 0, 0, 0, 1],
        &[0x88, 0xcc],
        &[0; 28],
    ]
    .concat();
    let mut nf = firewall(json!({}));
    assert!(passes(&mut nf, 0, &arp));
    assert_eq!(dropped(&nf.process(0, &lldp)), "neither IP nor ARP");
    let mut nf = firewall(json!({"other_frames": "allow"}));
    assert!(passes(&mut nf, 0, &lldp));
}

#[test]
fn rates_bound_packets_and_connections() {
    let rate = |rate: serde_json::Value| json!({"rules": [{"name": "x", "action": "allow", "rate": rate}]});
    let mut nf = firewall(rate(json!({"packets": 10})));
    let frame = udp((1, 5000), (2, 53), b"x");
    let passed = |nf: &mut nf_runtime::testing::Harness<_>| {
        (0..30).filter(|_| passes(nf, 0, &frame)).count()
    };
    assert_eq!(passed(&mut nf), 10);
    nf.advance(500_000_000);
    assert_eq!(passed(&mut nf), 5);
    let mut nf = firewall(rate(json!({"connections": 10})));
    assert_eq!(
        (0..30)
            .filter(|port| passes(&mut nf, 0, &udp((1, 5000 + port), (2, 53), b"x")))
            .count(),
        10
    );
    // Connections within the rate are not bounded by it.
    assert!((0..30).all(|_| passes(&mut nf, 0, &frame)));
}

#[test]
fn a_flood_of_syns_costs_established_connections_nothing() {
    let mut config = web("allow");
    config["flows"] = json!(64);
    let mut nf = firewall(config);
    for (port, frame) in handshake(CLIENT, SERVER) {
        assert!(passes(&mut nf, port, &frame));
    }
    for port in 0..2000 {
        assert!(passes(&mut nf, 0, &tcp((3, port), SERVER, SYN, 1, 0, b"")));
    }
    assert!(passes(
        &mut nf,
        1,
        &tcp(SERVER, CLIENT, ACK, 501, 101, b"still here")
    ));
    let counters = nf.counters();
    assert_eq!(
        (&counters["flows_unanswered"], &counters["flows"]),
        (&json!(16), &json!(17))
    );
    // A SYN that acknowledges nothing real does not make a connection established.
    for port in 0..2000 {
        let (to, from) = ((3, port), SERVER);
        nf.process(1, &tcp(from, to, SYN | ACK, 700, 2, b""));
        nf.process(0, &tcp(to, from, ACK, 2, 3, b""));
    }
    assert_eq!(nf.counters()["flows"], json!(17));
}

#[test]
fn idle_flows_end_also_without_packets() {
    let mut nf = firewall(web("allow"));
    for (port, frame) in handshake(CLIENT, SERVER) {
        assert!(passes(&mut nf, port, &frame));
    }
    nf.advance(3_601_000_000_000);
    nf.tick();
    assert_eq!(nf.counters()["flows"], json!(0));
}

#[test]
fn new_rules_decide_old_connections_and_keep_the_counters_of_their_names() {
    let mut nf = firewall(web("allow"));
    for (port, frame) in handshake(CLIENT, SERVER) {
        assert!(passes(&mut nf, port, &frame));
    }
    nf.function().configure(config(web("drop"))).unwrap();
    assert_eq!(
        dropped(&nf.process(1, &tcp(SERVER, CLIENT, ACK, 501, 101, b""))),
        "denied by a rule"
    );
    let rules = nf.function().control("rules", &json!({})).unwrap().unwrap();
    assert_eq!(rules["rules"][0]["packets"], 4);
    let refused = nf
        .function()
        .configure(config(json!({"flows": 7})))
        .unwrap_err();
    assert!(refused.detail.contains("cannot change"), "{refused}");
    // The refused one has changed nothing.
    assert_eq!(
        dropped(&nf.process(1, &tcp(SERVER, CLIENT, ACK, 501, 101, b""))),
        "denied by a rule"
    );
}

/// Cuts a frame's IP payload into two fragments at a multiple of 8.
fn fragments(frame: &[u8], at: usize) -> [Vec<u8>; 2] {
    let part = |from: usize, to: usize, more: bool| {
        let mut part = frame[..34].to_vec();
        part.extend(&frame[34 + from..34 + to]);
        part[16..18].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
        part[18..20].copy_from_slice(&[0, 77]);
        let field = (from / 8) as u16 | if more { 0x2000 } else { 0 };
        part[20..22].copy_from_slice(&field.to_be_bytes());
        let mut header = etherparse::Ipv4Header::from_slice(&part[14..]).unwrap().0;
        header.header_checksum = header.calc_header_checksum();
        part.splice(14..34, header.to_bytes().iter().copied());
        part
    };
    [part(0, at, true), part(at, frame.len() - 34, false)]
}

#[test]
fn later_fragments_follow_the_first() {
    let mut nf = firewall(json!({"rules": [{"name": "dns", "ports": [53], "action": "allow"}]}));
    let [first, later] = fragments(&udp((1, 5000), (2, 53), &[7; 40]), 24);
    assert_eq!(
        dropped(&nf.process(0, &later)),
        "fragment without its first"
    );
    assert!(passes(&mut nf, 0, &first));
    assert!(passes(&mut nf, 0, &later));
    let [first, _] = fragments(&udp((1, 5000), (2, 54), &[7; 40]), 24);
    assert_eq!(dropped(&nf.process(0, &first)), "denied by a rule");
}

#[test]
fn the_log_has_a_line_for_each_decision() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hits.jsonl");
    let mut config = web("allow");
    config["rules"][0]["log"] = json!(true);
    config["log"] = json!(path);
    config["log_bytes"] = json!(200);
    let mut nf = firewall(config);
    for (port, frame) in handshake(CLIENT, SERVER) {
        assert!(passes(&mut nf, port, &frame));
    }
    let lines = std::fs::read_to_string(&path).unwrap();
    let line: serde_json::Value = serde_json::from_str(lines.trim_end()).unwrap();
    assert_eq!(
        line,
        json!({"time": 1, "rule": "web", "action": "allow", "protocol": 6, "source": "10.0.0.1", "source_port": 40000, "destination": "10.0.0.2", "destination_port": 80})
    );
    for port in 0..10 {
        nf.process(0, &tcp((1, port), SERVER, SYN, 1, 0, b""));
    }
    for path in [path.clone(), directory.path().join("hits.jsonl.1")] {
        assert!(std::fs::metadata(path).unwrap().len() <= 200);
    }
}

#[test]
fn zones_need_ports_that_exist() {
    let wrong = config(json!({"zones": {"x": {"ports": [2]}}}));
    let refused = nf_firewall::Firewall::<Scripted>::fits(&wrong, 2).unwrap_err();
    assert!(
        refused.detail.contains("zones.x.ports: port 2"),
        "{refused}"
    );
}
