//! Clients and backends that stop in the middle of a body.

use serde_json::json;

use crate::{
    peers::{self, Bed, Flags, Peer, A, CLIENT},
    GET, OK,
};

const POST: &str = "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 1000\r\n\r\n";

fn bed() -> Bed {
    let mut config = peers::config(json!({"forwarded_for": false}));
    let timeouts = json!({"body": "5s", "answer": "8s", "idle": "20s"});
    config.timeouts = serde_json::from_value(timeouts).unwrap();
    Bed::of(config)
}

fn asked(bed: &mut Bed, request: &str) -> (Peer, Peer) {
    let mut client = bed.client(1);
    client.say(bed, request);
    let mut backend = bed.backend(A);
    backend.hear(&bed.one(A));
    backend.send(bed, Flags::Ack, b"");
    bed.sent.clear();
    (client, backend)
}

/// Sends a hundred bytes of a body, which the backend acknowledges.
fn upload(bed: &mut Bed, client: &mut Peer, backend: &mut Peer) {
    client.say(bed, "x".repeat(100));
    backend.hear(&bed.one(A));
    backend.send(bed, Flags::Ack, b"");
    bed.sent.clear();
}

fn status(bed: &mut Bed) -> Option<String> {
    let sent = bed.take(CLIENT);
    let answer = sent.iter().find(|seen| !seen.payload.is_empty())?;
    Some(answer.text()[9..12].to_owned())
}

#[test]
fn a_slow_upload_takes_its_time_and_one_that_stops_gets_408() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed, POST);
    for _ in 0..5 {
        bed.wait(4_000);
        upload(&mut bed, &mut client, &mut backend);
    }
    bed.wait(4_500);
    assert_eq!(status(&mut bed), None);
    bed.wait(1_000);
    assert_eq!(status(&mut bed).as_deref(), Some("408"));
    assert!(bed.take(A).iter().any(|seen| seen.rst));
}

#[test]
fn the_backend_has_its_time_after_the_upload() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed, POST);
    for _ in 0..10 {
        bed.wait(1_000);
        upload(&mut bed, &mut client, &mut backend);
    }
    bed.wait(7_500);
    assert_eq!(status(&mut bed), None);
    bed.wait(1_000);
    assert_eq!(status(&mut bed).as_deref(), Some("504"));
}

#[test]
fn a_backend_that_does_not_take_the_body_gets_504() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed, POST);
    backend.window = 0;
    client.say(&mut bed, "x".repeat(100));
    backend.hear(&bed.one(A));
    backend.send(&mut bed, Flags::Ack, b"");
    bed.sent.clear();
    bed.wait(5_500);
    assert_eq!(status(&mut bed).as_deref(), Some("504"));
}

#[test]
fn an_answer_that_stops_is_reset() {
    let mut bed = bed();
    let (mut client, mut backend) = asked(&mut bed, GET);
    backend.say(&mut bed, &OK[..OK.len() - 2]);
    client.hear(&bed.one(CLIENT));
    client.send(&mut bed, Flags::Ack, b"");
    bed.sent.clear();
    bed.wait(4_500);
    assert_eq!(bed.sent, []);
    bed.wait(1_000);
    assert!(bed.one(CLIENT).rst && bed.one(A).rst);
    assert_eq!(bed.counter("connections"), 0);
}

#[test]
fn a_tunnel_has_the_time_of_idle_connections() {
    let mut bed = bed();
    let request = "GET /x HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let (mut client, mut backend) = asked(&mut bed, request);
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    backend.say(&mut bed, answer);
    client.hear(&bed.one(CLIENT));
    client.send(&mut bed, Flags::Ack, b"");
    bed.sent.clear();
    bed.wait(18_000);
    assert_eq!(bed.sent, []);
    bed.wait(3_000);
    assert!(bed.one(CLIENT).rst);
}
