//! Refusals by switches outside of controllers' messages: copies of accepted rules, and questions.

use crate::build::{add, any, from, group, output, port_request};
use crate::confirmed::LASTING;
use crate::fake::Refuser;
use crate::lab::{Lab, GRACE};
use crate::moves::{move_until_counters_are_read, stage};
use crate::removals::count;
use crate::statistics::{bodies, count_port, counted, port_stats};
use crate::verdicts::cookies;
use oneswitch_core::{Bridge, MoveStage, MoveUntil};
use openflow13::{
    ErrorCode, FlowMod, FlowModCommand, GroupModCommand, Message, MultipartReply, MultipartRequest,
};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The core writes refused copies again at least that often.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);

pub fn is_addition(message: &Message) -> bool {
    matches!(message, Message::FlowMod(m) if m.command == FlowModCommand::Add)
}

/// Refuses the first `times` of the messages that are `meant`.
pub fn refuse(times: usize, meant: impl Fn(&Message) -> bool + 'static) -> Option<Refuser> {
    let left = Cell::new(times);
    Some(Box::new(move |message| {
        if left.get() == 0 || !meant(message) {
            return None;
        }
        left.set(left.get() - 1);
        Some(ErrorCode::FLOW_MOD_FAILED_TABLE_FULL)
    }))
}

type Question = fn(&MultipartRequest) -> bool;

fn asks(kind: Question) -> impl Fn(&Message) -> bool {
    move |message| matches!(message, Message::MultipartRequest(m) if kind(&m.body))
}

/// A third switch becomes an executor, and refuses its copy of a rule.
fn joined_by(refuser: Option<Refuser>) -> Lab {
    let mut lab = Lab::new(3, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(1, any(), &output(1))));
    lab.virt(2).refuse = refuser;
    let request = port_request(3, "snic1", None);
    lab.core.add_port(request, lab.now).unwrap();
    lab.run();
    lab
}

#[test]
fn a_copy_that_was_refused_is_written_again_at_once() {
    let mut lab = joined_by(refuse(1, is_addition));
    assert_eq!(cookies(lab.virt(2)), [1]);
    assert_eq!(lab.core.status().switches[2].refusals, [None, None]);
}

#[test]
fn a_switch_that_goes_on_refusing_is_read_ever_more_seldom() {
    let reads = Rc::new(Cell::new(0));
    let seen = Rc::clone(&reads);
    let refuser: Refuser = Box::new(move |message| {
        let is_dump = asks(|m| matches!(m, MultipartRequest::Flow(_)))(message);
        seen.set(seen.get() + usize::from(is_dump));
        is_addition(message).then_some(ErrorCode::FLOW_MOD_FAILED_TABLE_FULL)
    });
    let mut lab = joined_by(Some(refuser));
    lab.wait(Duration::from_secs(300));
    assert!((8..20).contains(&reads.get()), "{}", reads.get());
    let [virt, edge] = lab.core.status().switches[2].refusals.clone();
    assert!(virt.unwrap().contains("TABLE_FULL"));
    assert_eq!(edge, None);
    lab.virt(2).refuse = None;
    lab.wait(LONGEST_PAUSE);
    assert_eq!(cookies(lab.virt(2)), [1]);
}

#[test]
fn a_move_does_not_lead_to_a_switch_that_lacks_a_copy() {
    let mut lab = joined_by(refuse(usize::MAX, is_addition));
    lab.begin_move(2, 2, 5, MoveUntil::Done);
    lab.run();
    let outcome = lab.core.move_outcome(2).unwrap().unwrap_err();
    assert_eq!(outcome.code(), "move-failed");
    lab.wait(Duration::from_secs(60));
    lab.virt(2).refuse = None;
    lab.begin_move(2, 2, 5, MoveUntil::Done);
    lab.wait(2 * GRACE);
    assert_eq!((cookies(lab.virt(2)), stage(&lab, 2)), (vec![1], None));
}

#[test]
fn a_move_away_from_a_switch_that_lacks_a_copy_is_not_held_up() {
    let mut lab = joined_by(refuse(usize::MAX, is_addition));
    lab.begin_move(3, 1, 5, MoveUntil::Done);
    lab.wait(LASTING + 4 * GRACE);
    assert_eq!(lab.core.move_outcome(3), Some(Ok(())));
}

/// Port 2 with a rule, a group, and counters at its old home.
fn counting() -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &group(GroupModCommand::Add, 5, &[1]));
    lab.ask(2, &Message::FlowMod(add(1, from(2), &output(1))));
    lab.virt(1).group_packets.insert(5, 7);
    count(&mut lab, 1, 1, 30);
    count_port(&mut lab, 1, 2, 100);
    lab
}

/// Packets of the group, of the rule and of port 2.
fn counters(lab: &mut Lab) -> (u64, u64, u64) {
    lab.take(1);
    let body = MultipartRequest::Group { group: 5 };
    let in_group = match &bodies(lab.ask(3, &crate::build::request(body)))[..] {
        [MultipartReply::Group(groups)] => groups[0].packet_count,
        other => panic!("{other:?}"),
    };
    let rules = counted(lab);
    (in_group, rules[0].1, port_stats(lab, 2)[0].rx_packets)
}

fn begin_to_quiesce(lab: &mut Lab) {
    lab.begin_move(2, 0, 5, MoveUntil::Flipped);
    lab.run();
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
}

fn finish(lab: &mut Lab) {
    lab.core.continue_move(2, MoveUntil::Done, lab.now).unwrap();
    lab.wait(Duration::from_secs(20));
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
}

#[test]
fn counters_that_an_old_home_refused_to_tell_are_asked_again() {
    let questions: [(Bridge, Question); 3] = [
        (Bridge::Virt, |m| matches!(m, MultipartRequest::Flow(_))),
        (Bridge::Virt, |m| {
            matches!(m, MultipartRequest::Group { .. })
        }),
        (Bridge::Edge, |m| {
            matches!(m, MultipartRequest::PortStats { .. })
        }),
    ];
    for (bridge, question) in questions {
        let mut lab = counting();
        begin_to_quiesce(&mut lab);
        lab.bridge(1, bridge).refuse = refuse(2, asks(question));
        finish(&mut lab);
        assert_eq!(counters(&mut lab), (7, 30, 100), "{bridge:?}");
    }
}

#[test]
fn an_old_home_that_never_tells_its_counters_does_not_hold_up_the_move() {
    let mut lab = counting();
    begin_to_quiesce(&mut lab);
    let rules = asks(|m| matches!(m, MultipartRequest::Flow(_)));
    lab.virt(1).refuse = refuse(usize::MAX, rules);
    finish(&mut lab);
    assert_eq!(counters(&mut lab), (7, 0, 100), "what it told is kept");
}

#[test]
fn counters_that_broke_off_are_asked_again_when_the_old_home_is_back() {
    for bridge in [Bridge::Virt, Bridge::Edge] {
        let mut lab = counting();
        move_until_counters_are_read(&mut lab, &[bridge]);
        lab.disconnect_bridge(1, bridge);
        lab.bridge(1, bridge).slow = false;
        lab.wait(LASTING - 2 * GRACE);
        assert_eq!(stage(&lab, 2), Some(MoveStage::Quiescing));
        lab.connect_bridge(1, bridge);
        lab.wait(2 * GRACE);
        assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
        assert_eq!(counters(&mut lab), (7, 30, 100), "{bridge:?}");
    }
}

/// Port 3 has gone last from switch 1, but did not know so when it asked for the counters there.
#[test]
fn a_move_that_ends_after_others_takes_the_counters_that_they_have_left() {
    let mut lab = Lab::new(2, &[0, 0, 1, 1]);
    for (cookie, matching) in [(1, from(3)), (2, from(4)), (3, any())] {
        lab.ask(1, &Message::FlowMod(add(cookie, matching, &output(1))));
        count(&mut lab, 1, cookie, 10 * cookie);
    }
    lab.ask(2, &group(GroupModCommand::Add, 5, &[1]));
    lab.virt(1).group_packets.insert(5, 7);
    let expected = [(1, 10), (2, 20), (3, 30)];
    lab.begin_move(3, 0, 5, MoveUntil::Flipped);
    lab.begin_executor_change(4, Some(0), MoveUntil::Flipped);
    lab.wait(2 * GRACE);
    assert_eq!(counted(&mut lab), expected);
    lab.edge(1).slow = true;
    lab.continue_move(3, MoveUntil::Done);
    lab.continue_move(4, MoveUntil::Done);
    lab.wait(2 * GRACE);
    assert_eq!(
        (stage(&lab, 3), stage(&lab, 4)),
        (Some(MoveStage::Quiescing), None)
    );
    assert_eq!(counted(&mut lab), expected);
    count(&mut lab, 1, 3, 31);
    lab.edge(1).slow = false;
    lab.wait(2 * GRACE);
    assert_eq!(stage(&lab, 3), None);
    assert_eq!(cookies(lab.virt(1)), []);
    assert_eq!(counters(&mut lab), (7, 10, 0));
    assert_eq!(counted(&mut lab), [(1, 10), (2, 20), (3, 31)]);
    lab.check_journal();
}

#[test]
fn what_a_new_interface_has_counted_is_asked_again_where_it_was_refused() {
    let mut lab = Lab::new(2, &[0, 1]);
    count_port(&mut lab, 0, 5, 1000);
    let ports = asks(|m| matches!(m, MultipartRequest::PortStats { .. }));
    lab.edge(0).refuse = refuse(2, ports);
    lab.begin_move(2, 0, 5, MoveUntil::Flipped);
    lab.run();
    lab.take(1);
    count_port(&mut lab, 0, 5, 1010);
    assert_eq!(port_stats(&mut lab, 2)[0].rx_packets, 10);
    finish(&mut lab);
    lab.take(1);
    assert_eq!(port_stats(&mut lab, 2)[0].rx_packets, 10);
}

#[test]
fn an_interface_that_never_tells_what_it_has_counted_does_not_hold_up_the_move() {
    let mut lab = Lab::new(2, &[0, 1]);
    let ports = asks(|m| matches!(m, MultipartRequest::PortStats { .. }));
    lab.edge(0).refuse = refuse(usize::MAX, ports);
    lab.begin_move(2, 0, 5, MoveUntil::Done);
    lab.wait(2 * GRACE);
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
}

#[test]
fn a_dump_that_broke_off_is_not_taken_for_all_rules() {
    for is_new in [false, true] {
        let mut lab = Lab::new(1, &[0, 0]);
        for cookie in 1..=8 {
            let rule = FlowMod {
                idle_timeout: 10,
                flags: FlowMod::SEND_FLOW_REM,
                ..add(cookie, from(cookie as u32), &output(1))
            };
            lab.ask(1, &Message::FlowMod(rule));
        }
        lab.now += Duration::from_secs(40);
        lab.virt(0).broken_dumps = 2;
        let before = lab.virt(0).accepted;
        if is_new {
            lab.disconnect_bridge(0, Bridge::Virt);
            lab.connect_bridge(0, Bridge::Virt);
        } else {
            lab.core.set_audit(Duration::from_secs(1), lab.now);
        }
        lab.wait(Duration::from_secs(10));
        assert_eq!(lab.virt(0).broken_dumps, 0);
        assert_eq!(lab.take_removals(1), []);
        assert_eq!(cookies(lab.virt(0)), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(lab.virt(0).accepted, before, "nothing was written");
        assert!(lab.core.is_in_step());
    }
}

#[test]
fn a_switch_without_meters_is_taken_into_service() {
    let mut lab = Lab::dark(1, &[0]);
    let meters = asks(|m| matches!(m, MultipartRequest::MeterConfig { .. }));
    lab.virt(0).refuse = Some(Box::new(move |message| {
        meters(message).then_some(ErrorCode::BAD_REQUEST_BAD_MULTIPART)
    }));
    lab.connect(0);
    lab.run();
    assert!(lab.core.is_in_step());
}
