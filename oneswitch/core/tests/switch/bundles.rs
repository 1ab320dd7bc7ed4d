//! Bundles: all of their messages, on all switches, or none.

use crate::build::{add, any, from, group, output, packet_out};
use crate::lab::{Answer, Lab};
use crate::verdicts::refuse_cookie;
use oneswitch_core::ControllerId;
use openflow13::bundle::{self, Bundle, Control, ControlType};
use openflow13::{decode, encode, ErrorCode, FlowMod, FlowModCommand, GroupModCommand, Message};
use std::cell::Cell;
use std::time::Duration;

const ID: u32 = 5;
const OPEN: u32 = 1;
const COMMIT: u32 = 2;
const CLOSE: u32 = 4;

/// The frames of a bundle with these messages, which have the xids from 100 on.
pub fn frames(messages: &[Message]) -> Vec<Vec<u8>> {
    let mut frames = vec![bundle::encode_open(OPEN, ID)];
    for (xid, message) in (100..).zip(messages) {
        let inner = encode(xid, message).unwrap();
        frames.push(bundle::encode_add(ID, &inner).unwrap());
    }
    frames.push(bundle::encode_commit(COMMIT, ID));
    frames
}

fn send(lab: &mut Lab, messages: &[Message]) -> Vec<Vec<u8>> {
    let frames = frames(messages);
    frames.iter().for_each(|frame| lab.send_raw(1, frame));
    frames
}

/// Each answer's xid, and its error or the progress of the bundle.
fn told(answers: &[Answer]) -> Vec<(u32, Result<ControlType, ErrorCode>)> {
    let outcome = |(header, message): &Answer| match message {
        Message::Error(error) => Some((header.xid, Err(error.error))),
        Message::Experimenter(m) => match bundle::decode(header.xid, m) {
            Some(Ok(Bundle::Control(control))) => Some((header.xid, Ok(control.control_type))),
            other => panic!("{other:?}"),
        },
        Message::PortStatus(_) => None,
        other => panic!("{other:?}"),
    };
    answers.iter().filter_map(outcome).collect()
}

fn rule(cookie: u64, port: Option<u32>) -> Message {
    let matching = port.map_or_else(any, from);
    Message::FlowMod(add(cookie, matching, &output(1)))
}

const OPENED: (u32, Result<ControlType, ErrorCode>) = (OPEN, Ok(ControlType::OpenReply));
const COMMITTED: (u32, Result<ControlType, ErrorCode>) = (COMMIT, Ok(ControlType::CommitReply));
const FAILED: (u32, Result<ControlType, ErrorCode>) =
    (COMMIT, Err(ErrorCode::ONF_BUNDLE_MSG_FAILED));

#[test]
fn a_bundle_comes_into_force_on_all_switches() {
    let mut lab = Lab::new(2, &[0, 1]);
    send(
        &mut lab,
        &[rule(1, Some(1)), rule(2, Some(2)), rule(3, None)],
    );
    lab.run();
    assert_eq!(told(&lab.take(1)), [OPENED, COMMITTED]);
    assert_eq!(lab.cookies(), [vec![1, 3], vec![2, 3]]);
    assert_eq!(lab.core.status().flows, 3);
}

#[test]
fn what_one_switch_refuses_is_in_force_nowhere() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.virt(1).refuse = Some(refuse_cookie(2, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    let frames = send(
        &mut lab,
        &[rule(1, Some(1)), rule(2, Some(2)), rule(3, None)],
    );
    lab.run();
    let answers = lab.take(1);
    let part = (101, Err(ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    assert_eq!(told(&answers), [OPENED, part, FAILED]);
    let Message::Error(error) = &answers[1].1 else {
        panic!("{answers:?}");
    };
    assert_eq!(*error.data, frames[2][..]);
    assert_eq!(lab.cookies(), [vec![], vec![]]);
    assert_eq!(lab.core.status().flows, 0);
    // The trial left nothing that a later message could meet.
    lab.virt(1).refuse = None;
    send(&mut lab, &[rule(2, Some(2)), rule(3, None)]);
    lab.run();
    assert_eq!(lab.cookies(), [vec![3], vec![2, 3]]);
}

#[test]
fn the_first_of_several_refused_parts_is_named() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.virt(0).refuse = Some(refuse_cookie(3, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    lab.virt(1).refuse = Some(refuse_cookie(2, ErrorCode::FLOW_MOD_FAILED_EPERM));
    send(
        &mut lab,
        &[rule(1, None), rule(2, Some(2)), rule(3, Some(1))],
    );
    lab.run();
    let part = (101, Err(ErrorCode::FLOW_MOD_FAILED_EPERM));
    assert_eq!(told(&lab.take(1)), [OPENED, part, FAILED]);
}

#[test]
fn a_commit_that_one_switch_refuses_after_all_is_taken_back_on_the_other() {
    let mut lab = Lab::new(2, &[0, 1]);
    let times = Cell::new(0);
    lab.virt(1).refuse = Some(Box::new(move |message| {
        let is_second =
            matches!(message, Message::FlowMod(m) if m.cookie == 2 && !m.command.is_delete());
        times.set(times.get() + u32::from(is_second));
        (is_second && times.get() == 2).then_some(ErrorCode::FLOW_MOD_FAILED_TABLE_FULL)
    }));
    send(&mut lab, &[rule(1, None), rule(2, Some(2))]);
    lab.run_until(|lab| lab.cookies()[0] == [1]);
    lab.run();
    let part = (101, Err(ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    assert_eq!(told(&lab.take(1)), [OPENED, part, FAILED]);
    assert_eq!(lab.cookies(), [vec![], vec![]]);
    assert_eq!(lab.core.status().flows, 0);
}

#[test]
fn a_bundle_waits_for_the_vote_of_every_switch_and_others_for_the_bundle() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_up(2);
    send(&mut lab, &[rule(1, None)]);
    lab.run_until(|lab| !lab.core.takes_messages_of(oneswitch_core::ControllerId(2)));
    lab.virt(1).slow = true;
    lab.send(2, 9, &rule(7, Some(1)));
    lab.run();
    assert_eq!(lab.cookies(), [vec![], vec![]]);
    lab.virt(1).slow = false;
    lab.run();
    assert_eq!(told(&lab.take(1)), [OPENED, COMMITTED]);
    assert_eq!(lab.cookies(), [vec![1, 7], vec![1]]);
}

#[test]
fn a_switch_that_goes_away_during_the_trial_fails_the_bundle() {
    let mut lab = Lab::new(2, &[0, 1]);
    send(&mut lab, &[rule(1, None)]);
    lab.run_until(|lab| !lab.core.takes_messages_of(oneswitch_core::ControllerId(1)));
    lab.virt(1).slow = true;
    lab.run();
    lab.disconnect(1);
    lab.run();
    assert_eq!(told(&lab.take(1)), [OPENED, FAILED]);
    assert_eq!(lab.cookies()[0], [] as [u64; 0]);
    lab.virt(1).slow = false;
    lab.connect(1);
    lab.run();
    assert_eq!(lab.cookies(), [vec![], vec![]]);
}

#[test]
fn a_truncated_journal_has_all_of_a_bundle_or_nothing() {
    let mut lab = Lab::new(2, &[0, 1]);
    let before = lab.journal.len();
    let member = group(GroupModCommand::Add, 1, &[1]);
    send(&mut lab, &[member, rule(1, Some(1)), rule(2, None)]);
    lab.run();
    let all = lab.journal.len();
    assert!(before < all);
    for length in before..=all {
        let (core, restored) = lab.restored(&lab.journal[..length]).unwrap();
        let status = core.status();
        let has_all = length == all;
        assert_eq!(
            (status.flows, status.groups),
            if has_all { (2, 1) } else { (0, 0) }
        );
        assert_eq!(restored.cut_off == 0, has_all || length == before);
    }
}

#[test]
fn a_daemon_killed_between_trial_and_verdict_leaves_nothing() {
    let mut lab = Lab::new(2, &[0, 1]);
    send(&mut lab, &[rule(1, Some(1)), rule(2, None)]);
    lab.run_until(|lab| lab.cookies().concat().len() == 3);
    lab.take(1);
    lab.restart();
    lab.run();
    assert_eq!(lab.core.status().flows, 0);
    assert_eq!(lab.cookies(), [vec![], vec![]]);
}

fn repairs(lab: &Lab) -> u64 {
    let status = lab.core.status();
    status.switches.iter().map(|switch| switch.repairs).sum()
}

#[test]
fn an_audit_during_a_trial_installs_nothing() {
    let mut lab = Lab::new(2, &[0, 1]);
    let before = repairs(&lab);
    lab.core.set_audit(Duration::from_secs(60), lab.now);
    lab.virt(1).refuse = Some(refuse_cookie(2, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    send(&mut lab, &[rule(1, None), rule(2, Some(2))]);
    lab.run_until(|lab| !lab.core.takes_messages_of(oneswitch_core::ControllerId(1)));
    lab.virt(1).slow = true;
    lab.run();
    lab.now += Duration::from_secs(61);
    lab.core.tick(lab.now);
    lab.run();
    assert_eq!(lab.cookies(), [vec![], vec![]]);
    lab.virt(1).slow = false;
    lab.run();
    assert_eq!(lab.cookies(), [vec![], vec![]]);
    lab.wait(Duration::from_secs(1));
    assert_eq!(repairs(&lab), before);
}

#[test]
fn an_addition_that_is_refused_opens_no_bundle() {
    let mut lab = Lab::new(2, &[0, 1]);
    let inner_of = |cookie| encode(3, &rule(cookie, None)).unwrap();
    let refuser = refuse_cookie(1, ErrorCode::BAD_ACTION_BAD_TYPE);
    lab.virt(0).refuse = Some(Box::new(move |message| match message {
        // The part of an addition follows its number and flags.
        Message::Experimenter(m) => refuser(&decode(m.body.get(8..)?).ok()?.1),
        _ => None,
    }));
    let closes = bundle::encode_control(
        CLOSE,
        Control {
            bundle_id: ID,
            control_type: ControlType::CloseRequest,
            flags: bundle::ATOMIC | bundle::ORDERED,
        },
    );
    for (cookie, closed) in [
        (1, Err(ErrorCode::ONF_BUNDLE_BAD_ID)),
        (2, Ok(ControlType::CloseReply)),
    ] {
        lab.send_raw(1, &bundle::encode_add(ID, &inner_of(cookie)).unwrap());
        lab.send_raw(1, &closes);
        lab.run();
        let answers = told(&lab.take(1));
        assert_eq!(answers.last(), Some(&(CLOSE, closed)), "{answers:?}");
    }
}

#[test]
fn an_idle_bundle_times_out() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.send_raw(1, &bundle::encode_open(OPEN, ID));
    lab.wait(Duration::from_secs(9));
    assert_eq!(told(&lab.take(1)), [OPENED]);
    lab.wait(Duration::from_secs(1));
    let error = (OPEN, Err(ErrorCode::ONF_BUNDLE_TIMEOUT));
    assert_eq!(told(&lab.take(1)), [error]);
    lab.send_raw(1, &bundle::encode_commit(COMMIT, ID));
    lab.run();
    let unknown = (COMMIT, Err(ErrorCode::ONF_BUNDLE_BAD_ID));
    assert_eq!(told(&lab.take(1)), [unknown]);
}

/// Open vSwitch 3.1 would crash if it took the deletion of a group back that rules use.
#[test]
fn a_trial_deletes_the_rules_of_a_group_before_the_group() {
    let mut lab = Lab::new(2, &[0, 1]);
    let removed = FlowMod {
        flags: FlowMod::SEND_FLOW_REM,
        ..add(1, any(), &openflow13::ActionList::new().group(1))
    };
    let member = group(GroupModCommand::Add, 1, &[1]);
    let gone = group(GroupModCommand::Delete, 1, &[]);
    send(&mut lab, &[member, Message::FlowMod(removed), gone]);
    let mut seen = Vec::new();
    while lab.flush() {
        for switch in 0..2 {
            seen.extend(lab.virt(switch).input.iter().cloned());
        }
        lab.round();
    }
    let deletions = seen.iter().filter_map(|frame| deletion_in(frame)).count();
    assert_eq!(deletions, 2, "one in the trial on each switch");
    assert_eq!(lab.cookies(), [vec![], vec![]]);
}

fn deletion_in(frame: &[u8]) -> Option<()> {
    let is_deletion = |m: &Message| matches!(m, Message::FlowMod(m) if m.command.is_delete());
    part_in(frame).filter(is_deletion).map(drop)
}

/// The message that another one adds to a bundle.
fn part_in(frame: &[u8]) -> Option<Message> {
    let (header, Message::Experimenter(m)) = openflow13::decode(frame).ok()? else {
        return None;
    };
    let Ok(Bundle::Add(part)) = bundle::decode(header.xid, &m)? else {
        return None;
    };
    openflow13::decode(part.inner).ok().map(|(_, inner)| inner)
}

/// Open vSwitch may find a rule of the same bundle only by its exact match.
#[test]
fn a_bundle_with_packet_outs_is_decided_by_its_only_switch() {
    // The hypervisor checks each part as it comes.
    let (check, trial, commit) = (1, 1, 1);
    for (homes, seen) in [([0, 0], check + commit), ([0, 1], check + trial + commit)] {
        let mut lab = Lab::new(2, &homes);
        send(&mut lab, &[rule(1, None), packet_out(1, output(2))]);
        let mut parts = Vec::new();
        while lab.flush() {
            parts.extend(lab.virt(0).input.iter().filter_map(|f| part_in(f)));
            lab.round();
        }
        let is_packet_out = |part: &&Message| matches!(part, Message::PacketOut(_));
        assert_eq!(parts.iter().filter(is_packet_out).count(), seen);
        assert_eq!(told(&lab.take(1)), [OPENED, COMMITTED]);
        assert_eq!(lab.virt(0).packet_outs.len(), 1);
    }
}

#[test]
fn a_rule_of_the_bundle_is_changed_by_its_exact_match_too() {
    let mut lab = Lab::new(2, &[0, 1]);
    let modify = FlowMod {
        command: FlowModCommand::Modify,
        ..add(0, any(), &output(2))
    };
    send(&mut lab, &[rule(1, Some(2)), Message::FlowMod(modify)]);
    let mut seen = Vec::new();
    while lab.flush() {
        seen.extend(lab.virt(1).input.iter().cloned());
        lab.round();
    }
    let strict = |frame: &&Vec<u8>| matches!(part_in(frame), Some(Message::FlowMod(m)) if m.command == FlowModCommand::ModifyStrict && m.matching == from(2));
    assert_eq!(
        seen.iter().filter(strict).count(),
        2,
        "in the trial, and for good"
    );
    assert_eq!(told(&lab.take(1)), [OPENED, COMMITTED]);
}

#[test]
fn an_overlap_that_no_switch_sees_fails_the_bundle() {
    let mut lab = Lab::new(2, &[0, 1]);
    let checked = FlowMod {
        flags: FlowMod::CHECK_OVERLAP,
        ..add(2, any(), &output(1))
    };
    for switch in 0..2 {
        lab.virt(switch).ignores_overlaps = true;
    }
    send(&mut lab, &[rule(1, Some(2)), Message::FlowMod(checked)]);
    lab.run();
    let part = (101, Err(ErrorCode::FLOW_MOD_FAILED_OVERLAP));
    assert_eq!(told(&lab.take(1)), [OPENED, part, FAILED]);
    assert_eq!(lab.cookies(), [vec![], vec![]]);
}

#[test]
fn a_commit_whose_controller_has_left_is_carried_out() {
    // Before the verdict on its messages, while the switches try it, and behind the verdict.
    for rounds in 0..6 {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.controller_up(2);
        lab.run();
        let frames = frames(&[rule(1, None), rule(2, Some(1))]);
        frames.iter().for_each(|frame| lab.send_raw(2, frame));
        lab.send(2, 77, &rule(3, Some(2)));
        for _ in 0..rounds {
            lab.round();
        }
        lab.controller_down(2);
        lab.run();
        assert_eq!(lab.cookies(), [vec![1, 2], vec![1, 3]], "{rounds}");
        assert!(lab.core.controller_role(ControllerId(2)).is_none());
        assert!(lab.core.takes_messages_of(ControllerId(1)));
    }
}
