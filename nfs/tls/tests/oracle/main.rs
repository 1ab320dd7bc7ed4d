//! Handshakes and records against rustls' client.

#![allow(clippy::unwrap_used, clippy::panic)]

mod client;
mod signing;

use std::sync::Arc;

use client::{Client, Files, Server, SUITES};
use nf_tls::{Alert, Received};
use proptest::prelude::*;
use rustls::{AlertDescription, Error};

const HELLO: &[u8] = b"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n";

#[test]
fn each_suite_of_both_versions_carries_data_both_ways() {
    let files = Files::new();
    for suite in SUITES {
        let (mut client, mut server) = client::connected(&files, suite, &[usize::MAX]);
        client.say(HELLO);
        assert_eq!(server.hear(&mut client), HELLO, "{suite:?}");
        let answer = vec![b'x'; 100_000];
        server.say(&mut client, &answer);
        assert_eq!(client.heard(), answer, "{suite:?}");
        client.close();
        assert_eq!(server.next(&mut client), Ok(Received::Closed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_split_gives_the_same_bytes(
        suite in 0..SUITES.len(),
        sizes in proptest::collection::vec(1_usize..3000, 1..20),
        texts in proptest::collection::vec((any::<bool>(), 0_usize..40_000), 1..12),
    ) {
        let files = Files::new();
        let (mut client, mut server) = client::connected(&files, SUITES[suite], &sizes);
        for (index, (is_client, length)) in texts.into_iter().enumerate() {
            let text = vec![index as u8; length];
            if is_client {
                client.say(&text);
                prop_assert_eq!(server.hear(&mut client), text);
            } else {
                server.say(&mut client, &text);
                prop_assert_eq!(client.heard(), text);
            }
        }
    }

    #[test]
    fn a_tampered_record_is_refused(suite in 0..SUITES.len(), at in 0_usize..1000, bit in 0..8) {
        let files = Files::new();
        let (mut client, mut server) = client::connected(&files, SUITES[suite], &[usize::MAX]);
        client.say(HELLO);
        let mut record = client.written();
        let at = at % record.len();
        record[at] ^= 1_u8 << bit;
        let result = server.session.open(&mut record);
        // TLS 1.2 covers version and length with the values that they must have.
        let is_implied = (1..5).contains(&at) && !server.session.is_tls13();
        prop_assert!(result.is_err() || is_implied, "{:?}", result);
    }
}

#[test]
fn bytes_that_follow_the_handshake_at_once_are_kept() {
    let files = Files::new();
    for suite in SUITES {
        let mut client = Client::new(&files, suite, "one.test");
        client.say(HELLO);
        let (mut client, mut server) =
            client::finish(client, Server::begin(&files), &[usize::MAX]).unwrap();
        assert_eq!(server.hear(&mut client), HELLO, "{suite:?}");
    }
}

#[test]
fn keys_are_updated_when_the_client_asks() {
    let files = Files::new();
    let tls13 = SUITES.iter().filter(|suite| suite.tls13().is_some());
    for suite in tls13 {
        let (mut client, mut server) = client::connected(&files, *suite, &[usize::MAX]);
        for round in 0..5_u8 {
            client.connection.refresh_traffic_keys().unwrap();
            client.say(&[round; 100]);
            assert_eq!(server.hear(&mut client), [round; 100]);
            server.say(&mut client, &[round; 300]);
            assert_eq!(client.heard(), [round; 300]);
        }
    }
}

#[test]
fn updates_without_data_are_limited() {
    let files = Files::new();
    let (mut client, mut server) = client::connected(&files, SUITES[0], &[usize::MAX]);
    let results: Vec<_> = (0..100)
        .map(|_| {
            client.connection.refresh_traffic_keys().unwrap();
            server.next(&mut client)
        })
        .collect();
    let refused = results.iter().position(Result::is_err);
    assert_eq!(refused, Some(32));
    assert_eq!(results[32], Err(Alert::UnexpectedMessage));
}

#[test]
fn alerts_reach_the_client() {
    let files = Files::new();
    for suite in SUITES {
        let (mut client, mut server) = client::connected(&files, suite, &[usize::MAX]);
        let mut out = Vec::new();
        server.session.alert(Alert::CloseNotify, &mut out);
        assert!(client.take(&out).unwrap().peer_has_closed());
        let (mut client, mut server) = client::connected(&files, suite, &[usize::MAX]);
        out.clear();
        server.session.alert(Alert::BadRecordMac, &mut out);
        let error = Error::AlertReceived(AlertDescription::BadRecordMac);
        assert_eq!(client.take(&out).unwrap_err(), error);
    }
}

#[test]
fn what_is_not_tls_gets_an_alert() {
    let files = Files::new();
    let http = b"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n";
    for text in [
        &http[..],
        &[22, 3, 1, 0xff, 0xff, 1],
        &[22, 3, 1, 0, 4, 1, 0, 0, 0],
    ] {
        let (reason, out) = Server::begin(&files).refused(text);
        assert!(out.starts_with(&[21, 3]), "{reason}: {out:02x?}");
    }
}

#[test]
fn a_handshake_that_never_ends_is_refused() {
    let files = Files::new();
    // Pieces of a hello that announces 16 MB.
    let mut piece = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    piece.resize(5 + 0x4000, 0);
    let (_, out) = Server::begin(&files).refused(&piece.repeat(8));
    assert!(out.starts_with(&[21, 3]));
}

#[test]
fn the_name_chooses_the_certificate() {
    let files = Files::new();
    for name in ["one.test", "two.test", "deep.two.test"] {
        let client = Client::new(&files, SUITES[0], name);
        // rustls verifies the certificate against the name.
        client::finish(client, Server::begin(&files), &[usize::MAX]).unwrap();
    }
    let unknown = Client::new(&files, SUITES[0], "three.test");
    let refused = client::finish(unknown, Server::begin(&files), &[usize::MAX]);
    assert!(refused.is_err());
}

#[test]
fn only_http_1_1_is_agreed_upon() {
    let files = Files::new();
    let mut client = Client::with_protocols(&files, &["h2", "http/1.1"]);
    client = client::finish(client, Server::begin(&files), &[usize::MAX])
        .unwrap()
        .0;
    assert_eq!(client.connection.alpn_protocol(), Some(&b"http/1.1"[..]));
    let client = Client::with_protocols(&files, &["h2"]);
    assert!(client::finish(client, Server::begin(&files), &[usize::MAX]).is_err());
}

#[test]
fn a_session_moves_as_plain_bytes() {
    let files = Files::new();
    for suite in SUITES {
        let (mut client, mut server) = client::connected(&files, suite, &[usize::MAX]);
        let bytes = bytemuck::bytes_of(&server.session).to_vec();
        server.session = bytemuck::pod_read_unaligned(&bytes);
        client.say(HELLO);
        assert_eq!(server.hear(&mut client), HELLO);
    }
}

#[test]
fn threads_run_handshakes() {
    let files = Files::new();
    let threads = nf_tls::Handshakes::start(2, || ());
    let config = Arc::new(nf_tls::server_config(&files.identities()).unwrap());
    let mut clients: Vec<_> = (0..8)
        .map(|number| {
            let mut client = Client::new(&files, SUITES[number % SUITES.len()], "one.test");
            assert!(threads.begin(number as u64, &config, client.written()));
            client
        })
        .collect();
    let mut done = 0;
    while done < clients.len() {
        let Some(outcome) = threads.take() else {
            std::thread::yield_now();
            continue;
        };
        let client = &mut clients[outcome.number as usize];
        client.take(&outcome.bytes).unwrap();
        match outcome.result {
            Some(result) => {
                assert!(result.unwrap().rest.is_empty());
                done += 1;
            }
            None => assert!(threads.proceed(outcome.number, client.written())),
        }
    }
}
