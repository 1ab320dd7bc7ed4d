//! Barriers, errors and the order of replies.

use crate::build::{add, any, delete, flow_stats, from, group, output, packet_out};
use crate::lab::{Answer, Lab};
use openflow13::{
    encode, kind, ActionList, ErrorCode, FlowMod, FlowModCommand, GroupModCommand, Message,
    MultipartReply,
};

fn xids(answers: &[Answer]) -> Vec<u32> {
    answers.iter().map(|(header, _)| header.xid).collect()
}

/// Refuses every rule with this cookie.
pub fn refuse_cookie(cookie: u64, error: ErrorCode) -> crate::fake::Refuser {
    Box::new(move |message| match message {
        Message::FlowMod(m) if m.cookie == cookie && !m.command.is_delete() => Some(error),
        _ => None,
    })
}

pub fn cookies(bridge: &crate::fake::FakeBridge) -> Vec<u64> {
    let mut cookies: Vec<u64> = bridge.flows.iter().map(|f| f.cookie).collect();
    cookies.sort_unstable();
    cookies
}

pub fn dumped(answers: &[Answer]) -> Vec<u64> {
    let mut cookies: Vec<u64> = answers
        .iter()
        .filter_map(|(_, message)| match message {
            Message::MultipartReply(reply) => Some(&reply.body),
            _ => None,
        })
        .flat_map(|body| match body {
            MultipartReply::Flow(flows) => flows.iter().map(|f| f.cookie).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        })
        .collect();
    cookies.sort_unstable();
    cookies
}

#[test]
fn a_barrier_waits_for_every_switch() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.virt(2).slow = true;
    lab.send(1, 5, &Message::FlowMod(add(1, any(), &output(2))));
    lab.send(1, 6, &Message::BarrierRequest);
    lab.run();
    assert!(lab.take(1).is_empty());
    assert_eq!(lab.virt(1).flows.len(), 1);
    lab.virt(2).slow = false;
    lab.run();
    assert_eq!(lab.take(1)[..], [(header(6), Message::BarrierReply)]);
}

fn header(xid: u32) -> openflow13::Header {
    openflow13::Header {
        version: 4,
        kind: kind::BARRIER_REPLY,
        length: 8,
        xid,
    }
}

#[test]
fn rules_go_where_their_port_executes() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    for (cookie, matching) in [
        (1, from(1)),
        (2, from(2)),
        (3, from(3)),
        (4, any()),
        (77, from(77)),
    ] {
        lab.send(1, 1, &Message::FlowMod(add(cookie, matching, &output(1))));
    }
    lab.run();
    assert_eq!(cookies(lab.virt(0)), [1, 4, 77]);
    assert_eq!(cookies(lab.virt(1)), [2, 4]);
    assert_eq!(cookies(lab.virt(2)), [3, 4]);
}

#[test]
fn one_refusal_of_two_is_one_error_and_the_other_switch_is_repaired() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.virt(1).refuse = Some(refuse_cookie(9, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    let refused = encode(41, &Message::FlowMod(add(9, any(), &output(1)))).unwrap();
    lab.send_raw(1, &refused);
    lab.send(
        1,
        42,
        &Message::FlowMod(add(10, any().with_vlan_vid(3), &output(1))),
    );
    lab.send(1, 43, &Message::BarrierRequest);
    lab.run();
    let answers = lab.take(1);
    assert_eq!(xids(&answers), [41, 43]);
    let Message::Error(error) = &answers[0].1 else {
        panic!("{answers:?}");
    };
    assert_eq!(error.error, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL);
    assert_eq!(*error.data, refused[..]);
    assert_eq!(cookies(lab.virt(0)), [10]);
    assert_eq!(cookies(lab.virt(1)), [10]);
    assert_eq!(dumped(&lab.ask(44, &flow_stats())), [10]);
    assert_eq!(lab.core.status().flows, 1);
    assert_eq!(lab.core.status().refused, 1);
}

#[test]
fn an_error_carries_the_message_as_the_controller_wrote_it() {
    let mut lab = Lab::new(2, &[0, 1]);
    for switch in 0..2 {
        lab.virt(switch).refuse = Some(refuse_cookie(9, ErrorCode::FLOW_MOD_FAILED_EPERM));
    }
    // Both are changed on their way to the switches: a flood, and timers of a rule with two copies.
    let flood = add(9, any(), &output(openflow13::port_no::FLOOD));
    let timed = FlowMod {
        idle_timeout: 7,
        ..add(9, any(), &output(1))
    };
    for (xid, message) in [(1, flood), (2, timed)] {
        let frame = encode(xid, &Message::FlowMod(message)).unwrap();
        lab.send_raw(1, &frame);
        lab.run();
        let answers = lab.take(1);
        let Message::Error(error) = &answers[0].1 else {
            panic!("{answers:?}");
        };
        assert_eq!((answers[0].0.xid, &*error.data), (xid, &frame[..]));
        assert_eq!(answers.len(), 1);
    }
}

#[test]
fn errors_and_replies_of_one_batch_keep_their_order() {
    let mut lab = Lab::new(2, &[0, 1]);
    for switch in 0..2 {
        lab.virt(switch).refuse = Some(refuse_cookie(9, ErrorCode::FLOW_MOD_FAILED_EPERM));
    }
    lab.send(1, 1, &Message::FlowMod(add(1, any(), &output(1))));
    lab.send(1, 2, &Message::BarrierRequest);
    lab.send(1, 3, &Message::FlowMod(add(9, any(), &output(1))));
    lab.send(1, 4, &flow_stats());
    lab.send(1, 5, &packet_out(1, ActionList::new().group(5)));
    lab.send(1, 6, &Message::BarrierRequest);
    lab.send(1, 7, &group(GroupModCommand::Modify, 5, &[1]));
    lab.run();
    assert_eq!(xids(&lab.take(1)), [2, 3, 4, 5, 6, 7]);
}

#[test]
fn what_was_copied_while_in_flight_is_taken_back_with_its_refusal() {
    let mut lab = Lab::new(2, &[0, 0]);
    lab.virt(0).refuse = Some(refuse_cookie(9, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    lab.virt(0).slow = true;
    lab.send(1, 1, &Message::FlowMod(add(9, any(), &output(1))));
    lab.flush();
    // The new home gets a copy of what the old one has not answered for.
    lab.begin_move(1, 1, 5, oneswitch_core::MoveUntil::Prepared);
    lab.run();
    assert_eq!(cookies(lab.virt(1)), [9]);
    lab.virt(0).slow = false;
    lab.run();
    assert_eq!(cookies(lab.virt(1)), []);
    assert_eq!(xids(&lab.take(1)), [1]);
}

#[test]
fn a_switch_that_came_up_meanwhile_loses_what_is_refused() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.disconnect(1);
    lab.run();
    lab.take(1);
    lab.virt(0).refuse = Some(refuse_cookie(9, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    lab.virt(0).slow = true;
    lab.send(1, 1, &Message::FlowMod(add(9, any(), &output(1))));
    lab.connect(1);
    lab.run();
    assert_eq!(cookies(lab.virt(1)), [9]);
    lab.virt(0).slow = false;
    lab.run();
    assert_eq!(cookies(lab.virt(1)), []);
    assert_eq!(lab.core.status().flows, 0);
}

/// Must not overlap; overlaps with any rule that matches a port at the same priority.
fn checked(cookie: u64) -> Message {
    Message::FlowMod(FlowMod {
        flags: FlowMod::CHECK_OVERLAP,
        ..add(cookie, any().with_vlan_vid(3), &output(2))
    })
}

#[test]
fn an_overlap_that_the_switch_does_not_see_is_one() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(1, from(1), &output(2))));
    // The rule that overlaps has gone from its switch behind the core's back.
    lab.virt(0).flows.clear();
    assert_eq!(xids(&lab.ask(2, &checked(2))), [2]);
    assert_eq!(cookies(lab.virt(0)), [1]);
    assert_eq!(cookies(lab.virt(1)), []);
}

/// A rule that its switch 1 has yet to refuse, with a copy on switch 0.
fn with_a_copy_in_flight() -> Lab {
    let mut lab = Lab::new(2, &[1, 1]);
    lab.virt(1).refuse = Some(refuse_cookie(9, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    lab.virt(1).slow = true;
    lab.send(1, 1, &Message::FlowMod(add(9, from(1), &output(1))));
    lab.flush();
    lab.begin_move(1, 0, 5, oneswitch_core::MoveUntil::Prepared);
    lab.run();
    assert_eq!(cookies(lab.virt(0)), [9]);
    lab
}

#[test]
fn a_copy_of_what_will_be_refused_forbids_no_overlap() {
    let mut lab = with_a_copy_in_flight();
    lab.send(1, 2, &checked(2));
    // This one overlaps with the one before, which is there after all.
    let later = add(3, any(), &output(1));
    let later = FlowMod {
        flags: FlowMod::CHECK_OVERLAP,
        ..later
    };
    lab.send(1, 3, &Message::FlowMod(later));
    lab.run();
    lab.virt(1).slow = false;
    lab.run();
    assert_eq!(xids(&lab.take(1)), [1, 3]);
    assert_eq!(cookies(lab.virt(0)), [2]);
    assert_eq!(cookies(lab.virt(1)), [2]);
    lab.check_journal();
}

#[test]
fn a_copy_of_what_was_refused_refuses_nothing() {
    let mut lab = with_a_copy_in_flight();
    lab.virt(1).slow = false;
    lab.virt(0).slow = true;
    lab.run();
    assert_eq!(xids(&lab.take(1)), [1]);
    assert_eq!(cookies(lab.virt(0)), [9], "not repaired yet");
    let to_a_missing_group = Message::FlowMod(FlowMod {
        command: FlowModCommand::Modify,
        ..add(0, from(1), &ActionList::new().group(5))
    });
    lab.send(1, 2, &to_a_missing_group);
    lab.send(1, 3, &checked(2));
    lab.run();
    lab.virt(0).slow = false;
    lab.run();
    assert_eq!(lab.take(1), []);
    assert_eq!(cookies(lab.virt(0)), [2]);
    assert_eq!(cookies(lab.virt(1)), [2]);
}

#[test]
fn an_overlap_is_refused_once_and_nothing_is_installed() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(1, from(1), &output(2))));
    let answers = lab.ask(2, &checked(2));
    assert!(matches!(&answers[..], [(h, Message::Error(e))]
        if h.xid == 2 && e.error == ErrorCode::FLOW_MOD_FAILED_OVERLAP));
    assert_eq!(cookies(lab.virt(1)), []);
}

#[test]
fn the_hidden_group_does_not_exist_for_controllers() {
    let mut lab = Lab::new(2, &[0, 1]);
    let hidden = ActionList::new().group(0xffff_fe00);
    let no_group = ErrorCode::BAD_ACTION_BAD_OUT_GROUP;
    for (message, error) in [
        (Message::FlowMod(add(1, any(), &hidden)), no_group),
        (packet_out(1, hidden.clone()), no_group),
        (
            group(GroupModCommand::Modify, 0xffff_fe00, &[1]),
            ErrorCode::GROUP_MOD_FAILED_UNKNOWN_GROUP,
        ),
    ] {
        let mut lab = Lab::new(2, &[0, 1]);
        let answers = lab.ask(3, &message);
        assert!(
            matches!(&answers[..], [(_, Message::Error(e))] if e.error == error),
            "{answers:?}"
        );
    }
    // Deleting a group that is not there is no error in Open vSwitch.
    let deleted = lab.ask(4, &group(GroupModCommand::Delete, 0xffff_fe00, &[]));
    assert_eq!(deleted, []);
    lab.ask(4, &group(GroupModCommand::Add, 1, &[1]));
    lab.ask(
        5,
        &group(GroupModCommand::Delete, openflow13::group_no::ALL, &[]),
    );
    assert_eq!(
        lab.virt(0).groups.keys().collect::<Vec<_>>(),
        [&0xfffe_ffff, &0xffff_fe00]
    );
}

#[test]
fn nobody_answers_to_a_controller_that_has_left() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.virt(1).slow = true;
    lab.send(1, 1, &flow_stats());
    lab.send(1, 2, &packet_out(2, ActionList::new().group(5)));
    lab.send(1, 3, &Message::BarrierRequest);
    lab.run();
    lab.controller_down(1);
    lab.virt(1).slow = false;
    lab.run();
    assert_eq!(lab.core.in_flight(), 0);
}

#[test]
fn a_packet_out_costs_no_barrier_of_its_own() {
    let mut lab = Lab::new(1, &[0, 0]);
    let barriers = |lab: &mut Lab| {
        let queue = std::mem::take(&mut lab.virt(0).input);
        let kinds = queue.iter().map(|frame| frame[1]).collect::<Vec<_>>();
        lab.virt(0).input = queue;
        kinds
            .iter()
            .filter(|k| **k == kind::BARRIER_REQUEST)
            .count()
    };
    lab.virt(0).slow = true;
    lab.send(1, 1, &packet_out(1, output(2)));
    lab.run();
    assert_eq!((lab.core.in_flight(), barriers(&mut lab)), (1, 0));
    // A controller that sends a barrier is told when the verdict is true.
    lab.send(1, 2, &Message::BarrierRequest);
    lab.run();
    assert_eq!((lab.take(1).len(), barriers(&mut lab)), (0, 1));
    lab.virt(0).slow = false;
    lab.run();
    assert_eq!(xids(&lab.take(1)), [2]);
    assert_eq!(lab.core.in_flight(), 0);
    // Nobody asks: it is settled all the same.
    lab.send(1, 3, &packet_out(1, output(2)));
    lab.wait(std::time::Duration::from_millis(99));
    assert_eq!(lab.core.in_flight(), 1);
    lab.wait(std::time::Duration::from_millis(1));
    assert_eq!(lab.core.in_flight(), 0);
}

#[test]
fn a_packet_out_that_is_refused_is_told_at_once() {
    let mut lab = Lab::new(1, &[0, 0]);
    lab.send(1, 1, &packet_out(1, output(2)));
    let answers = lab.ask(2, &packet_out(1, ActionList::new().group(5)));
    assert_eq!(xids(&answers), [2]);
    assert_eq!(lab.core.in_flight(), 0);
}

#[test]
fn many_packet_outs_are_settled_in_passing() {
    let mut lab = Lab::new(1, &[0, 0]);
    for xid in 0..5_000 {
        lab.send(1, xid, &packet_out(1, output(2)));
        lab.run();
        assert!(lab.core.in_flight() < 1_024);
    }
}

#[test]
fn table_mods_go_to_every_executor() {
    let mut lab = Lab::new(3, &[0, 1, 1]);
    let message = Message::TableMod(openflow13::TableMod {
        table_id: 3,
        config: 0,
    });
    let before: Vec<usize> = (0..3).map(|s| lab.virt(s).table_mods).collect();
    assert_eq!(lab.ask(1, &message), []);
    let after: Vec<usize> = (0..3).map(|s| lab.virt(s).table_mods).collect();
    assert_eq!((before, after), (vec![0; 3], vec![1, 1, 0]));
}

#[test]
fn what_a_large_deletion_leaves_is_freed_behind_its_answer() {
    let mut lab = Lab::new(1, &[0]);
    for number in 1..=1000 {
        let rule = add(number, any().with_vlan_vid(number as u16), &output(1));
        lab.send(1, 1, &Message::FlowMod(rule));
    }
    lab.run();
    assert!(lab.core.take_discarded().is_none());
    lab.ask(2, &Message::FlowMod(delete(any())));
    assert!(cookies(lab.virt(0)).is_empty());
    assert!(lab.core.take_discarded().is_some());
    assert!(lab.core.take_discarded().is_none());
}
