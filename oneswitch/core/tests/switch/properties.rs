//! Ways to select buckets, which switches get over connections of OpenFlow 1.5.

use crate::build::output;
use crate::lab::Lab;
use openflow13::openflow15::{encode_group_mod, VERSION};
use openflow13::{
    group_no, group_type, kind, port_no, Bucket, Buckets, GroupMod, GroupModCommand, Message,
    Selection,
};
use std::time::Duration;

const NEW: u64 = 15;
const GROUP: u32 = 9;

/// A group that hashes packets, as a controller of OpenFlow 1.5 adds it.
fn hashing() -> Vec<u8> {
    let list = output(1);
    let bucket = Bucket {
        id: 7,
        weight: 1,
        watch_port: port_no::ANY,
        watch_group: group_no::ANY,
        actions: list.as_actions(),
    };
    let group = GroupMod {
        command: GroupModCommand::Add,
        group_type: group_type::SELECT,
        group_id: GROUP,
        buckets: Buckets::with_ids([bucket]),
        selection: Some(Selection::hash()),
    };
    encode_group_mod(5, &group).unwrap()
}

fn barrier() -> [u8; 8] {
    [VERSION, kind::BARRIER_REQUEST, 0, 8, 0, 0, 0, 6]
}

/// A controller that has added the group, and then asks whether that is done.
fn asked(links: &[usize]) -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(NEW, VERSION);
    assert!(lab.core.wants_group_properties());
    for switch in links {
        lab.core.properties_up(*switch, lab.now);
    }
    lab.send_raw(NEW, &hashing());
    lab.send_raw(NEW, &barrier());
    lab.run();
    lab
}

/// The messages that a switch got over OpenFlow 1.5: kinds, and the last of them.
fn told(lab: &mut Lab, switch: usize) -> (Vec<u8>, Vec<u8>) {
    let (of_switch, others) = std::mem::take(&mut lab.properties)
        .into_iter()
        .partition(|(to, _)| *to == switch);
    lab.properties = others;
    let frames: Vec<(usize, Vec<u8>)> = of_switch;
    let kinds = frames.iter().map(|(_, frame)| frame[1]).collect();
    (kinds, frames.last().unwrap().1.clone())
}

/// A description of the group with the bucket that OpenFlow 1.3 can say, as an answer.
fn described(request: &[u8]) -> Vec<u8> {
    let mut frame = vec![VERSION, kind::MULTIPART_REPLY, 0, 48];
    frame.extend(&request[4..8]);
    frame.extend([0, 7, 0, 0, 0, 0, 0, 0]);
    frame.extend([
        0,
        32,
        group_type::SELECT,
        0,
        0,
        0,
        0,
        9,
        0,
        16,
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    frame.extend([0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0, 0]);
    frame
}

fn barrier_reply(request: &[u8]) -> Vec<u8> {
    let mut frame = vec![VERSION, kind::BARRIER_REPLY, 0, 8];
    frame.extend(&request[4..8]);
    frame
}

#[test]
fn a_controller_waits_until_all_switches_have_the_properties() {
    let mut lab = asked(&[0, 1]);
    assert!(lab
        .switches
        .iter()
        .all(|s| s.virt.groups.contains_key(&GROUP)));
    for switch in [0, 1] {
        assert_eq!(lab.take_raw(NEW), [[0; 0]; 0]);
        let (kinds, request) = told(&mut lab, switch);
        assert_eq!(kinds, [kind::MULTIPART_REQUEST]);
        lab.core
            .properties_told(switch, &described(&request), lab.now);
        lab.run();
        let (kinds, end) = told(&mut lab, switch);
        assert_eq!(kinds, [kind::GROUP_MOD, kind::BARRIER_REQUEST]);
        assert_eq!(lab.take_raw(NEW), [[0; 0]; 0]);
        lab.core
            .properties_told(switch, &barrier_reply(&end), lab.now);
        lab.run();
    }
    let replies = lab.take_raw(NEW);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0][1], kind::BARRIER_REPLY);
}

#[test]
fn a_connection_that_ends_is_not_waited_for() {
    let mut lab = asked(&[0, 1]);
    for switch in [0, 1] {
        lab.core.properties_down(switch, lab.now);
    }
    lab.run();
    assert_eq!(lab.take_raw(NEW).len(), 1);
    lab.properties.clear();
    lab.core.properties_up(1, lab.now);
    lab.run();
    assert_eq!(told(&mut lab, 1).0, [kind::MULTIPART_REQUEST]);
}

#[test]
fn a_group_that_a_switch_cannot_get_is_refused_after_a_while() {
    let mut lab = asked(&[0]);
    assert_eq!(lab.take_raw(NEW), [[0; 0]; 0]);
    lab.now += Duration::from_secs(1);
    lab.core.tick(lab.now);
    lab.run();
    let kinds: Vec<u8> = lab.take_raw(NEW).iter().map(|frame| frame[1]).collect();
    assert_eq!(kinds, [kind::ERROR, kind::BARRIER_REPLY]);
    lab.send_raw(NEW, &hashing());
    lab.run();
    assert_eq!(lab.take_raw(NEW)[0][1], kind::ERROR, "at once");
    assert!(lab
        .switches
        .iter()
        .all(|s| !s.virt.groups.contains_key(&GROUP)));
}

#[test]
fn a_restart_keeps_the_properties() {
    let lab = asked(&[0, 1]);
    let journal = lab.journal.clone();
    let (core, restored) = lab.restored(&journal).unwrap();
    assert_eq!(restored.groups, 1);
    assert!(core.wants_group_properties());
}

#[test]
fn earlier_versions_do_not_see_them() {
    let mut lab = asked(&[0, 1]);
    for switch in [0, 1] {
        lab.core.properties_down(switch, lab.now);
    }
    lab.run();
    let request = openflow13::MultipartRequest::GroupDesc;
    let answer = lab.ask(
        7,
        &Message::MultipartRequest(openflow13::Multipart::last(request)),
    );
    let [(_, Message::MultipartReply(reply))] = &answer[..] else {
        panic!("{answer:?}");
    };
    let openflow13::MultipartReply::GroupDesc(groups) = &reply.body else {
        panic!("{reply:?}");
    };
    assert_eq!(groups[0].selection, None);
}
