//! Moves, and floods, wait for bridges that have not confirmed their rules: away, or refusing them.

use crate::build::{add, from, output, port_request};
use crate::lab::{Lab, GRACE};
use crate::moves::{homes, stage};
use crate::statistics::{count_port, port_stats};
use crate::verdicts::cookies;
use oneswitch_core::{Bridge, MoveStage, MoveUntil};
use openflow13::{ErrorCode, Message, MultipartRequest};
use std::time::Duration;

/// After that a switch whose bridges are both away counts as gone.
pub const LASTING: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(60);

/// Port 2 goes from switch 1 to switch 2, by the hypervisor, and stops at `until`.
fn moving(until: MoveUntil) -> Lab {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    lab.begin_move(2, 2, 5, until);
    lab.run();
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
    lab
}

fn check_moved(lab: &Lab) {
    assert_eq!(stage(lab, 2), None);
    lab.check_paths(&homes(&[(1, (0, 1)), (2, (2, 5)), (3, (2, 3))]));
}

/// The code of a move's outcome.
fn code(lab: &mut Lab) -> Option<&'static str> {
    let outcome = lab.core.move_outcome(2)?;
    Some(outcome.err().map_or("reached", |error| error.code()))
}

#[test]
fn a_move_does_not_flip_while_the_hypervisor_cannot_be_told() {
    let mut lab = moving(MoveUntil::Prepared);
    lab.disconnect_bridge(0, Bridge::Edge);
    lab.continue_move(2, MoveUntil::Done);
    lab.wait(LONG);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Prepared));
    assert_eq!(code(&mut lab), Some("move-waits"));
    lab.connect_bridge(0, Bridge::Edge);
    lab.wait(2 * GRACE);
    assert_eq!(code(&mut lab), Some("reached"));
    check_moved(&lab);
}

#[test]
fn a_flip_that_the_hypervisor_did_not_hear_of_is_not_reached() {
    let mut lab = moving(MoveUntil::Prepared);
    lab.edge(0).slow = true;
    lab.continue_move(2, MoveUntil::Done);
    lab.disconnect_bridge(0, Bridge::Edge);
    lab.edge(0).slow = false;
    lab.wait(LONG);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Flipping));
    assert_eq!(code(&mut lab), Some("move-waits"));
    lab.connect_bridge(0, Bridge::Edge);
    lab.wait(2 * GRACE);
    assert_eq!(code(&mut lab), Some("reached"));
    check_moved(&lab);
}

#[test]
fn a_flip_that_a_bridge_refuses_is_not_reached() {
    let mut lab = moving(MoveUntil::Prepared);
    let refuse = |message: &Message| match message {
        Message::Experimenter(_) => Some(ErrorCode::BAD_REQUEST_EPERM),
        _ => None,
    };
    lab.edge(0).refuse = Some(Box::new(refuse));
    lab.continue_move(2, MoveUntil::Done);
    lab.wait(LONG);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Flipping));
    assert_eq!(code(&mut lab), Some("move-waits"));
    lab.edge(0).refuse = None;
    lab.wait(4 * GRACE);
    assert_eq!(code(&mut lab), Some("reached"));
    check_moved(&lab);
}

#[test]
fn a_goal_that_comes_back_has_its_rules_before_the_flip() {
    let mut lab = moving(MoveUntil::Prepared);
    lab.disconnect(2);
    lab.virt(2).flows.clear();
    lab.continue_move(2, MoveUntil::Flipped);
    lab.connect(2);
    lab.run_until(|lab| lab.core.is_in_step());
    lab.virt(2).slow = true;
    lab.run();
    assert_eq!(cookies(lab.virt(2)), []);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Prepared));
    lab.virt(2).slow = false;
    lab.run();
    assert_eq!(cookies(lab.virt(2)), [1]);
    assert_eq!(code(&mut lab), Some("reached"));
}

#[test]
fn a_goal_that_is_gone_fails_the_move_before_the_flip() {
    let mut lab = moving(MoveUntil::Prepared);
    lab.disconnect(2);
    lab.continue_move(2, MoveUntil::Done);
    lab.wait(LASTING - GRACE);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Prepared));
    lab.wait(GRACE);
    assert_eq!(code(&mut lab), Some("move-failed"));
    assert_eq!(stage(&lab, 2), None);
}

#[test]
fn an_old_home_is_waited_for_until_it_is_gone() {
    let mut lab = moving(MoveUntil::Prepared);
    lab.edge(1).slow = true;
    lab.continue_move(2, MoveUntil::Done);
    lab.disconnect(1);
    lab.edge(1).slow = false;
    lab.wait(LASTING - GRACE);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Flipping));
    lab.wait(3 * GRACE);
    assert_eq!(code(&mut lab), Some("reached"));
    lab.connect(1);
    lab.run();
    check_moved(&lab);
}

#[test]
fn a_forced_move_goes_on_without_who_does_not_answer() {
    for stop in [MoveUntil::Prepared, MoveUntil::Flipped] {
        let mut lab = moving(stop);
        lab.disconnect_bridge(1, Bridge::Edge);
        lab.core.force_move(2).unwrap();
        lab.continue_move(2, MoveUntil::Done);
        lab.wait(2 * GRACE);
        assert_eq!(code(&mut lab), Some("reached"));
        lab.connect_bridge(1, Bridge::Edge);
        lab.run();
        check_moved(&lab);
    }
}

#[test]
fn a_forced_move_to_who_does_not_answer_fails_before_the_flip() {
    for bridge in [Bridge::Virt, Bridge::Edge] {
        let mut lab = moving(MoveUntil::Prepared);
        lab.disconnect_bridge(2, bridge);
        lab.core.force_move(2).unwrap();
        lab.continue_move(2, MoveUntil::Done);
        assert_eq!(code(&mut lab), Some("move-failed"));
        assert_eq!(stage(&lab, 2), None);
    }
}

#[test]
fn a_forced_move_waits_for_who_only_takes_its_time() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    lab.virt(2).slow = true;
    lab.begin_move(2, 2, 5, MoveUntil::Prepared);
    lab.core.force_move(2).unwrap();
    lab.wait(GRACE);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Preparing));
    lab.virt(2).slow = false;
    lab.run();
    assert_eq!(code(&mut lab), Some("reached"));
}

#[test]
fn a_waiting_move_can_be_undone() {
    let mut lab = moving(MoveUntil::Prepared);
    lab.disconnect_bridge(0, Bridge::Edge);
    lab.continue_move(2, MoveUntil::Done);
    lab.core.abort_move(2, lab.now).unwrap();
    lab.connect_bridge(0, Bridge::Edge);
    lab.run();
    lab.check_paths(&homes(&[(1, (0, 1)), (2, (1, 2)), (3, (2, 3))]));
}

#[test]
fn a_move_within_a_switch_does_not_wait_for_another_one() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.disconnect(2);
    lab.wait(LASTING);
    lab.disconnect_bridge(0, Bridge::Virt);
    lab.wait(LASTING);
    lab.begin_move(2, 1, 5, MoveUntil::Done);
    lab.wait(2 * GRACE);
    assert_eq!(code(&mut lab), Some("reached"));
}

#[test]
fn counters_of_an_old_home_that_is_away_for_a_moment_are_kept() {
    let mut lab = moving(MoveUntil::Flipped);
    count_port(&mut lab, 1, 2, 100);
    lab.disconnect(1);
    lab.continue_move(2, MoveUntil::Done);
    lab.wait(2 * GRACE);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Quiescing));
    lab.connect(1);
    lab.run();
    assert_eq!(code(&mut lab), Some("reached"));
    lab.take(1);
    assert_eq!(port_stats(&mut lab, 2)[0].rx_packets, 100);
}

#[test]
fn what_a_new_interface_has_counted_is_asked_when_its_bridge_is_back() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    count_port(&mut lab, 2, 5, 1000);
    lab.begin_move(2, 2, 5, MoveUntil::Prepared);
    lab.disconnect_bridge(2, Bridge::Edge);
    lab.connect_bridge(2, Bridge::Edge);
    lab.run();
    lab.continue_move(2, MoveUntil::Done);
    lab.wait(2 * GRACE);
    lab.take(1);
    assert_eq!(port_stats(&mut lab, 2)[0].rx_packets, 0);
}

#[test]
fn floods_go_by_the_list_that_every_receiver_knows() {
    let add_port = |lab: &mut Lab| {
        let request = port_request(4, "snic0", None);
        lab.core.add_port(request, lab.now).unwrap();
        lab.run();
    };
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.disconnect_bridge(2, Bridge::Edge);
    add_port(&mut lab);
    assert_eq!(lab.flooded(0, 1, &[]), [(1, 2), (2, 3)]);
    // A receiver that stays away does not keep the others from a new port.
    lab.wait(LASTING);
    assert_eq!(lab.flooded(0, 1, &[]), [(1, 2), (1, 4)]);
    lab.connect_bridge(2, Bridge::Edge);
    lab.run();
    lab.check_paths(&homes(&[
        (1, (0, 1)),
        (2, (1, 2)),
        (3, (2, 3)),
        (4, (1, 4)),
    ]));
}

#[test]
fn a_list_is_not_in_force_before_every_sender_has_it() {
    // The third switch floods to port 2 by the list of before: at the old interface, which must not go.
    let mut lab = Lab::new(4, &[0, 1, 2, 3]);
    lab.virt(3).slow = true;
    lab.begin_move(2, 2, 5, MoveUntil::Done);
    lab.run();
    lab.disconnect_bridge(3, Bridge::Virt);
    lab.virt(3).slow = false;
    lab.wait(2 * GRACE);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Preparing));
    lab.connect_bridge(3, Bridge::Virt);
    lab.wait(2 * GRACE);
    assert_eq!(code(&mut lab), Some("reached"));
}

#[test]
fn a_bridge_that_did_not_tell_its_rules_is_asked_again_before_it_is_trusted() {
    let mut lab = moving(MoveUntil::Prepared);
    lab.disconnect_bridge(1, Bridge::Edge);
    lab.core
        .remove_port(3, &Default::default(), lab.now)
        .unwrap();
    let refusals = std::cell::Cell::new(1);
    let refuse = move |message: &Message| match message {
        Message::MultipartRequest(m) if matches!(m.body, MultipartRequest::Flow(_)) => {
            let left = refusals.get();
            refusals.set(left.max(1) - 1);
            (left > 0).then_some(ErrorCode::BAD_REQUEST_EPERM)
        }
        _ => None,
    };
    lab.edge(1).refuse = Some(Box::new(refuse));
    lab.continue_move(2, MoveUntil::Done);
    lab.connect_bridge(1, Bridge::Edge);
    lab.wait(2 * GRACE);
    assert_eq!(code(&mut lab), Some("reached"));
    let alike = lab.edge(0).flows.len();
    let mut fresh = Lab::new(3, &[0, 1, 2]);
    fresh
        .core
        .remove_port(3, &Default::default(), fresh.now)
        .unwrap();
    fresh.begin_move(2, 2, 5, MoveUntil::Done);
    fresh.wait(2 * GRACE);
    assert_eq!(fresh.edge(0).flows.len(), alike);
    assert_eq!(fresh.edge(1).flows.len(), lab.edge(1).flows.len());
}
