//! Ports whose pipeline runs at another switch than their home.

use crate::build::{
    add, any, executor_request, flow_stats, from, group, meter, move_request, output, packet_out,
    port_request, request,
};
use crate::lab::{switch_name, Lab, GRACE};
use crate::refused::{is_addition, refuse};
use oneswitch_core::{ExecutorRequest, MoveStage, MoveUntil, HOME};
use openflow13::{
    port_no, state, ActionList, ErrorCode, GroupModCommand, Message, MeterModCommand,
    MultipartReply, MultipartRequest, PortStatus,
};
use std::collections::BTreeMap;
use std::time::Duration;

fn change(executor: &str) -> ExecutorRequest {
    executor_request(executor, MoveUntil::Done)
}

/// Returns the packets that the virtual rules have counted.
fn packets(lab: &mut Lab) -> Vec<u64> {
    let answers = lab.ask(7, &flow_stats());
    let [(_, Message::MultipartReply(reply))] = &answers[..] else {
        panic!("{answers:?}");
    };
    let MultipartReply::Flow(flows) = &reply.body else {
        panic!("{reply:?}");
    };
    flows.iter().map(|f| f.packet_count).collect()
}

pub fn check_paths(lab: &Lab, homes: &[(u32, (usize, u32))], executors: &[usize]) {
    let homes: BTreeMap<_, _> = homes.iter().copied().collect();
    let executors = homes.keys().copied().zip(executors.iter().copied());
    lab.check_executed_paths(&homes, &executors.collect());
}

/// The number of each port that a controller was told of, and whether its link is up.
fn told(lab: &mut Lab) -> Vec<(u32, bool)> {
    let answers = lab.take(1).into_iter();
    let port = |message| match message {
        Message::PortStatus(s @ PortStatus { .. }) => {
            (s.port.number, s.port.state & state::LINK_DOWN == 0)
        }
        other => panic!("{other:?}"),
    };
    answers.map(|(_, message)| port(message)).collect()
}

#[test]
fn rules_and_packet_outs_of_a_port_go_to_its_executor() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.execute_at(2, Some(2));
    lab.ask(1, &Message::FlowMod(add(1, from(1), &output(2))));
    lab.ask(2, &Message::FlowMod(add(2, from(2), &output(1))));
    lab.ask(3, &Message::FlowMod(add(3, any(), &output(1))));
    // Nothing is executed at the second switch any more.
    assert_eq!(lab.cookies(), [vec![1, 3], vec![], vec![2, 3]]);
    assert_eq!(lab.core.status().executors, ["hypervisor", "snic1"]);
    lab.ask(4, &packet_out(2, output(1)));
    assert_eq!(lab.virt(2).packet_outs.len(), 1);
    let places = [(1, (0, 1)), (2, (1, 2)), (3, (2, 3))];
    check_paths(&lab, &places, &[0, 2, 2]);
    lab.execute_at(2, None);
    assert_eq!(lab.cookies(), [vec![1, 3], vec![2, 3], vec![3]]);
    check_paths(&lab, &places, &[0, 1, 2]);
}

#[test]
fn where_all_ports_have_one_executor_it_executes_everything() {
    let mut lab = Lab::new(3, &[0, 1, 1]);
    lab.ask(1, &Message::FlowMod(add(1, any(), &output(1))));
    lab.ask(2, &Message::FlowMod(add(2, from(77), &output(1))));
    lab.ask(3, &group(GroupModCommand::Add, 1, &[2]));
    lab.ask(4, &meter(MeterModCommand::Add, 1, 10));
    lab.execute_at(1, Some(1));
    assert_eq!(lab.cookies(), [vec![], vec![1, 2], vec![]]);
    assert_eq!(lab.core.status().executors, ["snic0"]);
    assert_eq!(lab.virt(0).meters.len(), 0);
    for in_port in [port_no::CONTROLLER, 77] {
        lab.ask(5, &packet_out(in_port, output(1)));
    }
    assert_eq!(lab.virt(1).packet_outs.len(), 2);
    // An executor is asked how it spells groups, not the hypervisor, which has none.
    let asked = request(MultipartRequest::GroupDesc);
    let before = lab.virt(1).output.len();
    let answers = lab.ask(6, &asked);
    assert_eq!(before, 0);
    assert!(matches!(
        &answers[..],
        [(_, Message::MultipartReply(r))] if matches!(&r.body, MultipartReply::GroupDesc(g) if g.len() == 1)
    ));
    // Packets that it counted for no port stay counted.
    lab.virt(1).flows.iter_mut().for_each(|f| f.packets = 4);
    lab.execute_at(1, Some(2));
    assert_eq!(lab.cookies(), [vec![1, 2], vec![1], vec![1]]);
    assert_eq!(packets(&mut lab), [4, 4]);
}

#[test]
fn a_changing_executor_loses_no_counts() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(1, from(1), &output(2))));
    lab.virt(0).flows[0].packets = 5;
    lab.begin_executor_change(1, Some(1), MoveUntil::Flipped);
    lab.run();
    assert_eq!(lab.cookies(), [[1], [1]]);
    lab.virt(1).flows[0].packets = 3;
    assert_eq!(packets(&mut lab), [8]);
    lab.finish_move(1);
    assert_eq!(lab.cookies(), [vec![], vec![1]]);
    assert_eq!(packets(&mut lab), [8]);
}

#[test]
fn both_executors_take_packets_until_the_change_is_done() {
    let mut lab = Lab::new(3, &[1, 0]);
    let places = [(1, (1, 1)), (2, (0, 2))];
    lab.begin_executor_change(1, Some(2), MoveUntil::Prepared);
    lab.run();
    check_paths(&lab, &places, &[1, 0]);
    lab.continue_move(1, MoveUntil::Flipped);
    check_paths(&lab, &places, &[2, 0]);
    let view = &lab.core.ports()[0];
    assert_eq!((&*view.executor, &*view.executes_at), (HOME, "snic1"));
    let moving = view.moving.as_ref().unwrap();
    assert_eq!(
        (moving.stage, &*moving.executor),
        (MoveStage::Flipped, "snic1")
    );
    lab.finish_move(1);
    check_paths(&lab, &places, &[2, 0]);
    assert_eq!(lab.core.ports()[0].executor, "snic1");
    // Back, but not beyond preparation.
    lab.begin_executor_change(1, None, MoveUntil::Prepared);
    lab.run();
    lab.core.abort_move(1, lab.now).unwrap();
    lab.run();
    check_paths(&lab, &places, &[2, 0]);
}

#[test]
fn a_port_moves_under_an_executor_that_stays() {
    let mut lab = Lab::new(3, &[1, 2]);
    lab.execute_at(1, Some(0));
    lab.ask(1, &Message::FlowMod(add(1, from(1), &output(2))));
    let accepted = lab.virt(0).accepted;
    let home = [(1, (2, 7)), (2, (2, 2))];
    lab.move_port(1, 2, 7);
    assert_eq!(lab.cookies(), [vec![1], vec![], vec![]]);
    assert_eq!(lab.virt(0).flows.len(), 1);
    // But for the flood list, nothing was written to the executor.
    assert!(lab.virt(0).accepted - accepted <= 2);
    check_paths(&lab, &home, &[0, 2]);
}

#[test]
fn a_rule_of_a_port_that_left_ends_at_its_new_executor() {
    let mut lab = Lab::new(2, &[0, 1]);
    let timed = openflow13::FlowMod {
        idle_timeout: 30,
        ..add(1, from(1), &output(2))
    };
    lab.ask(1, &Message::FlowMod(timed));
    lab.begin_executor_change(1, Some(1), MoveUntil::Flipped);
    lab.run();
    lab.now += Duration::from_secs(30);
    lab.virt(0).expire(1, openflow13::FlowRemoved::IDLE_TIMEOUT);
    lab.run();
    assert_eq!(lab.cookies(), [vec![], vec![1]]);
}

#[test]
fn an_executor_that_refuses_the_copies_is_none() {
    let mut lab = Lab::new(2, &[0, 0]);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    lab.virt(1).refuse = refuse(usize::MAX, is_addition);
    lab.begin_executor_change(2, Some(1), MoveUntil::Done);
    lab.wait(2 * GRACE);
    let outcome = lab.core.move_outcome(2).unwrap().unwrap_err();
    assert_eq!(outcome.code(), "move-failed");
    check_paths(&lab, &[(1, (0, 1)), (2, (0, 2))], &[0, 0]);
}

#[test]
fn an_executor_must_be_there() {
    let mut lab = Lab::new(2, &[0, 1]);
    let code = |result: Result<(), oneswitch_core::PortError>| result.unwrap_err().code();
    let now = lab.now;
    let unknown = lab.core.begin_executor_change(1, &change("snic9"), now);
    assert_eq!(code(unknown), "switch-unknown");
    let no_port = lab.core.begin_executor_change(9, &change(HOME), now);
    assert_eq!(code(no_port), "port-unknown");
    lab.disconnect(1);
    let down = lab.core.begin_executor_change(1, &change("snic0"), now);
    assert_eq!(code(down), "switch-down");
    let added = port_request(5, &switch_name(0), Some("snic0"));
    let added = lab.core.add_port(added, now).map(drop);
    assert_eq!(code(added), "switch-down");
    lab.connect(1);
    lab.run();
    lab.begin_executor_change(1, Some(1), MoveUntil::Prepared);
    let twice = lab.core.begin_executor_change(1, &change(HOME), now);
    assert_eq!(code(twice), "move-in-progress");
}

#[test]
fn a_port_whose_executor_is_out_of_reach_is_down() {
    let mut lab = Lab::new(2, &[0, 0]);
    lab.execute_at(1, Some(1));
    lab.take(1);
    lab.disconnect(1);
    lab.run();
    assert_eq!(told(&mut lab), [(1, false)]);
    let reason = lab.core.ports()[0].reason.clone();
    assert_eq!(reason.as_deref(), Some("switch snic0 is not connected"));
    lab.connect(1);
    lab.run();
    assert_eq!(told(&mut lab), [(1, true)]);
}

#[test]
fn flow_ids_and_executors_survive_a_restart() {
    let mut lab = Lab::new(2, &[0, 0, 1]);
    lab.execute_at(1, Some(1));
    lab.execute_at(2, Some(1));
    lab.execute_at(1, None);
    lab.execute_at(3, Some(0));
    let ids = |lab: &Lab| -> Vec<_> {
        let ports = lab.core.ports().into_iter();
        ports.map(|p| (p.flow_id, p.ingress_id)).collect()
    };
    // The first port's, 4, rests.
    assert_eq!(ids(&lab), [(1, None), (2, Some(5)), (3, Some(6))]);
    let virt = |lab: &Lab| lab.switches.iter().map(|s| s.virt.accepted).sum::<usize>();
    let (before, accepted) = (ids(&lab), virt(&lab));
    lab.restart();
    lab.run();
    assert_eq!(ids(&lab), before);
    assert_eq!(virt(&lab), accepted, "something was rewritten");
    check_paths(&lab, &[(1, (0, 1)), (2, (0, 2)), (3, (1, 3))], &[0, 1, 0]);
}

/// Outputs to NORMAL; NXAST_CT, which commits to zone 0; NXAST_LEARN of nothing into table 1.
fn stateful() -> [(ActionList, ErrorCode); 3] {
    let experimenter = |subtype: u8, rest: &[u8]| {
        let length = 10 + rest.len() as u8;
        let head = [0xff, 0xff, 0, length, 0, 0, 0x23, 0x20, 0, subtype];
        ActionList::from_bytes([&head[..], rest].concat()).unwrap()
    };
    let unknown = ErrorCode::BAD_ACTION_BAD_EXP_TYPE;
    let mut learn = [0; 22];
    learn[16] = 1;
    [
        (output(port_no::NORMAL), ErrorCode::BAD_ACTION_BAD_OUT_PORT),
        (
            experimenter(35, &[0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0]),
            unknown,
        ),
        (experimenter(16, &learn), unknown),
    ]
}

fn errors(lab: &mut Lab, message: &Message) -> Vec<ErrorCode> {
    let answers = lab.ask(9, message).into_iter();
    let error = |message| match message {
        Message::Error(e) => e.error,
        other => panic!("{other:?}"),
    };
    answers.map(|(_, message)| error(message)).collect()
}

#[test]
fn what_all_ports_share_needs_one_executor() {
    let mut lab = Lab::new(2, &[0, 1]);
    for (actions, refusal) in stateful() {
        let rule = Message::FlowMod(add(1, any(), &actions));
        assert_eq!(errors(&mut lab, &rule), [refusal]);
        assert_eq!(errors(&mut lab, &packet_out(1, actions)), [refusal]);
    }
    lab.execute_at(1, Some(1));
    let [normal, tracked, learning] = stateful();
    for (cookie, (actions, _)) in [(1, normal), (2, tracked), (3, learning)] {
        let rule = add(cookie, from(cookie as u32), &actions);
        assert_eq!(errors(&mut lab, &Message::FlowMod(rule)), []);
        assert_eq!(errors(&mut lab, &packet_out(1, actions)), []);
    }
    assert_eq!(lab.cookies(), [vec![], vec![1, 2, 3]]);
}

#[test]
fn while_rules_keep_state_it_is_not_split() {
    let mut lab = Lab::new(3, &[0, 1]);
    lab.execute_at(1, Some(1));
    let [(normal, _), ..] = stateful();
    lab.ask(1, &Message::FlowMod(add(1, any(), &normal)));
    let now = lab.now;
    let refused = lab.core.begin_executor_change(1, &change(HOME), now);
    assert_eq!(refused.unwrap_err().code(), "stateful-rules");
    let elsewhere = move_request(&switch_name(2), "if7", MoveUntil::Done);
    let refused = lab.core.begin_move(2, elsewhere, now);
    assert_eq!(refused.unwrap_err().code(), "stateful-rules");
    let mut added = port_request(5, &switch_name(2), None);
    let refused = lab.core.add_port(added.clone(), now);
    assert_eq!(refused.unwrap_err().code(), "stateful-rules");
    assert_eq!(lab.core.ports().len(), 2);
    assert!(lab.core.ports().iter().all(|p| p.moving.is_none()));
    // A move that leaves the executor where it is is free.
    lab.move_port(1, 2, 7);
    added.executor = Some(switch_name(1));
    assert_eq!(lab.core.add_port(added, now), Ok(5));
    lab.run();
    assert_eq!(lab.cookies(), [vec![], vec![1], vec![]]);
    assert_eq!(lab.core.splits_state(), None);
    let gone = crate::build::delete(any());
    lab.ask(2, &Message::FlowMod(gone));
    lab.execute_at(1, None);
}
