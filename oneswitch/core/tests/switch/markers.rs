//! Frames down the paths to the interface that a moving port leaves.

use crate::lab::{switch_name, Lab, PCIE};
use oneswitch_core::{Bridge, Claim, MarkersRequest, MarkersSent, MoveUntil, PortError};
use openflow13::{Action, ActionList};

const TO: u32 = 5;

/// Sends as many frames as there can be paths, for a port that moves to `TO` of a switch.
fn send(
    lab: &mut Lab,
    number: u32,
    to: usize,
    frames: usize,
    dead: Option<usize>,
) -> Result<MarkersSent, PortError> {
    let request = MarkersRequest {
        switch: switch_name(to),
        interface: format!("if{TO}"),
        owner: None,
        frames: (0..frames).map(|n| [n as u8; 64].into()).collect(),
    };
    let dead = |switch| dead == Some(switch);
    lab.core.send_markers(number, request, dead)
}

fn code(sent: Result<MarkersSent, PortError>) -> &'static str {
    sent.unwrap_err().code()
}

/// Where each frame left, with the flow-id that it carries: (frame, switch, port, flow-id).
fn left(lab: &mut Lab) -> Vec<(u8, usize, u32, Option<u32>)> {
    let mut found = Vec::new();
    for switch in 0..lab.switches.len() {
        for out in std::mem::take(&mut lab.edge(switch).packet_outs) {
            let actions = out.actions.as_actions();
            let (mut port, mut flow_id) = (None, None);
            for step in actions.iter() {
                match step.action {
                    Action::Output { port: to, .. } => port = Some(to),
                    Action::PushVlan(_) => flow_id = Some(0),
                    _ => {}
                }
            }
            let id = lab.core.ports()[1].flow_id;
            let tagged = tagged(id, port.unwrap());
            if flow_id.is_some() {
                assert_eq!(out.actions.as_bytes(), tagged.as_bytes());
                flow_id = Some(id);
            }
            found.push((out.data[0], switch, port.unwrap(), flow_id));
        }
    }
    found.sort_unstable();
    found
}

fn tagged(flow_id: u32, port: u32) -> ActionList {
    ActionList::default()
        .push_vlan(0x8100)
        .set_vlan_vid(flow_id as u16)
        .output(port, 0)
}

#[test]
fn a_frame_goes_down_each_path_to_the_old_interface() {
    // Old home, new home, and the sender, frame and port of each marker.
    for (old, new, expected) in [
        (0, 1, vec![(0, 0, 2, false), (1, 1, PCIE, true)]),
        (1, 0, vec![(0, 1, 2, false), (1, 0, PCIE + 1, true)]),
        (1, 1, vec![(0, 1, 2, false), (1, 0, PCIE + 1, true)]),
        (
            1,
            2,
            vec![(0, 1, 2, false), (1, 0, PCIE + 1, true), (2, 2, PCIE, true)],
        ),
    ] {
        for until in [MoveUntil::Prepared, MoveUntil::Flipped] {
            let mut lab = Lab::new(3, &[0, old]);
            lab.begin_move(2, new, TO, until);
            lab.run();
            let id = lab.core.ports()[1].flow_id;
            let sent = send(&mut lab, 2, new, 3, None).unwrap();
            assert!(lab.core.silent_about(&sent).is_some());
            lab.run();
            assert_eq!(lab.core.silent_about(&sent), None);
            let expected: Vec<_> = expected
                .iter()
                .map(|(frame, switch, port, tag)| (*frame, *switch, *port, tag.then_some(id)))
                .collect();
            assert_eq!(left(&mut lab), expected, "{old} to {new}, {until:?}");
            let from: Vec<_> = expected.iter().map(|e| switch_name(e.1)).collect();
            assert_eq!(sent.from, from);
            let moving = lab.core.ports()[1].moving.clone();
            assert_eq!(moving.unwrap().old_paths, from, "told beforehand");
        }
    }
}

#[test]
fn a_switch_is_silent_until_it_confirms_or_disconnects() {
    let mut lab = Lab::new(2, &[0, 0]);
    lab.begin_move(2, 1, TO, MoveUntil::Flipped);
    lab.run();
    lab.bridge(1, Bridge::Edge).slow = true;
    let sent = send(&mut lab, 2, 1, 2, None).unwrap();
    lab.run();
    assert_eq!(lab.core.silent_about(&sent), Some(switch_name(1)));
    lab.disconnect(1);
    assert_eq!(lab.core.silent_about(&sent), None);
    assert_eq!(code(send(&mut lab, 2, 1, 2, None)), "switch-down");
    assert_eq!(left(&mut lab).len(), 1, "a refused request sends nothing");
    let sent = send(&mut lab, 2, 1, 1, Some(1)).unwrap();
    assert_eq!(
        sent.from,
        [switch_name(0)],
        "what a dead switch had is lost anyway"
    );
}

#[test]
fn only_the_owner_of_a_moving_port_sends_frames_there() {
    let mut lab = Lab::new(2, &[0, 0]);
    let claim = Claim {
        owner: Some("nf".into()),
        force: false,
    };
    assert_eq!(code(send(&mut lab, 9, 1, 3, None)), "port-unknown");
    assert_eq!(code(send(&mut lab, 2, 1, 3, None)), "no-move");
    lab.begin_move(2, 0, TO, MoveUntil::Flipped);
    lab.run();
    assert_eq!(code(send(&mut lab, 2, 1, 3, None)), "no-move", "not there");
    assert_eq!(code(send(&mut lab, 2, 0, 0, None)), "markers-missing");
    lab.core.give_port(2, claim).unwrap();
    assert_eq!(code(send(&mut lab, 2, 0, 3, None)), "port-owned");
    lab.run();
    assert_eq!(left(&mut lab), []);
    lab.begin_executor_change(1, Some(1), MoveUntil::Prepared);
    lab.run();
    let request = MarkersRequest {
        switch: switch_name(0),
        interface: "if1".into(),
        owner: None,
        frames: vec![[0; 64].into()],
    };
    let refused = lab.core.send_markers(1, request, |_| false);
    assert_eq!(code(refused), "no-move", "its interface stays");
}

#[test]
fn an_old_interface_that_has_gone_is_named() {
    let mut lab = Lab::new(2, &[0, 0]);
    lab.begin_move(2, 1, TO, MoveUntil::Flipped);
    lab.run();
    lab.edge(0).ports.remove(&2);
    lab.disconnect(0);
    lab.connect(0);
    lab.run();
    let refused = send(&mut lab, 2, 1, 2, None).unwrap_err();
    assert_eq!(refused.code(), "interface-missing");
    assert!(refused.to_string().contains("if2"), "{refused}");
}
