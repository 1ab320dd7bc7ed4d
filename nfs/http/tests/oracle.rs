//! Compares the parser with httparse, an independent one: whatever is accepted here, httparse accepts and reads alike.

#![allow(clippy::unwrap_used, clippy::panic)]

use nf_http::{find_end, parse_request, parse_response, Chunks, Head, Limits, Version};
use proptest::prelude::*;

fn request_head() -> impl Strategy<Value = Vec<u8>> {
    let method = prop::sample::select(vec!["GET", "POST", "HEAD", "OPTIONS", "X-Y", "get"]);
    let target = prop::sample::select(vec![
        "/",
        "/a/b?c=d&e=%20",
        "http://a/b",
        "https://a:443?x",
        "*",
        "/{|}",
        "/a\\b?c\\d",
        "//",
    ]);
    let version = prop::sample::select(vec!["1.1", "1.1", "1.0", "1.2"]);
    let host = prop::sample::select(vec!["Host: a\r\n", "host:a:80\r\n", "HOST: [::1]\r\n", ""]);
    (method, target, version, host, fields()).prop_map(|(method, target, version, host, fields)| {
        format!("{method} {target} HTTP/{version}\r\n{host}{fields}\r\n").into_bytes()
    })
}

fn response_head() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "1.1 200 OK",
        "1.0 404 Not Found",
        "1.1 204",
        "1.1 101 ",
        "1.1 999 x y",
    ]);
    (line, fields()).prop_map(|(line, fields)| format!("HTTP/{line}\r\n{fields}\r\n").into_bytes())
}

fn fields() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "Content-Length: 5\r\n",
        "content-length:\t17 \r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close, x\r\n",
        "A!#$: b\r\n",
        "Empty:\r\n",
        "Expect: 100-continue\r\n",
        "Value: \u{e9}\t:;\"\r\n",
    ]);
    prop::collection::vec(line, 0..5).prop_map(|lines| lines.concat())
}

/// Up to three bytes replaced, inserted or deleted.
fn mutated(head: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        prop::sample::select(b"\r\n\t\0 :;,/#\x7f\x0b\x80\xff%@[]".to_vec()),
        any::<u8>()
    ];
    let change = (any::<prop::sample::Index>(), 0..3, byte);
    (head, prop::collection::vec(change, 0..4)).prop_map(|(mut head, changes)| {
        for (place, kind, byte) in changes {
            let at = place.index(head.len().max(1));
            match kind {
                0 if at < head.len() => head[at] = byte,
                1 if at < head.len() => drop(head.remove(at)),
                _ => head.insert(at, byte),
            }
        }
        head
    })
}

fn fields_of(head: &Head<'_>) -> Vec<(String, Vec<u8>)> {
    let owned = |header: nf_http::Header<'_>| (header.name.to_owned(), header.value.to_owned());
    head.headers().map(owned).collect()
}

fn oracle_fields(headers: &[httparse::Header<'_>]) -> Vec<(String, Vec<u8>)> {
    headers
        .iter()
        .map(|header| (header.name.to_owned(), header.value.to_owned()))
        .collect()
}

fn minor(version: Version) -> u8 {
    u8::from(version == Version::Http11)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn accepted_requests_are_read_alike(bytes in mutated(request_head())) {
        let Some(end) = find_end(&bytes, 0) else { return Ok(()) };
        let Ok(request) = parse_request(&bytes[..end], &Limits::default()) else { return Ok(()) };
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut oracle = httparse::Request::new(&mut headers);
        let length = oracle.parse(&bytes[..end]);
        prop_assert_eq!(length, Ok(httparse::Status::Complete(end)));
        prop_assert_eq!(oracle.method, Some(request.method));
        prop_assert_eq!(oracle.path, Some(request.target.text));
        prop_assert_eq!(oracle.version, Some(minor(request.version)));
        prop_assert_eq!(oracle_fields(oracle.headers), fields_of(&request.head));
    }

    #[test]
    fn accepted_responses_are_read_alike(bytes in mutated(response_head())) {
        let Some(end) = find_end(&bytes, 0) else { return Ok(()) };
        let Ok(response) = parse_response(&bytes[..end], "GET") else { return Ok(()) };
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut oracle = httparse::Response::new(&mut headers);
        let length = oracle.parse(&bytes[..end]);
        prop_assert_eq!(length, Ok(httparse::Status::Complete(end)));
        prop_assert_eq!(oracle.code, Some(response.status));
        prop_assert_eq!(oracle.version, Some(minor(response.version)));
        prop_assert_eq!(oracle_fields(oracle.headers), fields_of(&response.head));
    }

    #[test]
    fn accepted_chunk_sizes_are_read_alike(size in "[0-9a-fA-F]{1,18}(;[a-z=\" ]{0,5})?[ \r]{0,2}\n") {
        let mut chunks = Chunks::new();
        let Ok(progress) = chunks.advance(size.as_bytes()) else { return Ok(()) };
        match httparse::parse_chunk_size(size.as_bytes()) {
            Ok(httparse::Status::Complete((at, length))) => {
                prop_assert_eq!(length, chunks.certain());
                prop_assert_eq!((progress.consumed, at), (size.len(), size.len()));
            }
            other => panic!("{size:?}: {other:?}"),
        }
    }
}

/// The comparisons above would pass if nothing were accepted.
#[test]
fn well_formed_requests_are_accepted() {
    for method in ["GET", "POST", "OPTIONS", "X-Y"] {
        for target in ["/", "/a/b?c=d&e=%20", "http://a/b", "//"] {
            for field in [
                "",
                "Content-Length: 5\r\n",
                "Transfer-Encoding: chunked\r\n",
                "Value: \u{e9}\t:;\"\r\nEmpty:\r\n",
            ] {
                let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n");
                let found = parse_request(head.as_bytes(), &Limits::default());
                assert!(found.is_ok(), "{head:?}: {found:?}");
            }
        }
    }
}
