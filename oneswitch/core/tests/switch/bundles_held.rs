//! The time of bundles stands while the messages of controllers are held.

use crate::build::{add, any, from, group, output};
use crate::bundles::frames;
use crate::lab::Lab;
use oneswitch_core::{ControllerId, MoveUntil};
use openflow13::bundle::{self, Bundle, ControlType};
use openflow13::{port_no, ErrorCode, GroupModCommand, Message};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// For which messages wait at most until the ports are gathered.
const HOLD: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(50);

/// A bundle with two rules.
fn bundle() -> Vec<Vec<u8>> {
    let rules = [add(1, from(1), &output(1)), add(2, any(), &output(1))];
    frames(&rules.map(Message::FlowMod))
}

/// A lab where controller 2 has opened a bundle and added its first rule. No ports can be gathered: one waits at a stage of its move.
fn begun(begin: &[Vec<u8>]) -> Lab {
    let mut lab = Lab::gathering(2, &[0, 1], Some(0));
    lab.controller_up(2);
    lab.begin_move(2, 1, 7, MoveUntil::Prepared);
    lab.run();
    begin.iter().for_each(|frame| lab.send_raw(2, frame));
    lab.run();
    lab.take(2);
    lab
}

/// Lets controller 1 send what the others wait behind.
fn hold(lab: &mut Lab) {
    let rule = add(9, any(), &output(port_no::NORMAL));
    lab.send(1, 1, &Message::FlowMod(rule));
    lab.run();
}

fn errors(lab: &mut Lab) -> Vec<ErrorCode> {
    let error = |(_, message)| match message {
        Message::Error(error) => Some(error.error),
        _ => None,
    };
    lab.take(2).into_iter().filter_map(error).collect()
}

fn is_committed(lab: &mut Lab) -> bool {
    lab.take(2).into_iter().any(|(header, message)| {
        let Message::Experimenter(m) = message else {
            return false;
        };
        let told = bundle::decode(header.xid, &m);
        matches!(told, Some(Ok(Bundle::Control(c))) if c.control_type == ControlType::CommitReply)
    })
}

#[test]
fn a_bundle_whose_messages_are_held_stays_whole() {
    let frames = bundle();
    let (begin, rest) = frames.split_at(2);
    let mut lab = begun(begin);
    lab.wait(SECOND);
    hold(&mut lab);
    rest.iter().for_each(|frame| lab.send_raw(2, frame));
    lab.wait(HOLD - SECOND / 2);
    assert!(lab.take(2).is_empty(), "answered before the messages");
    lab.wait(2 * SECOND);
    assert!(is_committed(&mut lab));
    assert_eq!(lab.core.status().flows, 2);
}

#[test]
fn a_bundle_whose_messages_wait_behind_the_held_ones_stays_whole() {
    let frames = bundle();
    let (begin, rest) = frames.split_at(2);
    let mut lab = begun(begin);
    lab.wait(HOLD - SECOND);
    hold(&mut lab);
    lab.wait(HOLD);
    // The daemon takes them now.
    lab.wait(2 * SECOND);
    rest.iter().for_each(|frame| lab.send_raw(2, frame));
    lab.run();
    assert!(is_committed(&mut lab));
    assert_eq!(lab.core.status().flows, 2);
}

#[test]
fn a_bundle_that_is_not_used_after_a_hold_times_out() {
    let frames = bundle();
    let mut lab = begun(&frames[..2]);
    hold(&mut lab);
    lab.wait(HOLD);
    lab.wait(HOLD - SECOND);
    assert_eq!(errors(&mut lab), []);
    lab.wait(SECOND);
    assert_eq!(errors(&mut lab), [ErrorCode::ONF_BUNDLE_TIMEOUT]);
}

#[test]
fn short_holds_leave_the_time_of_bundles_alone() {
    let mut lab = begun(&bundle()[..1]);
    for _ in 0..12 {
        // Messages behind this commit are held until the switch has answered.
        let others = frames(&[group(GroupModCommand::Add, 1, &[1])]);
        lab.virt(1).slow = true;
        others.iter().for_each(|frame| lab.send_raw(1, frame));
        lab.wait(SHORT);
        assert!(!lab.core.takes_messages_of(ControllerId(2)));
        lab.virt(1).slow = false;
        lab.wait(SECOND - SHORT);
        assert!(lab.core.takes_messages_of(ControllerId(2)));
    }
    assert_eq!(errors(&mut lab), [ErrorCode::ONF_BUNDLE_TIMEOUT]);
}
