//! The properties that only OpenFlow 1.5 can send to switches: numbers and places of buckets, and ways to select them.

use crate::build::output;
use crate::lab::Lab;
use openflow13::openflow15::{encode_request, VERSION};
use openflow13::{
    bucket_no, encode, group_no, group_type, kind, port_no, Bucket, Buckets, ErrorCode, GroupMod,
    GroupModCommand, Message, Multipart, MultipartRequest, Selection,
};
use std::time::Duration;

const NEW: u64 = 15;
const GROUP: u32 = 9;

fn buckets(ids: &[u32], weight: u16) -> Buckets {
    let list = output(1);
    Buckets::with_ids(ids.iter().map(|id| Bucket {
        id: *id,
        weight,
        watch_port: port_no::ANY,
        watch_group: group_no::ANY,
        actions: list.as_actions(),
    }))
}

fn group(command: GroupModCommand, group_type: u8, buckets: Buckets) -> GroupMod {
    GroupMod {
        command,
        group_type,
        group_id: GROUP,
        buckets,
        selection: None,
    }
}

/// A message as a controller of OpenFlow 1.5 sends it.
fn sent(message: Message) -> Vec<u8> {
    encode_request(&encode(5, &message).unwrap()).unwrap()
}

/// A group that hashes packets.
fn hashing() -> Vec<u8> {
    sent(Message::GroupMod(GroupMod {
        selection: Some(Selection::hash()),
        ..group(GroupModCommand::Add, group_type::SELECT, buckets(&[7], 1))
    }))
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
    lab.send_raw(NEW, &sent(Message::BarrierRequest));
    lab.run();
    lab
}

/// A controller and switches that speak OpenFlow 1.5.
fn linked() -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(NEW, VERSION);
    lab.link_newer();
    lab
}

/// Sends a message about the group; returns the errors.
fn change(lab: &mut Lab, command: GroupModCommand, group_type: u8, buckets: Buckets) -> Vec<u8> {
    lab.send_raw(
        NEW,
        &sent(Message::GroupMod(group(command, group_type, buckets))),
    );
    lab.run();
    lab.take_raw(NEW).concat()
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

fn barrier_reply(request: &[u8]) -> Vec<u8> {
    let mut frame = vec![VERSION, kind::BARRIER_REPLY, 0, 8];
    frame.extend(&request[4..8]);
    frame
}

#[test]
fn a_controller_waits_until_all_switches_have_what_it_said() {
    let mut lab = asked(&[0, 1]);
    for switch in [0, 1] {
        assert_eq!(lab.take_raw(NEW), [[0; 0]; 0]);
        let (kinds, end) = told(&mut lab, switch);
        assert_eq!(kinds, [kind::GROUP_MOD, kind::BARRIER_REQUEST]);
        lab.core
            .properties_told(switch, &barrier_reply(&end), lab.now);
        lab.run();
    }
    let replies = lab.take_raw(NEW);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0][1], kind::BARRIER_REPLY);
}

#[test]
fn a_message_waits_until_no_other_is_in_flight_and_others_wait_for_it() {
    let mut lab = linked();
    lab.send(
        1,
        1,
        &Message::GroupMod(group(GroupModCommand::Add, 0, buckets(&[0], 0))),
    );
    let insertion = group(
        GroupModCommand::InsertBucket(bucket_no::LAST),
        0,
        buckets(&[8], 0),
    );
    lab.send_raw(NEW, &sent(Message::GroupMod(insertion)));
    let again = group(GroupModCommand::Modify, 0, buckets(&[0, 1], 0));
    lab.send(1, 2, &Message::GroupMod(again));
    lab.flush();
    assert_eq!(lab.properties, [], "nothing tells the order of connections");
    lab.run();
    assert!(lab.take(1).is_empty() && lab.take_raw(NEW).is_empty());
    for switch in 0..2 {
        let (_, there) = &lab.switches[switch].virt.groups[&GROUP];
        assert_eq!(*there, buckets(&[0, 1], 0), "the last message counts");
    }
}

#[test]
fn buckets_that_come_and_go_are_told_as_they_were_sent() {
    let mut lab = linked();
    let nothing = Vec::<u8>::new();
    let first = buckets(&[3], 0);
    assert_eq!(
        change(&mut lab, GroupModCommand::Add, group_type::INDIRECT, first),
        nothing
    );
    let insert = GroupModCommand::InsertBucket(bucket_no::LAST);
    // A weight, and a second bucket of an indirect group.
    assert_eq!(
        change(&mut lab, insert, group_type::ALL, buckets(&[5], 7)),
        nothing
    );
    let mut both: Vec<Bucket<'_>> = Vec::new();
    let (one, other) = (buckets(&[3], 0), buckets(&[5], 7));
    both.extend(one.iter().chain(other.iter()));
    for switch in &lab.switches {
        let (kind, there) = &switch.virt.groups[&GROUP];
        assert_eq!(*kind, group_type::INDIRECT);
        assert_eq!(*there, Buckets::with_ids(both.clone()));
    }
    // A property that takes two messages survives a restart, and a switch without it gets it.
    let (core, restored) = lab.restored(&lab.journal.clone()).unwrap();
    assert_eq!((restored.groups, core.wants_group_properties()), (1, true));
    lab.disconnect(1);
    lab.virt(1).groups.clear();
    lab.connect(1);
    lab.run();
    lab.take_raw(NEW);
    let (kind, there) = lab.switches[1].virt.groups[&GROUP].clone();
    assert_eq!(kind, group_type::INDIRECT);
    assert_eq!(there, Buckets::with_ids(both.clone()));
    assert_eq!(
        change(
            &mut lab,
            GroupModCommand::RemoveBucket(bucket_no::ALL),
            0,
            Buckets::default()
        ),
        nothing
    );
    assert!(lab.virt(0).groups[&GROUP].1.is_empty());
}

#[test]
fn a_refusal_over_openflow_15_is_that_of_the_message() {
    let mut lab = linked();
    lab.virt(1).refuse = Some(Box::new(|message| {
        let refuses = matches!(message, Message::GroupMod(group) if group.group_id == GROUP);
        refuses.then_some(ErrorCode::GROUP_MOD_FAILED_OUT_OF_GROUPS)
    }));
    let error = change(&mut lab, GroupModCommand::Add, 0, buckets(&[3], 0));
    assert_eq!(error[..4], [VERSION, kind::ERROR, error[2], error[3]]);
    assert_eq!(error[8..12], [0, 6, 0, 3]);
    assert!(!lab.virt(0).groups.contains_key(&GROUP), "taken back");
}

#[test]
fn a_connection_that_ends_is_not_waited_for() {
    let mut lab = asked(&[0, 1]);
    for switch in [0, 1] {
        lab.core.properties_down(switch, lab.now);
    }
    lab.run();
    assert_eq!(lab.take_raw(NEW).len(), 1);
    let group = &lab.switches[1].virt.groups[&GROUP];
    assert_eq!(group.0, group_type::SELECT, "repaired");
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
fn earlier_versions_do_not_see_them() {
    let mut lab = asked(&[0, 1]);
    for switch in [0, 1] {
        lab.core.properties_down(switch, lab.now);
    }
    lab.run();
    lab.now += Duration::from_millis(10);
    lab.core.tick(lab.now);
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

/// A request to change the features of a table, and its copy that the hypervisor has got.
fn changed_table() -> (Lab, Vec<u8>) {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(NEW, VERSION);
    for switch in [0, 1] {
        lab.core.properties_up(switch, lab.now);
    }
    let request = Multipart::last(MultipartRequest::TableFeatures([0; 64].into()));
    // It owes an answer, over the other connection.
    lab.virt(0).slow = true;
    lab.send_raw(NEW, &sent(Message::MultipartRequest(request)));
    lab.run();
    let (kinds, asked) = told(&mut lab, 0);
    assert_eq!(kinds, [kind::MULTIPART_REQUEST]);
    assert_eq!(lab.properties, [], "only the hypervisor is asked");
    assert_eq!(lab.take_raw(NEW), [[0; 0]; 0]);
    (lab, asked)
}

#[test]
fn the_answer_to_a_change_of_tables_is_that_of_the_hypervisor() {
    let (mut lab, asked) = changed_table();
    let mut reply = asked[..16].to_vec();
    reply[1..4].copy_from_slice(&[kind::MULTIPART_REPLY, 0, 16]);
    for more in [1, 0] {
        reply[11] = more;
        assert_eq!(lab.take_raw(NEW), [[0; 0]; 0]);
        lab.core.properties_told(0, &reply, lab.now);
        lab.virt(0).slow = more == 1;
        lab.run();
    }
    let told = lab.take_raw(NEW);
    assert_eq!((told.len(), told[1][11]), (2, 0));
    assert!(told.iter().all(|part| part[4..8] == [0, 0, 0, 5]));
}

#[test]
fn a_refused_change_of_tables_has_the_error_of_openflow_15() {
    const BAD_COMMAND: [u8; 4] = [0, 13, 0, 9];
    let (mut lab, asked) = changed_table();
    let mut refusal = vec![VERSION, kind::ERROR, 0, 12];
    refusal.extend(&asked[4..8]);
    refusal.extend(BAD_COMMAND);
    lab.virt(0).slow = false;
    lab.core.properties_told(0, &refusal, lab.now);
    lab.run();
    let told = lab.take_raw(NEW).concat();
    assert_eq!((told[1], &told[8..12]), (kind::ERROR, &BAD_COMMAND[..]));
}

#[test]
fn a_change_of_tables_is_repeated_when_its_connection_ends() {
    let (mut lab, _) = changed_table();
    lab.virt(0).slow = false;
    lab.core.properties_down(0, lab.now);
    lab.run();
    let told = lab.take_raw(NEW).concat();
    assert_eq!(told[1], kind::MULTIPART_REPLY);
    assert!(
        told.len() > 64,
        "the bridge of this test tells what it was asked"
    );
}
