//! Feeds arbitrary bytes to the parser of ClientHello messages, whole and byte by byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nf_balancing::client_hello::{parse, LONGEST_RECORDS};

fuzz_target!(|bytes: &[u8]| {
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let whole = parse(bytes, &mut one);
    let Ok(Some(hello)) = whole else {
        // More bytes never help what is malformed.
        if whole.is_err() {
            assert!(parse(&[bytes, &[0; 64]].concat(), &mut other).is_err());
        }
        return;
    };
    assert!(hello.length <= bytes.len() && hello.length <= LONGEST_RECORDS);
    if let Some(server) = hello.server {
        assert!(!server.is_empty() && server.len() <= 255 && server.is_ascii());
    }
    for cut in [0, 1, 5, hello.length / 2, hello.length - 1] {
        assert_eq!(parse(&bytes[..cut], &mut other), Ok(None));
    }
    assert_eq!(parse(&bytes[..hello.length], &mut other), Ok(Some(hello)));
});
