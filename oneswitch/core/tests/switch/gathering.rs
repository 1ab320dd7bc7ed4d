//! Ports execute at one switch as long as rules keep state that they share, and go home afterwards.

use crate::build::{
    add, any, delete, executor_request, from, group, meter, move_request, output, packet_out,
    port_request,
};
use crate::executors::check_paths;
use crate::fake::Refuser;
use crate::lab::{switch_name, Lab};
use crate::refused::{is_addition, refuse};
use crate::removals::count;
use crate::statistics::counted;
use oneswitch_core::{Bridge, ControllerId, MoveUntil, HOME};
use openflow13::{decode, port_no, ErrorCode, FlowMod, GroupModCommand, Message, MeterModCommand};
use std::time::Duration;

/// At least two readings of the interfaces' counters.
const SAMPLES: Duration = Duration::from_secs(11);
const REST: Duration = Duration::from_secs(30);
const ON_THE_WAY: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(2);

fn normal(cookie: u64) -> Message {
    Message::FlowMod(add(cookie, any(), &output(port_no::NORMAL)))
}

fn plain(cookie: u64) -> Message {
    Message::FlowMod(add(cookie, from(1), &output(2)))
}

fn executed_at(lab: &Lab) -> Vec<String> {
    let ports = lab.core.ports();
    ports.into_iter().map(|port| port.executes_at).collect()
}

fn own(lab: &Lab) -> Vec<String> {
    let ports = lab.core.ports();
    ports.into_iter().map(|port| port.executor).collect()
}

fn homes(count: usize) -> Vec<String> {
    vec![HOME.to_owned(); count]
}

#[test]
fn a_rule_with_normal_is_in_force_once_all_ports_execute_at_one_switch() {
    let mut lab = Lab::gathering(2, &[0, 1, 1], None);
    lab.send(1, 1, &normal(1));
    lab.send(1, 2, &Message::BarrierRequest);
    lab.wait(ON_THE_WAY);
    assert_eq!(lab.cookies(), [[], []] as [[u64; 0]; 2]);
    assert!(lab.take(1).is_empty(), "answered before it is in force");
    assert!(!lab.core.takes_messages_of(ControllerId(1)));
    lab.wait(SOON);
    // Most ports are on the sNIC.
    assert_eq!(executed_at(&lab), vec![switch_name(1); 3]);
    assert_eq!(lab.cookies(), [vec![], vec![1]]);
    let answers: Vec<Message> = lab.take(1).into_iter().map(|(_, m)| m).collect();
    assert!(
        matches!(answers[..], [Message::BarrierReply]),
        "{answers:?}"
    );
    check_paths(&lab, &[(1, (0, 1)), (2, (1, 2)), (3, (1, 3))], &[1, 1, 1]);
}

/// Refuses rules with this cookie when they are added to a bundle.
fn refuse_added(cookie: u64) -> Refuser {
    /// Bytes of `ofp14_bundle_ctrl_msg`.
    const HEAD: usize = 8;
    Box::new(move |message| {
        let Message::Experimenter(message) = message else {
            return None;
        };
        let inner = decode(&message.body[HEAD..]).map(|(_, inner)| inner);
        let is_it = matches!(inner, Ok(Message::FlowMod(m)) if m.cookie == cookie);
        is_it.then_some(ErrorCode::BAD_ACTION_BAD_ARGUMENT)
    })
}

#[test]
fn ports_stay_for_what_the_hypervisor_refuses() {
    let mut lab = Lab::gathering(2, &[0, 1, 1], None);
    lab.virt(0).refuse = Some(refuse_added(1));
    lab.send(1, 1, &normal(1));
    lab.send(1, 2, &Message::BarrierRequest);
    lab.wait(SOON);
    assert_eq!(own(&lab), homes(3));
    let answers = lab.take(1);
    let [(_, Message::Error(refused)), (_, Message::BarrierReply)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(refused.error, ErrorCode::BAD_ACTION_BAD_ARGUMENT);
    lab.send(1, 3, &normal(1));
    lab.send(1, 4, &normal(2));
    lab.send(1, 5, &normal(3));
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(1); 3]);
    assert_eq!(lab.cookies(), [vec![], vec![3]]);
    assert!(matches!(lab.take(1)[..], [(_, Message::Error(_))]));
}

#[test]
fn ports_go_home_a_while_after_the_last_such_rule() {
    let mut lab = Lab::gathering(3, &[0, 1, 2], Some(2));
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(2); 3]);
    lab.wait(2 * REST);
    assert_eq!(executed_at(&lab), vec![switch_name(2); 3]);
    lab.ask(2, &Message::FlowMod(delete(any())));
    lab.wait(REST / 2);
    assert_eq!(executed_at(&lab), vec![switch_name(2); 3]);
    lab.wait(REST);
    assert_eq!(own(&lab), homes(3));
    check_paths(&lab, &[(1, (0, 1)), (2, (1, 2)), (3, (2, 3))], &[0, 1, 2]);
    // And again.
    lab.send(1, 3, &normal(4));
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(2); 3]);
}

#[test]
fn a_client_can_wait_for_a_port_that_arrives_before_the_others() {
    let mut lab = Lab::gathering(3, &[0, 1, 2], Some(0));
    lab.send(1, 1, &normal(1));
    lab.wait(ON_THE_WAY);
    // Its change begins again.
    lab.core.abort_move(3, lab.now).unwrap();
    lab.core.continue_move(2, MoveUntil::Done, lab.now).unwrap();
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(0); 3]);
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
}

#[test]
fn a_move_that_ends_while_the_ports_gather_is_answered_at_once() {
    let mut lab = Lab::gathering(3, &[0, 1, 2], Some(0));
    let elsewhere = move_request(&switch_name(1), "if7", MoveUntil::Done);
    lab.core.begin_move(2, elsewhere, lab.now).unwrap();
    lab.run();
    lab.send(1, 1, &normal(1));
    let outcome = (0..SOON.as_millis()).find_map(|_| {
        lab.wait(Duration::from_millis(1));
        lab.core.move_outcome(2)
    });
    assert_eq!(outcome, Some(Ok(())));
    assert_eq!(executed_at(&lab)[1], switch_name(1), "it is gathered next");
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(0); 3]);
}

#[test]
fn ports_that_leave_together_take_their_counters_along_once() {
    for goal in 0..3 {
        let mut lab = Lab::gathering(3, &[0, 0, 1, 1, 2, 2], Some(goal));
        let rules = (1..=6).map(|port| add(port.into(), from(port), &output(1)));
        for rule in rules.chain([add(7, any(), &output(1))]) {
            lab.ask(1, &Message::FlowMod(rule));
        }
        (1..=6).for_each(|port| count(&mut lab, (port - 1) / 2, port as u64, 10 * port as u64));
        (0..3).for_each(|switch| count(&mut lab, switch, 7, 1));
        let expected: Vec<_> = (1..=6)
            .map(|port| (port, 10 * port))
            .chain([(7, 3)])
            .collect();
        assert_eq!(counted(&mut lab), expected);
        let rule = FlowMod {
            table_id: 1,
            ..add(8, any(), &output(port_no::NORMAL))
        };
        lab.send(1, 2, &Message::FlowMod(rule));
        lab.wait(SOON);
        assert_eq!(executed_at(&lab), vec![switch_name(goal); 6]);
        assert_eq!(counted(&mut lab)[..7], expected);
        lab.check_journal();
    }
}

#[test]
fn messages_behind_wait_in_their_order() {
    let mut lab = Lab::gathering(2, &[0, 1], None);
    lab.controller_up(2);
    lab.run();
    lab.take(2);
    lab.send(1, 1, &normal(1));
    lab.send(2, 2, &Message::FlowMod(delete(any())));
    lab.send(2, 3, &Message::BarrierRequest);
    lab.send(1, 4, &plain(7));
    lab.wait(SOON);
    assert_eq!(lab.cookies(), [vec![7], vec![]]);
    assert_eq!(lab.take(2).len(), 1);
}

#[test]
fn groups_and_packet_outs_gather_the_ports_too() {
    let mut lab = Lab::gathering(2, &[0, 1], None);
    lab.send(1, 1, &group(GroupModCommand::Add, 5, &[port_no::NORMAL]));
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(0); 2]);
    let mut lab = Lab::gathering(2, &[0, 1], None);
    lab.send(1, 1, &packet_out(1, output(port_no::NORMAL)));
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(0); 2]);
    lab.wait(2 * REST);
    assert_eq!(own(&lab), homes(2));
}

#[test]
fn without_a_switch_it_is_refused() {
    let mut lab = Lab::gathering(2, &[0, 1], None);
    lab.disconnect(1);
    lab.run();
    lab.take(1);
    let answers = lab.ask(1, &normal(1));
    let [(_, Message::Error(error))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(error.error, ErrorCode::BAD_ACTION_BAD_OUT_PORT);
    // A switch that leaves while the ports are on their way.
    lab.connect(1);
    lab.run();
    lab.take(1);
    lab.send(1, 2, &normal(1));
    lab.wait(ON_THE_WAY);
    lab.disconnect(1);
    lab.wait(Duration::from_secs(20));
    let refused = lab
        .take(1)
        .into_iter()
        .any(|(_, m)| matches!(m, Message::Error(_)));
    assert!(refused);
    assert!(lab.core.takes_messages_of(ControllerId(1)));
}

#[test]
fn a_refused_copy_ends_the_gathering_at_once() {
    let mut lab = Lab::gathering(2, &[0, 1], Some(1));
    lab.ask(1, &plain(1));
    lab.virt(1).refuse = refuse(usize::MAX, is_addition);
    lab.send(1, 1, &normal(2));
    lab.wait(SOON);
    let answers = lab.take(1);
    let [(_, Message::Error(error))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(error.error, ErrorCode::BAD_ACTION_BAD_OUT_PORT);
    assert_eq!(executed_at(&lab), [switch_name(0), switch_name(1)]);
    // Nor does the pause after a failure delay the answer to the next one.
    lab.send(1, 2, &normal(3));
    lab.wait(SOON);
    assert_eq!(lab.take(1).len(), 1);
}

#[test]
fn a_gathered_port_whose_new_executor_is_not_reached_goes_home() {
    for restarts in [false, true] {
        let mut lab = Lab::gathering(2, &[0, 1], Some(0));
        lab.send(1, 1, &normal(1));
        lab.wait(SOON);
        lab.ask(2, &Message::FlowMod(delete(any())));
        let elsewhere = executor_request(&switch_name(1), MoveUntil::Prepared);
        lab.core
            .begin_executor_change(2, &elsewhere, lab.now)
            .unwrap();
        lab.run();
        if restarts {
            lab.restart();
            lab.run();
        }
        lab.core.abort_move(2, lab.now).unwrap();
        lab.wait(2 * REST);
        assert_eq!(own(&lab), homes(2));
    }
}

#[test]
fn ports_go_home_although_their_map_was_not_saved_while_they_gathered() {
    for pause in [0, 50, 150, 400, 700, 2000] {
        let mut lab = Lab::gathering(3, &[0, 1, 2], Some(0));
        let saved = lab.core.port_configs();
        lab.saves_ports = false;
        lab.send(1, 1, &normal(1));
        lab.wait(Duration::from_millis(pause));
        lab.restart_with(saved);
        lab.saves_ports = true;
        lab.run();
        lab.ask(2, &Message::FlowMod(delete(any())));
        lab.wait(3 * REST);
        assert_eq!(own(&lab), homes(3), "after {pause} ms");
    }
}

#[test]
fn ports_stay_home_although_their_map_was_not_saved_when_they_returned() {
    let mut lab = Lab::gathering(3, &[0, 1, 2], Some(0));
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    lab.ask(2, &Message::FlowMod(delete(any())));
    let saved = lab.core.port_configs();
    lab.saves_ports = false;
    lab.wait(2 * REST);
    lab.restart_with(saved);
    lab.saves_ports = true;
    lab.run();
    assert_eq!(own(&lab), homes(3));
    assert!(lab
        .core
        .port_configs()
        .iter()
        .all(|port| port.executor.is_none()));
}

#[test]
fn an_executor_chosen_where_the_port_is_gathered_stays() {
    let mut lab = Lab::gathering(2, &[0, 1], Some(0));
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    let here = executor_request(&switch_name(0), MoveUntil::Done);
    lab.core.begin_executor_change(2, &here, lab.now).unwrap();
    lab.wait(SOON);
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
    lab.restart();
    lab.run();
    assert_eq!(own(&lab)[1], switch_name(0));
}

#[test]
fn a_port_goes_home_once_its_own_executor_is_connected() {
    let mut lab = Lab::gathering(3, &[0, 1], Some(0));
    let own_one = executor_request(&switch_name(2), MoveUntil::Done);
    lab.core
        .begin_executor_change(2, &own_one, lab.now)
        .unwrap();
    lab.wait(SOON);
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    lab.ask(2, &Message::FlowMod(delete(any())));
    lab.disconnect_bridge(2, Bridge::Virt);
    lab.wait(2 * REST);
    assert!(lab.core.ports()[1].moving.is_none());
    lab.take(1);
    lab.send(1, 3, &normal(2));
    lab.wait(SOON);
    assert!(lab.take(1).is_empty(), "refused");
    assert_eq!(lab.cookies()[0], [2]);
    lab.ask(4, &Message::FlowMod(delete(any())));
    lab.connect_bridge(2, Bridge::Virt);
    lab.wait(2 * REST);
    assert_eq!(own(&lab)[1], switch_name(2));
}

#[test]
fn ports_go_home_soon_after_a_change_in_flight() {
    let mut lab = Lab::gathering(2, &[0, 1], Some(0));
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    lab.ask(2, &Message::FlowMod(delete(any())));
    lab.wait(REST - SOON / 2);
    lab.virt(0).slow = true;
    lab.send(1, 3, &plain(7));
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(0); 2]);
    lab.virt(0).slow = false;
    lab.wait(SOON);
    assert_eq!(own(&lab), homes(2));
}

#[test]
fn a_failed_choice_waits_for_no_reading() {
    let mut lab = Lab::gathering(2, &[0, 0, 1], None);
    lab.wait(SAMPLES);
    lab.edge(1).slow = true;
    lab.send(1, 1, &normal(1));
    lab.wait(ON_THE_WAY);
    lab.disconnect(1);
    lab.run();
    lab.now += SOON;
    lab.core.tick(lab.now);
    let next = lab.core.next_deadline();
    assert!(next.is_none_or(|next| next > lab.now), "it spins");
}

#[test]
fn new_and_moved_ports_join_the_others() {
    let mut lab = Lab::gathering(3, &[0, 0], None);
    lab.ask(1, &normal(1));
    assert_eq!(own(&lab), homes(2));
    let now = lab.now;
    assert_eq!(
        lab.core
            .add_port(port_request(5, &switch_name(2), None), now),
        Ok(5)
    );
    lab.run();
    let elsewhere = move_request(&switch_name(1), "if7", MoveUntil::Done);
    lab.core.begin_move(2, elsewhere, now).unwrap();
    lab.wait(SOON);
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
    assert_eq!(executed_at(&lab), vec![switch_name(0); 3]);
    let refused =
        lab.core
            .begin_executor_change(2, &executor_request(HOME, MoveUntil::Done), lab.now);
    assert_eq!(refused.unwrap_err().code(), "stateful-rules");
    lab.ask(2, &Message::FlowMod(delete(any())));
    lab.wait(2 * REST);
    assert_eq!(own(&lab), homes(3));
}

#[test]
fn after_a_restart_the_ports_stay_together_and_go_home_later() {
    let mut lab = Lab::gathering(2, &[0, 1], None);
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    lab.restart();
    lab.run();
    assert_eq!(executed_at(&lab), vec![switch_name(0); 2]);
    assert_eq!(lab.cookies(), [vec![1], vec![]]);
    lab.ask(2, &Message::FlowMod(delete(any())));
    lab.restart();
    lab.run();
    lab.wait(2 * REST);
    assert_eq!(own(&lab), homes(2));
}

#[test]
fn a_restart_while_the_ports_are_on_their_way_ends_in_a_whole_state() {
    for pause in [0, 50, 150, 400, 700] {
        let mut lab = Lab::gathering(3, &[0, 1, 2], None);
        lab.send(1, 1, &normal(1));
        lab.wait(Duration::from_millis(pause));
        lab.restart();
        lab.wait(3 * REST);
        let together = lab.cookies()[0] == [1];
        let expected = if together {
            vec![switch_name(0); 3]
        } else {
            (0..3).map(switch_name).collect()
        };
        assert_eq!(executed_at(&lab), expected, "after {pause} ms");
    }
}

#[test]
fn meters_gather_the_ports_if_they_are_to() {
    for gathers in [false, true] {
        let mut lab = Lab::gathering_with(3, &[0, 1, 2], Some(2), gathers);
        lab.send(1, 1, &meter(MeterModCommand::Add, 5, 10));
        lab.send(1, 2, &Message::BarrierRequest);
        lab.wait(ON_THE_WAY);
        assert_eq!(lab.take(1).is_empty(), gathers);
        lab.wait(SOON);
        let meters = |lab: &Lab| {
            lab.switches
                .iter()
                .map(|s| s.virt.meters.len())
                .collect::<Vec<_>>()
        };
        if !gathers {
            assert_eq!(own(&lab), homes(3));
            assert_eq!(meters(&lab), [1, 1, 1]);
            continue;
        }
        assert_eq!(executed_at(&lab), vec![switch_name(2); 3]);
        assert_eq!(meters(&lab), [0, 0, 1]);
        let gathered = lab.core.status().gathered.expect("gathered ports");
        assert_eq!(gathered.reason, "meters are shared");
        let home = executor_request(HOME, MoveUntil::Done);
        let refused = lab.core.begin_executor_change(2, &home, lab.now);
        assert_eq!(refused.unwrap_err().code(), "stateful-rules");
        lab.wait(2 * REST);
        assert_eq!(executed_at(&lab), vec![switch_name(2); 3]);
        lab.ask(3, &meter(MeterModCommand::Delete, 5, 0));
        lab.wait(2 * REST);
        assert_eq!(own(&lab), homes(3));
    }
}

#[test]
fn a_meter_that_cannot_be_shared_is_not_refused() {
    let mut lab = Lab::gathering_with(2, &[0, 1], None, true);
    lab.disconnect(1);
    lab.run();
    lab.take(1);
    assert!(lab.ask(1, &meter(MeterModCommand::Add, 5, 10)).is_empty());
    // Once the switch is back, the ports gather.
    lab.connect(1);
    lab.wait(20 * SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(0); 2]);
}

#[test]
fn what_a_controller_has_sent_before_it_left_is_in_force() {
    let mut lab = Lab::gathering(2, &[0, 1], None);
    lab.controller_up(2);
    lab.run();
    lab.send(2, 1, &normal(1));
    lab.send(2, 2, &plain(7));
    lab.wait(ON_THE_WAY);
    lab.controller_down(2);
    lab.wait(SOON);
    assert_eq!(lab.cookies(), [vec![1, 7], vec![]]);
    assert!(lab.core.controller_role(ControllerId(2)).is_none());
}
