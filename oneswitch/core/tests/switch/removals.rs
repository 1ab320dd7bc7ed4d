//! One flow_removed per virtual rule, and idle timeouts over several copies.

use crate::build::{add, any, delete, flow_stats, from, group, output, writes_in_port};
use crate::lab::{Answer, Lab};
use crate::refused::refuse;
use crate::verdicts::{cookies, dumped, refuse_cookie};
use openflow13::{ActionList, ErrorCode, FlowMod, FlowRemoved, GroupModCommand, Match, Message};
use std::time::Duration;

pub const DELETE: u8 = FlowRemoved::DELETE;
pub const GROUP_DELETE: u8 = FlowRemoved::GROUP_DELETE;
pub const HARD_TIMEOUT: u8 = FlowRemoved::HARD_TIMEOUT;
pub const IDLE_TIMEOUT: u8 = FlowRemoved::IDLE_TIMEOUT;

fn told(cookie: u64, matching: Match) -> FlowMod {
    FlowMod {
        flags: FlowMod::SEND_FLOW_REM,
        ..add(cookie, matching, &output(1))
    }
}

pub fn timed(cookie: u64, matching: Match, idle_timeout: u16, hard_timeout: u16) -> Message {
    Message::FlowMod(FlowMod {
        idle_timeout,
        hard_timeout,
        ..told(cookie, matching)
    })
}

/// Cookie, reason, packets and bytes of each flow_removed.
pub fn removed(answers: &[Answer]) -> Vec<(u64, u8, u64, u64)> {
    answers
        .iter()
        .map(|(header, message)| match message {
            Message::FlowRemoved(m) => {
                assert_eq!(header.xid, 0);
                (m.cookie, m.reason, m.packet_count, m.byte_count)
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

pub fn count(lab: &mut Lab, switch: usize, cookie: u64, packets: u64) {
    let flow = lab
        .virt(switch)
        .flows
        .iter_mut()
        .find(|f| f.cookie == cookie);
    let flow = flow.expect("a flow with this cookie");
    (flow.packets, flow.bytes) = (packets, 10 * packets);
}

fn expire(lab: &mut Lab, switch: usize, cookie: u64, reason: u8) {
    lab.now += seconds(20);
    lab.virt(switch).expire(cookie, reason);
}

pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_deletion_is_told_once_with_the_sum() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.ask(1, &Message::FlowMod(told(1, any())));
    lab.ask(2, &Message::FlowMod(add(2, from(1), &output(1))));
    (0..3).for_each(|s| count(&mut lab, s, 1, 5 + s as u64));
    let answers = lab.ask(3, &Message::FlowMod(delete(any())));
    assert_eq!(removed(&answers), [(1, DELETE, 18, 180)]);
    lab.wait(seconds(60));
    assert_eq!(lab.take(1), []);
}

#[test]
fn a_hard_timeout_ends_all_copies_and_is_told_once() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, any(), 0, 30));
    (0..2).for_each(|s| count(&mut lab, s, 1, 4));
    expire(&mut lab, 0, 1, HARD_TIMEOUT);
    lab.virt(1).slow = true;
    lab.run();
    assert_eq!(lab.take(1), []);
    assert_eq!(lab.core.status().flows, 0);
    // The other copy's own timer fires before it learns that it is to go.
    expire(&mut lab, 1, 1, HARD_TIMEOUT);
    lab.virt(1).slow = false;
    lab.run();
    assert_eq!(removed(&lab.take(1)), [(1, HARD_TIMEOUT, 8, 80)]);
    assert_eq!(cookies(lab.virt(1)), []);
    lab.wait(seconds(60));
    assert_eq!(lab.take(1), []);
}

#[test]
fn the_only_copy_keeps_its_idle_timer() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, from(2), 20, 0));
    assert_eq!(lab.virt(1).flows[0].idle, 20);
    count(&mut lab, 1, 1, 3);
    expire(&mut lab, 1, 1, IDLE_TIMEOUT);
    lab.run();
    assert_eq!(removed(&lab.take(1)), [(1, IDLE_TIMEOUT, 3, 30)]);
    assert_eq!(lab.core.next_deadline(), None);
}

#[test]
fn copies_are_idle_together_or_not_at_all() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, any(), 10, 0));
    assert_eq!(
        (lab.virt(0).flows[0].idle, lab.virt(1).flows[0].idle),
        (0, 0)
    );
    for second in 1..=4 {
        count(&mut lab, 1, 1, second);
        lab.wait(seconds(5));
        assert_eq!(lab.take(1), [], "busy at one switch");
    }
    lab.wait(seconds(4));
    assert_eq!(lab.take(1), []);
    lab.wait(seconds(7));
    assert_eq!(removed(&lab.take(1)), [(1, IDLE_TIMEOUT, 4, 40)]);
    assert_eq!(lab.cookies(), [vec![], vec![]]);
    lab.wait(seconds(10));
    assert_eq!(lab.core.next_deadline(), None);
}

#[test]
fn a_rule_that_gets_a_second_copy_loses_its_timer_and_is_watched() {
    let mut lab = Lab::new(2, &[0, 0]);
    lab.ask(1, &timed(1, any(), 10, 0));
    assert_eq!(lab.virt(0).flows[0].idle, 10);
    lab.move_port(2, 1, 5);
    assert_eq!(
        (lab.virt(0).flows[0].idle, lab.virt(1).flows[0].idle),
        (0, 0)
    );
    lab.take(1);
    lab.wait(seconds(25));
    assert_eq!(removed(&lab.take(1)), [(1, IDLE_TIMEOUT, 0, 0)]);
}

#[test]
fn a_rule_that_loses_its_second_copy_has_its_timer_again() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, any(), 10, 0));
    lab.ask(2, &timed(2, from(2), 10, 0));
    lab.move_port(2, 0, 5);
    let idle: Vec<u16> = lab.virt(0).flows.iter().map(|f| f.idle).collect();
    assert_eq!(idle, [10, 10]);
    assert_eq!(cookies(lab.virt(1)), []);
}

#[test]
fn the_watch_outlives_switches_that_are_away() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, any(), 10, 0));
    (0..2).for_each(|s| lab.disconnect(s));
    lab.wait(seconds(3));
    (0..2).for_each(|s| lab.connect(s));
    lab.run();
    lab.take(1);
    lab.wait(seconds(30));
    assert_eq!(removed(&lab.take(1)), [(1, IDLE_TIMEOUT, 0, 0)]);
}

#[test]
fn rules_of_one_port_are_watched_while_any_rule_may_apply_anywhere() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(7, any(), &writes_in_port(2))));
    lab.ask(2, &timed(1, from(2), 10, 0));
    assert_eq!(cookies(lab.virt(0)), [1, 7]);
    lab.wait(seconds(25));
    assert_eq!(removed(&lab.take(1)), [(1, IDLE_TIMEOUT, 0, 0)]);
}

#[test]
fn a_deleted_group_takes_its_rules_along_and_tells_why() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &group(GroupModCommand::Add, 5, &[1]));
    let message = FlowMod {
        flags: FlowMod::SEND_FLOW_REM,
        ..add(1, any(), &ActionList::new().group(5))
    };
    lab.ask(2, &Message::FlowMod(message));
    (0..2).for_each(|s| count(&mut lab, s, 1, 4));
    let answers = lab.ask(3, &group(GroupModCommand::Delete, 5, &[]));
    assert_eq!(removed(&answers), [(1, GROUP_DELETE, 8, 80)]);
    assert_eq!(lab.core.status().flows, 0);
}

#[test]
fn a_copy_that_never_reports_does_not_hold_up_the_others() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(told(1, any())));
    count(&mut lab, 0, 1, 4);
    lab.virt(1).flows.clear();
    assert_eq!(lab.ask(2, &Message::FlowMod(delete(any()))), []);
    lab.wait(seconds(6));
    assert_eq!(removed(&lab.take(1)), [(1, DELETE, 4, 40)]);
    assert_eq!(lab.core.next_deadline(), None);
}

#[test]
fn a_switch_that_goes_down_does_not_report() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(told(1, any())));
    (0..2).for_each(|s| count(&mut lab, s, 1, 4));
    lab.virt(1).slow = true;
    assert_eq!(lab.ask(2, &Message::FlowMod(delete(any()))), []);
    lab.disconnect(1);
    lab.run();
    let answers = lab.take(1);
    let told: Vec<Answer> = answers
        .into_iter()
        .filter(|(_, m)| matches!(m, Message::FlowRemoved(_)))
        .collect();
    assert_eq!(removed(&told), [(1, DELETE, 4, 40)]);
}

#[test]
fn a_refused_deletion_removes_nothing_and_tells_nothing() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(told(1, any())));
    (0..2).for_each(|s| {
        count(&mut lab, s, 1, 4);
        let is_refused = |m: &Message| matches!(m, Message::FlowMod(m) if m.cookie == 66);
        lab.virt(s).refuse = refuse(usize::MAX, is_refused);
    });
    let refused = FlowMod {
        cookie: 66,
        ..delete(any())
    };
    let answers = lab.ask(2, &Message::FlowMod(refused));
    assert!(matches!(&answers[..], [(_, Message::Error(_))]));
    assert_eq!(lab.core.next_deadline(), None);
    let answers = lab.ask(3, &Message::FlowMod(delete(any())));
    assert_eq!(removed(&answers), [(1, DELETE, 8, 80)]);
}

#[test]
fn the_report_of_an_untold_rule_is_not_taken_for_that_of_its_successor() {
    let mut lab = Lab::new(2, &[0, 1]);
    let untold = FlowMod {
        idle_timeout: 99,
        ..add(1, from(2), &output(1))
    };
    lab.ask(1, &Message::FlowMod(untold));
    count(&mut lab, 1, 1, 4);
    lab.send(1, 2, &Message::FlowMod(delete(any())));
    lab.send(1, 3, &Message::FlowMod(told(2, from(2))));
    lab.send(1, 4, &Message::FlowMod(delete(any())));
    lab.run();
    assert_eq!(removed(&lab.take(1)), [(2, DELETE, 0, 0)]);
}

#[test]
fn a_rule_written_anew_as_it_expires_lives_on() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, from(2), 20, 0));
    count(&mut lab, 1, 1, 4);
    lab.now += seconds(20);
    lab.send(1, 2, &timed(2, from(2), 20, 0));
    lab.flush();
    lab.virt(1).expire(1, IDLE_TIMEOUT);
    lab.run();
    // The counters are those of the rule that expired; it cannot be told from its successor any more.
    assert_eq!(removed(&lab.take(1)), [(2, IDLE_TIMEOUT, 4, 40)]);
    assert_eq!(dumped(&lab.ask(3, &flow_stats())), [2]);
}

#[test]
fn an_expired_rule_does_not_come_back_with_a_refused_message() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, from(2), 20, 0));
    lab.virt(0).slow = true;
    lab.virt(0).refuse = Some(refuse_cookie(9, ErrorCode::FLOW_MOD_FAILED_UNKNOWN));
    // Refused by one of two; it changes the rule that expires meanwhile.
    let modify = FlowMod {
        command: openflow13::FlowModCommand::Modify,
        cookie: 9,
        cookie_mask: 0,
        ..add(9, any(), &output(3))
    };
    lab.send(1, 2, &Message::FlowMod(modify));
    lab.run();
    expire(&mut lab, 1, 1, IDLE_TIMEOUT);
    lab.run();
    lab.virt(0).slow = false;
    lab.run();
    assert_eq!(lab.core.status().flows, 0);
    assert_eq!(cookies(lab.virt(1)), []);
}

#[test]
fn what_was_reported_before_a_refusal_is_told_of_the_right_rule() {
    for late in [false, true] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.ask(1, &Message::FlowMod(told(1, any())));
        (0..2).for_each(|s| count(&mut lab, s, 1, 4));
        // No switch knows the group: the rule that is deleted is the one before.
        let to_group = ActionList::default().group(9);
        let refused = FlowMod {
            flags: FlowMod::SEND_FLOW_REM,
            ..add(2, any(), &to_group)
        };
        lab.virt(1).slow = late;
        lab.send(1, 2, &Message::FlowMod(refused));
        lab.send(1, 3, &Message::FlowMod(delete(any())));
        lab.run();
        lab.virt(1).slow = false;
        lab.run();
        let mut answers = lab.take(1);
        let is_error = |(_, message): &Answer| matches!(message, Message::Error(_));
        assert_eq!(answers.iter().filter(|a| is_error(a)).count(), 1);
        answers.retain(|a| !is_error(a));
        assert_eq!(removed(&answers), [(1, DELETE, 8, 80)]);
        lab.wait(seconds(60));
        assert_eq!(lab.take(1), []);
    }
}

#[test]
fn a_report_before_the_refusal_of_an_untold_successor_counts_for_its_rule() {
    for late in [false, true] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.ask(1, &Message::FlowMod(told(1, any())));
        (0..2).for_each(|s| {
            count(&mut lab, s, 1, 4);
            lab.virt(s).reports_at_once = true;
        });
        let to_group = ActionList::default().group(9);
        lab.virt(1).slow = late;
        lab.send(1, 3, &Message::FlowMod(add(2, any(), &to_group)));
        lab.send(1, 4, &Message::FlowMod(delete(any())));
        lab.run();
        lab.virt(1).slow = false;
        lab.run();
        let answers = lab.take(1);
        assert!(matches!(answers[0], (_, Message::Error(_))), "{answers:?}");
        assert_eq!(removed(&answers[1..]), [(1, DELETE, 8, 80)]);
        lab.wait(seconds(60));
        assert_eq!(lab.take(1), []);
    }
}

/// Additions, accepted or refused, of rules that a controller is told of or not, and deletions, all in one write.
#[test]
fn whatever_is_refused_each_rule_is_told_of_once() {
    const KINDS: u32 = 5;
    let message = |kind: u32, cookie: u64| match kind {
        0 => Message::FlowMod(told(cookie, any())),
        1 => Message::FlowMod(add(cookie, any(), &output(1))),
        2 => Message::FlowMod(FlowMod {
            flags: FlowMod::SEND_FLOW_REM,
            ..add(cookie, any(), &ActionList::default().group(9))
        }),
        3 => Message::FlowMod(add(cookie, any(), &ActionList::default().group(9))),
        _ => Message::FlowMod(delete(any())),
    };
    for number in 0..KINDS.pow(4) {
        let kinds: Vec<u32> = (0..4).map(|at| number / KINDS.pow(at) % KINDS).collect();
        let mut lab = Lab::new(2, &[0, 1]);
        lab.ask(1, &Message::FlowMod(told(100, any())));
        (0..2).for_each(|s| lab.virt(s).reports_at_once = true);
        lab.virt(1).slow = true;
        let (mut present, mut expected) = (Some(100), Vec::new());
        for (kind, cookie) in kinds.iter().zip(1..) {
            lab.send(1, 10, &message(*kind, cookie));
            match kind {
                0 => present = Some(cookie),
                1 => present = None,
                2 | 3 => {}
                _ => expected.extend(present.take().map(|cookie| (cookie, DELETE, 0, 0))),
            }
        }
        lab.run();
        lab.virt(1).slow = false;
        lab.run();
        let mut answers = lab.take(1);
        answers.retain(|(_, message)| matches!(message, Message::FlowRemoved(_)));
        let mut seen = removed(&answers);
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected, "{kinds:?}");
        lab.wait(seconds(60));
        assert_eq!(lab.take(1), []);
    }
}

#[test]
fn a_copy_whose_age_was_rounded_up_ends_its_rule() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, from(1), 0, 1));
    // The switch says one second.
    lab.now += Duration::from_micros(999_500);
    lab.virt(0).expire(1, HARD_TIMEOUT);
    lab.run();
    assert_eq!(removed(&lab.take(1)), [(1, HARD_TIMEOUT, 0, 0)]);
    assert_eq!(lab.core.status().flows, 0);
}

/// The first switch refuses the rule with cookie 1, and says so late.
fn refusing_late() -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.virt(0).slow = true;
    lab.virt(0).refuse = Some(refuse_cookie(1, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
    lab
}

/// Checks that the controller is told of the refusal, and of nothing else.
fn check_refused_only(lab: &mut Lab) {
    lab.wait(seconds(12));
    assert_eq!(lab.take(1), []);
    lab.virt(0).slow = false;
    lab.wait(seconds(12));
    let answers = lab.take(1);
    assert!(
        matches!(&answers[..], [(_, Message::Error(_))]),
        "{answers:?}"
    );
}

#[test]
fn a_removal_is_not_told_before_the_verdict_however_long_that_takes() {
    let mut lab = refusing_late();
    lab.send(1, 1, &Message::FlowMod(told(1, any())));
    lab.run();
    lab.send(1, 2, &Message::FlowMod(delete(any())));
    check_refused_only(&mut lab);
}

#[test]
fn a_copy_that_expires_before_the_verdict_on_its_rule_is_not_told_before_it() {
    let mut lab = refusing_late();
    lab.send(1, 1, &timed(1, any(), 0, 1));
    lab.run();
    expire(&mut lab, 1, 1, HARD_TIMEOUT);
    check_refused_only(&mut lab);
}

#[test]
fn a_switch_that_answers_late_reports_late() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(told(1, any())));
    (0..2).for_each(|s| count(&mut lab, s, 1, 4));
    lab.virt(0).slow = true;
    lab.send(1, 2, &Message::FlowMod(delete(any())));
    lab.wait(seconds(12));
    assert_eq!(lab.take(1), []);
    lab.virt(0).slow = false;
    lab.run();
    assert_eq!(removed(&lab.take(1)), [(1, DELETE, 8, 80)]);
}
