//! Random rules and connections, decided by the function and by the plainest reading of its documentation.

#![allow(clippy::unwrap_used, clippy::panic)] // tests

mod common;

use std::net::Ipv4Addr;

use common::{config, Scripted};
use etherparse::PacketBuilder;
use nf_firewall::Firewall;
use nf_runtime::testing::{Harness, Output};
use proptest::prelude::*;
use serde_json::{json, Value};

#[derive(Clone, Debug)]
struct Opening {
    port: usize,
    source: [u8; 4],
    destination: [u8; 4],
    is_tcp: bool,
    ports: (u16, u16),
}

fn frame(opening: &Opening) -> Vec<u8> {
    let builder =
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(opening.source, opening.destination, 9);
    let mut frame = Vec::new();
    if opening.is_tcp {
        builder
            .tcp(opening.ports.0, opening.ports.1, 1, 1)
            .syn()
            .write(&mut frame, b"")
            .unwrap();
    } else {
        builder
            .udp(opening.ports.0, opening.ports.1)
            .write(&mut frame, b"")
            .unwrap();
    }
    frame
}

/// Tells whether an address is in one of the prefixes. No prefixes: it is.
fn is_in(address: [u8; 4], prefixes: &Value) -> bool {
    let Some(prefixes) = prefixes.as_array().filter(|prefixes| !prefixes.is_empty()) else {
        return true;
    };
    prefixes.iter().any(|prefix| {
        let (network, length) = prefix.as_str().unwrap().split_once('/').unwrap();
        let network: Ipv4Addr = network.parse().unwrap();
        let length: u32 = length.parse().unwrap();
        (0..length)
            .all(|bit| (u32::from(network) ^ u32::from_be_bytes(address)) >> (31 - bit) & 1 == 0)
    })
}

fn is_one(value: u16, ranges: &Value) -> bool {
    let Some(ranges) = ranges.as_array().filter(|ranges| !ranges.is_empty()) else {
        return true;
    };
    ranges.iter().any(|range| {
        let text = range.as_str().unwrap();
        let (first, last) = text.split_once('-').unwrap();
        (first.parse().unwrap()..=last.parse().unwrap()).contains(&value)
    })
}

fn takes(rule: &Value, opening: &Opening) -> bool {
    let zone = |key: &str, port: usize| {
        let zones = rule[key].as_array().unwrap();
        zones.is_empty() || zones.contains(&json!(["left", "right"][port]))
    };
    let protocol = json!(if opening.is_tcp { "tcp" } else { "udp" });
    let protocols = rule["protocols"].as_array().unwrap();
    zone("from", opening.port)
        && zone("to", 1 - opening.port)
        && is_in(opening.source, &rule["source"])
        && is_in(opening.destination, &rule["destination"])
        && (protocols.is_empty() || protocols.contains(&protocol))
        && is_one(opening.ports.0, &rule["source_ports"])
        && is_one(opening.ports.1, &rule["ports"])
}

fn prefix() -> impl Strategy<Value = String> {
    (0..4_u8, 0..4_u8, 29..=32_u32).prop_map(|(third, last, length)| {
        let bits = u32::from_be_bytes([10, 0, third, last]) & (u32::MAX << (32 - length));
        format!("{}/{length}", Ipv4Addr::from(bits))
    })
}

fn some<S: Strategy>(one: S) -> impl Strategy<Value = Vec<S::Value>> {
    prop_oneof![Just(0..1), Just(1..3)].prop_flat_map({
        let one = std::sync::Arc::new(one);
        move |count| proptest::collection::vec(std::sync::Arc::clone(&one), count)
    })
}

fn range() -> impl Strategy<Value = String> {
    (0..6_u16, 0..3_u16).prop_map(|(first, more)| format!("{first}-{}", first + more))
}

fn rule() -> impl Strategy<Value = Value> {
    let zones = || some(proptest::sample::select(vec!["left", "right"]));
    let protocols = some(proptest::sample::select(vec!["tcp", "udp"]));
    let action = proptest::sample::select(vec!["allow", "drop", "reject"]);
    (zones(), zones(), some(prefix()), some(prefix()), protocols, some(range()), some(range()), action).prop_map(
        |(from, to, source, destination, protocols, source_ports, ports, action)| {
            json!({"from": from, "to": to, "source": source, "destination": destination, "protocols": protocols,
                "source_ports": source_ports, "ports": ports, "action": action})
        },
    )
}

fn opening() -> impl Strategy<Value = Opening> {
    (
        0..2_usize,
        [0..4_u8, 0..4, 0..4, 0..4],
        any::<bool>(),
        0..8_u16,
        0..8_u16,
    )
        .prop_map(
            |(port, [a, b, c, d], is_tcp, source, destination)| Opening {
                port,
                source: [10, 0, a, b],
                destination: [10, 0, c, d],
                is_tcp,
                ports: (source, destination),
            },
        )
}

/// All connections that the strategies above can make with the parts that rules look at, for the search of dead rules.
fn everything() -> Vec<Opening> {
    let mut all = Vec::new();
    for port in 0..2 {
        for (a, b, c, d) in
            (0..256_u16).map(|bits| (bits & 3, bits >> 2 & 3, bits >> 4 & 3, bits >> 6))
        {
            for ports in 0..72 {
                for is_tcp in [false, true] {
                    all.push(Opening {
                        port,
                        source: [10, 0, a as u8, b as u8],
                        destination: [10, 0, c as u8, d as u8],
                        is_tcp,
                        ports: (ports % 9, ports / 9),
                    });
                }
            }
        }
    }
    all
}

fn whole(rules: &[Value]) -> Value {
    let mut rules = rules.to_vec();
    for (index, rule) in rules.iter_mut().enumerate() {
        rule["name"] = json!(format!("r{index}"));
    }
    json!({"zones": {"left": {"ports": [0]}, "right": {"ports": [1]}}, "rules": rules, "flows": 64, "inspection": {"memory_mib": 1}})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn the_first_rule_that_takes_a_connection_decides_it(
        rules in proptest::collection::vec(rule(), 1..6),
        openings in proptest::collection::vec(opening(), 20),
    ) {
        let nf = Harness::<Firewall<Scripted>>::new(config(whole(&rules)));
        let mut nf = match nf {
            Ok(nf) => nf,
            Err(refused) => {
                // The rule that is named takes nothing before others.
                let index: usize = refused.detail.split(['[', ']']).nth(1).unwrap().parse().unwrap();
                let lives = everything().into_iter().any(|opening| {
                    takes(&rules[index], &opening) && !rules[..index].iter().any(|rule| takes(rule, &opening))
                });
                prop_assert!(!lives, "{}", refused);
                return Ok(());
            }
        };
        for opening in &openings {
            let expected = rules.iter().find(|rule| takes(rule, opening)).map_or("drop", |rule| rule["action"].as_str().unwrap());
            // Each connection is a new one: answers of an earlier one would pass.
            nf.advance(4_000_000_000_000);
            let frame = frame(opening);
            let got = match nf.process(opening.port, &frame) {
                Output::Sent(port, sent) if port == 1 - opening.port && sent == frame => "allow",
                Output::Dropped("denied by a rule") => "drop",
                Output::Dropped("rejected by a rule") => "reject",
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(got, expected, "{:?}", opening);
        }
    }
}
