//! Reads lines of the offload socket: none makes the parser fail, and every complaint is short.
#![no_main]

#[allow(dead_code)] // its tests and the limit of a line are not needed here
#[path = "../../daemon/src/offload/parse.rs"]
mod parse;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for line in input.split(|byte| *byte == b'\n') {
        if let Err(complaint) = parse::parse(line) {
            assert!(complaint.len() < 2_500, "{complaint}");
        }
    }
});
