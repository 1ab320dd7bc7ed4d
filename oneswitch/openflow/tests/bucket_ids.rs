//! Numbers of buckets, which only OpenFlow 1.5 has, in messages of OpenFlow 1.3.
#![allow(clippy::unwrap_used, clippy::panic)]

use openflow13::*;

fn buckets(ids: &[u32]) -> Buckets {
    let list = ActionList::new().output(1, 0);
    Buckets::with_ids(ids.iter().map(|id| Bucket {
        id: *id,
        weight: 0,
        watch_port: port_no::ANY,
        watch_group: group_no::ANY,
        actions: list.as_actions(),
    }))
}

fn message(command: GroupModCommand, ids: &[u32]) -> Message {
    Message::GroupMod(GroupMod {
        command,
        group_type: group_type::ALL,
        group_id: 1,
        buckets: buckets(ids),
        selection: None,
    })
}

#[test]
fn numbers_of_buckets_are_kept() {
    for message in [
        message(GroupModCommand::Add, &[0, 1]),
        message(GroupModCommand::Modify, &[7, 1]),
        message(GroupModCommand::InsertBucket(7), &[0]),
        message(GroupModCommand::InsertBucket(bucket_no::ALL), &[0]),
        message(GroupModCommand::RemoveBucket(bucket_no::LAST), &[]),
    ] {
        let frame = encode(1, &message).unwrap();
        assert_eq!(decode(&frame).unwrap().1, message);
    }
}

#[test]
fn an_earlier_version_has_padding_where_the_numbers_are() {
    let frame = encode(1, &message(GroupModCommand::Add, &[7, 1])).unwrap();
    let cleared = without_later_fields(&frame).unwrap();
    let numbered = message(GroupModCommand::Add, &[0, 1]);
    assert_eq!(decode(&cleared).unwrap().1, numbered);
    assert_eq!(without_later_fields(&cleared), None);
    let added = bundle::encode_add(1, &frame).unwrap();
    let cleared = without_later_fields(&added).unwrap();
    assert_eq!(cleared[24 + 11], 0);
}

#[test]
fn earlier_versions_show_no_numbers_of_buckets() {
    let group = |ids: &[u32]| GroupDesc {
        group_type: group_type::ALL,
        group_id: 1,
        buckets: buckets(ids),
        selection: None,
    };
    let reply =
        |groups| Message::MultipartReply(Multipart::last(MultipartReply::GroupDesc(groups)));
    let frame = encode(1, &reply(vec![group(&[5, 6]), group(&[]), group(&[9])])).unwrap();
    let cleared = described_before_15(&frame).unwrap();
    let expected = reply(vec![group(&[0, 0]), group(&[]), group(&[0])]);
    assert_eq!(decode(&cleared).unwrap().1, expected);
    assert_eq!(described_before_15(&cleared[..8]), None);
}
