//! Feeds arbitrary bytes to the parsers of requests and responses; accepted heads are rewritten, and httparse must read them alike.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nf_http::{check_partial, find_end, parse_request, parse_response, rewrite, Edit, Head, Limits};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { head_bytes: 4096, target_bytes: 1024, headers: 16 };
    let found = (0..=bytes.len()).find_map(|length| find_end(&bytes[..length], length.saturating_sub(1)));
    assert_eq!(found, find_end(bytes, 0), "byte by byte as at once");
    let Some(end) = found else {
        let _ = check_partial(bytes, &limits);
        return;
    };
    let head = &bytes[..end];
    match parse_request(head, &limits) {
        Ok(request) => {
            let fields = read_alike(head, &request.head);
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut oracle = httparse::Request::new(&mut headers);
            assert_eq!(oracle.parse(head), Ok(httparse::Status::Complete(end)));
            assert_eq!((oracle.method, oracle.path), (Some(request.method), Some(request.target.text)));
            assert_eq!(oracle.headers.iter().map(|header| (header.name, header.value)).collect::<Vec<_>>(), fields);
            rewritten(&request.head, &limits);
        }
        Err(rejection) => assert!(rejection.to_string().len() < 400),
    }
    for method in ["GET", "HEAD", "CONNECT"] {
        match parse_response(head, method) {
            Ok(response) => drop(read_alike(head, &response.head)),
            Err(fault) => assert!(fault.to_string().len() < 400),
        }
    }
});

/// Checks that the lines cover the head, and returns their fields.
fn read_alike<'a>(bytes: &'a [u8], head: &Head<'a>) -> Vec<(&'a str, &'a [u8])> {
    let mut at = head.insertion();
    let lines: Vec<_> = head.headers().collect();
    for header in lines.iter().rev() {
        assert_eq!(header.line.end, at);
        at = header.line.start;
    }
    assert!(bytes[..at].ends_with(b"\r\n"));
    lines.into_iter().map(|header| (header.name, header.value)).collect()
}

/// Removes a name, adds a line: the new head is read as the old one, except for those.
fn rewritten(head: &Head<'_>, limits: &Limits) {
    let edits = [Edit::Remove("X-Id"), Edit::Add("X-Id", b"7")];
    let mut out = vec![0; head.bytes().len() + 9];
    let length = rewrite(head, &edits, &mut out).expect("there is room");
    assert_eq!(find_end(&out[..length], 0), Some(length));
    let more = Limits { head_bytes: limits.head_bytes + 9, headers: limits.headers + 1, ..*limits };
    let again = parse_request(&out[..length], &more).expect("a valid head");
    let mut kept: Vec<_> = head.headers().filter(|header| !header.is("X-Id")).map(|header| (header.name, header.value)).collect();
    kept.push(("X-Id", b"7"));
    assert_eq!(again.head.headers().map(|header| (header.name, header.value)).collect::<Vec<_>>(), kept);
    assert_eq!(again.head.start_line(), head.start_line());
}
