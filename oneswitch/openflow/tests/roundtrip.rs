//! Every message survives encoding and decoding; no input causes a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/messages.rs"]
mod messages;

use messages::{flow_stats, message, multipart_reply};
use openflow13::*;
use proptest::prelude::*;

/// Checks that a decodable frame encodes to one that decodes to the same, and
/// that this is stable (only padding is normalised).
fn stable(frame: &[u8]) {
    let Ok((header, message)) = decode(frame) else {
        return;
    };
    let encoded = encode(header.xid, &message).unwrap();
    let (again_header, again) = decode(&encoded).unwrap();
    assert_eq!(again_header.xid, header.xid);
    assert_eq!(again, message);
    assert_eq!(encode(header.xid, &again).unwrap(), encoded);
}

/// Sets a frame's length field to its actual length.
fn fix_length(frame: &mut [u8]) {
    let length = (frame.len() as u16).to_be_bytes();
    frame[2..4].copy_from_slice(&length);
}

#[test]
fn all_kinds_have_a_strategy() {
    assert_eq!(
        messages::each_message().len(),
        usize::from(kind::METER_MOD) + 1
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn messages_round_trip(xid: u32, message in message()) {
        let frame = encode(xid, &message).unwrap();
        prop_assert_eq!(frame_length(&frame).unwrap(), Some(frame.len()));
        let (header, decoded) = decode(&frame).unwrap();
        prop_assert_eq!(header.xid, xid);
        prop_assert_eq!(header.kind, message.kind());
        prop_assert_eq!(&decoded, &message);
        prop_assert_eq!(encode(xid, &decoded).unwrap(), frame);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(mut frame in proptest::collection::vec(any::<u8>(), 8..400), kind in 0u8..31) {
        frame[0] = VERSION;
        frame[1] = kind;
        fix_length(&mut frame);
        stable(&frame);
    }

    #[test]
    fn damaged_messages_do_not_panic(
        message in message(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 1u8..), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut frame = encode(1, &message).unwrap();
        for (index, bits) in flips {
            let index = index.index(frame.len());
            frame[index] ^= bits;
        }
        if let Some(cut) = cut {
            frame.truncate(8.max(cut.index(frame.len())));
        }
        fix_length(&mut frame);
        stable(&frame);
    }

    #[test]
    fn split_replies_join_to_the_whole(reply in multipart_reply()) {
        let messages = encode_multipart_reply(7, &reply);
        prop_assert_eq!(messages.len(), 1);
        let (header, message) = decode(&messages[0]).unwrap();
        prop_assert_eq!(header.xid, 7);
        prop_assert_eq!(message, Message::MultipartReply(Multipart::last(reply)));
    }

    #[test]
    fn flows_with_the_same_instructions_share_them(mut flows in proptest::collection::vec(flow_stats(), 2..40)) {
        let shown: Vec<_> = flows.iter().map(|flow| flow.instructions.clone()).collect();
        flows = flows.into_iter().flat_map(|flow| [flow.clone(), flow]).collect();
        for (flow, instructions) in flows.iter_mut().skip(1).zip(&shown) {
            flow.instructions = instructions.clone();
        }
        let frames = encode_multipart_reply(7, &MultipartReply::Flow(flows.clone()));
        let Message::MultipartReply(Multipart { body: MultipartReply::Flow(decoded), .. }) = decode(&frames[0]).unwrap().1 else {
            panic!("another reply")
        };
        prop_assert_eq!(&decoded, &flows);
        for pair in decoded.windows(2) {
            let [first, second] = [0, 1].map(|at| pair[at].instructions.as_bytes());
            prop_assert_eq!(first == second, std::ptr::eq(first, second) || first.is_empty() && second.is_empty());
        }
    }

    #[test]
    fn errors_carry_the_offending_message(mut data in proptest::collection::vec(any::<u8>(), 0..200), index in any::<prop::sample::Index>()) {
        let code = ErrorCode::ALL[index.index(ErrorCode::ALL.len())];
        // An error has its message's version, and in 1.0 other numbers.
        data.iter_mut().take(1).for_each(|version| *version = VERSION);
        let frame = encode_error(9, code, &data);
        let (header, message) = decode(&frame).unwrap();
        prop_assert_eq!(header.xid, 9);
        let is_later = [
            ErrorCode::BAD_REQUEST_PIPELINE_FIELDS_ONLY,
            ErrorCode::GROUP_MOD_FAILED_UNKNOWN_BUCKET,
            ErrorCode::GROUP_MOD_FAILED_BUCKET_EXISTS,
        ].contains(&code);
        let told = if is_later { ErrorCode::NX_UNENCODABLE_ERROR } else { code };
        prop_assert_eq!(message, Message::Error(ErrorMessage::new(told, &data)));
    }
}

#[test]
fn long_replies_are_split_between_entries() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = proptest::collection::vec(flow_stats(), 1500);
    let rules = strategy.new_tree(&mut runner).unwrap().current();
    let frames = encode_multipart_reply(3, &MultipartReply::Flow(rules.clone()));
    assert!(frames.len() > 2);
    assert!(FlowStatsMessages::new(3, rules.clone()).eq(frames.iter().cloned()));
    let nothing = encode_multipart_reply(3, &MultipartReply::Flow(Vec::new()));
    assert!(FlowStatsMessages::new(3, Vec::new()).eq(nothing));
    let mut joined = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let (_, message) = decode(frame).unwrap();
        let Message::MultipartReply(Multipart {
            more,
            body: MultipartReply::Flow(part),
        }) = message
        else {
            panic!("another reply")
        };
        assert_eq!(more, index + 1 < frames.len());
        joined.extend(part);
    }
    assert_eq!(joined, rules);
}

#[test]
fn a_message_too_long_is_an_error() {
    let message = Message::EchoRequest(vec![0; 65_528]);
    assert_eq!(encode(0, &message), Err(Oversize { length: 65_536 }));
    let error = encode_error(0, ErrorCode::BAD_REQUEST_BAD_TYPE, &[0; 65_535]);
    assert_eq!(frame_length(&error), Ok(Some(65_535)));
}

#[test]
fn a_stream_is_split_by_headers() {
    let mut stream = encode(1, &Message::BarrierRequest).unwrap();
    stream.extend(encode(2, &Message::EchoRequest(vec![1, 2, 3])).unwrap());
    assert_eq!(frame_length(&stream), Ok(Some(8)));
    assert_eq!(frame_length(&stream[8..]), Ok(Some(11)));
    assert_eq!(frame_length(&stream[8..18]), Ok(None));
    assert_eq!(frame_length(&[4, 2, 0]), Ok(None));
    assert!(frame_length(&[4, 2, 0, 7, 0, 0, 0, 0]).is_err());
    set_xid(&mut stream, 0xdead_beef);
    assert_eq!(Header::parse(&stream).unwrap().xid, 0xdead_beef);
}
