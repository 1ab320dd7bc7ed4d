//! Messages of OpenFlow 1.4: those of 1.3 that say the same, and back; no input causes a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/messages.rs"]
mod messages;

use messages::message;
use openflow13::openflow10::PacketInFormat;
use openflow13::openflow14::{self, Request};
use openflow13::*;
use proptest::collection::vec;
use proptest::prelude::*;

const MASKS: AsyncMasks = AsyncMasks {
    packet_in: [0x3b, 0],
    port_status: [7, 7],
    flow_removed: [0x3f, 0],
    ..AsyncMasks::NONE
};

/// A frame of version 1.4.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (8 + body.len()) as u16;
    let mut frame = vec![openflow14::VERSION, kind];
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 7]);
    frame.extend(body);
    frame
}

#[test]
fn a_port_mod_has_its_advertisement_in_a_property() {
    let mut body = vec![0, 0, 0, 5, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0];
    body.extend([0, 0, 0, 1, 0, 0, 0, 1]);
    body.extend([0, 0, 0, 8, 0, 0, 0, 0x20]);
    let request = openflow14::decode(&frame(kind::PORT_MOD, &body), MASKS).unwrap();
    let Request::Frame(translated) = request else {
        panic!("{request:?}")
    };
    let expected = PortMod {
        port: 5,
        hw_addr: [1, 2, 3, 4, 5, 6],
        config: 1,
        mask: 1,
        advertise: 0x20,
    };
    let (_, decoded) = decode(&translated).unwrap();
    assert_eq!(decoded, Message::PortMod(expected));
}

#[test]
fn a_long_reply_is_split_between_ports() {
    let ports = vec![PortStats::default(); 560];
    let reply = Message::MultipartReply(Multipart::last(MultipartReply::PortStats(ports)));
    let frames = openflow14::encode(&encode(7, &reply).unwrap(), PacketInFormat::Standard);
    let more: Vec<u8> = frames.iter().map(|frame| frame[11]).collect();
    assert_eq!(more, [1, 1, 0]);
    let entries: usize = frames.iter().map(|frame| frame.len() - 16).sum();
    assert_eq!(entries, 560 * 304);
}

/// Arbitrary counters of a port, those of Intel's properties included.
fn counted() -> impl Strategy<Value = PortStats> {
    let name = vec(any::<u8>(), 0..40).prop_map(Vec::into_boxed_slice);
    let counters = vec((name, any::<u64>()), 0..5);
    let intel = (vec(any::<u64>(), RFC2819), counters).prop_map(|(rfc2819, custom)| {
        let rfc2819 = rfc2819.try_into().unwrap();
        Box::new(IntelPortStats { rfc2819, custom })
    });
    (any::<u32>(), any::<u64>(), any::<u64>(), intel).prop_map(
        |(port_no, tx_errors, collisions, intel)| PortStats {
            port_no,
            tx_errors,
            collisions,
            duration_nsec: port_no / 2,
            intel: Some(intel),
            ..PortStats::default()
        },
    )
}

/// An unknown counter is encoded as one that is not counted, and custom counters are left out.
#[test]
fn a_port_without_intels_counters_has_uncounted_ones() {
    let frames = openflow14::encode_port_stats(7, &[PortStats::default()]);
    let (ports, more) = openflow14::decode_port_stats(&frames.concat()).unwrap();
    let intel = ports[0].intel.as_ref().unwrap();
    assert_eq!(
        (intel.rfc2819, intel.custom.len()),
        ([u64::MAX; RFC2819], 0)
    );
    assert!(!more);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_requests_do_not_panic(kind in 0u8..40, body in vec(any::<u8>(), 0..200)) {
        let frame = frame(kind, &body);
        match openflow14::decode(&frame, MASKS) {
            Ok(Request::Frame(translated)) => {
                prop_assert_eq!(frame_length(&translated).unwrap(), Some(translated.len()));
                prop_assert_eq!(translated[0], VERSION);
            }
            Ok(_) => {}
            Err(refusal) => {
                let error = encode_error(7, refusal.error, &frame);
                prop_assert_eq!(frame_length(&error).unwrap(), Some(error.len()));
                prop_assert_eq!(error[0], openflow14::VERSION);
            }
        }
    }

    #[test]
    fn arbitrary_statistics_of_ports_do_not_panic(entries in vec(any::<u8>(), 0..400)) {
        let body = [&[0, 4, 0, 0, 0, 0, 0, 0][..], &entries].concat();
        let _ = openflow14::decode_port_stats(&frame(kind::MULTIPART_REPLY, &body));
    }

    #[test]
    fn statistics_of_ports_are_read_as_written(ports in vec(counted(), 0..4)) {
        let frames = openflow14::encode_port_stats(7, &ports);
        prop_assert_eq!(frame_length(&frames[0]).unwrap(), Some(frames[0].len()));
        prop_assert_eq!(openflow14::decode_port_stats(&frames[0]), Ok((ports, false)));
    }

    /// Every message of 1.3 becomes whole messages of 1.4.
    #[test]
    fn messages_become_whole_messages(message in message(), second: bool) {
        let format = if second { PacketInFormat::Nicira2 } else { PacketInFormat::Standard };
        let frames = openflow14::encode(&encode(7, &message).unwrap(), format);
        prop_assert!(!frames.is_empty());
        for frame in frames {
            prop_assert_eq!(frame[0], openflow14::VERSION);
            prop_assert_eq!(frame_length(&frame).unwrap(), Some(frame.len()));
        }
    }
}
