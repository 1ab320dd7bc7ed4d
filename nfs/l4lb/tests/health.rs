//! Health checks of simulated backends, and their consequences.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::*;
use nf_l4lb::L4lb;
use nf_runtime::testing::Harness;
use serde_json::{json, Value};

const MILLISECOND: u64 = 1_000_000;

/// A backend's behaviour toward checks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    Answers(&'static str),
    /// Answers any request with these bytes.
    Says(&'static str),
    Refuses,
    Silent,
}

/// A load balancer with two simulated backends.
struct Simulation {
    lb: Harness<L4lb>,
    servers: Vec<(u8, Server)>,
    /// The requests that reached a server.
    requests: Vec<String>,
    /// The servers' open connections, with the next sequence number each expects.
    open: std::collections::HashMap<(u8, u16), u32>,
    /// The checks started: (backend, local port).
    begun: Vec<(u8, u16)>,
}

impl Simulation {
    fn new(health: Value, when_down: &str) -> Self {
        let web = with(
            with(vip("ipip", &[11, 12]), "health", health),
            "when_down",
            json!(when_down),
        );
        Self {
            lb: lb(json!([web])),
            servers: vec![(11, Server::Answers("200")), (12, Server::Answers("200"))],
            requests: Vec::new(),
            open: std::collections::HashMap::new(),
            begun: Vec::new(),
        }
    }

    fn set(&mut self, number: u8, server: Server) {
        self.servers
            .iter_mut()
            .find(|each| each.0 == number)
            .unwrap()
            .1 = server;
    }

    /// Advances time in steps of 100 ms; the servers answer each packet.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.lb.advance(100 * MILLISECOND);
            self.lb.tick();
            self.serve();
        }
        self.lb.tick();
    }

    fn serve(&mut self) {
        loop {
            let frames = self.lb.take_emitted();
            if frames.is_empty() {
                return;
            }
            for (_, frame) in frames.iter().filter(|(_, frame)| frame[12..14] == [8, 0]) {
                let seen = read(frame);
                let std::net::IpAddr::V4(address) = seen.destination.0 else {
                    continue;
                };
                let number = address.octets()[3];
                let (_, server) = *self.servers.iter().find(|each| each.0 == number).unwrap();
                assert_eq!((seen.to, seen.source.0), (mac_of(number), ip("10.0.0.2")));
                assert!(seen.source.1 >= 61_000);
                let answer = Sent {
                    source: seen.destination,
                    destination: seen.source,
                    from: mac_of(number),
                    ..Sent::client(0, 0)
                };
                let Some((flags, numbers, payload)) = self.tcp(number, server, &seen) else {
                    continue;
                };
                let answer = Sent { flags, ..answer }
                    .numbers(numbers.0, numbers.1)
                    .payload(&payload);
                self.lb.process(0, &answer.frame());
            }
        }
    }

    /// Returns the answer of a server's TCP: flags, numbers, payload.
    fn tcp(
        &mut self,
        number: u8,
        server: Server,
        seen: &Seen,
    ) -> Option<(u8, (u32, u32), Vec<u8>)> {
        let connection = (number, seen.source.1);
        let next = seen.sequence.wrapping_add(1);
        if seen.flags & RST != 0 {
            // Only a reset with exactly the expected number closes the connection (RFC 5961).
            if self.open.get(&connection) == Some(&seen.sequence) {
                self.open.remove(&connection);
            }
            return None;
        }
        if seen.flags == SYN {
            self.begun.push(connection);
            if let Some(expected) = self.open.get(&connection) {
                return Some((ACK, (9999, *expected), Vec::new()));
            }
            return match server {
                Server::Answers(_) | Server::Says(_) => {
                    self.open.insert(connection, next);
                    Some((SYN | ACK, (777, next), Vec::new()))
                }
                Server::Refuses => Some((RST | ACK, (0, next), Vec::new())),
                Server::Silent => None,
            };
        }
        let text = match server {
            Server::Answers(status) => format!("HTTP/1.1 {status} Whatever\r\n\r\n"),
            Server::Says(text) => text.to_owned(),
            Server::Refuses | Server::Silent => return None,
        };
        if seen.payload.is_empty() {
            return None;
        }
        self.requests
            .push(String::from_utf8(seen.payload.clone()).unwrap());
        let after = seen.sequence.wrapping_add(seen.payload.len() as u32);
        self.open.insert(connection, after);
        Some((ACK, (778, after), text.into_bytes()))
    }

    fn both(&self) -> [String; 2] {
        [11, 12].map(|number| self.health(number))
    }

    fn health(&self, number: u8) -> String {
        let answer = self.lb.ask("backends", json!({}));
        let list = answer["backends"].as_array().unwrap();
        let one = list
            .iter()
            .find(|each| each["name"] == format!("web{number}"))
            .unwrap();
        one["health"].as_str().unwrap().to_owned()
    }
}

fn tcp() -> Value {
    json!({"kind": "tcp", "interval": "1s", "timeout": "500ms", "rise": 2, "fall": 3})
}

fn http() -> Value {
    json!({"kind": "http", "path": "/healthy", "host": "web.example", "status": [200, 204], "interval": "1s", "timeout": "500ms", "rise": 2, "fall": 3})
}

#[test]
fn a_backend_gets_connections_before_its_first_check_and_after_it() {
    // In mode nat, answers to checks come from the same endpoint as answers to clients.
    for (mode, snat) in [
        ("nat", false),
        ("nat", true),
        ("gue", false),
        ("vxlan", false),
    ] {
        let mut lab = Simulation::new(http(), "keep");
        let web = with(
            with(vip(mode, &[11, 12]), "health", http()),
            "snat",
            json!(snat),
        );
        lab.lb = lb(json!([web]));
        lab.run(1);
        assert_eq!(lab.both(), ["up", "up"], "{mode} {snat}");
    }
    let mut lab = Simulation::new(tcp(), "keep");
    assert_eq!(lab.health(11), "unknown");
    lab.lb.pass(&Sent::client(1, SYN));
    lab.run(1);
    assert_eq!(lab.both(), ["up", "up"]);
}

#[test]
fn checks_of_many_backends_share_ports() {
    // 2267 pairs from 61000 on: the backends with numbers 2267 and 2268 have the ports of 0 and 1.
    let others: Value = (0..2267_u32)
        .map(|number| {
            json!({"name": format!("b{number}"), "weight": 0,
                "address": format!("10.1.{}.{}", number / 200, 1 + number % 200)})
        })
        .collect();
    let other = with(
        with(vip("ipip", &[]), "backends", others),
        "address",
        "192.0.2.2",
    );
    let other = with(other, "name", "other");
    let mut config = config(json!([
        other,
        with(vip("ipip", &[11, 12]), "health", tcp())
    ]));
    config["tables"]["backends"] = json!(3000);
    let mut lab = Simulation::new(tcp(), "keep");
    lab.lb = start(config);
    lab.run(2);
    assert_eq!(lab.both(), ["up", "up"]);
    // Consecutive checks use different ports.
    let expected = [(11, 61_000), (12, 61_002), (11, 61_001), (12, 61_003)];
    assert_eq!(lab.begun[..4], expected);
}

#[test]
fn new_connections_avoid_a_backend_that_is_down() {
    for failure in [Server::Refuses, Server::Silent] {
        let mut lab = Simulation::new(tcp(), "keep");
        lab.run(2);
        let owned: Vec<u16> = (1..50)
            .filter(|port| lab.lb.backend(&Sent::client(*port, SYN)) == 11)
            .collect();
        let (half_open, established) = owned.split_at(owned.len() / 2);
        for port in established {
            lab.lb.pass(&Sent::client(*port, ACK));
        }
        lab.set(11, failure);
        lab.run(2);
        assert_eq!(lab.health(11), "up", "two failures are not three");
        lab.run(2);
        assert_eq!(lab.health(11), "down", "{failure:?}");
        for port in 100..150 {
            assert_eq!(lab.lb.backend(&Sent::client(port, SYN)), 12);
        }
        // Established connections stay; half-open ones move.
        for port in established {
            assert_eq!(lab.lb.backend(&Sent::client(*port, ACK)), 11);
        }
        for port in half_open {
            assert_eq!(lab.lb.backend(&Sent::client(*port, SYN)), 12);
        }
        lab.set(11, Server::Answers("200"));
        lab.run(3);
        assert_eq!(lab.health(11), "up");
        assert!((200..250).any(|port| lab.lb.backend(&Sent::client(port, SYN)) == 11));
    }
}

#[test]
fn move_takes_connections_away_from_a_backend_that_is_down() {
    let mut lab = Simulation::new(tcp(), "move");
    lab.run(1);
    let owned: Vec<u16> = (1..50)
        .filter(|port| lab.lb.backend(&Sent::client(*port, SYN)) == 11)
        .collect();
    owned
        .iter()
        .for_each(|port| drop(lab.lb.pass(&Sent::client(*port, ACK))));
    lab.set(11, Server::Refuses);
    lab.run(4);
    for port in &owned {
        assert_eq!(lab.lb.backend(&Sent::client(*port, ACK)), 12);
    }
    // Without an open backend, an established connection stays and a new one is refused.
    lab.set(12, Server::Refuses);
    lab.run(4);
    assert_eq!(lab.lb.backend(&Sent::client(owned[0], ACK)), 12);
    assert_eq!(lab.lb.drops(&Sent::client(999, SYN)), "no backend");
}

#[test]
fn http_checks_the_status() {
    let mut lab = Simulation::new(http(), "keep");
    lab.set(12, Server::Answers("204"));
    lab.run(1);
    assert_eq!(lab.both(), ["up", "up"]);
    assert!(lab.requests[0].starts_with("GET /healthy HTTP/1.1\r\nHost: web.example\r\n"));
    assert!(lab.requests[0].ends_with("\r\n\r\n"));
    lab.set(11, Server::Answers("503"));
    lab.set(12, Server::Answers("nonsense"));
    lab.run(4);
    assert_eq!(lab.both(), ["down", "down"]);
}

#[test]
fn checks_of_a_silent_backend_retransmit_and_time_out() {
    let mut lab = Simulation::new(tcp(), "keep");
    lab.set(11, Server::Silent);
    lab.run(10);
    let of = |number: u8| lab.begun.iter().filter(|each| each.0 == number).count();
    // A check lasts half a second, the first one 3.5 s, and sends a SYN every 167 ms; an answered check sends one.
    assert!((30..=45).contains(&of(11)), "{}", of(11));
    assert!((9..=11).contains(&of(12)), "{}", of(12));
    let ports: std::collections::HashSet<u16> = lab
        .begun
        .iter()
        .filter(|each| each.0 == 12)
        .map(|each| each.1)
        .collect();
    assert_eq!(ports.len(), 2, "the two ports alternate");
}

#[test]
fn checks_leave_no_connections_behind() {
    for health in [tcp(), http()] {
        let mut lab = Simulation::new(health, "keep");
        lab.run(6);
        assert!(lab.open.is_empty(), "{:?}", lab.open);
        assert_eq!(lab.health(11), "up");
        // A backend's stale connection is reset first.
        for port in 61_000..61_100 {
            lab.open.insert((11, port), 4_000_000);
        }
        lab.run(6);
        assert_eq!(lab.health(11), "up");
        assert_eq!(lab.open.len(), 98);
    }
}

#[test]
fn unsolicited_answers_change_nothing() {
    let mut lab = Simulation::new(tcp(), "keep");
    lab.run(1);
    for port in [61_000, 61_001, 61_022, 65_535, 80] {
        for flags in [SYN | ACK, RST, RST | ACK, ACK, FIN] {
            let forged = Sent {
                source: (ip("10.0.0.11"), 80),
                ..Sent::client(0, flags)
            }
            .to("10.0.0.2", port)
            .numbers(5, 6);
            assert!(["for the function itself", "not for us"].contains(&lab.lb.drops(&forged)));
        }
    }
    assert_eq!(lab.health(11), "up");
}

#[test]
fn the_status_counts_once_it_is_complete() {
    for (text, health) in [
        ("HTTP/1.1 200", "up"),
        ("HTTP/1.1 500", "down"),
        // The rest never comes.
        ("HTTP/1.1 20", "down"),
        ("SSH-2.0-OpenSSH_9", "down"),
    ] {
        let mut lab = Simulation::new(http(), "keep");
        lab.set(11, Server::Says(text));
        lab.run(2);
        assert_eq!(lab.health(11), health, "{text}");
        let asked = lab
            .requests
            .iter()
            .filter(|each| each.contains("GET"))
            .count();
        assert!(asked >= 2, "{asked}");
    }
    // A shorter piece does not end the check, which retransmits within its 500 ms.
    let mut lab = Simulation::new(http(), "keep");
    lab.set(11, Server::Says("HTTP/1.1 20"));
    (0..4).for_each(|_| {
        lab.lb.advance(100 * MILLISECOND);
        lab.lb.tick();
        lab.serve();
    });
    assert_eq!(lab.both(), ["unknown", "up"]);
}

#[test]
fn only_an_answer_from_the_backend_and_its_port_counts() {
    let mut lab = Simulation::new(tcp(), "keep");
    lab.lb.advance(100 * MILLISECOND);
    lab.lb.tick();
    let syn = lab.lb.take_emitted().into_iter().map(|(_, frame)| frame);
    let mut syn = syn
        .filter(|frame| frame[12..14] == [8, 0])
        .map(|frame| read(&frame));
    let syn = syn
        .find(|seen| seen.destination.0 == ip("10.0.0.11"))
        .unwrap();
    let answer = |address: &str, port: u16| {
        Sent {
            source: (ip(address), port),
            destination: syn.source,
            ..Sent::client(0, SYN | ACK)
        }
        .numbers(777, syn.sequence.wrapping_add(1))
    };
    for (address, port) in [("10.0.0.13", 80), ("10.0.0.12", 80), ("10.0.0.11", 81)] {
        let reason = lab.lb.drops(&answer(address, port));
        assert!(["not for us", "for the function itself"].contains(&reason));
        lab.lb.tick();
        assert_eq!(lab.health(11), "unknown", "{address} {port}");
    }
    assert_eq!(lab.lb.drops(&answer("10.0.0.13", 80)), "not for us");
    assert_eq!(
        lab.lb.drops(&answer("10.0.0.11", 80)),
        "for the function itself"
    );
    lab.lb.tick();
    assert_eq!(lab.health(11), "up");
}

#[test]
fn only_a_reset_with_the_checks_numbers_counts() {
    for (sequence, health) in [(779, "unknown"), (778, "down")] {
        let http = json!({"kind": "http", "interval": "5s", "timeout": "2s"});
        let mut lab = Simulation::new(http, "keep");
        lab.lb.tick();
        let frames = lab.lb.take_emitted();
        let syn = frames
            .iter()
            .filter(|(_, frame)| frame[12..14] == [8, 0])
            .map(|(_, frame)| read(frame))
            .find(|seen| seen.destination.0 == ip("10.0.0.11"))
            .unwrap();
        let says = |flags: u8, sequence: u32| {
            let sent = Sent {
                source: syn.destination,
                destination: syn.source,
                from: mac_of(11),
                ..Sent::client(0, flags)
            };
            sent.numbers(sequence, syn.sequence.wrapping_add(1))
        };
        lab.lb.drops(&says(SYN | ACK, 777));
        // Without ACK, a reset says nothing about the SYN.
        lab.lb.drops(&says(RST, sequence));
        lab.lb.tick();
        assert_eq!(lab.health(11), health, "reset at {sequence}");
    }
}

#[test]
fn health_survives_a_move() {
    let mut lab = Simulation::new(tcp(), "keep");
    lab.set(11, Server::Refuses);
    lab.run(1);
    assert_eq!(lab.health(11), "down", "the first check decides alone");
    let web = with(vip("ipip", &[11, 12]), "health", tcp());
    let new = serde_json::from_value(config(json!([web]))).unwrap();
    let new = lab.lb.adopting(new).unwrap().with_ports(1);
    lab.lb = new;
    assert_eq!(lab.health(11), "down");
    for port in 100..130 {
        assert_eq!(lab.lb.backend(&Sent::client(port, SYN)), 12);
    }
    lab.set(11, Server::Answers("200"));
    lab.run(3);
    assert_eq!(lab.health(11), "up");
}
