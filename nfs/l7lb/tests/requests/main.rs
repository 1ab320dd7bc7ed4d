//! Requests through the load balancer, segment by segment.

#![allow(clippy::unwrap_used)]

mod answers;
mod docs;
mod forged;
mod health;
mod large;
mod log;
mod loss;
mod passthrough;
mod peers;
mod proxy;
mod refused;
mod reuse;
mod sticky;
mod timeouts;
mod tls;

use peers::{Bed, Flags, Peer, A, B, CLIENT};
use serde_json::json;

const GET: &str = "GET /x HTTP/1.1\r\nHost: web\r\n\r\n";
const GET_B: &str = "GET /b/y HTTP/1.1\r\nHost: web\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn with_address(head: &str) -> String {
    head.replace("\r\n\r\n", "\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
}

/// Sends a request to backend A on a new connection and returns both ends, before the answer.
fn asked(bed: &mut Bed, port: u16) -> (Peer, Peer) {
    let mut client = bed.client(port);
    client.say(bed, GET);
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), with_address(GET));
    assert_eq!(request.ack, Some(backend.seq));
    (client, backend)
}

/// Lets a backend answer and the client receive it.
fn answered(bed: &mut Bed, client: &mut Peer, backend: &mut Peer) {
    backend.say(bed, OK);
    let answer = bed.one(CLIENT);
    assert_eq!(client.hear(&answer), OK);
    assert_eq!(answer.ack, Some(client.seq));
}

#[test]
fn a_syn_leaves_no_state_and_its_answer_opens_a_connection() {
    let mut bed = Bed::new();
    let client = bed.client(1);
    assert_eq!(bed.counter("connections"), 1);
    let mut forged = client.clone();
    forged.ack = forged.ack.wrapping_add(4096);
    forged.to.1 = 80;
    let mut other = Bed::new();
    forged.send(&mut other, Flags::Ack, b"GET / HTTP/1.1\r\n");
    assert_eq!(other.counter("connections"), 0);
    assert!(other.one(CLIENT).rst);
}

#[test]
fn a_request_and_its_answer_pass_and_the_next_one_uses_the_same_leg() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = asked(&mut bed, 1);
    answered(&mut bed, &mut client, &mut backend);
    for _ in 0..3 {
        client.say(&mut bed, GET);
        let request = bed.one(A);
        assert_eq!(backend.hear(&request), with_address(GET));
        answered(&mut bed, &mut client, &mut backend);
    }
    assert_eq!(bed.counter("requests"), 4);
    assert!(bed.sent.is_empty());
}

#[test]
fn each_request_is_routed_and_legs_are_used_again() {
    let mut bed = Bed::new();
    let (mut client, mut a) = asked(&mut bed, 1);
    answered(&mut bed, &mut client, &mut a);
    client.say(&mut bed, GET_B);
    // A's answer has arrived, and A will not see another segment for a while.
    let told = bed.one(A);
    assert_eq!((told.ack, told.payload.len()), (Some(a.seq), 0));
    let mut b = bed.backend(B);
    let request = bed.one(B);
    assert_eq!(b.hear(&request), with_address(GET_B));
    answered(&mut bed, &mut client, &mut b);
    client.say(&mut bed, GET);
    bed.take(B);
    let request = bed.one(A);
    assert_eq!(a.hear(&request), with_address(GET));
    answered(&mut bed, &mut client, &mut a);
    client.say(&mut bed, GET_B);
    bed.take(A);
    let request = bed.one(B);
    assert_eq!(b.hear(&request), with_address(GET_B));
    answered(&mut bed, &mut client, &mut b);
}

#[test]
fn a_head_in_many_segments_is_acknowledged_and_sent_whole() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    for (index, byte) in GET.bytes().enumerate() {
        client.say(&mut bed, [byte]);
        if index + 1 < GET.len() {
            assert_eq!(bed.one(CLIENT).ack, Some(client.seq));
        }
    }
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), with_address(GET));
    answered(&mut bed, &mut client, &mut backend);
}

#[test]
fn a_retransmission_with_other_bytes_changes_nothing() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    let start = client.seq;
    client.say(&mut bed, GET);
    let end = client.seq;
    client.seq = start;
    client.send(&mut bed, Flags::Ack, GET.replace("/x", "/y").as_bytes());
    let acknowledgement = bed.one(CLIENT);
    assert_eq!(acknowledgement.ack, Some(end));
    client.seq = end;
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), with_address(GET));
    answered(&mut bed, &mut client, &mut backend);
}

#[test]
fn pipelined_requests_wait_for_the_answer_before_them() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say(&mut bed, [GET, GET_B, GET].concat());
    let mut a = bed.backend(A);
    let request = bed.one(A);
    assert_eq!(a.hear(&request), with_address(GET));
    assert!(bed.sent.is_empty());
    answered(&mut bed, &mut client, &mut a);
    // Another backend: its answer must not overtake the last one.
    assert!(bed.take(B).is_empty());
    client.send(&mut bed, Flags::Ack, b"");
    let mut b = bed.backend(B);
    let request = bed.one(B);
    assert_eq!(b.hear(&request), with_address(GET_B));
    let _acknowledgements = bed.take(A);
    answered(&mut bed, &mut client, &mut b);
    client.send(&mut bed, Flags::Ack, b"");
    let request = bed.one(A);
    assert_eq!(a.hear(&request), with_address(GET));
    let _acknowledgements = bed.take(B);
    answered(&mut bed, &mut client, &mut a);
}

#[test]
fn a_lost_head_is_sent_again() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    let lost = bed.one(A);
    bed.wait(180);
    assert!(bed.sent.is_empty());
    bed.wait(30);
    let again = bed.one(A);
    assert_eq!((again.seq, again.text()), (lost.seq, lost.text()));
    backend.hear(&again);
    answered(&mut bed, &mut client, &mut backend);
    bed.wait(1000);
    assert!(bed.sent.is_empty());
}

#[test]
fn a_body_passes_and_a_lost_part_of_it_passes_again() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    let head = "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 6000\r\n\r\n";
    client.say(&mut bed, [head.as_bytes(), &[b'0'; 1000]].concat());
    let mut backend = bed.backend(A);
    let expected = with_address(head) + &"0".repeat(1000);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), expected);
    // The window of a SYN is small, because it is not scaled.
    backend.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.one(CLIENT).ack, Some(client.seq));
    let parts: Vec<(u32, String)> = (1..6)
        .map(|digit| {
            let at = client.seq;
            let part = digit.to_string().repeat(1000);
            client.say(&mut bed, &part);
            (at, part)
        })
        .collect();
    let passed = bed.take(A);
    assert_eq!(passed.len(), 5);
    backend.hear(&passed[0]);
    // The second one was lost; the client sends it again.
    let end = client.seq;
    client.seq = parts[1].0;
    client.send(&mut bed, Flags::Ack, parts[1].1.as_bytes());
    client.seq = end;
    let again = bed.one(A);
    assert_eq!((again.seq, again.text()), (passed[1].seq, passed[1].text()));
    for part in &passed[1..] {
        backend.hear(part);
    }
    answered(&mut bed, &mut client, &mut backend);
}

#[test]
fn a_lost_body_passes_again_although_the_next_request_is_held() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    let head = "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 10\r\n\r\n";
    client.say(&mut bed, head);
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    backend.hear(&request);
    let at = client.seq;
    client.say(&mut bed, "0123456789");
    let lost = bed.one(A);
    client.say(&mut bed, GET);
    let end = client.seq;
    client.seq = at;
    client.send(&mut bed, Flags::Ack, b"0123456789");
    let again = bed.one(A);
    assert_eq!((again.seq, again.text()), (lost.seq, "0123456789"));
    backend.hear(&again);
    client.seq = end;
    let _acknowledgements = bed.take(CLIENT);
    answered(&mut bed, &mut client, &mut backend);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), with_address(GET));
}

#[test]
fn a_segment_is_cut_at_the_backends_window() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say(
        &mut bed,
        "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 5000\r\n\r\n",
    );
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    let room = 4096 - backend.hear(&request).len();
    client.say(&mut bed, "x".repeat(5000));
    let lengths = bed.take(A).into_iter().map(|each| each.payload.len());
    assert_eq!(lengths.sum::<usize>(), room);
}

#[test]
fn the_window_stays_open_after_a_long_body() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    let length = 100 * 1000;
    let head = format!("POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: {length}\r\n\r\n");
    client.say(&mut bed, &head);
    let mut backend = bed.backend(A);
    backend.hear(&bed.one(A));
    backend.send(&mut bed, Flags::Ack, b"");
    for _ in 0..100 {
        client.say(&mut bed, "b".repeat(1000));
        backend.hear(&bed.one(A));
        backend.send(&mut bed, Flags::Ack, b"");
    }
    bed.take(CLIENT);
    answered(&mut bed, &mut client, &mut backend);
    client.send(&mut bed, Flags::Ack, b"");
    bed.sent.clear();
    // A probe, by which a client also asks for a closed window.
    let mut probe = client.clone();
    probe.seq = probe.seq.wrapping_sub(1);
    probe.send(&mut bed, Flags::Ack, b"");
    let answer = bed.one(CLIENT);
    assert_eq!(answer.ack, Some(client.seq));
    assert_ne!(answer.window, 0);
}

#[test]
fn a_client_may_leave_after_a_body() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say(
        &mut bed,
        "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 4\r\n\r\n",
    );
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    backend.hear(&request);
    client.say(&mut bed, "body");
    let body = bed.one(A);
    backend.hear(&body);
    answered(&mut bed, &mut client, &mut backend);
    client.send(&mut bed, Flags::Fin, b"");
    client.seq = client.seq.wrapping_add(1);
    let fin = bed.one(CLIENT);
    assert!(fin.fin && fin.ack == Some(client.seq), "{fin:?}");
    assert!(bed.one(A).rst);
    client.hear(&fin);
    client.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.counter("connections"), 0);
}

#[test]
fn a_backend_that_resets_before_its_answer_gives_502_at_once() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = asked(&mut bed, 1);
    backend.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.one(CLIENT).ack, Some(client.seq));
    backend.send(&mut bed, Flags::Refuse, b"");
    let answer = bed.take(CLIENT).remove(0);
    assert!(client.hear(&answer).starts_with("HTTP/1.1 502 "));
}

#[test]
fn a_backend_that_closes_without_an_answer_gives_502() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = asked(&mut bed, 1);
    let first = backend.seq;
    backend.seq = first.wrapping_add(OK.len() as u32);
    backend.send(&mut bed, Flags::Fin, b"");
    let before: Vec<_> = bed.take(CLIENT);
    assert!(before
        .iter()
        .all(|seen| seen.payload.is_empty() && !seen.rst));
    let (mut client2, mut backend2) = asked(&mut bed, 2);
    backend2.send(&mut bed, Flags::Fin, b"");
    let answer = bed.take(CLIENT).remove(0);
    assert!(client2.hear(&answer).starts_with("HTTP/1.1 502 "));
    // The answer of the first backend was only late.
    backend.seq = first;
    answered(&mut bed, &mut client, &mut backend);
}

#[test]
fn own_answers_keep_the_connection_and_refusals_end_it() {
    let mut bed = Bed::new();
    let (mut client, mut backend) = asked(&mut bed, 1);
    answered(&mut bed, &mut client, &mut backend);
    client.say(&mut bed, "GET /ping HTTP/1.1\r\nHost: web\r\n\r\n");
    let answer = bed.one(CLIENT);
    assert!(client.hear(&answer).ends_with("\r\n\r\npong\n"));
    client.send(&mut bed, Flags::Ack, b"");
    client.say(&mut bed, GET);
    let _acknowledgement = bed.take(A).iter().rposition(|seen| seen.payload.is_empty());
    let mut bed2 = Bed::new();
    let mut bad = bed2.client(2);
    bad.say(&mut bed2, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    let sent = bed2.take(CLIENT);
    assert!(bad
        .hear(&sent[0])
        .starts_with("HTTP/1.1 400 Bad Request\r\n"));
    assert!(sent[1].fin);
    bad.hear(&sent[1]);
    bad.send(&mut bed2, Flags::Fin, b"");
    bad.seq += 1;
    assert_eq!(bed2.one(CLIENT).ack, Some(bad.seq));
    assert_eq!(bed2.counter("connections"), 0);
}

#[test]
fn an_unreachable_backend_gets_503() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let syn = bed.one(A);
    let mut backend = bed_peer(&syn);
    backend.send(&mut bed, Flags::Rst, b"");
    // A reset without an acknowledgement is not the answer to this SYN.
    bed.wait(6000);
    let answer = bed.take(CLIENT);
    assert!(answer[0].text().starts_with("HTTP/1.1 503 "), "{answer:?}");
}

fn bed_peer(syn: &peers::Seen) -> Peer {
    let mut bed = Bed::new();
    let mut client = bed.client(9);
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    backend.to.1 = syn.ports.0;
    backend.seq = 0;
    backend
}

#[test]
fn requests_continue_in_another_instance() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    let (first, rest) = GET.split_at(20);
    client.say(&mut bed, first);
    let mut bed = bed.moved();
    client.say(&mut bed, rest);
    bed.take(CLIENT);
    let mut bed = bed.moved();
    let mut backend = bed.backend(A);
    let _lost = bed.one(A);
    let mut bed = bed.moved();
    bed.wait(210);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), with_address(GET));
    backend.say(&mut bed, &OK[..30]);
    let begun = bed.one(CLIENT);
    client.hear(&begun);
    let mut bed = bed.moved();
    backend.say(&mut bed, &OK[30..]);
    let rest = bed.one(CLIENT);
    assert_eq!(begun.text().to_owned() + &client.hear(&rest), OK);
    client.say(&mut bed, GET);
    let request = bed.one(A);
    assert_eq!(backend.hear(&request), with_address(GET));
}

#[test]
fn fins_of_both_sides_pass_and_end_the_connection() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    let head = GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    client.say(&mut bed, &head);
    let mut backend = bed.backend(A);
    let request = bed.one(A);
    backend.hear(&request);
    answered(&mut bed, &mut client, &mut backend);
    backend.send(&mut bed, Flags::Fin, b"");
    backend.seq += 1;
    let fin = bed.one(CLIENT);
    assert!(fin.fin);
    client.hear(&fin);
    client.send(&mut bed, Flags::Fin, b"");
    client.seq += 1;
    let fin = bed.one(A);
    assert!(fin.fin && fin.ack == Some(backend.seq));
    backend.hear(&fin);
    backend.send(&mut bed, Flags::Ack, b"");
    assert_eq!(bed.one(CLIENT).ack, Some(client.seq));
    assert_eq!(bed.counter("connections"), 0);
}

#[test]
fn the_limit_of_requests_closes_the_connection() {
    let bed = Bed::with(json!({"add": ["X-Via: l7lb"], "request_id": true}));
    let mut bed = bed;
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    bed.backend(A);
    let request = bed.one(A);
    assert!(request.text().contains("\r\nX-Via: l7lb\r\n"));
    assert!(request.text().contains("\r\nX-Request-Id: "));
}
