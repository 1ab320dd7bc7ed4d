//! Connections that a faster table carries: over random histories no packet reaches another backend than its record's, and each is counted once, for its
//! VIP and its backend.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;
#[path = "../../offload/tests/histories/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../../offload/tests/histories/table.rs"]
#[allow(dead_code)]
mod table;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use common::*;
use model::Model;
use nf_l4lb::L4lb;
use nf_offload::{Refused, Target};
use nf_runtime::{
    testing::{Harness, Output},
    NetworkFunction, Refusal,
};
use proptest::prelude::*;
use serde_json::{json, Value};
use table::Table;

const CLIENTS: u16 = 6;
const BACKENDS: [u8; 3] = [11, 12, 13];
/// The numbers of backends: few, so that they are reused.
const NUMBERS: usize = 8;
/// The time after which a removed backend's number may be reused, and records have expired.
const QUARANTINE: u64 = 1300 * SECOND;
const MILLISECOND: u64 = 1_000_000;
/// The burst of a client, of which one packet is sampled.
const BURST: usize = 8;

fn policy(backends: &[u8]) -> Value {
    let mut other = with(vip("nat", backends), "name", "other");
    other["port"] = json!(81);
    let mut config = config(json!([vip("nat", backends), other]));
    config["offload"] =
        json!({"begin": 0.0, "stop": 0.0, "heavy_packets_per_s": 1.0, "idle": "2s"});
    config["tables"]["offload"] = json!(64);
    config["tables"]["backends"] = json!(NUMBERS);
    config["tables"]["vips"] = json!(2);
    config
}

#[derive(Clone, Debug)]
enum Step {
    /// A burst of a client; where a rule fades, packets may take it.
    Packets {
        client: u16,
        fades_too: bool,
    },
    Answers {
        client: u16,
        fades_too: bool,
    },
    Fin(u16),
    /// The function exchanges requests and events with the table, and this much time passes (ms).
    Turn(u64),
    /// The table handles this number of requests; an install gets this answer.
    Work(u8, Option<Refused>),
    Settle,
    Count,
    LoseTotals,
    Reset,
    /// The configuration has these backends from now on, if there are numbers for them: a bit each, from 11 on.
    Configure(u8),
    /// The time passes after which numbers may be reused.
    Wait,
    /// Another instance adopts the state, as in a move.
    Move,
    /// Another instance begins without state.
    Renew,
}

fn step() -> impl Strategy<Value = Step> {
    let refused = prop::sample::select(&Refused::ALL[..4]);
    prop_oneof![
        20 => (0..CLIENTS, any::<bool>()).prop_map(|(client, fades_too)| Step::Packets { client, fades_too }),
        10 => (0..CLIENTS, any::<bool>()).prop_map(|(client, fades_too)| Step::Answers { client, fades_too }),
        1 => (0..CLIENTS).prop_map(Step::Fin),
        20 => (20u64..600).prop_map(Step::Turn),
        20 => (1u8..8, prop::option::weighted(0.05, refused)).prop_map(|(count, refused)| Step::Work(count, refused)),
        3 => Just(Step::Settle),
        3 => Just(Step::Count),
        1 => Just(Step::LoseTotals),
        1 => Just(Step::Reset),
        2 => (1u8..64).prop_map(Step::Configure),
        1 => Just(Step::Wait),
        1 => Just(Step::Move),
        1 => Just(Step::Renew),
    ]
}

/// Returns the port of the client's VIP: there are two.
fn service(client: u16) -> u16 {
    80 + client % 2
}

fn sent_by(client: u16, flags: u8) -> Sent {
    Sent::client(1000 + client, flags).to("192.0.2.1", service(client))
}

fn last_octet(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => Ipv6Addr::octets(&address)[15],
    }
}

struct World {
    lb: Harness<L4lb>,
    table: Table,
    backends: Vec<u8>,
    /// The backend that each open connection has reached.
    connections: BTreeMap<u16, u8>,
    /// By VIP.
    to_backends: [u64; 2],
    to_clients: [u64; 2],
    carried: u64,
}

impl World {
    fn new() -> Self {
        Self {
            lb: start(policy(&BACKENDS)),
            table: Table::default(),
            backends: BACKENDS.to_vec(),
            connections: BTreeMap::new(),
            to_backends: [0; 2],
            to_clients: [0; 2],
            carried: 0,
        }
    }

    /// Returns where a packet ends, by the table or else by the function: the destination's MAC address, address and port, and the source's.
    fn way(&mut self, sent: &Sent, fades_too: bool) -> Result<Seen, &'static str> {
        let by_function = |lb: &mut Harness<L4lb>| match lb.process(0, &sent.frame()) {
            Output::Sent(_, frame) => Ok(read(&frame)),
            Output::Dropped(reason) => Err(reason),
        };
        // The table leaves the ends of connections to the function.
        let is_left = sent.flags & (SYN | FIN | RST) != 0;
        let carried = (!is_left).then(|| self.table.carry(key(sent), fades_too));
        let Some(id) = carried.flatten() else {
            return by_function(&mut self.lb);
        };
        self.carried += 1;
        let Target::Rewrite { rewrite, .. } = self.table.target(id).unwrap() else {
            panic!("{id:?} does not rewrite");
        };
        assert_eq!(rewrite.source_mac.0, PORT_MAC);
        let mut seen = Seen {
            to: rewrite.destination_mac.0,
            ttl: sent.ttl - 1,
            ..read(&sent.frame())
        };
        seen.source = rewrite.source.unwrap_or(seen.source);
        seen.destination = rewrite.destination.unwrap_or(seen.destination);
        Ok(seen)
    }

    fn packets(&mut self, client: u16, fades_too: bool) {
        if !self.connections.contains_key(&client) {
            self.packet(client, &sent_by(client, SYN), false);
        }
        // A client whose SYN was dropped sends no more.
        if !self.connections.contains_key(&client) {
            return;
        }
        for _ in 0..BURST {
            self.packet(client, &sent_by(client, ACK), fades_too);
        }
    }

    fn packet(&mut self, client: u16, sent: &Sent, fades_too: bool) {
        let before = self.connections.get(&client).copied();
        match self.way(sent, fades_too) {
            Ok(seen) => {
                self.to_backends[usize::from(client % 2)] += 1;
                let backend = last_octet(seen.destination.0);
                assert_eq!(seen.to, mac_of(backend));
                if let Some(before) = before {
                    let may_move = !self.backends.contains(&before);
                    assert!(before == backend || may_move, "{before} -> {backend}");
                }
                self.connections.insert(client, backend);
            }
            Err(reason) => assert!(
                reason == "rule acts" && before.is_none_or(|it| !self.backends.contains(&it)),
                "{reason}"
            ),
        }
    }

    fn answers(&mut self, client: u16, fades_too: bool) {
        let Some(&backend) = self.connections.get(&client) else {
            return;
        };
        for _ in 0..BURST {
            let mut sent = answer(backend, 1000 + client, ACK);
            sent.source.1 = service(client);
            if let Ok(seen) = self.way(&sent, fades_too) {
                if seen.destination == (sent.destination.0, 1000 + client) && seen.to == GATEWAY_MAC
                {
                    if self.backends.contains(&backend) {
                        assert_eq!(seen.source, (ip("192.0.2.1"), service(client)));
                    }
                    let is_translated = seen.source.0 == ip("192.0.2.1");
                    self.to_clients[usize::from(client % 2)] += u64::from(is_translated);
                }
            }
        }
    }

    fn turn(&mut self, milliseconds: u64) {
        self.lb.advance(milliseconds * MILLISECOND);
        self.lb.tick();
        self.lb.offload(&mut self.table);
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Packets { client, fades_too } => self.packets(client, fades_too),
            Step::Answers { client, fades_too } => self.answers(client, fades_too),
            Step::Fin(client) => {
                if self.connections.contains_key(&client) {
                    self.packet(client, &sent_by(client, FIN | ACK), false);
                }
            }
            Step::Turn(milliseconds) => self.turn(milliseconds),
            Step::Work(count, refuses) => (0..count).for_each(|_| self.table.work(refuses)),
            Step::Settle => self.table.settle(),
            Step::Count => self.table.count(),
            Step::LoseTotals => {
                self.learn();
                self.table.lose_totals();
                self.turn(20);
            }
            Step::Reset => {
                self.learn();
                self.table.reset();
            }
            Step::Configure(bits) => {
                let chosen = (0..6).filter(|bit| bits & 1 << bit != 0);
                let chosen: Vec<u8> = chosen.map(|bit| BACKENDS[0] + bit).take(3).collect();
                if let Err(refusal) = self.configure(&chosen) {
                    assert_eq!(refusal.code, "backends-exhausted");
                }
            }
            Step::Wait => self.wait(),
            Step::Renew => self.renew(),
            Step::Move => {
                let config = serde_json::from_value(policy(&self.backends)).unwrap();
                let next = self.lb.adopting(config).unwrap().with_ports(1);
                self.lb = next;
            }
        }
    }

    /// Lets the function learn all counts.
    fn learn(&mut self) {
        self.table.count();
        self.table.settle();
        self.turn(20);
    }

    fn configure(&mut self, backends: &[u8]) -> Result<(), Refusal> {
        let config = serde_json::from_value(policy(backends)).unwrap();
        self.lb.function().configure(config)?;
        self.backends = backends.to_vec();
        Ok(())
    }

    fn wait(&mut self) {
        self.lb.advance(QUARANTINE);
        self.lb.tick();
        self.connections.clear();
    }

    fn renew(&mut self) {
        self.learn();
        self.check_counts();
        self.lb = start(policy(&self.backends));
        self.connections.clear();
        (self.to_backends, self.to_clients) = ([0; 2], [0; 2]);
        // The table answers when it has removed the rules of the instance before.
        self.turn(20);
        self.table.settle();
        self.turn(20);
        self.check_counts();
    }

    fn by_vip(&self, counter: &str) -> [u64; 2] {
        ["web", "other"].map(|vip| self.lb.count(&format!("{counter}{{vip=\"{vip}\"}}")))
    }

    fn check_counts(&self) {
        assert_eq!(self.by_vip("vip_packets"), self.to_backends);
        assert_eq!(self.by_vip("vip_answers"), self.to_clients);
    }

    /// Lets all rules end: nothing is left in the table, each packet was counted once, and all numbers of removed backends can be reused.
    fn finish(&mut self) {
        for _ in 0..150 {
            self.turn(100);
            (0..5).for_each(|_| self.table.work(None));
            self.table.count();
            self.table.settle();
        }
        assert!(self.table.is_empty(), "orphans: {:?}", self.table);
        self.check_counts();
        self.configure(&[]).unwrap();
        self.wait();
        self.configure(&[17, 18, 19, 20]).unwrap();
        self.check_counts();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_packet_reaches_another_backend_and_each_is_counted_once(
        steps in prop::collection::vec(step(), 1..240),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.play(step);
        }
        world.finish();
    }
}

/// Returns a world in which client 1 has rules for both directions.
fn offloading() -> World {
    let mut world = World::new();
    for _ in 0..6 {
        world.packets(1, false);
        world.answers(1, false);
        world.turn(200);
        (0..5).for_each(|_| world.table.work(None));
    }
    world
}

#[test]
fn a_heavy_connection_gets_rules_for_both_directions_and_loses_them_when_idle() {
    let mut world = offloading();
    let acting = world.table.acting();
    assert_eq!(acting.len(), 2, "{acting:?}");
    assert!(acting.iter().any(|(_, target)| target.0 >= 1 << 15));
    let before = world.carried;
    world.packets(1, false);
    world.answers(1, false);
    assert_eq!(world.carried, before + 2 * BURST as u64);
    let status = world.lb.function().offloaded();
    assert_eq!(
        (&status["state"], &status["flows"]),
        (&json!("connected"), &json!(2))
    );
    world.finish();
}

#[test]
fn a_backends_number_is_reused_when_its_rules_are_gone_and_their_packets_stay_its_own() {
    let mut world = offloading();
    let backend = world.connections[&1];
    world.configure(&[]).unwrap();
    world.wait();
    // All numbers but those of the backends would do.
    let others = [21, 22, 23, 24];
    let is_refused = |world: &mut World| {
        world.connections.insert(1, backend);
        let before = world.carried;
        world.packets(1, true);
        world.answers(1, true);
        assert_eq!(world.carried, before + 2 * BURST as u64);
        let refusal = world.configure(&others).unwrap_err();
        assert_eq!(refusal.code, "backends-exhausted");
    };
    is_refused(&mut world);
    for _ in 0..3 {
        world.turn(200);
        (0..5).for_each(|_| world.table.work(None));
        is_refused(&mut world);
    }
    world.table.settle();
    assert!(world.table.is_empty());
    assert_eq!(
        world.configure(&others).unwrap_err().code,
        "backends-exhausted",
        "the function does not know"
    );
    world.turn(200);
    world.configure(&others).unwrap();
    world.check_counts();
    for other in others {
        for (vip, counter) in [
            ("web", "packets"),
            ("other", "packets"),
            ("web", "answers"),
            ("other", "answers"),
        ] {
            let name = format!("backend_{counter}{{vip=\"{vip}\",backend=\"web{other}\"}}");
            assert_eq!(world.lb.count(&name), 0, "{name}");
        }
    }
    world.finish();
}

#[test]
fn a_new_vip_does_not_count_what_rules_carried_for_a_removed_one() {
    let mut world = offloading();
    world.packets(1, false);
    assert!(world.carried > 0);
    world.finish();
    world.configure(&[]).unwrap();
    let mut config = policy(&BACKENDS);
    for (vip, name) in [(0, "third"), (1, "fourth")] {
        config["vips"][vip]["name"] = json!(name);
        config["vips"][vip]["address"] = json!("192.0.2.3");
    }
    world.wait();
    let config = serde_json::from_value(config).unwrap();
    world.lb.function().configure(config).unwrap();
    for name in ["third", "fourth"] {
        assert_eq!(world.lb.count(&format!("vip_packets{{vip=\"{name}\"}}")), 0);
    }
}

/// 100 histories on every day; `OFFLOAD_HISTORIES` changes the number.
fn cases() -> u32 {
    let asked = std::env::var("OFFLOAD_HISTORIES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(100)
}
