//! Decodes what a peer of OpenFlow 1.0 could send; what it becomes can be
//! encoded, decoded as OpenFlow 1.3, and read back in 1.0.
//!
//! The version and the length in the header are set, so that the fuzzer does
//! not have to find them; the first byte chooses formats.
#![no_main]

use libfuzzer_sys::fuzz_target;
use openflow13::openflow10::{self, Formats, PacketInFormat, Request, StatsForm};
use openflow13::{decode, encode, frame_length};

fuzz_target!(|input: &[u8]| {
    let Ok(length) = u16::try_from(input.len()) else {
        return;
    };
    let mut frame = input.to_vec();
    let formats = Formats {
        nxm: input.first().is_some_and(|byte| byte & 1 != 0),
        table_id: input.first().is_some_and(|byte| byte & 2 != 0),
        packet_in: PacketInFormat::Nicira2,
    };
    if let Some(slot) = frame.get_mut(..4) {
        slot[0] = openflow10::VERSION;
        slot[2..].copy_from_slice(&length.to_be_bytes());
    }
    let _ = openflow10::decode_miss(&frame);
    let message = match openflow10::decode(&frame, &formats) {
        Ok((Request::Message(message), _)) => message,
        Ok(_) => return,
        Err(refusal) => {
            let error = openflow13::encode_error(0, refusal.error, &frame);
            assert_eq!(frame_length(&error), Ok(Some(error.len())));
            return;
        }
    };
    let Ok(encoded) = encode(0, &message) else {
        return; // a translation is longer
    };
    // Open vSwitch refuses some of it only as OpenFlow 1.3.
    if let Ok((_, message)) = decode(&encoded) {
        for form in [StatsForm::Standard, StatsForm::Nicira] {
            for told in openflow10::encode(0, &message, &formats, form) {
                assert_eq!(frame_length(&told), Ok(Some(told.len())));
            }
        }
    }
});
