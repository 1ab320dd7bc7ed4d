//! Idle timeouts of rules with several copies, which the core decides by their counters.

use crate::build::{add, any, from, output};
use crate::confirmed::LASTING;
use crate::lab::Lab;
use crate::removals::{count, removed, seconds, timed, IDLE_TIMEOUT};
use oneswitch_core::{Bridge, MoveUntil};
use openflow13::{ErrorCode, FlowMod, FlowModCommand, Message, MultipartRequest};

/// A rule on both switches that ends when it is idle for ten seconds; the second has counted.
fn watched() -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, any(), 10, 0));
    count(&mut lab, 1, 1, 5);
    lab.wait(seconds(2));
    lab
}

#[test]
fn a_rule_is_not_idle_while_its_busy_copy_cannot_be_asked() {
    let mut lab = watched();
    lab.disconnect_bridge(1, Bridge::Virt);
    lab.take(1);
    lab.wait(seconds(40));
    assert_eq!(lab.take(1), []);
    count(&mut lab, 1, 1, 50);
    lab.connect_bridge(1, Bridge::Virt);
    lab.wait(seconds(8));
    assert_eq!(removed(&lab.take_removals(1)), []);
    lab.wait(seconds(5));
    let ended = [(1, IDLE_TIMEOUT, 50, 500)];
    assert_eq!(removed(&lab.take_removals(1)), ended);
}

#[test]
fn a_rule_that_counted_nothing_while_it_could_not_be_asked_was_idle() {
    let mut lab = watched();
    lab.disconnect_bridge(1, Bridge::Virt);
    lab.wait(seconds(40));
    lab.connect_bridge(1, Bridge::Virt);
    lab.wait(seconds(2));
    let ended = [(1, IDLE_TIMEOUT, 5, 50)];
    assert_eq!(removed(&lab.take_removals(1)), ended);
}

#[test]
fn a_switch_that_is_gone_keeps_no_rule() {
    let mut lab = watched();
    lab.disconnect(1);
    lab.wait(LASTING - seconds(1));
    assert_eq!(removed(&lab.take_removals(1)), []);
    lab.wait(seconds(14));
    assert_eq!(removed(&lab.take_removals(1)).len(), 1);
}

#[test]
fn a_switch_that_refuses_to_tell_has_not_said_that_it_is_idle() {
    let mut lab = watched();
    let is_dump = |message: &Message| matches!(message, Message::MultipartRequest(m) if matches!(m.body, MultipartRequest::Flow(_)));
    let refuse = move |m: &Message| is_dump(m).then_some(ErrorCode::BAD_REQUEST_EPERM);
    lab.virt(1).refuse = Some(Box::new(refuse));
    lab.wait(seconds(40));
    assert_eq!(removed(&lab.take_removals(1)), []);
    lab.virt(1).refuse = None;
    lab.wait(seconds(12));
    assert_eq!(removed(&lab.take_removals(1)).len(), 1);
}

#[test]
fn a_modify_restarts_the_timer_that_copies_share() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, any(), 10, 0));
    for command in [FlowModCommand::Modify, FlowModCommand::ModifyStrict] {
        lab.wait(seconds(7));
        let modify = FlowMod {
            command,
            ..add(1, any(), &output(2))
        };
        lab.ask(2, &Message::FlowMod(modify));
    }
    lab.wait(seconds(7));
    assert_eq!(removed(&lab.take_removals(1)), []);
    lab.wait(seconds(5));
    let ended = [(1, IDLE_TIMEOUT, 0, 0)];
    assert_eq!(removed(&lab.take_removals(1)), ended);
}

#[test]
fn a_rule_that_was_written_while_its_port_moves_ends_when_it_is_idle() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.begin_move(2, 0, 5, MoveUntil::Prepared);
    lab.run();
    lab.ask(1, &timed(1, from(2), 10, 0));
    lab.wait(seconds(5));
    count(&mut lab, 1, 1, 5);
    lab.wait(seconds(8));
    assert_eq!(removed(&lab.take_removals(1)), []);
    lab.wait(seconds(5));
    let ended = [(1, IDLE_TIMEOUT, 5, 50)];
    assert_eq!(removed(&lab.take_removals(1)), ended);
    assert_eq!(lab.cookies(), [[], []] as [[u64; 0]; 2]);
}

#[test]
fn a_moving_ports_rule_keeps_its_timer_where_it_had_it() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &timed(1, from(2), 10, 0));
    lab.begin_move(2, 0, 5, MoveUntil::Prepared);
    lab.run();
    let accepted = |lab: &Lab| -> usize { lab.switches.iter().map(|s| s.virt.accepted).sum() };
    let timers = |lab: &Lab| -> Vec<u16> {
        let copies = lab.switches.iter().map(|s| &s.virt.flows[0]);
        copies.map(|flow| flow.idle).collect()
    };
    let before = accepted(&lab);
    lab.restart();
    lab.run();
    assert_eq!((timers(&lab), accepted(&lab)), (vec![0, 10], before));
    // Whatever else is wrong with the copy.
    lab.virt(1).flows[0].cookie = 9;
    let now = lab.now;
    lab.core.request_audit(now);
    lab.run();
    assert_eq!(timers(&lab), [0, 10]);
    assert_eq!(lab.cookies(), [[1], [1]]);
}
