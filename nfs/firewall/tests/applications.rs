//! Rules on applications: packets that wait, moves, an inspector that dies or says nothing, and evasion.

#![allow(clippy::unwrap_used, clippy::panic)] // tests

mod common;

use common::*;
use nf_firewall::Firewall;
use nf_runtime::{
    testing::{Harness, Output},
    NetworkFunction,
};
use proptest::prelude::*;
use serde_json::{json, Value};

const CLIENT: End = (1, 40_000);
const SERVER: End = (2, 443);
const HELD: &str = "held until its application is known";

fn rules() -> Value {
    json!({"rules": [
        {"name": "videos", "applications": ["TLS.YouTube"], "action": "drop"},
        {"name": "tls", "applications": ["TLS"], "action": "allow"},
        {"name": "hosts", "hosts": ["*.example.com"], "action": "reject", "undecided": "allow"},
    ]})
}

type Nf = Harness<Firewall<Scripted>>;

fn connected(nf: &mut Nf, client: End) {
    for (port, frame) in handshake(client, SERVER) {
        assert!(passes(nf, port, &frame));
    }
}

fn says(client: End, sequence: u32, payload: &[u8]) -> Vec<u8> {
    tcp(client, SERVER, ACK, sequence, 501, payload)
}

/// Sends a frame that is to wait, and returns what leaves then.
fn after_the_answer(nf: &mut Nf, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
    assert_eq!(dropped(&nf.process(0, frame)), HELD);
    nf.tick();
    nf.take_emitted()
}

#[test]
fn a_connection_waits_for_its_application_and_then_no_more() {
    let mut nf = firewall(rules());
    connected(&mut nf, CLIENT);
    PACKETS.set(0);
    let first = says(CLIENT, 101, b"?");
    assert_eq!(after_the_answer(&mut nf, &first), [(1, first)]);
    let second = says(CLIENT, 102, b"T");
    assert_eq!(after_the_answer(&mut nf, &second), [(1, second)]);
    // The handshake belongs to what is inspected.
    assert_eq!(PACKETS.get(), 5);
    for number in 103..110 {
        assert!(passes(&mut nf, 0, &says(CLIENT, number, b"H")));
    }
    assert_eq!(PACKETS.get(), 5);
    let flows = nf.function().control("flows", &json!({})).unwrap().unwrap();
    assert_eq!(
        (
            &flows["flows"][0]["application"],
            &flows["flows"][0]["rule"]
        ),
        (&json!("TLS"), &json!("tls"))
    );
}

#[test]
fn packets_behind_a_waiting_one_keep_their_order() {
    let mut nf = firewall(rules());
    connected(&mut nf, CLIENT);
    let frames = [
        says(CLIENT, 101, b"?"),
        says(CLIENT, 102, b"?"),
        says(CLIENT, 103, b"T"),
        says(CLIENT, 104, b"x"),
    ];
    let batch: Vec<(usize, &[u8])> = frames.iter().map(|frame| (0, &frame[..])).collect();
    let mut left: Vec<Vec<u8>> = Vec::new();
    nf.process_all(&batch[..3])
        .iter()
        .for_each(|output| assert_eq!(dropped(output), HELD));
    // In the batch with the next packet, the first answers come.
    left.extend(
        nf.process_leaving(&batch[3..])
            .into_iter()
            .map(|(_, frame)| frame),
    );
    for _ in 0..3 {
        nf.tick();
        left.extend(nf.take_emitted().into_iter().map(|(_, frame)| frame));
    }
    assert_eq!(left, frames);
}

#[test]
fn acknowledgements_stay_behind_payload_that_the_inspector_has_not_got() {
    let mut nf = firewall(rules());
    connected(&mut nf, CLIENT);
    FULL.set(true);
    let frames = [says(CLIENT, 101, b"T"), says(CLIENT, 102, b"")];
    for frame in &frames {
        assert_eq!(dropped(&nf.process(0, frame)), HELD);
    }
    FULL.set(false);
    for _ in 0..3 {
        nf.tick();
    }
    let left: Vec<Vec<u8>> = nf
        .take_emitted()
        .into_iter()
        .map(|(_, frame)| frame)
        .collect();
    assert_eq!(left, frames);
}

#[test]
fn rules_on_applications_drop_and_reject() {
    let mut nf = firewall(rules());
    connected(&mut nf, CLIENT);
    assert_eq!(after_the_answer(&mut nf, &says(CLIENT, 101, b"Y")), []);
    assert_eq!(
        dropped(&nf.process(0, &says(CLIENT, 102, b"x"))),
        "denied by a rule"
    );
    connected(&mut nf, (3, 1));
    let sent = after_the_answer(&mut nf, &says((3, 1), 101, b"H"));
    let flags: Vec<(usize, u8)> = sent
        .iter()
        .map(|(port, frame)| (*port, frame[47]))
        .collect();
    assert_eq!(flags, [(0, RST), (1, RST | ACK)], "both ends are told");
    // A flow that no rule takes is dropped, after three payloads that say nothing.
    connected(&mut nf, (4, 1));
    for number in 101..103 {
        assert_eq!(
            after_the_answer(&mut nf, &says((4, 1), number, b"x")).len(),
            1
        );
    }
    assert_eq!(after_the_answer(&mut nf, &says((4, 1), 103, b"x")), []);
    let rules = nf.function().control("rules", &json!({})).unwrap().unwrap();
    let connections: Vec<&Value> = rules["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["connections"])
        .collect();
    assert_eq!(connections, [1, 0, 1, 1]);
}

/// Returns a firewall whose inspector is silent about a frame that waits.
fn without_an_answer(config: Value) -> (Harness<Firewall<Scripted>>, Vec<u8>) {
    let mut nf = firewall(config);
    connected(&mut nf, CLIENT);
    SILENT.set(true);
    let frame = says(CLIENT, 101, b"Y");
    assert_eq!(after_the_answer(&mut nf, &frame), []);
    (nf, frame)
}

#[test]
fn without_an_answer_the_rule_says_what_happens() {
    let mut open = rules();
    open["rules"][0]["undecided"] = json!("allow");
    for (config, is_open) in [(rules(), false), (open, true)] {
        let (mut nf, frame) = without_an_answer(config);
        nf.advance(201_000_000);
        nf.tick();
        let expected = if is_open { vec![(1, frame)] } else { vec![] };
        assert_eq!(nf.take_emitted(), expected);
        let after = nf.process(0, &says(CLIENT, 102, b"x"));
        assert_eq!(matches!(after, Output::Sent(..)), is_open, "{after:?}");
        // An answer that comes late still decides.
        SILENT.set(false);
        nf.tick();
        assert_eq!(
            dropped(&nf.process(0, &says(CLIENT, 102, b"x"))),
            "denied by a rule"
        );
        assert_eq!(nf.counters()["verdicts_late"], 1);
    }
}

#[test]
fn a_flood_of_syns_costs_the_inspector_nothing() {
    let mut nf = firewall(rules());
    PACKETS.set(0);
    for port in 0..1000 {
        assert!(passes(&mut nf, 0, &tcp((3, port), SERVER, SYN, 1, 0, b"")));
    }
    nf.tick();
    assert_eq!(PACKETS.get(), 0);
}

#[test]
fn connections_that_no_rule_on_applications_may_take_never_wait() {
    let mut config = rules();
    config["rules"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"name": "ssh", "ports": [22], "action": "allow"}));
    let mut nf = firewall(config);
    SILENT.set(true);
    assert!(passes(&mut nf, 0, &tcp(CLIENT, (2, 22), SYN, 1, 0, b"")));
    assert!(passes(&mut nf, 0, &tcp(CLIENT, (2, 22), ACK, 2, 1, b"x")));
    SILENT.set(false);
}

#[test]
fn an_inspector_that_dies_gets_everything_again() {
    let mut nf = firewall(rules());
    connected(&mut nf, CLIENT);
    let first = says(CLIENT, 101, b"?");
    assert_eq!(after_the_answer(&mut nf, &first).len(), 1);
    SILENT.set(true);
    let second = says(CLIENT, 102, b"T");
    assert_eq!(after_the_answer(&mut nf, &second), []);
    RESTARTS.set(RESTARTS.get() + 1);
    PACKETS.set(0);
    SILENT.set(false);
    for _ in 0..4 {
        nf.tick();
    }
    assert_eq!(nf.take_emitted(), [(1, second)]);
    assert_eq!(PACKETS.get(), 5);
    assert_eq!(nf.counters()["inspector_restarts"], 1);
}

#[test]
fn packets_wait_no_longer_for_a_new_inspector() {
    let mut open = rules();
    open["rules"][0]["undecided"] = json!("allow");
    let (mut nf, frame) = without_an_answer(open);
    nf.advance(150_000_000);
    RESTARTS.set(RESTARTS.get() + 1);
    nf.tick();
    assert_eq!(nf.take_emitted(), []);
    nf.advance(51_000_000);
    nf.tick();
    assert_eq!(nf.take_emitted(), [(1, frame)]);
    SILENT.set(false);
}

#[test]
fn a_handshake_alone_costs_a_new_inspector_nothing() {
    let mut nf = firewall(rules());
    connected(&mut nf, CLIENT);
    PACKETS.set(0);
    nf = nf.adopting(config(rules())).unwrap();
    nf.tick();
    RESTARTS.set(RESTARTS.get() + 1);
    nf.tick();
    assert_eq!(PACKETS.get(), 0);
    // Empty segments still pass at once, and never become a reason to guess.
    for _ in 0..10 {
        assert!(passes(&mut nf, 0, &says(CLIENT, 101, b"")));
    }
    assert_eq!(PACKETS.get(), 0);
    let first = says(CLIENT, 101, b"T");
    assert_eq!(after_the_answer(&mut nf, &first), [(1, first)]);
}

fn with_unknown_allowed() -> Value {
    let mut config = rules();
    let unknown = json!({"name": "unknown", "applications": ["Unknown"], "action": "allow", "undecided": "drop"});
    config["rules"].as_array_mut().unwrap().push(unknown);
    config
}

#[test]
fn the_last_inspected_packet_waits_for_the_guess() {
    for (config, is_allowed) in [(rules(), false), (with_unknown_allowed(), true)] {
        let mut nf = firewall(config);
        connected(&mut nf, CLIENT);
        for sequence in 101..105 {
            assert_eq!(
                after_the_answer(&mut nf, &says(CLIENT, sequence, b"?")).len(),
                1
            );
        }
        let last = says(CLIENT, 105, b"?");
        SILENT.set(true);
        assert_eq!(after_the_answer(&mut nf, &last), []);
        SILENT.set(false);
        nf.tick();
        let expected = if is_allowed { vec![(1, last)] } else { vec![] };
        assert_eq!(nf.take_emitted(), expected);
    }
}

#[test]
fn a_guess_is_asked_for_though_the_last_answer_came_during_a_replay() {
    let mut nf = firewall(with_unknown_allowed());
    connected(&mut nf, CLIENT);
    for sequence in 101..105 {
        after_the_answer(&mut nf, &says(CLIENT, sequence, b"?"));
    }
    SILENT.set(true);
    let last = says(CLIENT, 105, b"?");
    assert_eq!(after_the_answer(&mut nf, &last), []);
    // More packets than one step of a replay has.
    for port in 0..100 {
        connected(&mut nf, (3, port));
        after_the_answer(&mut nf, &says((3, port), 101, b"?"));
    }
    SILENT.set(false);
    RESTARTS.set(RESTARTS.get() + 1);
    for _ in 0..4 {
        nf.tick();
    }
    assert!(nf.take_emitted().contains(&(1, last)));
    let next = says(CLIENT, 106, b"?");
    assert!(passes(&mut nf, 0, &next));
}

#[test]
fn a_prefix_of_many_bytes_ends_in_a_guess_however_long_its_packets_wait() {
    let mut config = with_unknown_allowed();
    config["inspection"] = json!({"packets": 20});
    for is_slow in [false, true] {
        let mut nf = firewall(config.clone());
        connected(&mut nf, CLIENT);
        SILENT.set(is_slow);
        let says = |index: u32| says(CLIENT, 101 + index * 9000, &[b'?'; 9000]);
        let mut left = 0;
        for index in 0..7 {
            left += after_the_answer(&mut nf, &says(index)).len();
        }
        if is_slow {
            let more = "more packets than may wait for an application";
            assert_eq!(dropped(&nf.process(0, &says(7))), more);
            SILENT.set(false);
            // Each tick has the answer to a packet, and the next one submitted.
            (0..8).for_each(|_| nf.tick());
            left += nf.take_emitted().len();
        }
        nf.tick();
        assert_eq!(left, 7);
        let flows = nf.function().control("flows", &json!({})).unwrap().unwrap();
        assert_eq!(flows["flows"][0]["application"], "Unknown", "{flows}");
    }
}

#[test]
fn a_connection_that_was_idle_before_its_state_was_lost_goes_on() {
    let mut config = rules();
    config["midstream"] = json!("evaluate");
    let mut nf = firewall(config);
    // A keep-alive has the number of the byte before.
    assert!(passes(&mut nf, 0, &says(CLIENT, 100, b"")));
    let first = says(CLIENT, 101, b"T");
    assert_eq!(after_the_answer(&mut nf, &first), [(1, first)]);
    assert!(passes(&mut nf, 0, &says(CLIENT, 103, b"x")), "decided");
}

#[test]
fn full_memory_decides_by_rule_and_hurts_no_other_flow() {
    let mut config = rules();
    config["inspection"] = json!({"memory_mib": 1});
    let mut nf = firewall(config);
    SILENT.set(true);
    for port in 0..1000 {
        connected(&mut nf, (3, port));
        let output = nf.process(0, &says((3, port), 101, &[b'?'; 1000]));
        assert!(matches!(output, Output::Dropped(_)), "{output:?}");
    }
    SILENT.set(false);
    let rules = nf.function().control("rules", &json!({})).unwrap().unwrap();
    assert!(rules["rules"][0]["undecided"].as_u64().unwrap() > 100);
}

#[test]
fn evasion_by_order_overlap_and_ttl_is_answered() {
    let mut nf = firewall(rules());
    connected(&mut nf, CLIENT);
    assert_eq!(
        dropped(&nf.process(0, &says(CLIENT, 102, b"T"))),
        "out of order before its application is known"
    );
    let low = Segment {
        from: CLIENT,
        to: SERVER,
        flags: ACK,
        sequence: 101,
        acknowledgement: 501,
        payload: b"?a",
        ttl: 1,
    };
    assert_eq!(after_the_answer(&mut nf, &low.frame()).len(), 1);
    // The server may not have got it; what comes in its place must be the same.
    assert_eq!(
        dropped(&nf.process(0, &says(CLIENT, 101, b"?b"))),
        "differs from what was sent before"
    );
    assert_eq!(
        dropped(&nf.process(0, &says(CLIENT, 102, b"bT"))),
        "differs from what was sent before"
    );
    assert!(passes(&mut nf, 0, &says(CLIENT, 101, b"?a")));
    assert_eq!(
        after_the_answer(&mut nf, &says(CLIENT, 103, b"T...")).len(),
        1
    );
    // Also after the verdict, until the server has acknowledged it.
    assert_eq!(
        dropped(&nf.process(0, &says(CLIENT, 103, b"Yxyz"))),
        "differs from what was sent before"
    );
    assert!(passes(&mut nf, 0, &says(CLIENT, 103, b"T...")));
    assert!(passes(&mut nf, 1, &tcp(SERVER, CLIENT, ACK, 501, 107, b"")));
    assert!(passes(&mut nf, 0, &says(CLIENT, 103, b"Yxyz")));
}

#[test]
fn fragments_of_a_waiting_flow_are_dropped() {
    let mut nf = firewall(rules());
    let mut first = udp((1, 5000), (2, 53), b"12345678");
    first[20] = 0x20;
    let mut header = etherparse::Ipv4Header::from_slice(&first[14..]).unwrap().0;
    header.header_checksum = header.calc_header_checksum();
    first.splice(14..34, header.to_bytes().iter().copied());
    // The length in UDP's header is that of the whole datagram.
    first[38..40].copy_from_slice(&100_u16.to_be_bytes());
    assert_eq!(
        dropped(&nf.process(0, &first)),
        "fragment before its application is known"
    );
}

#[test]
fn hosts_are_logged_only_if_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    for (log_hosts, host) in [(false, Value::Null), (true, json!("www.example.com"))] {
        let path = directory.path().join(format!("{log_hosts}.jsonl"));
        let mut config = rules();
        config["rules"][2]["log"] = json!(true);
        config["log"] = json!(path);
        config["log_hosts"] = json!(log_hosts);
        let mut nf = firewall(config);
        connected(&mut nf, CLIENT);
        after_the_answer(&mut nf, &says(CLIENT, 101, b"HTTP secret"));
        let text = std::fs::read_to_string(&path).unwrap();
        let line: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(
            (&line["host"], &line["application"], &line["action"]),
            (&host, &json!("HTTP"), &json!("reject"))
        );
        assert!(!text.contains("secret"));
    }
}

/// A connection's packets: the port by which each comes.
fn conversation(client: End, payloads: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut frames = handshake(client, SERVER).to_vec();
    for (index, byte) in (0..).zip(payloads) {
        frames.push((0, says(client, 101 + index, &[*byte])));
        frames.push((1, tcp(SERVER, client, ACK, 501, 102 + index, b"")));
    }
    frames
}

/// Returns all frames that leave, of each connection in order.
fn outputs(frames: &[(usize, Vec<u8>)], moves: &[bool], deaths: &[bool]) -> Vec<(usize, Vec<u8>)> {
    let mut small = rules();
    small["flows"] = json!(64);
    small["inspection"] = json!({"memory_mib": 1});
    let mut nf = firewall(small.clone());
    let mut left = Vec::new();
    for (index, (port, frame)) in frames.iter().enumerate() {
        if moves[index % moves.len()] {
            nf = nf.adopting(config(small.clone())).unwrap();
        }
        if deaths[index % deaths.len()] {
            RESTARTS.set(RESTARTS.get() + 1);
        }
        nf.advance(1_000_000);
        left.extend(nf.process_leaving(&[(*port, &frame[..])]));
        if index % 3 == 0 {
            nf.tick();
            left.extend(nf.take_emitted());
        }
    }
    for _ in 0..20 {
        nf.tick();
        left.extend(nf.take_emitted());
    }
    left
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn moves_and_deaths_of_the_inspector_change_nothing(
        payloads in proptest::collection::vec(proptest::collection::vec(proptest::sample::select(&b"??xTYH"[..]), 1..12), 1..6),
        order in proptest::collection::vec(any::<prop::sample::Index>(), 1..60),
        moves in proptest::collection::vec(any::<bool>(), 1..30),
        deaths in proptest::collection::vec(proptest::bool::weighted(0.2), 1..30),
    ) {
        let mut flows: Vec<_> = (1..).zip(&payloads).map(|(port, payloads)| conversation((1, port), payloads).into_iter()).collect();
        let mut frames = Vec::new();
        for index in order {
            let flow = index.index(flows.len());
            frames.extend(flows[flow].next());
        }
        flows.into_iter().for_each(|flow| frames.extend(flow));
        let by_flow = |left: Vec<(usize, Vec<u8>)>| {
            let mut by_flow = std::collections::BTreeMap::<u16, Vec<(usize, Vec<u8>)>>::new();
            for (port, frame) in left {
                let client = if port == 1 { &frame[34..36] } else { &frame[36..38] };
                by_flow.entry(u16::from_be_bytes([client[0], client[1]])).or_default().push((port, frame));
            }
            by_flow
        };
        let alone = by_flow(outputs(&frames, &[false], &[false]));
        prop_assert_eq!(by_flow(outputs(&frames, &moves, &deaths)), alone);
    }
}
