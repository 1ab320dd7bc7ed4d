//! Moves through every stage, with what can happen at each.

use crate::build::{add, any, from, move_request, output, packet_out, writes_in_port};
use crate::confirmed::LASTING;
use crate::lab::{switch_name, Lab, GRACE};
use crate::refused::{is_addition, refuse};
use crate::verdicts::cookies;
use oneswitch_core::{Bridge, MoveStage, MoveUntil};
use openflow13::{FlowMod, Message};
use std::collections::BTreeMap;

pub fn homes(places: &[(u32, (usize, u32))]) -> BTreeMap<u32, (usize, u32)> {
    places.iter().copied().collect()
}

pub fn stage(lab: &Lab, number: u32) -> Option<MoveStage> {
    let view = lab.core.ports().into_iter().find(|p| p.number == number);
    view.unwrap().moving.map(|m| m.stage)
}

/// Moves port 2 from switch 1 to where the counters of its old home are awaited from these bridges.
pub fn move_until_counters_are_read(lab: &mut Lab, awaited: &[Bridge]) {
    lab.begin_move(2, 0, 5, MoveUntil::Done);
    lab.run();
    for bridge in awaited {
        lab.bridge(1, *bridge).slow = true;
    }
    lab.wait(2 * GRACE);
    assert_eq!(stage(lab, 2), Some(MoveStage::Quiescing));
}

#[test]
fn what_cannot_be_moved_is_refused_by_name() {
    let mut lab = Lab::new(3, &[0, 1, 1]);
    let begin = |lab: &mut Lab, number: u32, switch: &str, interface: &str| {
        let request = move_request(switch, interface, MoveUntil::Done);
        let begun = lab.core.begin_move(number, request, lab.now);
        begun.map_err(|error| (error.code(), error.to_string()))
    };
    let (hub, snic) = (switch_name(0), switch_name(1));
    for (number, switch, interface, code, said) in [
        (9, &snic[..], "if5", "port-unknown", "port 9"),
        (1, "snic9", "if5", "switch-unknown", "snic9"),
        (1, &snic, "if3", "interface-taken", "carries virtual port 3"),
        (1, &snic, "if77", "interface-missing", "interface if77"),
        (1, &snic, "pf0hpf", "interface-reserved", "pf0hpf of snic0"),
        (1, &hub, "pcie-snic1", "interface-reserved", "pcie-snic1"),
        (1, &hub, "edge", "interface-reserved", "interface edge"),
        (
            1,
            &hub,
            "edge-mc",
            "interface-reserved",
            "interface edge-mc",
        ),
        // The other ends' names mean nothing here.
        (1, &hub, "pf0hpf", "interface-missing", "pf0hpf"),
        (1, &snic, "pcie-snic0", "interface-missing", "pcie-snic0"),
    ] {
        let (told, text) = begin(&mut lab, number, switch, interface).unwrap_err();
        assert_eq!(told, code, "{text}");
        assert!(text.contains(said), "{text}");
    }
    // A patch port of any switch that is connected.
    for (bridge, patch, said) in [(Bridge::Edge, 101, "edge-1"), (Bridge::Virt, 1, "virt-1")] {
        let port = lab.bridge(2, bridge).ports.remove(&patch).unwrap();
        lab.disconnect(2);
        lab.connect(2);
        lab.run();
        let (told, text) = begin(&mut lab, 1, &snic, "if5").unwrap_err();
        assert_eq!(told, "patch-missing");
        assert!(text.contains(said) && text.contains("snic1"), "{text}");
        lab.bridge(2, bridge).ports.insert(patch, port);
        lab.disconnect(2);
        lab.connect(2);
        lab.run();
    }
    for bridge in [Bridge::Edge, Bridge::Virt] {
        lab.disconnect_bridge(1, bridge);
        let (told, text) = begin(&mut lab, 1, &snic, "if5").unwrap_err();
        assert_eq!(
            (told, text),
            ("switch-down", format!("switch {snic} is not connected"))
        );
        lab.connect_bridge(1, bridge);
        lab.run();
    }
    begin(&mut lab, 1, &snic, "if5").unwrap();
    let (told, _) = begin(&mut lab, 1, &snic, "if6").unwrap_err();
    assert_eq!(told, "move-in-progress");
    let removed = lab
        .core
        .remove_port(1, &Default::default(), lab.now)
        .unwrap_err();
    assert_eq!(removed.code(), "move-in-progress");
}

#[test]
fn a_move_goes_from_stage_to_stage_as_told() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    lab.begin_move(2, 0, 5, MoveUntil::Prepared);
    assert_eq!(lab.core.move_outcome(2), None);
    lab.run();
    assert_eq!(
        (stage(&lab, 2), lab.core.move_outcome(2)),
        (Some(MoveStage::Prepared), Some(Ok(())))
    );
    assert_eq!(lab.cookies(), [vec![1], vec![1]]);
    lab.core
        .continue_move(2, MoveUntil::Prepared, lab.now)
        .unwrap();
    assert_eq!(
        lab.core.move_outcome(2),
        Some(Ok(())),
        "it is there already"
    );
    lab.continue_move(2, MoveUntil::Flipped);
    assert_eq!(
        (stage(&lab, 2), lab.core.move_outcome(2)),
        (Some(MoveStage::Flipped), Some(Ok(())))
    );
    assert_eq!(
        lab.core.abort_move(2, lab.now).unwrap_err().code(),
        "move-past-abort"
    );
    lab.core
        .continue_move(2, MoveUntil::Flipped, lab.now)
        .unwrap();
    assert_eq!(
        lab.core.move_outcome(2),
        Some(Ok(())),
        "it is there already"
    );
    lab.core.continue_move(2, MoveUntil::Done, lab.now).unwrap();
    lab.wait(GRACE / 2);
    assert_eq!(
        (stage(&lab, 2), lab.core.move_outcome(2)),
        (Some(MoveStage::Quiescing), None)
    );
    lab.wait(GRACE);
    assert_eq!(
        (stage(&lab, 2), lab.core.move_outcome(2)),
        (None, Some(Ok(())))
    );
    assert_eq!(lab.cookies(), [vec![1], vec![]]);
    lab.check_paths(&homes(&[(1, (0, 1)), (2, (0, 5))]));
}

#[test]
fn a_stage_is_reached_when_every_switch_has_said_so() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    lab.virt(0).slow = true;
    lab.begin_move(2, 0, 5, MoveUntil::Done);
    lab.wait(2 * GRACE);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Preparing));
    lab.virt(0).slow = false;
    lab.edge(1).slow = true;
    lab.wait(2 * GRACE);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Flipping));
    assert_eq!(cookies(lab.virt(1)), [1]);
    lab.edge(1).slow = false;
    lab.wait(GRACE / 2);
    assert_eq!(stage(&lab, 2), Some(MoveStage::Quiescing));
    lab.wait(GRACE);
    assert_eq!(stage(&lab, 2), None);
}

#[test]
fn an_aborted_move_leaves_nothing() {
    let mut lab = Lab::new(2, &[0, 1]);
    let timed = FlowMod {
        idle_timeout: 30,
        ..add(1, from(2), &output(1))
    };
    lab.begin_move(2, 0, 5, MoveUntil::Prepared);
    lab.run();
    // Written while there are two copies, neither has the timer.
    lab.ask(1, &Message::FlowMod(timed));
    lab.core.abort_move(2, lab.now).unwrap();
    lab.run();
    assert_eq!(lab.cookies(), [vec![], vec![1]]);
    assert_eq!(lab.virt(1).flows[0].idle, 30);
    lab.check_paths(&homes(&[(1, (0, 1)), (2, (1, 2))]));
    lab.move_port(2, 0, 5);
    lab.check_paths(&homes(&[(1, (0, 1)), (2, (0, 5))]));
}

#[test]
fn a_home_that_dies_while_prepared_is_not_moved_to() {
    let mut lab = Lab::new(2, &[0, 0]);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    lab.begin_move(2, 1, 5, MoveUntil::Prepared);
    lab.run();
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
    lab.disconnect(1);
    lab.run();
    lab.core.continue_move(2, MoveUntil::Done, lab.now).unwrap();
    lab.wait(LASTING);
    let outcome = lab.core.move_outcome(2).unwrap().unwrap_err();
    assert_eq!(outcome.code(), "move-failed");
    assert_eq!(stage(&lab, 2), None);
    lab.connect(1);
    lab.run();
    assert_eq!(lab.cookies(), [vec![1], vec![]]);
    lab.check_paths(&homes(&[(1, (0, 1)), (2, (0, 2))]));
}

#[test]
fn a_home_that_refuses_the_copies_is_not_moved_to() {
    let mut lab = Lab::new(2, &[0, 0]);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    lab.virt(1).refuse = refuse(usize::MAX, is_addition);
    lab.begin_move(2, 1, 5, MoveUntil::Done);
    lab.wait(2 * GRACE);
    let outcome = lab.core.move_outcome(2).unwrap().unwrap_err();
    assert_eq!(outcome.code(), "move-failed");
    lab.check_paths(&homes(&[(1, (0, 1)), (2, (0, 2))]));
}

#[test]
fn an_old_home_that_dies_does_not_hold_up_the_move_for_long() {
    for stop in [MoveUntil::Prepared, MoveUntil::Flipped] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
        lab.begin_move(2, 0, 5, stop);
        lab.run();
        lab.disconnect(1);
        lab.run();
        lab.core.continue_move(2, MoveUntil::Done, lab.now).unwrap();
        lab.wait(LASTING + 2 * GRACE);
        assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
        lab.connect(1);
        lab.run();
        assert_eq!(lab.cookies(), [vec![1], vec![]]);
        lab.check_paths(&homes(&[(1, (0, 1)), (2, (0, 5))]));
    }
}

#[test]
fn an_old_home_that_dies_while_its_counters_are_read_does_not_hold_up_the_move() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    move_until_counters_are_read(&mut lab, &[Bridge::Virt, Bridge::Edge]);
    lab.disconnect(1);
    lab.wait(LASTING + GRACE);
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
}

#[test]
fn messages_during_a_move_reach_both_homes_and_packets_one() {
    let mut lab = Lab::new(2, &[0, 1]);
    for (cookie, until) in [(1, MoveUntil::Prepared), (2, MoveUntil::Flipped)] {
        if cookie == 1 {
            lab.begin_move(2, 0, 5, until);
        } else {
            lab.core.continue_move(2, until, lab.now).unwrap();
        }
        lab.run();
        let rule = add(cookie, from(2).with_vlan_vid(cookie as u16), &output(1));
        lab.ask(1, &Message::FlowMod(rule));
        assert_eq!(cookies(lab.virt(0)), cookies(lab.virt(1)));
        lab.ask(2, &packet_out(2, output(1)));
    }
    assert_eq!(
        lab.virt(0).packet_outs.len() + lab.virt(1).packet_outs.len(),
        2
    );
    lab.finish_move(2);
    assert_eq!(lab.cookies(), [vec![1, 2], vec![]]);
}

#[test]
fn from_the_flip_on_packets_reach_the_new_interface_of_the_same_switch() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.begin_move(2, 1, 5, MoveUntil::Flipped);
    lab.run();
    // Both interfaces work inward, the new one outward.
    let paths = homes(&[(1, (0, 1)), (2, (1, 5))]);
    lab.check_paths(&paths);
    lab.finish_move(2);
    lab.check_paths(&paths);
}

#[test]
fn several_ports_move_at_once_and_back() {
    let mut lab = Lab::new(3, &[0, 1, 2, 1]);
    for number in 1..=4 {
        lab.send(
            1,
            number,
            &Message::FlowMod(add(number.into(), from(number), &output(1))),
        );
    }
    lab.run();
    for (number, switch) in [(1, 2), (2, 0), (3, 1)] {
        lab.begin_move(number, switch, 5 + number, MoveUntil::Done);
    }
    lab.wait(2 * GRACE);
    for number in 1..=3 {
        assert_eq!(lab.core.move_outcome(number), Some(Ok(())), "{number}");
    }
    lab.check_paths(&homes(&[
        (1, (2, 6)),
        (2, (0, 7)),
        (3, (1, 8)),
        (4, (1, 4)),
    ]));
    assert_eq!(cookies(lab.virt(1)), [3, 4]);
    for (number, switch) in [(1, 0), (2, 1), (3, 2)] {
        lab.begin_move(number, switch, number, MoveUntil::Done);
    }
    lab.wait(2 * GRACE);
    lab.check_paths(&homes(&[
        (1, (0, 1)),
        (2, (1, 2)),
        (3, (2, 3)),
        (4, (1, 4)),
    ]));
}

#[test]
fn floods_reach_a_moving_port_once_at_every_stage() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.begin_move(2, 2, 5, MoveUntil::Prepared);
    lab.run();
    let flood = |lab: &Lab, place| {
        let mut paths = homes(&[(1, (0, 1)), (3, (2, 3))]);
        paths.insert(2, place);
        lab.check_paths(&paths);
    };
    flood(&lab, (1, 2));
    lab.continue_move(2, MoveUntil::Flipped);
    flood(&lab, (2, 5));
    lab.finish_move(2);
    flood(&lab, (2, 5));
}

#[test]
fn rules_go_everywhere_while_in_port_can_change_and_return() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(1, from(1), &output(1))));
    lab.ask(2, &Message::FlowMod(add(2, from(2), &output(1))));
    lab.ask(3, &Message::FlowMod(add(7, any(), &writes_in_port(2))));
    assert_eq!(cookies(lab.virt(0)), [1, 2, 7]);
    assert_eq!(cookies(lab.virt(1)), [1, 2, 7]);
    lab.move_port(2, 0, 5);
    assert_eq!(cookies(lab.virt(0)), [1, 2, 7]);
    assert_eq!(cookies(lab.virt(1)), []);
    lab.move_port(2, 1, 2);
    let gone = FlowMod {
        cookie: 7,
        cookie_mask: u64::MAX,
        ..crate::build::delete(any())
    };
    lab.ask(4, &Message::FlowMod(gone));
    assert_eq!(cookies(lab.virt(0)), [1]);
    assert_eq!(cookies(lab.virt(1)), [2]);
}
