//! Feeds arbitrary bytes, cut arbitrarily, to the decoder of the chunked coding: it must end at the same place as for all bytes at once.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nf_http::Chunks;

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, body)) = bytes.split_first() else {
        return;
    };
    let mut whole = Chunks::new();
    let expected = whole.advance(body);
    let mut chunks = Chunks::new();
    let mut at = 0;
    for piece in body.chunks(usize::from(*cut).max(1)) {
        let certain = (piece.len() as u64).min(chunks.certain()) as usize;
        // Data may be missing: it is skipped unseen.
        assert_eq!(chunks.skip(certain as u64), certain as u64);
        match chunks.advance(&piece[certain..]) {
            Ok(progress) => at += certain + progress.consumed,
            Err(fault) => {
                assert_eq!(expected.map_err(|fault| fault.at), Err(at + certain + fault.at));
                return;
            }
        }
        if chunks.has_ended() {
            break;
        }
    }
    assert_eq!(chunks, whole);
    assert_eq!(expected.map(|progress| (progress.consumed, progress.ended)), Ok((at, chunks.has_ended())));
});
