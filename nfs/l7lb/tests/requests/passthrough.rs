//! TLS connections that pass by the name of their server.

use nf_l7lb::Config;
use serde_json::json;

use crate::peers::{self, Bed, Flags, Peer, A, B, CLIENT};

fn config() -> Config {
    let mut config = peers::config(json!({
        "mode": "tls-passthrough", "forwarded_for": false,
        "routes": [
            {"name": "b", "sni": ["b.example.org", "*.b.example.org"], "pool": "b"},
            {"name": "a", "sni": ["a.example.org"], "pool": "a"},
        ],
    }));
    let timeouts = json!({"head": "3s"});
    config.timeouts = serde_json::from_value(timeouts).unwrap();
    config
}

/// The same with a route for all other names.
fn with_rest() -> Config {
    let mut config = config();
    let rest = json!({"name": "rest", "pool": "a"});
    let routes = &mut config.listeners[0].routes;
    routes.push(serde_json::from_value(rest).unwrap());
    config
}

fn vector(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// Builds a ClientHello in records of at most this size. All bytes are ASCII, so that peers can read them as text.
fn hello(server: Option<&str>, size: usize) -> Vec<u8> {
    let extension = |kind: u8, content: &[u8]| [&[0, kind][..], &vector(content)].concat();
    let name = server.map(|name| {
        let entry = [&[0][..], &vector(name.as_bytes())].concat();
        extension(0, &vector(&entry))
    });
    let extensions = [extension(43, &[2, 3, 4]), name.unwrap_or_default()].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &[0, 2, 0x13, 1],
        &[1, 0],
        &vector(&extensions),
    ]
    .concat();
    let message = [&[1, 0][..], &vector(&body)].concat();
    let record = |part: &[u8]| [&[22, 3, 1][..], &vector(part)].concat();
    message.chunks(size).flat_map(record).collect()
}

/// Lets a connection begin; returns both ends.
fn begun(bed: &mut Bed, port: u16, server: Option<&str>, at: [u8; 4]) -> (Peer, Peer) {
    let mut client = bed.client(port);
    let hello = hello(server, 1000);
    client.say(bed, &hello);
    let mut backend = bed.backend(at);
    assert_eq!(backend.hear(&bed.one(at)).as_bytes(), hello);
    (client, backend)
}

#[test]
fn the_name_chooses_the_pool_and_all_bytes_pass() {
    let mut bed = Bed::of(config());
    for (port, server, at) in [
        (1, "a.example.org", A),
        (2, "B.Example.org", B),
        (3, "x.b.example.org", B),
    ] {
        let (mut client, mut backend) = begun(&mut bed, port, Some(server), at);
        for round in 0..3 {
            backend.say(&mut bed, format!("\u{17} answer {round}"));
            assert_eq!(
                client.hear(&bed.one(CLIENT)),
                format!("\u{17} answer {round}")
            );
            client.say(&mut bed, "GET / HTTP/1.1\r\n\r\n");
            assert_eq!(backend.hear(&bed.one(at)), "GET / HTTP/1.1\r\n\r\n");
        }
        client.send(&mut bed, Flags::Fin, b"");
        client.seq = client.seq.wrapping_add(1);
        let fin = bed.one(at);
        assert!(fin.fin);
        backend.hear(&fin);
        backend.say(&mut bed, "the rest");
        assert_eq!(client.hear(&bed.one(CLIENT)), "the rest");
        backend.send(&mut bed, Flags::Fin, b"");
        client.hear(&bed.one(CLIENT));
        client.send(&mut bed, Flags::Ack, b"");
        bed.sent.clear();
    }
    assert_eq!(bed.counter("connections"), 0);
    assert_eq!(bed.counter("passed_connections"), 3);
    let name = "route_requests{listener=\"web\",route=\"b\"}";
    assert_eq!(bed.counter(name), 2);
}

#[test]
fn a_hello_over_records_segments_and_moves_arrives_unchanged() {
    let mut bed = Bed::of(config());
    let mut client = bed.client(1);
    let hello = hello(Some("b.example.org"), 17);
    let (last, first) = hello.split_last().unwrap();
    for byte in first {
        client.say(&mut bed, [*byte]);
        assert_eq!(bed.one(CLIENT).ack, Some(client.seq));
    }
    let mut bed = bed.moved_with(config());
    client.say(&mut bed, [&[*last][..], b"early"].concat());
    let mut backend = bed.backend(B);
    let lost = bed.one(B);
    let mut bed = bed.moved_with(config());
    bed.wait(210);
    let again = bed.one(B);
    assert_eq!(again.payload, lost.payload);
    assert_eq!(
        backend.hear(&again).as_bytes(),
        [&hello[..], b"early"].concat()
    );
}

#[test]
fn a_hello_without_a_name_takes_the_first_route_without_one() {
    let mut bed = Bed::of(with_rest());
    begun(&mut bed, 1, None, A);
    begun(&mut bed, 2, Some("other.example.org"), A);
    begun(&mut bed, 3, Some("b.example.org"), B);
}

#[test]
fn a_name_without_a_route_gets_an_alert() {
    for server in [None, Some("other.example.org"), Some("example.org")] {
        let mut bed = Bed::of(config());
        let mut client = bed.client(1);
        client.say(&mut bed, hello(server, 1000));
        let sent = bed.take(CLIENT);
        assert_eq!(sent[0].payload, [21, 3, 3, 0, 2, 2, 112]);
        assert!(sent[1].fin);
    }
}

#[test]
fn what_is_not_tls_is_reset() {
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        &[0x16, 3, 1, 0, 1, 2],
    ] {
        let mut bed = Bed::of(with_rest());
        let mut client = bed.client(1);
        client.say(&mut bed, bytes);
        assert!(bed.one(CLIENT).rst);
    }
    let mut bed = Bed::of(with_rest());
    let mut client = bed.client(1);
    client.say(&mut bed, &hello(None, 1000)[..20]);
    bed.sent.clear();
    bed.wait(3_100);
    assert!(bed.one(CLIENT).rst, "no hello in time");
}

#[test]
fn a_backend_that_refuses_resets_the_client() {
    let mut bed = Bed::of(config());
    let mut client = bed.client(1);
    client.say(&mut bed, hello(Some("a.example.org"), 1000));
    let mut backend = Peer::answering(&bed.one(A));
    backend.send(&mut bed, Flags::Refuse, b"");
    assert!(bed.one(CLIENT).rst);
}

#[test]
fn headers_of_the_proxy_protocol_come_before_the_hello() {
    let mut config = config();
    config.listeners[0].proxy_protocol = true;
    config.pools[0].proxy_protocol = Some(1);
    let mut bed = Bed::of(config);
    let mut client = bed.client(1);
    let hello = hello(Some("a.example.org"), 1000);
    let line = b"PROXY TCP4 198.51.100.7 10.0.0.100 4711 443\r\n";
    client.say(&mut bed, [&line[..], &hello].concat());
    let mut backend = bed.backend(A);
    let text = backend.hear(&bed.one(A));
    let rest = text.strip_prefix("PROXY TCP4 198.51.100.7 10.0.0.100 4711 80\r\n");
    assert_eq!(rest.unwrap().as_bytes(), hello);
}
