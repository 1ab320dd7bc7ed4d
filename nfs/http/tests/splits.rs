//! Cuts generated messages at arbitrary places: the decisions must not depend on them.

#![allow(clippy::unwrap_used)]

use nf_http::{check_partial, find_end, parse_request, rewrite, Body, Chunks, Edit, Limits};
use proptest::prelude::*;

/// Bytes from which most faults of heads can be built.
fn fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "GET",
        "POST",
        "CONNECT",
        "OPTIONS",
        " ",
        " ",
        "/",
        "/a?b",
        "*",
        "http://a/",
        "HTTP/1.1",
        "HTTP/1.0",
        "\r\n",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        "\t",
        "\0",
        "\x7f",
        "\u{e9}",
        ":",
        ": ",
        "Host: a\r\n",
        "Host: b\r\n",
        "Content-Length: 5\r\n",
        "Content-Length",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding",
        "chunked",
        "Connection: close\r\n",
        "X: y\r\n",
        "5",
        "0",
        ",",
        ";",
        "a",
        "\r\n\r\n",
    ])
}

fn head() -> impl Strategy<Value = Vec<u8>> {
    let start = prop::sample::select(vec![
        "",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "POST /a HTTP/1.0\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n",
    ]);
    (start, prop::collection::vec(fragment(), 0..12))
        .prop_map(|(start, parts)| [start, &parts.concat()].concat().into_bytes())
}

fn chunked() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::sample::select(vec![
        "0\r\n",
        "1\r\na\r\n",
        "3\r\nabc\r\n",
        "3;x=y\r\nabc\r\n",
        "\r\n",
        "0",
        "1",
        "a",
        "F",
        ";",
        "\r",
        "\n",
        "X: y\r\n",
        "00\r\n\r\n",
    ]);
    prop::collection::vec(part, 0..10).prop_map(|parts| parts.concat().into_bytes())
}

/// The pieces of bytes that are cut at some places.
fn pieces(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<usize> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.push(bytes.len());
    places.sort_unstable();
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_end_of_a_head_does_not_depend_on_cuts(bytes in head(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let whole = find_end(&bytes, 0);
        let mut before = 0;
        let mut found = None;
        for place in pieces(&bytes, &cuts) {
            found = find_end(&bytes[..place], before);
            if found.is_some() {
                break;
            }
            before = place;
        }
        prop_assert_eq!(found, whole);
    }

    #[test]
    fn accepted_heads_survive_rewriting_and_every_partial_check(bytes in head()) {
        let limits = Limits::default();
        let Some(end) = find_end(&bytes, 0) else { return Ok(()) };
        let Ok(request) = parse_request(&bytes[..end], &limits) else { return Ok(()) };
        for cut in 0..end {
            prop_assert_eq!(check_partial(&bytes[..cut], &limits), Ok(()));
        }
        let mut out = vec![0; end + 100];
        let edits = [Edit::Remove("x"), Edit::Remove("connection"), Edit::Add("X", b"z"), Edit::Target(request.target.text)];
        let length = rewrite(&request.head, &edits, &mut out).unwrap();
        prop_assert_eq!(find_end(&out[..length], 0), Some(length));
        let again = parse_request(&out[..length], &limits).unwrap();
        prop_assert_eq!((again.method, again.target, again.host, again.body), (request.method, request.target, request.host, request.body));
        prop_assert_eq!(again.head.headers().filter(|header| header.is("x")).count(), 1);
        let kept = |header: &nf_http::Header<'_>| !header.is("x") && !header.is("connection");
        let fields = |header: nf_http::Header<'_>| (header.name.to_owned(), header.value.to_owned());
        let left: Vec<_> = again.head.headers().filter(kept).map(fields).collect();
        let expected: Vec<_> = request.head.headers().filter(kept).map(fields).collect();
        prop_assert_eq!(left, expected);
        prop_assert!(request.body != Body::Length(0));
    }

    #[test]
    fn the_end_of_a_chunked_body_does_not_depend_on_cuts(bytes in chunked(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut whole = Chunks::new();
        let expected = whole.advance(&bytes);
        let mut chunks = Chunks::new();
        let mut at = 0;
        for place in pieces(&bytes, &cuts) {
            match chunks.advance(&bytes[at..place]) {
                Err(fault) => {
                    prop_assert_eq!(expected.map_err(|fault| fault.at), Err(at + fault.at));
                    return Ok(());
                }
                Ok(progress) => {
                    at += progress.consumed;
                    if progress.ended {
                        prop_assert_eq!(expected.map(|all| all.consumed), Ok(at));
                        return Ok(());
                    }
                    prop_assert_eq!(at, place);
                }
            }
        }
        prop_assert_eq!(expected.map(|all| (all.consumed, all.ended)), Ok((at, false)));
        prop_assert_eq!(chunks, whole);
    }
}
