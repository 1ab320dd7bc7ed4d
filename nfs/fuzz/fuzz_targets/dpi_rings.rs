//! Lets a program write arbitrary words into the rings of nf-dpi: the owner's ends find garbage, and go on otherwise.

#![no_main]

use std::sync::{atomic::Ordering::Relaxed, Arc};

use libfuzzer_sys::fuzz_target;
use nf_arena::{Heap, Memory};
use nf_dpi::{
    rings::{Rings, ANSWER_WORDS, MAX_OUTSTANDING},
    Catalogue, Packet, Request,
};

const REQUEST_WORDS: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Catalogue::parse(text);
    }
    let memory = |words| Arc::new(Heap::new(words).unwrap());
    let (control, requests) = (memory(32), memory(REQUEST_WORDS));
    let answers = memory(MAX_OUTSTANDING * ANSWER_WORDS);
    let rings = Rings::over(control.clone(), requests.clone(), answers.clone());
    let (mut writer, mut reader) = rings.owner();
    let mut outstanding = 0;
    for step in bytes.chunks_exact(10) {
        let value = u64::from_le_bytes(step[2..].try_into().unwrap());
        let place = usize::from(step[1]);
        match step[0] % 5 {
            0 => control.words()[place % 32].store(value, Relaxed),
            1 => requests.words()[place % REQUEST_WORDS].store(value, Relaxed),
            2 => answers.words()[place].store(value, Relaxed),
            3 => {
                let packet = Packet { flow: value, sequence: 0, time_ms: 0, bytes: &bytes[..bytes.len().min(place)] };
                match writer.write(&Request::Packet(packet)) {
                    Ok(true) => outstanding += 1,
                    Ok(false) => {}
                    Err(_) => return,
                }
                writer.must_wake();
            }
            _ => {
                let Ok(ready) = reader.ready(outstanding) else { return };
                assert!(ready <= outstanding);
                for _ in 0..ready {
                    let Ok(answer) = reader.take() else { return };
                    assert!(answer.host.as_bytes().len() <= nf_dpi::HOST_BYTES);
                    outstanding -= 1;
                }
            }
        }
    }
});
