//! Switches that are missing, go and come back, and what was done behind the core's back.

use crate::build::{add, any, from, group, meter, output, packet_out};
use crate::check::{ALL_GROUP, FLOOD_GROUP};
use crate::fake::FakeBridge;
use crate::lab::{Lab, GRACE};
use crate::verdicts::{cookies, refuse_cookie};
use oneswitch_core::{Bridge, BridgeState, LinkKind, MoveUntil};
use openflow13::{
    encode, port_no, ActionList, ErrorCode, FlowMod, FlowModCommand, GroupModCommand, Instructions,
    Message, MeterModCommand,
};
use std::time::Duration;

fn behind_the_back(virt: &mut FakeBridge, message: &Message) {
    virt.handle(&encode(1, message).unwrap());
    assert!(virt.output.is_empty());
}

fn filled() -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &group(GroupModCommand::Add, 5, &[1]));
    lab.ask(2, &meter(MeterModCommand::Add, 6, 100));
    lab.ask(3, &Message::FlowMod(add(1, any(), &output(1))));
    lab.ask(
        4,
        &Message::FlowMod(add(2, from(2), &ActionList::new().group(5))),
    );
    lab
}

#[test]
fn a_switch_missing_at_the_start_gets_everything_when_it_comes() {
    let mut lab = Lab::dark(2, &[0, 1]);
    lab.controller_up(1);
    lab.connect(0);
    for message in [
        group(GroupModCommand::Add, 5, &[1]),
        meter(MeterModCommand::Add, 6, 100),
        Message::FlowMod(add(1, any(), &output(1))),
        Message::FlowMod(add(2, from(2), &ActionList::new().group(5))),
        Message::BarrierRequest,
    ] {
        lab.send(1, 1, &message);
    }
    lab.run();
    assert!(!lab.core.ports()[1].up);
    lab.connect(1);
    lab.run();
    assert!(lab.core.ports()[1].up);
    assert_eq!(cookies(lab.virt(1)), [1, 2]);
    assert!(lab.virt(1).groups.contains_key(&5) && lab.virt(1).meters.contains_key(&6));
}

#[test]
fn a_restarted_switch_gets_only_what_differs() {
    let mut lab = filled();
    lab.disconnect(1);
    lab.run();
    behind_the_back(lab.virt(1), &Message::FlowMod(add(99, from(8), &output(8))));
    lab.virt(1).flows.retain(|f| f.cookie != 1);
    lab.virt(1).accepted = 0;
    lab.edge(1).accepted = 0;
    let edge_flows = lab.edge(1).flows.clone();
    lab.edge(1).flows.pop();
    let foreign = Message::FlowMod(add(98, from(77), &output(8)));
    lab.edge(1).handle(&encode(1, &foreign).unwrap());
    let repairs = lab.core.status().switches[1].repairs;
    lab.connect(1);
    lab.run();
    assert_eq!(cookies(lab.virt(1)), [1, 2]);
    assert_eq!(lab.virt(1).accepted, 2, "one removed, one added");
    assert_eq!(lab.core.status().switches[1].repairs - repairs, 4);
    let sorted = |flows: &[crate::fake::Flow]| {
        let mut keys: Vec<_> = flows.iter().map(|f| (f.table, f.key.clone())).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(sorted(&lab.edge(1).flows), sorted(&edge_flows));
    lab.disconnect(1);
    lab.run();
    let ports = std::mem::take(&mut lab.virt(1).ports);
    *lab.virt(1) = FakeBridge::default();
    lab.virt(1).ports = ports;
    lab.connect(1);
    lab.run();
    assert_eq!(cookies(lab.virt(1)), [1, 2]);
}

/// Shrunk by the random histories, which once took the flood group away without the rules that refer to it. No switch does that, and
/// removing any group then cost such rules.
#[test]
fn rules_that_went_with_their_group_come_back() {
    let mut lab = filled();
    let floods = add(3, any().with_vlan_vid(1), &output(port_no::FLOOD));
    lab.ask(5, &Message::FlowMod(floods));
    lab.disconnect(1);
    lab.ask(6, &group(GroupModCommand::Delete, 5, &[]));
    behind_the_back(
        lab.virt(1),
        &group(GroupModCommand::Delete, FLOOD_GROUP, &[]),
    );
    assert_eq!(cookies(lab.virt(1)), [1, 2]);
    lab.connect(1);
    lab.run();
    assert_eq!(cookies(lab.virt(1)), [1, 3]);
    let groups = lab.virt(1).groups.keys().copied();
    assert_eq!(groups.collect::<Vec<_>>(), [ALL_GROUP, FLOOD_GROUP]);
}

#[test]
fn nothing_waits_for_a_switch_that_goes_down_in_the_middle() {
    let mut lab = filled();
    lab.virt(1).slow = true;
    lab.send(
        1,
        5,
        &Message::FlowMod(add(3, any().with_vlan_vid(3), &output(1))),
    );
    lab.send(1, 6, &Message::BarrierRequest);
    lab.run();
    assert_eq!(lab.take(1), []);
    lab.disconnect(1);
    lab.send(
        1,
        7,
        &Message::FlowMod(add(4, any().with_vlan_vid(4), &output(1))),
    );
    lab.send(1, 8, &Message::BarrierRequest);
    lab.run();
    let barriers = |lab: &mut Lab| -> Vec<u32> {
        let answers = lab.take(1).into_iter();
        answers
            .filter(|(_, m)| matches!(m, Message::BarrierReply))
            .map(|(h, _)| h.xid)
            .collect()
    };
    assert_eq!(barriers(&mut lab), [6, 8]);
    lab.virt(1).slow = false;
    lab.connect(1);
    lab.run();
    assert_eq!(cookies(lab.virt(1)), [1, 2, 3, 4]);
}

#[test]
fn a_message_whose_switches_are_away_is_judged_by_what_is_known() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.disconnect(1);
    lab.run();
    lab.take(1);
    let unknown = openflow13::ActionList::new().group(9);
    let answers = lab.ask(5, &Message::FlowMod(add(3, from(2), &unknown)));
    assert!(
        matches!(&answers[..], [(_, Message::Error(e))] if e.error == ErrorCode::BAD_ACTION_BAD_OUT_GROUP)
    );
    // The same for a switch that goes away before it answers.
    lab.connect(1);
    lab.run();
    lab.take(1);
    let message = Message::FlowMod(add(3, from(2), &unknown));
    lab.send(1, 6, &message);
    lab.flush();
    lab.disconnect(1);
    lab.run();
    let answers = lab.take(1);
    let errors: Vec<_> = answers
        .iter()
        .filter_map(|(h, m)| match m {
            Message::Error(e) => Some((h.xid, e.error, e.data.to_vec())),
            _ => None,
        })
        .collect();
    let frame = encode(6, &message).unwrap();
    assert_eq!(errors, [(6, ErrorCode::BAD_ACTION_BAD_OUT_GROUP, frame)]);
}

#[test]
fn a_bridge_that_cannot_be_mended_is_not_asked_for_ever() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.edge(1).refuse = Some(Box::new(|message| match message {
        Message::Experimenter(_) => Some(ErrorCode::BAD_REQUEST_BAD_EXPERIMENTER),
        _ => None,
    }));
    lab.edge(1).flows.clear();
    lab.disconnect_bridge(1, Bridge::Edge);
    lab.edge(1).connected = true;
    lab.core.switch_up(1, Bridge::Edge, lab.now);
    lab.run();
    let first = lab.core.status().switches[1].repairs;
    lab.wait(Duration::from_secs(10));
    let later = lab.core.status().switches[1].repairs;
    assert!(later > first && later - first < 1000, "{first} {later}");
    lab.edge(1).refuse = None;
    lab.wait(Duration::from_secs(2));
    assert!(!lab.edge(1).flows.is_empty());
}

#[test]
fn one_bridge_of_a_switch_comes_and_goes_alone() {
    let mut lab = filled();
    for bridge in [Bridge::Virt, Bridge::Edge] {
        lab.disconnect_bridge(1, bridge);
        lab.run();
        lab.ask(
            5,
            &Message::FlowMod(add(3, from(2).with_vlan_vid(1), &output(1))),
        );
        lab.bridge(1, bridge).connected = true;
        lab.core.switch_up(1, bridge, lab.now);
        // A second session replaces the first.
        lab.bridge(1, bridge).input.clear();
        lab.core.switch_up(1, bridge, lab.now);
        lab.run();
        assert_eq!(cookies(lab.virt(1)), [1, 2, 3]);
        let status = lab.core.status();
        assert_eq!(
            (status.switches[1].virt, status.switches[1].edge),
            (BridgeState::Up, BridgeState::Up)
        );
    }
    lab.check_paths(&[(1, (0, 1)), (2, (1, 2))].into());
}

#[test]
fn messages_during_a_comparison_are_judged_by_the_switch() {
    let mut lab = filled();
    // An error about a message of the core's own makes it read the bridge again.
    let frame = openflow13::encode_error(0xffff_0000, ErrorCode::BAD_REQUEST_EPERM, &[]);
    lab.core.switch_message(1, Bridge::Virt, &frame, lab.now);
    let unknown = openflow13::ActionList::new().group(9);
    lab.send(1, 5, &Message::FlowMod(add(3, from(2), &unknown)));
    lab.send(
        1,
        6,
        &Message::FlowMod(add(4, from(2).with_vlan_vid(1), &output(1))),
    );
    lab.send(1, 7, &Message::BarrierRequest);
    lab.virt(1).accepted = 0;
    lab.run();
    let xids: Vec<u32> = lab.take(1).iter().map(|(h, _)| h.xid).collect();
    assert_eq!(xids, [5, 7]);
    assert_eq!(cookies(lab.virt(1)), [1, 2, 4]);
    assert_eq!(lab.virt(1).accepted, 1, "nothing is written twice");
}

/// Both switches hold different rules of one key when a message comes that only one of them is meant by.
#[test]
fn a_message_during_a_comparison_does_not_hide_what_is_wrong() {
    for command in [FlowModCommand::Delete, FlowModCommand::Modify] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.virt(0).refuse = Some(refuse_cookie(66, ErrorCode::FLOW_MOD_FAILED_TABLE_FULL));
        lab.send(1, 1, &Message::FlowMod(add(3, any(), &output(1))));
        lab.send(1, 2, &Message::FlowMod(add(66, any(), &output(2))));
        lab.round();
        let message = FlowMod {
            command,
            cookie_mask: u64::MAX,
            ..add(3, any(), &output(4))
        };
        lab.send(1, 3, &Message::FlowMod(message));
        lab.run();
        lab.wait(Duration::from_secs(3));
        assert_eq!(lab.switches[1].virt.flows, lab.switches[0].virt.flows);
        assert_eq!(lab.core.status().flows, lab.virt(0).flows.len());
    }
}

#[test]
fn hard_timeouts_go_on_where_a_switch_restarts() {
    let mut lab = Lab::new(2, &[0, 1]);
    let rule = FlowMod {
        hard_timeout: 100,
        ..add(1, from(2), &output(1))
    };
    lab.ask(1, &Message::FlowMod(rule));
    lab.disconnect(1);
    lab.virt(1).flows.clear();
    lab.now += Duration::from_secs(40);
    lab.connect(1);
    lab.run();
    assert_eq!(lab.virt(1).flows[0].hard, 60);
}

/// A rule with a meter that does not exist.
fn unmetered(rule: FlowMod) -> FlowMod {
    let meter = [0, 6, 0, 8, 0, 0, 0, 1];
    let bytes = [&meter, rule.instructions.as_bytes()].concat();
    FlowMod {
        instructions: Instructions::from_bytes(bytes).unwrap(),
        ..rule
    }
}

/// Three switches that are compared as often as they may be within a second; rule 2 is still on the switch that was to refuse it.
fn with_a_repair_put_off() -> Lab {
    let mut lab = Lab::over(&[LinkKind::Pcie; 2], &[0, 1, 2, 1]);
    lab.now += GRACE;
    lab.send(1, 1, &packet_out(1, ActionList::new().group(1)));
    lab.begin_move(4, 2, 4, MoveUntil::Prepared);
    lab.run();
    lab.core.abort_move(4, lab.now).unwrap();
    lab.send(
        1,
        2,
        &Message::FlowMod(unmetered(add(1, any(), &output(1)))),
    );
    let checked = FlowMod {
        flags: FlowMod::CHECK_OVERLAP,
        ..add(2, from(2), &output(1))
    };
    lab.send(1, 3, &Message::FlowMod(checked));
    lab.run();
    assert_eq!(lab.cookies(), [vec![2], vec![], vec![]]);
    lab
}

#[test]
fn a_repair_that_was_put_off_comes_with_a_restart_or_with_time() {
    let mut lab = with_a_repair_put_off();
    lab.restart_at_rest();
    assert_eq!(lab.cookies(), [vec![], vec![2], vec![]]);
    lab.restart_at_rest();
    let mut lab = with_a_repair_put_off();
    lab.wait(2 * GRACE);
    assert_eq!(lab.cookies(), [vec![], vec![2], vec![]]);
}
