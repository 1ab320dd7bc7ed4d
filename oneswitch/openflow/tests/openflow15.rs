//! Messages of OpenFlow 1.5: those of 1.3 that say the same, and back; no input causes a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/messages.rs"]
mod messages;

use messages::message;
use openflow13::openflow10::{PacketInFormat, StatsForm};
use openflow13::openflow15::{self, Request};
use openflow13::*;
use proptest::collection::vec;
use proptest::prelude::*;

const MASKS: AsyncMasks = AsyncMasks {
    packet_in: [0x3b, 0],
    port_status: [7, 7],
    flow_removed: [0x3f, 0],
    role_status: [0; 2],
    table_status: [0; 2],
    request_forward: [0; 2],
};

/// A frame of version 1.5.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (8 + body.len()) as u16;
    let mut frame = vec![openflow15::VERSION, kind];
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 7]);
    frame.extend(body);
    frame
}

/// Translates a request.
fn translated(frame: &[u8]) -> Message {
    match openflow15::decode(frame, MASKS).unwrap() {
        Request::Shared(openflow14::Request::Frame(frame)) => decode(&frame).unwrap().1,
        other => panic!("{other:?}"),
    }
}

/// An insertion behind bucket 7 of one that has number 9, weight 3, and watches port 2.
fn insertion() -> Vec<u8> {
    let mut body = vec![0, 3, 1, 0, 0, 0, 0, 5, 0, 40, 0, 0, 0, 0, 0, 7];
    body.extend([0, 40, 0, 16, 0, 0, 0, 9]);
    body.extend([0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    body.extend([0, 0, 0, 8, 0, 3, 0, 0, 0, 1, 0, 8, 0, 0, 0, 2]);
    body
}

#[test]
fn buckets_are_inserted_with_their_numbers() {
    let Message::GroupMod(group) = translated(&frame(kind::GROUP_MOD, &insertion())) else {
        panic!()
    };
    assert_eq!(group.command, GroupModCommand::InsertBucket(7));
    let buckets: Vec<_> = group.buckets.iter().collect();
    let [bucket] = buckets[..] else { panic!() };
    let watched = (bucket.watch_port, bucket.watch_group);
    assert_eq!(
        (bucket.id, bucket.weight, watched),
        (9, 3, (2, group_no::ANY))
    );
}

#[test]
fn groups_are_shown_as_they_were_written() {
    let list = ActionList::new().output(1, 0);
    let bucket = |id, watch_port| Bucket {
        id,
        weight: 3,
        watch_port,
        watch_group: group_no::ANY,
        actions: list.as_actions(),
    };
    let group = |group_id| GroupDesc {
        group_type: group_type::SELECT,
        group_id,
        buckets: Buckets::with_ids([bucket(9, 2)]),
        selection: None,
    };
    let groups = MultipartReply::GroupDesc(vec![group(5), group(6)]);
    let reply = encode(7, &Message::MultipartReply(Multipart::last(groups))).unwrap();
    let shown = openflow15::encode(&reply, PacketInFormat::Standard, StatsForm::Only(6));
    let [shown] = &shown[..] else { panic!() };
    assert_eq!(
        shown[16..32],
        [0, 56, 1, 0, 0, 0, 0, 6, 0, 40, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(shown[32..], insertion()[16..]);
    let lengths = [group_no::ALL, group_no::ANY].map(|number| {
        let shown = openflow15::encode(&reply, PacketInFormat::Standard, StatsForm::Only(number));
        shown.iter().map(Vec::len).collect::<Vec<_>>()
    });
    assert_eq!(lengths, [vec![16 + 2 * 56], vec![16]]);
}

#[test]
fn statistics_of_rules_are_in_oxs() {
    let sums = MultipartReply::Aggregate {
        packet_count: 1,
        byte_count: u64::MAX,
        flow_count: 2,
    };
    let reply = encode(7, &Message::MultipartReply(Multipart::last(sums))).unwrap();
    let shown = openflow15::encode(&reply, PacketInFormat::Standard, StatsForm::Standard);
    let mut expected = vec![0, 0, 0, 24, 0x80, 2, 8, 8, 0, 0, 0, 0, 0, 0, 0, 1];
    expected.extend([0x80, 2, 6, 4, 0, 0, 0, 2]);
    assert_eq!(shown[0][16..], expected);
}

#[test]
fn a_long_reply_is_split_between_rules() {
    let flow = FlowStats {
        table_id: 0,
        duration_sec: 1,
        duration_nsec: 2,
        priority: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: 0,
        importance: 0,
        idle_age: 0,
        cookie: 5,
        packet_count: 3,
        byte_count: 4,
        matching: Match::any().with_in_port(1),
        instructions: Instructions::default(),
    };
    let flows = MultipartReply::Flow(vec![flow; 1_000]);
    let reply = encode(7, &Message::MultipartReply(Multipart::last(flows))).unwrap();
    let shown = openflow15::encode(&reply, PacketInFormat::Standard, StatsForm::Standard);
    let more: Vec<u8> = shown.iter().map(|frame| frame[11]).collect();
    assert_eq!(more, [1, 0]);
    let entries: usize = shown.iter().map(|frame| frame.len() - 16).sum();
    assert_eq!(entries, 1_000 * 80);
}

/// Kinds whose requests have a form of their own, and others.
fn kinds() -> impl Strategy<Value = u8> {
    prop_oneof![
        Just(kind::FLOW_MOD),
        Just(kind::GROUP_MOD),
        Just(kind::PACKET_OUT),
        Just(kind::MULTIPART_REQUEST),
        Just(34),
        0u8..40
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_requests_do_not_panic(kind in kinds(), body in vec(any::<u8>(), 0..200)) {
        check_request(&frame(kind, &body))?;
    }

    /// Nearly valid requests, which get further.
    #[test]
    fn damaged_group_mods_do_not_panic(place in 0usize..56, byte: u8) {
        let mut body = insertion();
        body[place] = byte;
        check_request(&frame(kind::GROUP_MOD, &body))?;
        let mut added = vec![0, 0, 0, 1, 0, 0, 0, 0];
        added.extend(frame(kind::GROUP_MOD, &body));
        check_request(&frame(34, &added))?;
    }

    /// Every message of 1.3 becomes whole messages of 1.5.
    #[test]
    fn messages_become_whole_messages(message in message(), second: bool) {
        let format = if second { PacketInFormat::Nicira2 } else { PacketInFormat::Standard };
        let encoded = encode(7, &message).unwrap();
        let frames = openflow15::encode(&encoded, format, StatsForm::Standard);
        prop_assert!(!frames.is_empty());
        for frame in frames {
            prop_assert_eq!(frame[0], openflow15::VERSION);
            prop_assert_eq!(frame_length(&frame).unwrap(), Some(frame.len()));
        }
    }
}

fn check_request(frame: &[u8]) -> Result<(), TestCaseError> {
    match openflow15::decode(frame, MASKS) {
        Ok(
            Request::Shared(openflow14::Request::Frame(translated))
            | Request::Describe(translated, _),
        ) => {
            prop_assert_eq!(frame_length(&translated).unwrap(), Some(translated.len()));
            prop_assert_eq!(translated[0], VERSION);
        }
        Ok(_) => {}
        Err(refusal) => {
            let error = encode_error(7, refusal.error, frame);
            prop_assert_eq!(frame_length(&error).unwrap(), Some(error.len()));
            prop_assert_eq!(error[0], openflow15::VERSION);
        }
    }
    Ok(())
}
