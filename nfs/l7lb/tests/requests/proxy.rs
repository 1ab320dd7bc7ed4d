//! The PROXY protocol, from clients and to backends.

use nf_l7lb::Config;
use serde_json::json;

use crate::{
    peers::{self, Bed, Flags, Peer, A, B, CLIENT},
    GET, OK,
};

const LINE: &str = "PROXY TCP4 198.51.100.7 10.0.0.100 4711 80\r\n";

fn bed() -> Bed {
    Bed::with(json!({"proxy_protocol": true}))
}

/// Pool `a` begins connections with a header.
fn outward(version: u8) -> Config {
    let mut config = peers::config(json!({"forwarded_for": false}));
    config.pools[0].proxy_protocol = Some(version);
    config
}

fn forwarded(address: &str) -> String {
    GET.replace(
        "\r\n\r\n",
        &format!("\r\nX-Forwarded-For: {address}\r\n\r\n"),
    )
}

#[test]
fn the_address_of_the_header_reaches_the_backend() {
    for (header, address) in [
        (LINE.as_bytes(), "198.51.100.7"),
        (b"PROXY UNKNOWN\r\n".as_slice(), "10.0.0.1"),
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\x0a\0\0\x64\0\x01\0\x50",
            "203.0.113.9",
        ),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0", "10.0.0.1"),
    ] {
        let mut bed = bed();
        let mut client = bed.client(1);
        client.say(&mut bed, [header, GET.as_bytes()].concat());
        let mut backend = bed.backend(A);
        let request = bed.one(A);
        assert_eq!(backend.hear(&request), forwarded(address));
        backend.say(&mut bed, OK);
        assert_eq!(client.hear(&bed.one(CLIENT)), OK);
        client.say(&mut bed, GET);
        assert_eq!(
            backend.hear(&bed.one(A)),
            forwarded(address),
            "only the first request has one"
        );
    }
}

#[test]
fn a_header_may_come_byte_by_byte_and_move() {
    let mut bed = bed();
    let mut client = bed.client(1);
    for byte in LINE.bytes() {
        client.say(&mut bed, [byte]);
        assert_eq!(bed.one(CLIENT).ack, Some(client.seq));
        bed = bed.moved_to(json!({"proxy_protocol": true}));
    }
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    assert_eq!(backend.hear(&bed.one(A)), forwarded("198.51.100.7"));
}

#[test]
fn a_connection_without_a_header_is_reset() {
    for bytes in [GET, "\r\n\r\nGET", "PROXY TCP4 a b c d\r\n", "\u{16}\u{3}"] {
        let mut bed = bed();
        let mut client = bed.client(1);
        client.say(&mut bed, bytes);
        let sent = bed.take(CLIENT);
        assert!(sent.iter().any(|seen| seen.rst), "{bytes:?}: {sent:?}");
        assert!(sent.iter().all(|seen| seen.payload.is_empty()));
    }
    let mut bed = bed();
    let mut client = bed.client(1);
    client.say(&mut bed, &LINE[..9]);
    bed.sent.clear();
    bed.wait(10_100);
    assert!(
        bed.take(CLIENT).iter().any(|seen| seen.rst),
        "no header in time"
    );
}

#[test]
fn a_connection_to_a_backend_begins_with_a_header() {
    for version in [1, 2] {
        let mut bed = Bed::of(outward(version));
        let header = match version {
            1 => "PROXY TCP4 10.0.0.1 10.0.0.100 7 80\r\n".into(),
            _ => String::from_utf8(
                b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\x01\x0a\0\0\x64\0\x07\0\x50".to_vec(),
            )
            .unwrap(),
        };
        let mut client = bed.client(7);
        client.say(&mut bed, GET);
        let mut backend = bed.backend(A);
        let lost = bed.one(A);
        bed.wait(210);
        let again = bed.one(A);
        assert_eq!(again, lost.clone().with_stamps_of(&again));
        assert_eq!(backend.hear(&again), header.clone() + GET);
        backend.say(&mut bed, OK);
        assert_eq!(client.hear(&bed.one(CLIENT)), OK);
        // The second request on this connection has none, also after one for another pool.
        client.say(&mut bed, GET);
        assert_eq!(backend.hear(&bed.one(A)), GET);
        backend.say(&mut bed, OK);
        client.hear(&bed.one(CLIENT));
        let to_b = GET.replace("/x", "/b");
        client.say(&mut bed, &to_b);
        let mut other = bed.backend(B);
        assert_eq!(other.hear(&bed.one(B)), to_b, "pool b gets no header");
        other.say(&mut bed, OK);
        client.hear(&bed.one(CLIENT));
        bed.sent.clear();
        client.say(&mut bed, GET);
        assert_eq!(backend.hear(&bed.one(A)), GET);
    }
}

#[test]
fn another_connection_after_a_refusal_has_the_header_too() {
    let mut bed = Bed::of(outward(1));
    let mut client = bed.client(7);
    client.say(&mut bed, GET);
    let mut backend = bed.backend(A);
    backend.hear(&bed.one(A));
    backend.say(&mut bed, OK);
    client.hear(&bed.one(CLIENT));
    client.send(&mut bed, Flags::Ack, b"");
    bed.sent.clear();
    backend.send(&mut bed, Flags::Refuse, b"");
    client.say(&mut bed, GET);
    let mut again: Peer = bed.backend(A);
    assert!(again.hear(&bed.one(A)).starts_with("PROXY TCP4 10.0.0.1 "));
}
