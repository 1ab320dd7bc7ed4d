//! Sticky sessions: by a cookie, and by a header.

use nf_l7lb::Config;
use serde_json::{json, Value};

use crate::{
    peers::{self, Bed, Flags, Peer, A, B, CLIENT},
    OK,
};

/// Pool `a` with the backends A and B.
fn config(sticky: &Value, drain: bool) -> Config {
    let mut config = peers::config(json!({"forwarded_for": false}));
    let other = json!({"name": "two", "address": "10.1.0.12", "port": 80});
    let pool = &mut config.pools[0];
    pool.backends.push(serde_json::from_value(other).unwrap());
    pool.backends[0].drain = drain;
    pool.sticky = serde_json::from_value(sticky.clone()).unwrap();
    config
}

fn bed(sticky: Value) -> Bed {
    Bed::of(config(&sticky, false))
}

fn get(line: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: web\r\n{line}\r\n")
}

/// Sends a request with a header line on a new connection; returns the client, and the backend that gets it.
fn ask(bed: &mut Bed, port: u16, line: &str) -> (Peer, Peer, [u8; 4]) {
    let mut client = bed.client(port);
    client.say(bed, get(line));
    let (backend, at) = taken(bed, line);
    (client, backend, at)
}

/// Accepts the connection of a request at the backend that gets it.
fn taken(bed: &mut Bed, line: &str) -> (Peer, [u8; 4]) {
    let at = bed.sent.iter().find(|seen| seen.syn).unwrap().to;
    let mut backend = bed.backend(at);
    assert_eq!(backend.hear(&bed.one(at)), get(line));
    (backend, at)
}

/// Lets the backend answer; returns what the client gets.
fn answer(bed: &mut Bed, client: &mut Peer, backend: &mut Peer) -> String {
    backend.say(bed, OK);
    let text = client.hear(&bed.one(CLIENT));
    client.send(bed, Flags::Ack, b"");
    bed.sent.clear();
    text
}

/// Returns the cookie that an answer sets, as a request's line.
fn set(answer: &str) -> Option<String> {
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: "))?;
    let value = line.strip_suffix("; Path=/; HttpOnly").unwrap();
    assert_eq!(value.len(), "SRV=".len() + 16);
    Some(format!("Cookie: other=1; {value}\r\n"))
}

#[test]
fn a_cookie_leads_to_its_backend_again() {
    let mut bed = bed(json!({"cookie": "SRV"}));
    let mut ports = 1..;
    let mut cookies = Vec::new();
    for _ in 0..2 {
        let (mut client, mut backend, at) = ask(&mut bed, ports.next().unwrap(), "");
        let cookie = set(&answer(&mut bed, &mut client, &mut backend)).unwrap();
        cookies.push((cookie, at));
    }
    assert_ne!(cookies[0].1, cookies[1].1, "turns");
    for (cookie, at) in [&cookies[0], &cookies[0], &cookies[1], &cookies[1]] {
        let (mut client, mut backend, found) = ask(&mut bed, ports.next().unwrap(), cookie);
        assert_eq!(found, *at);
        let text = answer(&mut bed, &mut client, &mut backend);
        assert_eq!(text, OK, "a valid cookie is not set again");
    }
}

#[test]
fn requests_with_other_cookies_change_the_backend_within_a_connection() {
    let mut bed = bed(json!({"cookie": "SRV"}));
    let (mut client, mut first, at) = ask(&mut bed, 1, "");
    let one = set(&answer(&mut bed, &mut client, &mut first)).unwrap();
    let (mut other, mut second, elsewhere) = ask(&mut bed, 2, "");
    let two = set(&answer(&mut bed, &mut other, &mut second)).unwrap();
    assert_ne!(at, elsewhere);
    client.say(&mut bed, get(&two));
    let (mut backend, found) = taken(&mut bed, &two);
    assert_eq!(found, elsewhere);
    assert_eq!(answer(&mut bed, &mut client, &mut backend), OK);
    client.say(&mut bed, get(&one));
    assert_eq!(first.hear(&bed.one(at)), get(&one));
    assert_eq!(answer(&mut bed, &mut client, &mut first), OK);
}

#[test]
fn unknown_cookies_are_replaced() {
    let mut bed = bed(json!({"cookie": "SRV"}));
    for (port, value) in (1..).zip(["0123456789abcdef", "", "a", "+123456789abcdef", "10.1.0.11"]) {
        let line = format!("Cookie: SRV={value}\r\n");
        let (mut client, mut backend, _) = ask(&mut bed, port, &line);
        let text = answer(&mut bed, &mut client, &mut backend);
        assert!(set(&text).is_some(), "{value:?}");
    }
}

#[test]
fn a_backend_that_drains_keeps_its_clients_and_gets_no_others() {
    let sticky = json!({"cookie": "SRV"});
    let mut bed = bed(sticky.clone());
    let mut cookies = Vec::new();
    for port in 1..3 {
        let (mut client, mut backend, at) = ask(&mut bed, port, "");
        cookies.push((
            at,
            set(&answer(&mut bed, &mut client, &mut backend)).unwrap(),
        ));
    }
    let cookie = cookies.into_iter().find(|(at, _)| *at == A).unwrap().1;
    bed.configure(config(&sticky, true));
    for port in 3..8 {
        assert_eq!(ask(&mut bed, port, &cookie).2, A);
        assert_eq!(ask(&mut bed, port + 10, "").2, B);
    }
}

#[test]
fn a_backend_that_refuses_loses_its_clients() {
    let mut bed = bed(json!({"cookie": "SRV"}));
    let (mut client, mut backend, at) = ask(&mut bed, 1, "");
    let cookie = set(&answer(&mut bed, &mut client, &mut backend)).unwrap();
    let mut client = bed.client(2);
    client.say(&mut bed, get(&cookie));
    let mut refusing = Peer::answering(&bed.one(at));
    refusing.send(&mut bed, Flags::Refuse, b"");
    let (mut backend, other) = taken(&mut bed, &cookie);
    assert_ne!(other, at);
    let moved = set(&answer(&mut bed, &mut client, &mut backend)).unwrap();
    assert_ne!(moved, cookie);
    client.say(&mut bed, get(&moved));
    assert_eq!(backend.hear(&bed.one(other)), get(&moved));
}

#[test]
fn values_of_a_header_are_spread_and_stay() {
    let mut bed = bed(json!({"header": "X-User"}));
    let mut counts = [0, 0];
    for user in 0..20 {
        let line = format!("x-user: user{user}\r\n");
        let (mut client, mut backend, at) = ask(&mut bed, 1 + user, &line);
        assert_eq!(answer(&mut bed, &mut client, &mut backend), OK, "no cookie");
        assert_eq!(ask(&mut bed, 100 + user, &line).2, at);
        counts[usize::from(at == B)] += 1;
    }
    assert!(counts.iter().all(|count| *count > 4), "{counts:?}");
    // Without the header, the backends take turns.
    assert_ne!(ask(&mut bed, 201, "").2, ask(&mut bed, 202, "").2);
}
