//! Connections that rules of the switch carry: over random histories each packet goes the same way as without a table, and is counted once.

#![allow(clippy::unwrap_used, clippy::panic)] // tests

mod common;
#[path = "../../offload/tests/histories/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../../offload/tests/histories/table.rs"]
#[allow(dead_code)]
mod table;

use std::sync::{
    atomic::{AtomicBool, Ordering},
    Arc,
};

use common::*;
use model::Model;
use nf_firewall::Firewall;
use nf_offload::{Driver, Event, FlowKey, Listing, Refused, Request, Target, Unavailable, Writer};
use nf_runtime::{
    testing::{Harness, Output},
    NetworkFunction, Refusal,
};
use proptest::prelude::*;
use serde_json::{json, Value};
use table::Table;

type Nf = Harness<Firewall<Scripted>>;

const MILLISECOND: u64 = 1_000_000;
const CONNECTIONS: u8 = 6;
const SERVER: u8 = 100;
/// The packets of a burst, of which one is sampled.
const BURST: usize = 8;
const RULE_ACTS: &str = "a rule of the switch still acts for the connection before";

/// The tables of two ports, which may be out of reach.
#[derive(Clone, Default)]
struct Tables {
    ports: [Table; 2],
    is_dead: Arc<AtomicBool>,
}

struct Mortal(Box<dyn Driver + Send>, Arc<AtomicBool>);

fn dead() -> Unavailable {
    Unavailable {
        why: "oneswitchd does not answer".into(),
        is_replaced: false,
    }
}

impl nf_offload::Table for Tables {
    fn open(&mut self, writer: Writer, port: usize) -> Result<Box<dyn Driver + Send>, Unavailable> {
        if self.is_dead.load(Ordering::Relaxed) {
            return Err(dead());
        }
        let driver = self.ports[port].open(writer, 0)?;
        Ok(Box::new(Mortal(driver, Arc::clone(&self.is_dead))))
    }
}

impl Driver for Mortal {
    fn capabilities(&self) -> Option<nf_offload::Capabilities> {
        self.0.capabilities()
    }

    fn submit(&mut self, requests: &[Request]) -> usize {
        match self.1.load(Ordering::Relaxed) {
            true => 0,
            false => self.0.submit(requests),
        }
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), Unavailable> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(dead()),
            false => self.0.poll(events),
        }
    }

    fn list(&mut self) -> Option<Listing> {
        self.0.list()
    }
}

/// A configuration of a few that differ in what they do with carried connections.
fn policy(variant: u8) -> Value {
    let mut config = json!({
        "flows": 256, "inspection": {"memory_mib": 1},
        "timeouts": {"unanswered_s": 1000, "established_s": 1000, "closing_s": 1000, "datagrams_s": 1000},
        "offload": {"heavy_packets_per_s": 1.0, "idle_s": 2},
        "rules": [
            {"name": "videos", "applications": ["TLS.YouTube"], "protocols": ["tcp"], "ports": [80], "action": "drop"},
            {"name": "web", "applications": ["HTTP", "TLS"], "protocols": ["tcp"], "ports": [80], "action": "allow"},
            {"name": "plain", "protocols": ["tcp"], "ports": [443], "action": "allow"},
            {"name": "dns", "protocols": ["udp"], "ports": [53], "action": "allow"},
        ],
    });
    let rules = &mut config["rules"];
    match variant {
        1 => rules[2]["action"] = json!("drop"),
        2 => rules[2]["log"] = json!(true),
        3 => rules[1]["name"] = json!("web sites"),
        4 => rules[3]["rate"] = json!({"packets": 1_000_000}),
        5 => rules[0]["action"] = json!("reject"),
        6 => {
            rules[2] = json!({"name": "plain", "applications": ["HTTP"], "protocols": ["tcp"], "ports": [443], "action": "allow"})
        }
        _ => {}
    }
    config
}

#[derive(Clone, Debug)]
enum Step {
    /// A burst of a side; where a rule fades, packets may take it.
    Burst {
        connection: u8,
        is_answer: bool,
        fades_too: bool,
    },
    Fin {
        connection: u8,
        is_answer: bool,
    },
    Rst(u8),
    /// The client opens the connection again, whatever has become of it.
    Syn(u8),
    Fragment(u8),
    Unreachable(u8),
    /// The firewall exchanges requests and events with the table, and this much time passes (ms).
    Turn(u64),
    /// A port's table handles this number of requests; an install gets this answer.
    Work(usize, u8, Option<Refused>),
    Settle,
    Count,
    Reset(usize),
    Configure(u8),
    Die,
    Live,
    Wait,
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let refused = prop::sample::select(&Refused::ALL[..4]);
    let one = || 0..CONNECTIONS;
    prop_oneof![
        30 => (one(), any::<bool>(), any::<bool>()).prop_map(|(connection, is_answer, fades_too)| Step::Burst { connection, is_answer, fades_too }),
        2 => (one(), any::<bool>()).prop_map(|(connection, is_answer)| Step::Fin { connection, is_answer }),
        1 => one().prop_map(Step::Rst),
        2 => one().prop_map(Step::Syn),
        1 => one().prop_map(Step::Fragment),
        1 => one().prop_map(Step::Unreachable),
        20 => (20u64..600).prop_map(Step::Turn),
        20 => (0..2usize, 1u8..8, prop::option::weighted(0.05, refused)).prop_map(|(port, count, refused)| Step::Work(port, count, refused)),
        3 => Just(Step::Settle),
        3 => Just(Step::Count),
        1 => (0..2usize).prop_map(Step::Reset),
        2 => (0..7u8).prop_map(Step::Configure),
        1 => Just(Step::Die),
        2 => Just(Step::Live),
        1 => Just(Step::Wait),
        1 => Just(Step::Move),
    ]
}

/// A connection, as its ends see it: the next sequence number of each.
#[derive(Clone, Copy, Default)]
struct Ends {
    is_open: bool,
    next: [u32; 2],
}

/// The firewall with a table, and one without, which get the same packets.
struct World {
    nf: Nf,
    plain: Nf,
    tables: Tables,
    variant: u8,
    ends: [Ends; CONNECTIONS as usize],
    carried: u64,
}

fn is_udp(connection: u8) -> bool {
    connection == 3
}

fn service(connection: u8) -> u16 {
    [80, 80, 443, 53, 443, 80][usize::from(connection)]
}

fn client(connection: u8) -> End {
    (connection + 1, 1000 + u16::from(connection))
}

fn key(connection: u8, is_answer: bool) -> FlowKey {
    let octets = |last: u8| {
        std::net::Ipv4Addr::new(10, 0, 0, last)
            .to_ipv6_mapped()
            .octets()
    };
    let (client, server) = (client(connection), (SERVER, service(connection)));
    let (from, to) = if is_answer {
        (server, client)
    } else {
        (client, server)
    };
    FlowKey {
        source: octets(from.0),
        destination: octets(to.0),
        source_port: from.1,
        destination_port: to.1,
        protocol: if is_udp(connection) { 17 } else { 6 },
    }
}

impl World {
    fn new() -> Self {
        Self {
            nf: firewall(policy(0)),
            plain: firewall(policy(0)),
            tables: Tables::default(),
            variant: 0,
            ends: Default::default(),
            carried: 0,
        }
    }

    /// Sends a frame of a connection; it goes the same way with the table and without. Returns whether it passed. `fades_too`: it may take a rule, also
    /// one that is being removed; None: the table leaves it to the firewall.
    fn send(&mut self, connection: u8, is_answer: bool, frame: &[u8], rules: Option<bool>) -> bool {
        let port = usize::from(is_answer);
        let table = &self.tables.ports[port];
        let target = rules.and_then(|fades_too| table.carry(key(connection, is_answer), fades_too));
        let passed = match target.map(|id| table.target(id).unwrap()) {
            Some(Target::Pass { port: out }) => {
                assert_eq!(usize::from(out), 1 - port);
                Some(Output::Sent(out.into(), frame.to_vec()))
            }
            Some(Target::Deny) => None,
            Some(other) => panic!("{other:?}"),
            None => match self.nf.process(port, frame) {
                Output::Dropped(RULE_ACTS) => return false,
                Output::Dropped(_) => None,
                sent => Some(sent),
            },
        };
        self.carried += u64::from(target.is_some());
        let expected = match self.plain.process(port, frame) {
            Output::Dropped(_) => None,
            sent => Some(sent),
        };
        assert_eq!(passed, expected, "{connection} {is_answer} {target:?}");
        self.emitted();
        passed.is_some()
    }

    /// The frames that both have sent beside.
    fn emitted(&mut self) -> usize {
        self.nf.tick();
        self.plain.tick();
        let emitted = self.nf.take_emitted();
        assert_eq!(emitted, self.plain.take_emitted());
        emitted.len()
    }

    fn segment(&mut self, connection: u8, is_answer: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (client, server) = (client(connection), (SERVER, service(connection)));
        let ends = &mut self.ends[usize::from(connection)];
        let (own, other) = (usize::from(is_answer), usize::from(!is_answer));
        let (sequence, acknowledged) = (ends.next[own], ends.next[other]);
        ends.next[own] += payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        let (from, to) = if is_answer {
            (server, client)
        } else {
            (client, server)
        };
        tcp(from, to, flags, sequence, acknowledged, payload)
    }

    fn open(&mut self, connection: u8) {
        let at = usize::from(connection);
        let base = self.ends[at].next;
        self.ends[at] = Ends {
            is_open: false,
            next: [base[0] + 100_000, base[1] + 500_000],
        };
        let syn = self.segment(connection, false, SYN, b"");
        if !self.send(connection, false, &syn, None) {
            return;
        }
        let answer = self.segment(connection, true, SYN | ACK, b"");
        self.send(connection, true, &answer, None);
        let ack = self.segment(connection, false, ACK, b"");
        self.send(connection, false, &ack, Some(false));
        let first = [b"H", b"Y", b"x", b"x", b"x", b"T"][at];
        let data = self.segment(connection, false, ACK, first);
        self.send(connection, false, &data, Some(false));
        let ack = self.segment(connection, true, ACK, b"");
        self.send(connection, true, &ack, Some(false));
        self.ends[at].is_open = true;
    }

    fn burst(&mut self, connection: u8, is_answer: bool, fades_too: bool) {
        for _ in 0..BURST {
            let frame = if is_udp(connection) {
                let (client, server) = (client(connection), (SERVER, service(connection)));
                let (from, to) = if is_answer {
                    (server, client)
                } else {
                    (client, server)
                };
                udp(from, to, b"data")
            } else {
                if !self.ends[usize::from(connection)].is_open {
                    self.open(connection);
                }
                if !self.ends[usize::from(connection)].is_open {
                    return;
                }
                self.segment(connection, is_answer, ACK, b"")
            };
            self.send(connection, is_answer, &frame, Some(fades_too));
        }
    }

    fn turn(&mut self, milliseconds: u64) {
        for nf in [&mut self.nf, &mut self.plain] {
            nf.advance(milliseconds * MILLISECOND);
        }
        self.emitted();
        self.nf.offload(&mut self.tables);
    }

    /// Lets the firewall learn all counts.
    fn learn(&mut self) {
        for table in &self.tables.ports {
            table.count();
            table.settle();
        }
        // A table that was lost is opened again after half a second.
        for _ in 0..4 {
            self.turn(300);
            self.tables.ports.iter().for_each(Model::count);
        }
        self.turn(20);
    }

    fn live(&mut self) {
        self.tables.is_dead.store(false, Ordering::Relaxed);
    }

    fn configure(&mut self, variant: u8) -> Result<(), Refusal> {
        let config = || config(policy(variant));
        let is_done = AtomicBool::new(false);
        let configured = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    for table in &self.tables.ports {
                        table.work(None);
                        table.settle();
                    }
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            let configured = self.nf.function().configure(config());
            is_done.store(true, Ordering::Relaxed);
            configured
        });
        configured?;
        self.plain.function().configure(config()).unwrap();
        self.variant = variant;
        Ok(())
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Burst {
                connection,
                is_answer,
                fades_too,
            } => self.burst(connection, is_answer, fades_too),
            Step::Fin {
                connection,
                is_answer,
            } => self.end(connection, is_answer, FIN | ACK),
            Step::Rst(connection) => self.end(connection, false, RST | ACK),
            Step::Syn(connection) if !is_udp(connection) => self.open(connection),
            Step::Syn(_) => {}
            Step::Fragment(connection) => {
                let mut frame = self.segment(connection, false, ACK, b"");
                frame[20] |= 0x20;
                let checksum = !frame[14..34]
                    .chunks(2)
                    .enumerate()
                    .filter(|(at, _)| *at != 5)
                    .fold(0u32, |sum, (_, two)| {
                        let sum = sum + u32::from(u16::from_be_bytes([two[0], two[1]]));
                        (sum & 0xffff) + (sum >> 16)
                    }) as u16;
                frame[24..26].copy_from_slice(&checksum.to_be_bytes());
                if !is_udp(connection) {
                    self.send(connection, false, &frame, None);
                }
            }
            Step::Unreachable(connection) => {
                let about = self.segment(connection, false, ACK, b"");
                let frame = unreachable(SERVER, client(connection).0, &about);
                self.send(connection, true, &frame, None);
            }
            Step::Turn(milliseconds) => self.turn(milliseconds),
            Step::Work(port, count, refuses) => {
                (0..count).for_each(|_| self.tables.ports[port].work(refuses))
            }
            Step::Settle => self.tables.ports.iter().for_each(Model::settle),
            Step::Count => self.tables.ports.iter().for_each(Model::count),
            Step::Reset(port) => {
                self.live();
                self.learn();
                self.tables.ports[port].reset();
                self.learn();
            }
            Step::Configure(variant) => {
                if let Err(refusal) = self.configure(variant) {
                    assert_eq!(refusal.code, "offload");
                    let state = &self.nf.function().offloaded()["state"];
                    assert_ne!(state, "connected", "{refusal}");
                }
            }
            Step::Die => self.tables.is_dead.store(true, Ordering::Relaxed),
            Step::Live => self.live(),
            Step::Wait => {
                self.finish();
                for nf in [&mut self.nf, &mut self.plain] {
                    nf.advance(2000 * 1000 * MILLISECOND);
                }
                self.ends.iter_mut().for_each(|ends| ends.is_open = false);
            }
            Step::Move => {
                self.nf = self.nf.adopting(config(policy(self.variant))).unwrap();
                self.plain = self.plain.adopting(config(policy(self.variant))).unwrap();
            }
        }
    }

    fn end(&mut self, connection: u8, is_answer: bool, flags: u8) {
        if self.ends[usize::from(connection)].is_open && !is_udp(connection) {
            let frame = self.segment(connection, is_answer, flags, b"");
            self.send(connection, is_answer, &frame, None);
            self.ends[usize::from(connection)].is_open = flags & RST == 0;
        }
    }

    fn check_counts(&self) {
        for rule in ["videos", "web", "web sites", "plain", "dns", "default"] {
            let name = format!("rule_packets{{rule=\"{rule}\"}}");
            assert_eq!(
                self.nf.counters()[&name],
                self.plain.counters()[&name],
                "{name}"
            );
        }
    }

    /// Lets all rules end: nothing is left in the table, and each packet was counted once.
    fn finish(&mut self) {
        self.live();
        for _ in 0..60 {
            self.turn(200);
            for table in &self.tables.ports {
                (0..8).for_each(|_| table.work(None));
                table.count();
                table.settle();
            }
        }
        assert!(self.tables.ports.iter().all(Model::is_empty), "orphans");
        self.check_counts();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn each_packet_goes_the_same_way_as_without_a_table(steps in prop::collection::vec(step(), 1..240)) {
        let mut world = World::new();
        for step in &steps {
            world.play(step);
        }
        world.finish();
    }
}

/// 20 histories on every day; `OFFLOAD_HISTORIES` changes the number.
fn cases() -> u32 {
    let asked = std::env::var("OFFLOAD_HISTORIES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(20)
}

/// Returns a world in which rules carry a connection.
fn carrying(connection: u8) -> World {
    let mut world = World::new();
    for _ in 0..8 {
        world.burst(connection, false, false);
        world.burst(connection, true, false);
        world.turn(200);
        for table in &world.tables.ports {
            (0..5).for_each(|_| table.work(None));
        }
    }
    world
}

#[test]
fn both_directions_of_a_heavy_connection_bypass_the_firewall_until_it_is_idle() {
    for connection in [0, 1, 2, 3] {
        let mut world = carrying(connection);
        let acting = world
            .tables
            .ports
            .each_ref()
            .map(|table| table.acting().len());
        assert_eq!(acting, [1, 1], "{connection}");
        let before = world.carried;
        world.burst(connection, false, false);
        world.burst(connection, true, false);
        assert_eq!(world.carried, before + 2 * BURST as u64);
        let status = world.nf.function().offloaded();
        assert_eq!(
            (&status["state"], &status["flows"]),
            (&json!("connected"), &json!(2))
        );
        world.finish();
    }
}

#[test]
fn the_end_of_a_connection_ends_its_rules() {
    let mut world = carrying(2);
    world.end(2, false, FIN | ACK);
    world.turn(200);
    assert_eq!(
        world.tables.ports[0].acting().len(),
        1,
        "one side may still send"
    );
    world.end(2, true, FIN | ACK);
    world.turn(200);
    for table in &world.tables.ports {
        (0..8).for_each(|_| table.work(None));
        table.settle();
    }
    assert!(world.tables.ports.iter().all(Model::is_empty));
    world.finish();
}

#[test]
fn another_treatment_waits_until_the_rule_of_before_is_gone() {
    let mut world = carrying(2);
    world.configure(6).unwrap();
    assert!(
        world.tables.ports.iter().all(Model::is_empty),
        "withdrawn before the answer"
    );
    world.burst(2, false, true);
    world.finish();
}

#[test]
fn without_the_switch_a_new_configuration_is_refused_only_if_its_rules_act_otherwise() {
    let mut world = carrying(2);
    world.play(&Step::Die);
    world.turn(100);
    world.configure(3).unwrap();
    let refusal = world.configure(1).unwrap_err();
    assert_eq!(refusal.code, "offload");
    assert!(refusal.detail.contains("does not answer"), "{refusal}");
    world.burst(2, false, false);
    world.live();
    world.turn(600);
    world.turn(100);
    world.configure(1).unwrap();
    world.burst(2, false, false);
    world.finish();
}
