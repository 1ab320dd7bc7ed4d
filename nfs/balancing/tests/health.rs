//! Health checks, step by step, against segments of a simulated backend.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::IpAddr;

use nf_balancing::{
    config::Health,
    frames::{Frame, Segment},
    health::{Check, Probe, Record, Step, DOWN, UNKNOWN, UP},
};
use nf_packet::{
    dissect,
    tcp_flags::{ACK, FIN, PSH, RST, SYN},
    MacAddress, Outcome, Tcp,
};
use serde_json::json;

const SECOND: u64 = 1_000_000_000;
/// The sequence number of the backend's SYN.
const BACKEND: u32 = 9_000;

/// A backend's record, and its check.
struct Checked {
    settings: Health,
    health: u8,
    probe: Probe,
    now: u64,
}

impl Checked {
    fn new(kind: &str) -> Self {
        let settings = json!({"kind": kind, "interval": "5s", "timeout": "3s", "rise": 2, "fall": 3, "path": "/ok"});
        Self {
            settings: serde_json::from_value(settings).unwrap(),
            health: UNKNOWN,
            probe: Probe::default(),
            now: SECOND,
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&Check<'_>, &mut Record<'_>) -> T) -> T {
        let check = Check {
            number: 3,
            settings: &self.settings,
            host: "web",
            agent: "tester",
        };
        let mut record = Record {
            health: &mut self.health,
            probe: &mut self.probe,
        };
        act(&check, &mut record)
    }

    fn step(&mut self) -> Step {
        let now = self.now;
        self.with(|check, record| check.step(record, now))
    }

    /// Runs for so long without an answer, as a function does, until the check ends. Returns the last step.
    fn run(&mut self, nanos: u64) -> Step {
        let end = self.now + nanos;
        let mut step = Step::default();
        while self.now < end {
            self.now = end.min(self.now + SECOND / 100);
            step = self.step();
        }
        step
    }

    /// Starts the next check. Returns the sequence number of its SYN.
    fn start(&mut self) -> u32 {
        self.now += 5 * SECOND;
        let syn = only(self.step());
        assert_eq!((syn.flags, syn.acknowledgement), (SYN, 0));
        syn.sequence
    }

    fn answer_at(&mut self, port: u16, numbers: (u32, u32), flags: u8, payload: &[u8]) -> Step {
        let end = |text: &str, port| (text.parse::<IpAddr>().unwrap(), port);
        let ends = (end("10.0.0.11", 80), end("10.0.0.2", port));
        let macs = (MacAddress::default(), MacAddress::default());
        let frame = Frame::tcp(macs, ends.0, ends.1, numbers, flags, payload).unwrap();
        let Ok(Outcome::Ip(headers)) = dissect(frame.bytes()) else {
            panic!()
        };
        let tcp = Tcp::new_checked(headers.segment(frame.bytes())).unwrap();
        self.with(|check, record| check.answer(record, port, &tcp))
    }

    fn answer(&mut self, numbers: (u32, u32), flags: u8, payload: &[u8]) -> Step {
        let port = self.probe.local_port();
        self.answer_at(port, numbers, flags, payload)
    }

    /// Makes a whole HTTP check with this status line. Returns whether the health changed.
    fn fetch(&mut self, status: &[u8]) -> bool {
        let first = self.start().wrapping_add(1);
        let request = only(self.answer((BACKEND, first), SYN | ACK, b""));
        let end = first.wrapping_add(request.payload.len() as u32);
        let step = self.answer((BACKEND + 1, end), ACK | PSH, status);
        let has_changed = step.has_changed;
        assert_eq!(only(step).sequence, end);
        has_changed
    }
}

fn only(mut step: Step) -> Segment {
    assert_eq!(step.segments.len(), 1);
    step.segments.remove(0)
}

#[test]
fn an_open_port_passes_a_tcp_check() {
    let mut backend = Checked::new("tcp");
    let first = backend.start().wrapping_add(1);
    let step = backend.answer((BACKEND, first), SYN | ACK, b"");
    assert!(step.has_changed && backend.health == UP);
    let reset = only(step);
    assert_eq!(
        (reset.flags, reset.sequence, reset.acknowledgement),
        (RST | ACK, first, BACKEND + 1)
    );
    // The check is over until the next one is due.
    assert!(backend.step().segments.is_empty());
    backend.now += 5 * SECOND - 1;
    assert!(backend.step().segments.is_empty());
}

#[test]
fn an_http_check_sends_a_request_and_reads_the_status() {
    let mut backend = Checked::new("http");
    let first = backend.start().wrapping_add(1);
    let request = only(backend.answer((BACKEND, first), SYN | ACK, b""));
    assert_eq!(
        (request.sequence, request.acknowledgement, request.flags),
        (first, BACKEND + 1, ACK | PSH)
    );
    let text = String::from_utf8(request.payload.clone()).unwrap();
    let expected =
        "GET /ok HTTP/1.1\r\nHost: web\r\nUser-Agent: tester\r\nConnection: close\r\n\r\n";
    assert_eq!(text, expected);
    let end = first.wrapping_add(text.len() as u32);
    // Nothing that is too short, or out of place, decides.
    for (sequence, text) in [
        (BACKEND + 1, &b"HTTP/1.1 2"[..]),
        (BACKEND + 2, b"HTTP/1.1 200 OK"),
    ] {
        let step = backend.answer((sequence, end), ACK, text);
        assert!(step.segments.is_empty() && !step.has_changed);
    }
    // It repeats the request as long as the answer is missing.
    backend.now += SECOND;
    assert_eq!(only(backend.step()).payload, request.payload);
    let step = backend.answer((BACKEND + 1, end), ACK, b"HTTP/1.1 200 OK\r\n\r\n");
    assert!(step.has_changed && backend.health == UP);
}

#[test]
fn results_in_a_row_change_the_health() {
    let mut backend = Checked::new("http");
    let (good, bad) = (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 No\r\n");
    assert!(
        backend.fetch(bad) && backend.health == DOWN,
        "the first check decides alone"
    );
    assert!(!backend.fetch(good) && !backend.fetch(bad) && !backend.fetch(good));
    assert!(backend.fetch(good) && backend.health == UP);
    assert!(!backend.fetch(bad) && !backend.fetch(bad) && backend.health == UP);
    assert!(backend.fetch(bad) && backend.health == DOWN);
}

#[test]
fn a_check_without_an_answer_ends_with_resets_where_the_backend_may_be() {
    let mut backend = Checked::new("http");
    let first = backend.start().wrapping_add(1);
    let length = only(backend.answer((BACKEND, first), SYN | ACK, b""))
        .payload
        .len() as u32;
    let step = backend.run(3 * SECOND);
    let ends: Vec<(u8, u32)> = step
        .segments
        .iter()
        .map(|each| (each.flags, each.sequence))
        .collect();
    assert_eq!(
        ends,
        [(RST | ACK, first), (RST | ACK, first.wrapping_add(length))]
    );
    assert!(step.has_changed && backend.health == DOWN);
}

/// A function starts before its ports are connected: its first SYNs are lost, and ARP is retried once a second.
#[test]
fn a_first_check_waits_for_a_first_contact() {
    let begin = || {
        let mut backend = Checked::new("tcp");
        backend.settings.timeout = serde_json::from_value(json!("250ms")).unwrap();
        let first = backend.start().wrapping_add(1);
        (backend.now, first, backend)
    };
    let advance = |backend: &mut Checked, end: u64| {
        while backend.now < end && backend.health == UNKNOWN {
            backend.now += SECOND / 100;
            backend.step();
        }
    };
    let (begun, first, mut late) = begin();
    advance(&mut late, begun + 2 * SECOND);
    let step = late.answer((BACKEND, first), SYN | ACK, b"");
    assert!(step.has_changed && late.health == UP);

    let (begun, _, mut silent) = begin();
    advance(&mut silent, begun + 9 * SECOND);
    let took = silent.now - begun;
    assert!(silent.health == DOWN, "unknown after 9 s");
    assert!((3 * SECOND..4 * SECOND).contains(&took), "{took} ns");
    // The next check has its timeout only.
    silent.start();
    assert_eq!(silent.run(SECOND / 4).segments.len(), 2);
}

/// A process that was stopped, or had no CPU, finds the deadline passed and the answer still at its port.
#[test]
fn a_function_that_did_not_run_asks_again_before_it_judges() {
    let held_up = || {
        let mut backend = Checked::new("http");
        let first = backend.start().wrapping_add(1);
        backend.now += 60 * SECOND;
        let syn = only(backend.step());
        assert_eq!((syn.flags, syn.sequence), (SYN, first.wrapping_sub(1)));
        (first, backend)
    };
    let (first, mut living) = held_up();
    let request = only(living.answer((BACKEND, first), SYN | ACK, b""));
    living.run(3 * SECOND - SECOND / 100);
    let end = first.wrapping_add(request.payload.len() as u32);
    let step = living.answer((BACKEND + 1, end), ACK | PSH, b"HTTP/1.1 200 OK\r\n");
    assert!(step.has_changed && living.health == UP);

    let (_, mut silent) = held_up();
    assert!(silent.run(3 * SECOND).has_changed && silent.health == DOWN);
    // Also where the function runs so seldom that each deadline has passed.
    let (_, mut seldom) = held_up();
    seldom.now += 60 * SECOND;
    assert!(seldom.step().has_changed && seldom.health == DOWN);
    // Each check has its own second time.
    seldom.start();
    seldom.now += 60 * SECOND;
    assert_eq!(only(seldom.step()).flags, SYN);
}

#[test]
fn only_a_reset_of_this_connection_fails_a_check() {
    let mut backend = Checked::new("tcp");
    let first = backend.start().wrapping_add(1);
    let port = backend.probe.local_port();
    for (port, acknowledged, flags) in [
        (port, first, RST),
        (port, first.wrapping_add(1), RST | ACK),
        (port ^ 1, first, RST | ACK),
        (port, first, SYN),
    ] {
        let step = backend.answer_at(port, (0, acknowledged), flags, b"");
        assert!(
            step.segments.is_empty() && backend.health == UNKNOWN,
            "{port} {flags}"
        );
    }
    let step = backend.answer((0, first), RST | ACK, b"");
    assert!(step.segments.is_empty() && step.has_changed && backend.health == DOWN);
    // The check is over: a late segment changes nothing.
    let late = backend.answer((BACKEND, first), SYN | ACK, b"");
    assert!(late.segments.is_empty() && backend.health == DOWN);
}

#[test]
fn an_old_connection_of_the_backend_is_reset_first() {
    let mut backend = Checked::new("tcp");
    let syn = backend.start();
    let reset = only(backend.answer((777, 555), ACK | FIN, b""));
    assert_eq!((reset.flags, reset.sequence), (RST | ACK, 555));
    let again = only(backend.step());
    assert_eq!(
        (again.flags, again.sequence),
        (SYN, syn),
        "sent again at once"
    );
    let step = backend.answer((BACKEND, syn.wrapping_add(1)), SYN | ACK, b"");
    assert!(step.has_changed && backend.health == UP);
}
