//! Connections to backends that the next clients use.

use nf_l7lb::Config;
use serde_json::json;

use crate::{
    answered,
    peers::{self, Bed, Flags, Peer, A, B, CLIENT},
    with_address, GET, GET_B, OK,
};

const LAST: &str = "GET /x HTTP/1.1\r\nHost: web\r\nConnection: Close\r\n\r\n";

fn config() -> Config {
    let mut config = peers::config(json!({}));
    config.pools[0].reuse = true;
    config
}

/// A load balancer with one idle leg to A, which a client has left.
fn left() -> (Bed, Peer) {
    let mut bed = Bed::of(config());
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    assert_eq!(backend.hear(&bed.one(A)), with_address(GET));
    answered(&mut bed, &mut client, &mut backend);
    client.send(&mut bed, Flags::Fin, b"");
    let fin = bed.one(CLIENT);
    assert!(fin.fin);
    // The backend's answer is acknowledged, and its connection stays.
    let acknowledged = bed.one(A);
    assert_eq!(acknowledged.ack, Some(backend.seq));
    assert!(!acknowledged.fin && !acknowledged.rst);
    assert_eq!(bed.counter("idle_backend_connections"), 1);
    (bed, backend)
}

#[test]
fn the_next_client_uses_the_leg_that_one_has_left() {
    let (mut bed, mut backend) = left();
    let shown = backend.echo;
    for port in 2..5 {
        let mut client = bed.client(port);
        client.say(&mut bed, GET);
        let request = bed.one(A);
        assert_eq!(request.ports.0, backend.to.1);
        assert_eq!(backend.hear(&request), with_address(GET));
        // The backend must not see a clock that goes back (PAWS), whatever the new client's says.
        assert!(request.stamps.unwrap().0.wrapping_sub(shown) < 1 << 31);
        assert_eq!(bed.counter("idle_backend_connections"), 0);
        answered(&mut bed, &mut client, &mut backend);
        client.send(&mut bed, Flags::Fin, b"");
        bed.sent.clear();
    }
    assert_eq!(bed.counter("connections_opened"), 4);
}

#[test]
fn a_client_that_closes_leaves_the_connection_to_the_backend_open() {
    let mut bed = Bed::of(config());
    let mut client = bed.client(1);
    client.say(&mut bed, LAST);
    let mut backend = bed.backend(A);
    // The backend is not told that this client leaves.
    assert_eq!(backend.hear(&bed.one(A)), with_address(GET));
    backend.say(&mut bed, OK);
    let answer: String = bed
        .take(CLIENT)
        .iter()
        .map(|seen| client.hear(seen))
        .collect();
    assert_eq!(
        answer,
        OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
    );
    client.send(&mut bed, Flags::Ack, b"");
    assert!(client.hear_fin(&bed.one(CLIENT)));
    assert_eq!(bed.counter("idle_backend_connections"), 1);
    let mut next = bed.client(2);
    bed.sent.clear();
    next.say(&mut bed, GET);
    assert_eq!(backend.hear(&bed.one(A)), with_address(GET));
}

#[test]
fn without_reuse_the_leg_ends_with_its_client() {
    let mut bed = Bed::new();
    let mut client = bed.client(1);
    client.say(&mut bed, LAST);
    let mut backend = bed.backend(A);
    assert_eq!(backend.hear(&bed.one(A)), with_address(LAST));
    bed.sent.clear();
    answered(&mut bed, &mut client, &mut backend);
    client.send(&mut bed, Flags::Fin, b"");
    assert_eq!(bed.counter("idle_backend_connections"), 0);
}

#[test]
fn a_leg_with_unacknowledged_bytes_is_not_handed_over() {
    let mut bed = Bed::of(config());
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    backend.hear(&bed.one(A));
    backend.say(&mut bed, OK);
    // The client's FIN does not acknowledge the answer.
    client.send(&mut bed, Flags::Fin, b"");
    assert_eq!(bed.counter("idle_backend_connections"), 0);
}

#[test]
fn a_backend_has_room_for_its_fin_after_a_client_with_a_closed_window() {
    let mut bed = Bed::of(config());
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    backend.hear(&bed.one(A));
    backend.say(&mut bed, OK);
    client.hear(&bed.one(CLIENT));
    client.window = 0;
    client.send(&mut bed, Flags::Fin, b"");
    let told = bed.one(A);
    assert_eq!(told.ack, Some(backend.seq));
    assert!(told.window > 0);
    assert_eq!(bed.counter("idle_backend_connections"), 1);
}

/// Its bytes would not be taken, and it would learn that by its timer.
#[test]
fn a_backend_has_no_room_within_a_body_that_its_client_does_not_take() {
    let mut bed = Bed::of(config());
    let mut client = bed.client(1);
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    backend.hear(&bed.one(A));
    backend.say(
        &mut bed,
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
    );
    client.hear(&bed.one(CLIENT));
    client.window = 0;
    client.send(&mut bed, Flags::Ack, b"");
    let told = bed.one(A);
    assert_eq!((told.ack, told.window), (Some(backend.seq), 0));
}

#[test]
fn whatever_an_idle_backend_says_ends_its_leg() {
    for flags in [Flags::Fin, Flags::Rst, Flags::Ack] {
        let (mut bed, mut backend) = left();
        let data: &[u8] = if flags == Flags::Ack {
            b"HTTP/1.1"
        } else {
            b""
        };
        backend.send(&mut bed, flags, data);
        assert_eq!(bed.counter("idle_backend_connections"), 0);
        assert!(bed.take(A).iter().all(|seen| seen.rst));
        let mut client = bed.client(2);
        client.say(&mut bed, GET);
        let mut backend = bed.backend(A);
        assert_eq!(backend.hear(&bed.one(A)), with_address(GET));
    }
}

#[test]
fn probes_and_forged_segments_do_not_end_an_idle_leg() {
    let (mut bed, mut backend) = left();
    let seq = backend.seq;
    for wrong in [seq.wrapping_sub(1), seq.wrapping_add(77_000)] {
        backend.seq = wrong;
        backend.send(&mut bed, Flags::Ack, b"");
        assert_eq!(bed.one(A).ack, Some(seq));
        backend.send(&mut bed, Flags::Rst, b"");
        assert!(bed.take(A).is_empty());
    }
    assert_eq!(bed.counter("idle_backend_connections"), 1);
}

#[test]
fn an_idle_leg_is_closed_when_its_time_is_over_and_when_its_backend_goes() {
    let (mut bed, _) = left();
    bed.wait(61_000);
    assert!(bed.one(A).rst);
    assert_eq!(bed.counter("idle_backend_connections"), 0);
    let (mut bed, _) = left();
    let mut config = config();
    config.pools[0].backends[0].port = 8080;
    bed.configure(config);
    bed.wait(2_000);
    assert!(bed.take(A).iter().any(|seen| seen.rst));
    assert_eq!(bed.counter("idle_backend_connections"), 0);
}

/// A client's request on a used leg that the backend has just closed.
fn closed_meanwhile(flags: Flags) {
    let (mut bed, mut backend) = left();
    let mut client = bed.client(2);
    let head = "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 4\r\n\r\nbody";
    client.say(&mut bed, head);
    assert_eq!(backend.hear(&bed.one(A)), with_address(head));
    backend.ack = backend.ack.wrapping_sub(with_address(head).len() as u32);
    backend.send(&mut bed, flags, b"");
    let syn = bed.sent.iter().position(|seen| seen.syn).unwrap();
    let syn = bed.sent.remove(syn);
    bed.take(A);
    let mut again = Peer::answering(&syn);
    again.send(&mut bed, Flags::SynAck, b"");
    again.seq += 1;
    assert_eq!(again.hear(&bed.one(A)), with_address(head));
    answered(&mut bed, &mut client, &mut again);
    // The connection goes on.
    client.say(&mut bed, GET);
    assert_eq!(again.hear(&bed.one(A)), with_address(GET));
}

#[test]
fn a_request_that_a_closing_backend_did_not_take_is_sent_again() {
    closed_meanwhile(Flags::Rst);
    closed_meanwhile(Flags::Fin);
}

#[test]
fn a_request_that_could_not_be_sent_again_gets_a_new_leg() {
    let body = "Content-Length: 4\r\n\r\n";
    let chunks = "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
    for framing in [body, chunks] {
        let (mut bed, _) = left();
        let mut client = bed.client(2);
        let request = format!("POST /x HTTP/1.1\r\nHost: web\r\n{framing}");
        client.say(&mut bed, &request);
        let mut backend = bed.backend(A);
        assert!(backend.hear(&bed.one(A)).starts_with("POST /x "));
        assert_eq!(bed.counter("idle_backend_connections"), 1);
    }
}

#[test]
fn a_request_that_a_backend_took_is_not_sent_again() {
    let (mut bed, mut backend) = left();
    let mut client = bed.client(2);
    client.say(&mut bed, GET);
    backend.hear(&bed.one(A));
    backend.send(&mut bed, Flags::Ack, b"");
    backend.send(&mut bed, Flags::Rst, b"");
    assert!(!bed.take(A).iter().any(|seen| seen.syn));
    let answers = bed.take(CLIENT);
    assert!(answers
        .iter()
        .any(|seen| seen.text().starts_with("HTTP/1.1 502 ")));
}

#[test]
fn an_idle_leg_moves_with_the_state() {
    let (bed, mut backend) = left();
    let mut bed = bed.moved_with(config());
    let mut client = bed.client(2);
    client.say(&mut bed, GET);
    assert_eq!(backend.hear(&bed.one(A)), with_address(GET));
    answered(&mut bed, &mut client, &mut backend);
}

#[test]
fn a_client_with_a_leg_takes_no_second_one_whose_clock_differs() {
    let mut config = config();
    config.pools[1].reuse = true;
    let mut bed = Bed::of(config);
    let mut first = bed.client(1);
    let mut backends = Vec::new();
    for (head, address) in [(GET, A), (GET_B, B)] {
        first.say(&mut bed, head);
        let mut backend = bed.backend(address);
        backend.hear(&bed.one(address));
        answered(&mut bed, &mut first, &mut backend);
        first.send(&mut bed, Flags::Ack, b"");
        bed.sent.clear();
        backends.push(backend);
    }
    first.send(&mut bed, Flags::Fin, b"");
    bed.sent.clear();
    assert_eq!(bed.counter("idle_backend_connections"), 2);
    let mut next = bed.client(2);
    next.say(&mut bed, GET);
    assert_eq!(backends[0].hear(&bed.one(A)), with_address(GET));
    answered(&mut bed, &mut next, &mut backends[0]);
    next.say(&mut bed, GET_B);
    // A handshake: this backend knows only the clock of its new connection.
    let mut backend = bed.backend(B);
    assert_eq!(backend.hear(&bed.one(B)), with_address(GET_B));
}
