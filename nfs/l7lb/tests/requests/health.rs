//! Health checks, and which backends requests reach by them.

use nf_l7lb::Config;
use nf_runtime::{testing::Harness, NetworkFunction};
use serde_json::json;

use crate::{
    peers::{self, Bed, Flags, Peer, A, B, CLIENT},
    GET, GET_B, OK,
};

/// Pool `a` with the backends A and B, and checks that decide at once.
fn config() -> Config {
    let mut config = peers::config(json!({}));
    let health = json!({"kind": "http", "path": "/up", "interval": "1s", "timeout": "900ms", "rise": 1, "fall": 1});
    let other = json!({"name": "two", "address": "10.1.0.12", "port": 80});
    config.pools[0].health = serde_json::from_value(health).unwrap();
    config.pools[0]
        .backends
        .push(serde_json::from_value(other).unwrap());
    config
}

fn bed() -> Bed {
    Bed::of(config())
}

/// Lets checks run for more than an interval; only the backends in `up` accept them.
fn run(bed: &mut Bed, up: &[[u8; 4]]) {
    for _ in 0..12 {
        bed.wait(100);
        serve(bed, up);
    }
}

/// Answers the checks sent so far, and those that follow; returns their requests.
fn serve(bed: &mut Bed, up: &[[u8; 4]]) -> Vec<String> {
    let mut requests = Vec::new();
    loop {
        let all = std::mem::take(&mut bed.sent);
        let (checks, rest): (Vec<_>, _) = all.into_iter().partition(|seen| seen.ports.0 >= 61_000);
        bed.sent = rest;
        if checks.is_empty() {
            return requests;
        }
        for check in checks.iter().filter(|check| !check.rst) {
            let mut server = Peer::answering(check);
            if !up.contains(&check.to) {
                server.send(bed, Flags::Refuse, b"");
            } else if check.syn {
                server.send(bed, Flags::SynAck, b"");
            } else {
                assert_eq!(check.ack, Some(server.seq + 1));
                requests.push(check.text().to_owned());
                server.seq += 1;
                server.send(bed, Flags::Ack, OK.as_bytes());
            }
        }
    }
}

fn up(bed: &Bed) -> [u64; 2] {
    ["one", "two"].map(|name| bed.counter(&format!("backend_up{{pool=\"a\",backend=\"{name}\"}}")))
}

/// Sends a request on a new connection and returns the client, and the backend that has accepted it.
fn asked(bed: &mut Bed, port: u16, at: [u8; 4]) -> (Peer, Peer) {
    let mut client = bed.client(port);
    client.say(bed, GET);
    let mut backend = bed.backend(at);
    let request = bed.one(at);
    backend.hear(&request);
    (client, backend)
}

fn answered(bed: &mut Bed, client: &mut Peer, backend: &mut Peer) {
    backend.say(bed, OK);
    let answer = bed.one(CLIENT);
    assert_eq!(client.hear(&answer), OK);
    client.send(bed, Flags::Ack, b"");
    bed.sent.clear();
}

#[test]
fn checks_ask_each_backend_of_the_pool_and_no_other() {
    let mut bed = bed();
    bed.wait(10);
    let targets: Vec<_> = bed.sent.iter().map(|seen| (seen.to, seen.ports)).collect();
    assert_eq!(targets, [(A, (61_000, 80)), (B, (61_002, 80))]);
    let requests = serve(&mut bed, &[A, B]);
    let request = "GET /up HTTP/1.1\r\nHost: a\r\nUser-Agent: nf-l7lb\r\nConnection: close\r\n\r\n";
    assert_eq!(requests, [request, request]);
    assert!(bed.sent.is_empty());
    assert_eq!(bed.counter("refused_unknown"), 0);
    assert_eq!(up(&bed), [1, 1]);
}

#[test]
fn requests_avoid_a_backend_that_is_down_until_it_is_up_again() {
    let mut bed = bed();
    run(&mut bed, &[B]);
    assert_eq!(up(&bed), [0, 1]);
    for port in 1..4 {
        asked(&mut bed, port, B);
    }
    run(&mut bed, &[A]);
    assert_eq!(up(&bed), [1, 0]);
    bed.sent.clear();
    for port in 4..7 {
        asked(&mut bed, port, A);
    }
}

#[test]
fn a_request_gets_503_if_all_backends_are_down() {
    let mut bed = bed();
    run(&mut bed, &[]);
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    assert!(bed.take(A).is_empty() && bed.take(B).is_empty());
    let answer = bed.take(CLIENT).remove(0);
    assert!(answer.text().starts_with("HTTP/1.1 503 "), "{answer:?}");
}

#[test]
fn a_backend_that_refuses_is_followed_by_one_that_is_not_down() {
    let mut config = config();
    let third = json!({"name": "three", "address": "10.1.0.13", "port": 80});
    config.pools[0]
        .backends
        .push(serde_json::from_value(third).unwrap());
    config.neighbours.push(
        serde_json::from_value(
            json!({"address": "10.1.0.13", "mac": "02:00:00:00:01:0d", "interface": 1}),
        )
        .unwrap(),
    );
    let mut bed = Bed {
        lb: Harness::new(config).unwrap(),
        sent: Vec::new(),
    };
    let third = [10, 1, 0, 13];
    run(&mut bed, &[A, third]);
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let syn = bed.one(A);
    Peer::answering(&syn).send(&mut bed, Flags::Refuse, b"");
    assert!(bed.take(B).is_empty());
    assert!(bed.one(third).syn);
}

#[test]
fn a_connection_leaves_a_backend_that_went_down() {
    let mut bed = bed();
    run(&mut bed, &[A, B]);
    let (mut client, mut a) = asked(&mut bed, 1, A);
    run(&mut bed, &[B]);
    // The answer that is still awaited arrives.
    bed.sent.clear();
    answered(&mut bed, &mut client, &mut a);
    client.say(&mut bed, GET);
    assert!(bed.one(A).rst);
    let mut b = bed.backend(B);
    let request = bed.one(B);
    b.hear(&request);
    answered(&mut bed, &mut client, &mut b);
}

#[test]
fn an_idle_leg_to_a_backend_that_went_down_is_not_used() {
    let mut bed = bed();
    run(&mut bed, &[A, B]);
    let (mut client, mut a) = asked(&mut bed, 1, A);
    answered(&mut bed, &mut client, &mut a);
    client.say(&mut bed, GET_B);
    let mut other = bed.backend(B);
    let request = bed.one(B);
    other.hear(&request);
    answered(&mut bed, &mut client, &mut other);
    run(&mut bed, &[B]);
    bed.sent.clear();
    client.say(&mut bed, GET);
    let reset = bed.one(A);
    assert!(reset.rst && reset.seq == a.ack, "{reset:?}");
    assert!(bed.one(B).syn);
}

#[test]
fn health_survives_a_move_but_not_another_endpoint() {
    let mut bed = bed();
    run(&mut bed, &[B]);
    let lb = bed.lb.adopting(config()).unwrap();
    let mut bed = Bed { lb, ..bed };
    assert_eq!(up(&bed), [0, 1]);
    let mut same = config();
    same.pools[0].backends[0].weight = 2;
    bed.lb.function().configure(same).unwrap();
    assert_eq!(up(&bed), [0, 1]);
    let mut other = config();
    other.pools[0].health.as_mut().unwrap().port = Some(8080);
    bed.lb.function().configure(other).unwrap();
    assert_eq!(up(&bed), [1, 1]);
    bed.wait(1000);
    assert!(!bed.sent.is_empty() && bed.sent.iter().all(|seen| seen.ports.1 == 8080));
    run(&mut bed, &[]);
    assert_eq!(up(&bed), [0, 0]);
    let mut without = config();
    without.pools[0].health = None;
    bed.lb.function().configure(without).unwrap();
    assert_eq!(up(&bed), [1, 1]);
    bed.wait(2000);
    assert!(bed.sent.is_empty());
}

#[test]
fn a_segment_of_no_check_is_refused() {
    let mut bed = bed();
    bed.wait(10);
    let syn = bed.take(A).remove(0);
    let mut stranger = Peer::answering(&syn);
    stranger.to.1 = 61_002;
    stranger.send(&mut bed, Flags::SynAck, b"");
    let reset = bed.one(A);
    assert!(reset.rst && reset.ports == (61_002, 80), "{reset:?}");
    assert_eq!(bed.counter("refused_unknown"), 1);
}

#[test]
fn a_wrong_health_check_is_refused_by_its_path() {
    let mut config = config();
    config.pools[0].health.as_mut().unwrap().rise = 0;
    let refusal = Harness::<nf_l7lb::L7lb>::new(config).err().unwrap();
    assert!(
        refusal.to_string().contains("pools[0].health.rise"),
        "{refusal}"
    );
}
