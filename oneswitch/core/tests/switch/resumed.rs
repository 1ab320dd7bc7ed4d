//! Moves that a restart finds in progress, or done.

use crate::build::{add, executor_request, from, group, output, request};
use crate::confirmed::LASTING;
use crate::lab::{Lab, GRACE};
use crate::moves::{homes, move_until_counters_are_read, stage};
use crate::removals::count;
use crate::statistics::{bodies, count_port, counted, port_stats};
use oneswitch_core::{Bridge, ExecutorRequest, MoveStage, MoveUntil};
use openflow13::{GroupModCommand, Message, MultipartReply, MultipartRequest};

fn accepted(lab: &Lab) -> usize {
    let both = lab.switches.iter();
    both.map(|s| s.virt.accepted).sum()
}

#[test]
fn a_move_stays_where_it_is_over_a_restart_and_goes_on() {
    for (until, reached) in [
        (MoveUntil::Prepared, MoveStage::Prepared),
        (MoveUntil::Flipped, MoveStage::Flipped),
    ] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
        lab.begin_move(2, 0, 5, until);
        lab.run();
        let before = accepted(&lab);
        lab.restart();
        lab.run();
        assert_eq!(stage(&lab, 2), Some(reached));
        assert_eq!(accepted(&lab), before, "something was rewritten");
        lab.core.continue_move(2, MoveUntil::Done, lab.now).unwrap();
        assert_eq!(lab.core.move_outcome(2), None);
        lab.wait(2 * GRACE);
        assert_eq!(
            (stage(&lab, 2), lab.core.move_outcome(2)),
            (None, Some(Ok(())))
        );
        lab.check_paths(&homes(&[(1, (0, 1)), (2, (0, 5))]));
        lab.check_journal();
    }
}

/// A move of port 2 from switch 1 that is restored while that is away, and told again how far to go.
fn restarted_without_the_old_home(until: MoveUntil) -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.begin_move(2, 0, 5, until);
    lab.run();
    lab.disconnect(1);
    lab.restart();
    lab.core.continue_move(2, until, lab.now).unwrap();
    lab
}

#[test]
fn a_stage_is_not_reached_before_all_switches_are_in_step_again() {
    for until in [MoveUntil::Prepared, MoveUntil::Flipped] {
        let mut lab = restarted_without_the_old_home(until);
        lab.run();
        assert_eq!(lab.core.move_outcome(2), None);
        lab.connect(1);
        lab.run();
        assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
    }
}

#[test]
fn a_switch_that_does_not_come_holds_a_restored_move_up_for_a_while_only() {
    let mut lab = restarted_without_the_old_home(MoveUntil::Flipped);
    lab.wait(LASTING - GRACE);
    assert_eq!(lab.core.move_outcome(2), None);
    lab.wait(GRACE);
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
}

#[test]
fn a_move_that_was_done_is_not_forgotten_before_the_port_map_is_saved() {
    let mut lab = Lab::new(2, &[0, 1]);
    let saved = lab.core.port_configs();
    lab.saves_ports = false;
    lab.begin_move(2, 0, 5, MoveUntil::Done);
    lab.wait(2 * GRACE);
    assert_eq!(stage(&lab, 2), None);
    lab.restart_with(saved);
    lab.saves_ports = true;
    lab.wait(2 * GRACE);
    lab.check_paths(&homes(&[(1, (0, 1)), (2, (0, 5))]));
    lab.check_journal();
    let saved = lab.core.port_configs();
    lab.restart_with(saved);
    lab.run();
    assert_eq!(stage(&lab, 2), None);
}

#[test]
fn moves_one_after_the_other_survive_a_port_map_that_was_not_saved() {
    let mut lab = Lab::new(2, &[0, 1]);
    let saved = lab.core.port_configs();
    lab.saves_ports = false;
    lab.move_port(2, 0, 5);
    // To where the other one was, which has the greater number.
    lab.move_port(1, 1, 2);
    lab.begin_move(2, 1, 6, MoveUntil::Prepared);
    lab.run();
    lab.restart_with(saved);
    lab.saves_ports = true;
    lab.run();
    assert_eq!(stage(&lab, 2), Some(MoveStage::Prepared));
    lab.core.abort_move(2, lab.now).unwrap();
    lab.run();
    lab.check_paths(&homes(&[(1, (1, 2)), (2, (0, 5))]));
    lab.check_journal();
}

#[test]
fn an_executor_that_came_home_has_no_flow_id_after_a_restart_either() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.execute_at(2, Some(0));
    let saved = lab.core.port_configs();
    lab.saves_ports = false;
    lab.execute_at(2, None);
    assert_eq!(lab.core.ports()[1].ingress_id, None);
    lab.restart_with(saved);
    lab.run();
    let port = &lab.core.ports()[1];
    assert_eq!((port.executor.as_str(), port.ingress_id), ("home", None));
}

#[test]
fn what_an_aborted_move_led_to_is_forgotten() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.begin_move(2, 0, 5, MoveUntil::Prepared);
    lab.run();
    lab.core.abort_move(2, lab.now).unwrap();
    lab.run();
    lab.restart();
    lab.run();
    assert_eq!(stage(&lab, 2), None);
    lab.check_paths(&homes(&[(1, (0, 1)), (2, (1, 2))]));
}

#[test]
fn a_change_of_the_executor_stays_over_a_restart() {
    for until in [MoveUntil::Prepared, MoveUntil::Flipped] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
        let request = ExecutorRequest {
            settle: GRACE,
            ..executor_request("hypervisor", until)
        };
        lab.core
            .begin_executor_change(2, &request, lab.now)
            .unwrap();
        lab.wait(2 * GRACE);
        let ids = |lab: &Lab| (lab.core.ports()[1].flow_id, lab.core.ports()[1].ingress_id);
        let (before, known) = (accepted(&lab), ids(&lab));
        lab.restart();
        lab.wait(2 * GRACE);
        assert_eq!((accepted(&lab), ids(&lab)), (before, known));
        assert!(stage(&lab, 2).is_some());
    }
}

#[test]
fn counters_that_are_half_gathered_at_a_restart_are_counted_once() {
    for awaited in [Bridge::Edge, Bridge::Virt] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
        lab.ask(2, &group(GroupModCommand::Add, 5, &[1]));
        count(&mut lab, 1, 1, 20);
        lab.virt(1).group_packets.insert(5, 3);
        count_port(&mut lab, 1, 2, 100);
        move_until_counters_are_read(&mut lab, &[awaited]);
        // So that the settings are written again.
        lab.begin_executor_change(1, Some(0), MoveUntil::Prepared);
        lab.run();
        lab.bridge(1, awaited).slow = false;
        lab.restart();
        lab.wait(2 * GRACE);
        assert_eq!(stage(&lab, 2), None);
        lab.check_journal();
        lab.take(1);
        assert_eq!(counted(&mut lab), [(1, 20)]);
        assert_eq!(port_stats(&mut lab, 2)[0].rx_packets, 100);
        let asked = lab.ask(3, &request(MultipartRequest::Group { group: 5 }));
        match &bodies(asked)[..] {
            [MultipartReply::Group(groups)] => assert_eq!(groups[0].packet_count, 3),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_the_new_interface_has_counted_is_asked_again_after_a_restart() {
    for until in [MoveUntil::Prepared, MoveUntil::Done] {
        let mut lab = Lab::new(2, &[0, 1]);
        count_port(&mut lab, 1, 2, 100);
        count_port(&mut lab, 0, 5, 1000);
        lab.begin_move(2, 0, 5, until);
        // The question is on its way.
        lab.flush();
        lab.restart();
        lab.run();
        lab.wait(2 * GRACE);
        lab.core.continue_move(2, MoveUntil::Done, lab.now).ok();
        lab.wait(2 * GRACE);
        assert_eq!(stage(&lab, 2), None);
        lab.take(1);
        count_port(&mut lab, 0, 5, 1007);
        assert_eq!(port_stats(&mut lab, 2)[0].rx_packets, 107);
    }
}
