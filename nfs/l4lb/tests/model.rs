//! Random histories, compared with a model that is a map: connections keep their backends through every configuration, and new connections go only
//! to open backends.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use nf_runtime::testing::Output;
use proptest::prelude::*;
use serde_json::json;

#[derive(Clone, Debug)]
enum Step {
    /// The client and the TCP flags.
    Packet(u16, u8),
    /// Bit masks of the backends 11 to 18: present, draining.
    Configure(u8, u8),
    /// A drain request: the backend, on or off.
    Drain(u8, bool),
    /// A pause in seconds.
    Wait(u64),
    /// A move of the state to another instance.
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..40_u16, prop_oneof![Just(SYN), Just(ACK), Just(ACK), Just(FIN | ACK), Just(RST)]).prop_map(|(client, flags)| Step::Packet(client, flags)),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(present, draining)| Step::Configure(present, draining & 0x55)),
        1 => (0..8_u8, any::<bool>()).prop_map(|(backend, on)| Step::Drain(backend, on)),
        2 => prop_oneof![Just(1_u64), Just(5), Just(90)].prop_map(Step::Wait),
        1 => Just(Step::Move),
    ]
}

/// The state of a connection as far as the model knows it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Class {
    Opening,
    Established,
    Closing,
    /// A record exists, but whether it is the old or a new one is unknown.
    Unsure,
    /// Whether a record exists is unknown.
    Perhaps,
}

impl Class {
    /// The minimum and maximum lifetime of the record, in seconds.
    fn lifetime(self) -> (u64, u64) {
        let most = |seconds: u64| seconds + seconds / 16 + 8;
        match self {
            Self::Opening => (10, most(10)),
            Self::Established => (300, most(300)),
            Self::Closing => (20, most(20)),
            Self::Unsure => (10, most(300)),
            Self::Perhaps => (0, most(300)),
        }
    }
}

#[derive(Default)]
struct Model {
    present: BTreeSet<u8>,
    draining: BTreeSet<u8>,
    by_request: BTreeSet<u8>,
    /// For each client: the backend, the class, and the time of the last packet.
    connections: BTreeMap<u16, (u8, Class, u64)>,
    now: u64,
}

impl Model {
    fn open(&self) -> BTreeSet<u8> {
        let closed: BTreeSet<u8> = self.draining.union(&self.by_request).copied().collect();
        self.present.difference(&closed).copied().collect()
    }

    /// Returns the backend that a connection must have; None where its record may be about to expire.
    fn must(&self, client: u16) -> Option<u8> {
        let (backend, class, last) = *self.connections.get(&client)?;
        (self.now - last < class.lifetime().0).then_some(backend)
    }

    fn surely_gone(&self, client: u16) -> bool {
        let last = self.connections.get(&client);
        last.is_none_or(|(_, class, last)| self.now - last > class.lifetime().1)
    }
}

fn vips(
    mode: &str,
    algorithm: &str,
    present: &BTreeSet<u8>,
    draining: &BTreeSet<u8>,
) -> serde_json::Value {
    let mut web = with(
        vip(mode, &present.iter().copied().collect::<Vec<_>>()),
        "algorithm",
        json!(algorithm),
    );
    for backend in web["backends"].as_array_mut().unwrap() {
        let number: u8 = backend["name"].as_str().unwrap()[3..].parse().unwrap();
        backend["drain"] = json!(draining.contains(&number));
    }
    json!([web])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn connections_keep_their_backends(
        steps in proptest::collection::vec(step(), 1..250),
        mode in prop_oneof![Just("ipip"), Just("nat"), Just("gue"), Just("vxlan")],
        algorithm in prop_oneof![Just("maglev"), Just("round-robin"), Just("least-loaded")],
    ) {
        let mut model = Model { present: (11..=14).collect(), ..Model::default() };
        let mut lb = lb(vips(mode, algorithm, &model.present, &model.draining));
        for step in steps {
            match step {
                Step::Packet(client, flags) => {
                    let output = lb.process(0, &Sent::client(client, flags).frame());
                    let must = model.must(client);
                    let sent = match output {
                        Output::Dropped(reason) => {
                            prop_assert_eq!(reason, "no backend");
                            prop_assert!(model.open().is_empty());
                            // The packet may be dropped if its backend is gone, or if it opens a connection.
                            if let Some(backend) = must { prop_assert!(!model.present.contains(&backend) || flags == SYN); }
                            // The lookup renewed the record all the same.
                            if let Some(connection) = model.connections.get_mut(&client) {
                                if model.now - connection.2 <= connection.1.lifetime().1 {
                                    (connection.1, connection.2) = (Class::Perhaps, model.now);
                                }
                            }
                            continue;
                        }
                        Output::Sent(_, frame) => { let seen = read(&frame); let std::net::IpAddr::V4(to) = seen.outer.map_or(seen.destination.0, |(_, to)| to) else { panic!() }; to.octets()[3] }
                    };
                    let before = model.connections.get(&client).copied();
                    let again = flags == SYN && matches!(before, Some((_, Class::Closing | Class::Unsure, _)));
                    match must {
                        Some(backend) if model.present.contains(&backend) && !again => prop_assert_eq!(sent, backend, "client {}", client),
                        Some(backend) if model.present.contains(&backend) && model.open().contains(&backend) => prop_assert_eq!(sent, backend),
                        _ => {
                            let was = before.map(|(backend, ..)| backend);
                            prop_assert!(model.open().contains(&sent) || (was == Some(sent) && !model.surely_gone(client)), "{} is not open: {:?}", sent, model.open());
                        }
                    }
                    let old = before.map(|(backend, class, _)| (backend, class));
                    let class = match (flags, old) {
                        (RST, _) if must.is_none() && model.surely_gone(client) => continue,
                        (RST, _) if must.is_none() => Class::Perhaps,
                        (flags, _) if flags & (FIN | RST) != 0 => Class::Closing,
                        (SYN, _) if model.surely_gone(client) => Class::Opening,
                        (_, _) if model.surely_gone(client) => Class::Established,
                        (_, _) if must.is_none() => Class::Unsure,
                        // A SYN that goes to another backend opens a new connection.
                        (SYN, Some((backend, _))) if backend != sent => Class::Opening,
                        (SYN, Some((_, Class::Closing | Class::Opening))) => Class::Opening,
                        (SYN, Some((_, Class::Established))) => Class::Established,
                        (_, Some((_, Class::Closing))) => Class::Closing,
                        (_, Some((_, Class::Opening | Class::Established))) if flags != SYN => Class::Established,
                        _ => Class::Unsure,
                    };
                    model.connections.insert(client, (sent, class, model.now));
                }
                Step::Configure(present, draining) => {
                    let members = |bits: u8| (0..8).filter(|bit| bits & 1 << bit != 0).map(|bit| 11 + bit).collect::<BTreeSet<u8>>();
                    let gone: Vec<u8> = model.present.difference(&members(present)).copied().collect();
                    for backend in gone { model.by_request.remove(&backend); }
                    model.present = members(present);
                    model.draining = members(present & draining);
                    lb.reconfigure(vips(mode, algorithm, &model.present, &model.draining));
                }
                Step::Drain(backend, on) => {
                    let number = 11 + backend;
                    if model.present.contains(&number) {
                        lb.ask("drain", json!({"vip": "web", "backend": format!("web{number}"), "on": on}));
                        if on { model.by_request.insert(number); } else { model.by_request.remove(&number); }
                    }
                }
                Step::Wait(seconds) => {
                    model.now += seconds;
                    lb.advance(seconds * SECOND);
                    lb.tick();
                }
                Step::Move => {
                    let config = config(vips(mode, algorithm, &model.present, &model.draining));
                    lb = lb.adopting(serde_json::from_value(config).unwrap()).unwrap().with_ports(1);
                }
            }
        }
        // Counters agree with records.
        let active = lb.count("vip_active{vip=\"web\"}");
        prop_assert!(active <= model.connections.len() as u64, "{} active", active);
        // In steps, because the table must be aged at least every 100 s.
        for _ in 0..8 {
            lb.advance(60 * SECOND);
            lb.tick();
        }
        prop_assert_eq!(lb.count("vip_active{vip=\"web\"}"), 0);
        prop_assert_eq!(lb.count("vip_half_open{vip=\"web\"}"), 0);
    }
}
