//! Ports, their configuration and state, packet-ins and packet-outs.

use crate::build::{add, failover, from, output, packet_out, port_request, writes_in_port};
use crate::confirmed::LASTING;
use crate::lab::{port, Answer, Lab};
use crate::verdicts::cookies;
use oneswitch_core::{Bridge, Claim, MoveUntil, PortError, PortRequest};
use openflow13::{
    config, encode, port_no, state, ActionList, ErrorCode, Message, PacketIn, PacketOut, PortMod,
    PortStatus,
};

fn port_mod(number: u32, config: u32, mask: u32) -> Message {
    Message::PortMod(PortMod {
        port: number,
        hw_addr: port(number, "").hw_addr,
        config,
        mask,
        advertise: 0,
    })
}

fn interface_changed(
    lab: &mut Lab,
    switch: usize,
    bridge: Bridge,
    reason: u8,
    port: openflow13::Port,
) {
    let ports = &mut lab.bridge(switch, bridge).ports;
    match reason {
        PortStatus::DELETE => drop(ports.remove(&port.number)),
        _ => drop(ports.insert(port.number, port)),
    }
    let status = Message::PortStatus(PortStatus { reason, port });
    let frame = encode(0, &status).unwrap();
    lab.core.switch_message(switch, bridge, &frame, lab.now);
    lab.run();
}

/// Number, reason, and whether the link is up, of each port_status.
fn told(answers: &[Answer]) -> Vec<(u32, u8, bool)> {
    answers
        .iter()
        .map(|(_, message)| match message {
            Message::PortStatus(s) => (
                s.port.number,
                s.reason,
                s.port.state & state::LINK_DOWN == 0,
            ),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_port_goes_down_and_up_again_on_its_interface_and_all_patch_ports() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_up(2);
    lab.ask(1, &failover(9, &[2, 1]));
    for (config, mask) in [(config::ALL, config::ALL), (0, config::ALL)] {
        assert_eq!(
            lab.ask(1, &port_mod(2, config, mask)),
            [],
            "not to the sender"
        );
        let others: Vec<u32> = lab
            .take(2)
            .iter()
            .map(|(_, m)| match m {
                Message::PortStatus(s) => s.port.config,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(others, [config]);
        assert_eq!(lab.edge(1).ports[&2].config, config & config::PORT_DOWN);
        for switch in [0, 1] {
            let virt = &lab.virt(switch);
            assert_eq!(virt.ports[&2].config, config & !config::PORT_DOWN);
            assert_eq!(virt.is_live(2), config == 0);
            assert!(virt.is_live(1));
        }
    }
}

#[test]
fn a_patch_port_and_an_interface_made_anew_get_their_configuration() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(
        1,
        &port_mod(2, config::PORT_DOWN | config::NO_RECV, config::ALL),
    );
    interface_changed(
        &mut lab,
        0,
        Bridge::Virt,
        PortStatus::ADD,
        port(2, "virt-2"),
    );
    assert_eq!(lab.virt(0).ports[&2].config, config::NO_RECV);
    lab.disconnect(1);
    lab.run();
    lab.edge(1).ports.insert(2, port(2, "if2"));
    lab.virt(1).ports.insert(2, port(2, "virt-2"));
    lab.connect(1);
    lab.run();
    assert_eq!(lab.edge(1).ports[&2].config, config::PORT_DOWN);
    assert_eq!(lab.virt(1).ports[&2].config, config::NO_RECV);
}

#[test]
fn a_flood_does_not_get_around_a_ports_configuration() {
    let mut lab = Lab::new(2, &[0, 1, 1]);
    let flooded = |lab: &mut Lab| -> Vec<u32> {
        let (_, buckets) = &lab.virt(0).groups[&crate::check::FLOOD_GROUP];
        let actions = buckets.iter().flat_map(|b| b.actions.iter());
        actions
            .filter_map(|item| match item.action {
                openflow13::Action::Output { port, .. } => Some(port),
                _ => None,
            })
            .collect()
    };
    assert_eq!(flooded(&mut lab), [1, 0xfe00]);
    lab.ask(1, &port_mod(2, config::NO_FWD, config::ALL));
    assert_eq!(
        flooded(&mut lab),
        [1, 2, 0xfe00],
        "by its patch port, which drops it"
    );
    lab.ask(1, &port_mod(2, 0, config::ALL));
    assert_eq!(flooded(&mut lab), [1, 0xfe00]);
}

#[test]
fn floods_settle_however_fast_the_ports_change() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    for round in 0..20 {
        let down = if round % 2 == 0 { config::NO_FWD } else { 0 };
        lab.send(1, round, &port_mod(1 + round % 3, down, config::ALL));
        if round % 7 == 0 {
            lab.round();
        }
    }
    (1..=3).for_each(|n| lab.send(1, 30, &port_mod(n, 0, config::ALL)));
    lab.run();
    lab.check_paths(&[(1, (0, 1)), (2, (1, 2)), (3, (2, 3))].into());
}

#[test]
fn what_is_wrong_with_a_port_mod() {
    let mut lab = Lab::new(1, &[0]);
    let wrong_mac = Message::PortMod(PortMod {
        port: 1,
        hw_addr: [9; 6],
        config: 0,
        mask: 0,
        advertise: 0,
    });
    for (message, error) in [
        (port_mod(7, 0, 0), ErrorCode::PORT_MOD_FAILED_BAD_PORT),
        (wrong_mac, ErrorCode::PORT_MOD_FAILED_BAD_HW_ADDR),
    ] {
        let answers = lab.ask(3, &message);
        assert!(matches!(&answers[..], [(h, Message::Error(e))] if h.xid == 3 && e.error == error));
    }
}

#[test]
fn ports_come_and_go_with_their_switch_and_link() {
    let mut lab = Lab::dark(2, &[0, 1]);
    lab.controller_up(1);
    lab.connect(0);
    lab.run();
    let first = [
        (1, PortStatus::ADD, false),
        (2, PortStatus::ADD, false),
        (1, PortStatus::MODIFY, true),
    ];
    assert_eq!(told(&lab.take(1)), first);
    lab.connect(1);
    lab.run();
    assert_eq!(told(&lab.take(1)), [(2, PortStatus::MODIFY, true)]);
    lab.ask(1, &failover(9, &[2]));
    assert!(lab.virt(0).is_live(2));
    let dead = openflow13::Port {
        state: state::LINK_DOWN,
        ..port(2, "if2")
    };
    interface_changed(&mut lab, 1, Bridge::Edge, PortStatus::MODIFY, dead);
    assert_eq!(told(&lab.take(1)), [(2, PortStatus::MODIFY, false)]);
    assert!(!lab.virt(0).is_live(2));
    interface_changed(
        &mut lab,
        1,
        Bridge::Edge,
        PortStatus::MODIFY,
        port(2, "if2"),
    );
    assert_eq!(told(&lab.take(1)), [(2, PortStatus::MODIFY, true)]);
    assert!(lab.virt(0).is_live(2));
    interface_changed(
        &mut lab,
        1,
        Bridge::Edge,
        PortStatus::DELETE,
        port(2, "if2"),
    );
    assert_eq!(told(&lab.take(1)), [(2, PortStatus::MODIFY, false)]);
    assert_eq!(
        lab.core.ports()[1].reason.as_deref(),
        Some("interface if2 is not on bridge edge of snic0")
    );
}

#[test]
fn ports_are_added_and_removed_under_rules_that_name_them() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(5, from(5), &output(5))));
    let request = PortRequest {
        owner: Some("me".into()),
        ..port_request(5, "snic0", None)
    };
    assert_eq!(lab.core.add_port(request.clone(), lab.now), Ok(5));
    lab.run();
    assert_eq!(told(&lab.take(1)), [(5, PortStatus::ADD, true)]);
    assert_eq!((lab.virt(0).flows.len(), lab.virt(1).flows.len()), (0, 1));
    lab.check_paths(&[(1, (0, 1)), (2, (1, 2)), (5, (1, 5))].into());
    let taken = lab.core.add_port(request, lab.now).unwrap_err();
    assert_eq!(taken.code(), "port-number-taken");
    assert_eq!(
        lab.core.port_configs()[2].owner.as_deref(),
        Some("me"),
        "for the daemon to save"
    );
    let owned = lab.core.remove_port(5, &Claim::default(), lab.now);
    assert_eq!(owned.unwrap_err().code(), "port-owned");
    let mine = Claim {
        owner: Some("me".into()),
        force: false,
    };
    lab.core.remove_port(5, &mine, lab.now).unwrap();
    lab.run();
    assert_eq!(told(&lab.take(1)), [(5, PortStatus::DELETE, true)]);
    assert_eq!((lab.virt(0).flows.len(), lab.virt(1).flows.len()), (1, 0));
    assert_eq!(
        lab.core.remove_port(5, &Default::default(), lab.now),
        Err(PortError::PortUnknown(5))
    );
    lab.check_paths(&[(1, (0, 1)), (2, (1, 2))].into());
}

/// For each of `ports`, writes it to in_port and looks the packet up.
fn look_up_as(ports: &[u8]) -> ActionList {
    let mut bytes = Vec::new();
    for port in ports {
        bytes.extend(writes_in_port(*port).as_bytes());
        bytes.extend(output(port_no::TABLE).as_bytes());
    }
    ActionList::from_bytes(bytes).unwrap()
}

#[test]
fn a_packet_out_that_sets_its_port_runs_where_the_rules_of_that_port_are() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    for in_port in [1, port_no::CONTROLLER] {
        lab.ask(1, &packet_out(in_port, look_up_as(&[2])));
        assert_eq!(std::mem::take(&mut lab.virt(1).packet_outs).len(), 1);
    }
    lab.ask(2, &packet_out(3, look_up_as(&[])));
    assert_eq!(lab.virt(2).packet_outs.len(), 1);
}

#[test]
fn a_packet_out_that_is_looked_up_as_several_ports_finds_the_rules_of_all() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    for port in 1..=3 {
        lab.ask(
            1,
            &Message::FlowMod(add(port.into(), from(port), &output(1))),
        );
    }
    lab.virt(0).slow = true;
    lab.send(1, 2, &packet_out(1, look_up_as(&[2, 3])));
    lab.run();
    let kinds: Vec<u8> = lab.virt(0).input.iter().map(|frame| frame[1]).collect();
    let (rule, packet) = (openflow13::kind::FLOW_MOD, openflow13::kind::PACKET_OUT);
    assert_eq!(kinds[..3], [rule, rule, packet]);
    lab.virt(0).slow = false;
    lab.run();
    assert_eq!(lab.virt(0).packet_outs.len(), 1);
    let there: Vec<_> = (0..3).map(|s| cookies(lab.virt(s))).collect();
    assert_eq!(there, [[1], [2], [3]]);
}

#[test]
fn rules_are_copied_only_for_lookups_that_no_switch_has_the_rules_for() {
    let parts = |parts: &[&ActionList]| {
        let bytes: Vec<u8> = parts.iter().flat_map(|p| p.as_bytes().to_vec()).collect();
        ActionList::from_bytes(bytes).unwrap()
    };
    let mut partial = writes_in_port(2).as_bytes().to_vec();
    partial[11] = 7; // of the port's 16 bits
    let partial = ActionList::from_bytes(partial).unwrap();
    let lookup = output(port_no::TABLE);
    for (actions, at, copies) in [
        (parts(&[&writes_in_port(2)]), 2, 0),
        (parts(&[&partial]), 2, 0),
        (look_up_as(&[2]), 1, 0),
        (parts(&[&lookup, &writes_in_port(3), &lookup]), 2, 0),
        (look_up_as(&[2, 3]), 2, 2),
        (parts(&[&partial, &lookup]), 2, 2),
        (parts(&[&lookup, &partial, &lookup]), 2, 2),
    ] {
        let mut lab = Lab::new(3, &[0, 1, 2]);
        for port in 1..=3 {
            lab.ask(
                1,
                &Message::FlowMod(add(port.into(), from(port), &output(1))),
            );
        }
        lab.virt(at).slow = true;
        lab.send(1, 2, &packet_out(3, actions.clone()));
        lab.run();
        let frames = lab.virt(at).input.iter();
        let rules = frames.filter(|f| f[1] == openflow13::kind::FLOW_MOD);
        assert_eq!(rules.count(), copies, "{actions:?}");
        lab.virt(at).slow = false;
        lab.run();
        assert_eq!(lab.virt(at).packet_outs.len(), 1, "{actions:?}");
        assert_eq!(lab.cookies(), [[1], [2], [3]]);
    }
}

/// The length of an action that loads in_port.
const LOAD: usize = 24;

/// The in_port of a packet-out, which its first action sets if it is a virtual port.
fn entered_at(sent: &PacketOut) -> u32 {
    match sent.in_port {
        port_no::ANY => {
            let load = &sent.actions.as_bytes()[..LOAD];
            u32::from_be_bytes(load[LOAD - 4..].try_into().unwrap())
        }
        port => port,
    }
}

#[test]
fn a_packet_out_runs_where_its_port_is() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    for in_port in [1, 2, 3, 8, port_no::CONTROLLER] {
        lab.send(1, in_port, &packet_out(in_port, output(1)));
    }
    lab.send(1, 9, &packet_out(3, output(port_no::FLOOD)));
    lab.run();
    assert_eq!(lab.take(1), []);
    let ports =
        |lab: &mut Lab, s| -> Vec<u32> { lab.virt(s).packet_outs.iter().map(entered_at).collect() };
    assert_eq!(ports(&mut lab, 0), [1, 8, port_no::CONTROLLER]);
    assert_eq!(ports(&mut lab, 1), [2]);
    assert_eq!(ports(&mut lab, 2), [3, 3]);
    let flood = lab.virt(2).packet_outs[1].actions.as_bytes();
    let group = ActionList::new().group(crate::check::FLOOD_GROUP);
    assert_eq!(flood[LOAD..], *group.as_bytes());
    lab.disconnect(1);
    lab.run();
    lab.take(1);
    let answers = lab.ask(4, &packet_out(2, output(1)));
    assert!(matches!(&answers[..], [(_, Message::Error(_))]));
}

#[test]
fn a_packet_in_goes_to_those_who_want_it_as_it_came() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_up(2);
    lab.controller_up(3);
    let masks = openflow13::AsyncMasks {
        packet_in: [0, 0],
        port_status: [7, 7],
        flow_removed: [15, 15],
        ..openflow13::AsyncMasks::NONE
    };
    lab.send(3, 1, &Message::SetAsync(masks));
    let packet_in = Message::PacketIn(PacketIn {
        buffer_id: openflow13::NO_BUFFER,
        total_len: 60,
        reason: PacketIn::ACTION,
        table_id: 3,
        cookie: 0xdead,
        matching: from(2),
        data: vec![0xcd; 60].into(),
    });
    let frame = encode(0x1234, &packet_in).unwrap();
    lab.core.switch_message(1, Bridge::Virt, &frame, lab.now);
    lab.core.switch_message(1, Bridge::Edge, &frame, lab.now);
    lab.run();
    let mut wanted = frame.clone();
    openflow13::set_xid(&mut wanted, 0);
    assert_eq!(lab.take_raw(1), [wanted.clone()]);
    assert_eq!(lab.take_raw(2), [wanted]);
    assert!(lab.take_raw(3).is_empty());
    let invalid = PacketIn {
        reason: PacketIn::INVALID_TTL,
        ..match packet_in {
            Message::PacketIn(p) => p,
            _ => unreachable!(),
        }
    };
    let frame = encode(1, &Message::PacketIn(invalid)).unwrap();
    lab.core.switch_message(0, Bridge::Virt, &frame, lab.now);
    lab.run();
    assert!(lab.take_raw(1).is_empty(), "nobody asked for these");
}

#[test]
fn what_a_rounds_end_sends_is_covered_by_a_barrier() {
    let mut lab = Lab::new(2, &[0, 0]);
    // Without an edge, nothing is waited for before the senders of floods are told.
    (0..2).for_each(|s| lab.disconnect_bridge(s, Bridge::Edge));
    lab.wait(LASTING);
    lab.core
        .remove_port(2, &Default::default(), lab.now)
        .unwrap();
    lab.flush();
    let kinds: Vec<u8> = lab.virt(0).input.iter().map(|frame| frame[1]).collect();
    assert_eq!(
        kinds,
        [
            openflow13::kind::GROUP_MOD,
            openflow13::kind::GROUP_MOD,
            openflow13::kind::BARRIER_REQUEST
        ]
    );
}

/// Open vSwitch says that a link is up, and a moment later that the port is live.
#[test]
fn a_move_to_an_interface_that_is_live_a_moment_later_is_not_told() {
    let mut lab = Lab::new(2, &[0, 1]);
    let change = |lab: &mut Lab, switch: usize, interface: u32, bits: u32| {
        let mut port = lab.edge(switch).ports[&interface];
        port.state = bits;
        interface_changed(lab, switch, Bridge::Edge, PortStatus::MODIFY, port);
        lab.take(1)
            .into_iter()
            .map(|(_, message)| match message {
                Message::PortStatus(s) => (s.port.number, s.port.state),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(change(&mut lab, 1, 2, state::LIVE), [(2, state::LIVE)]);
    lab.begin_move(2, 0, 5, MoveUntil::Flipped);
    lab.run();
    assert_eq!(lab.take(1), []);
    assert_eq!(change(&mut lab, 0, 1, state::LIVE), [(1, state::LIVE)]);
    lab.finish_move(2);
    assert_eq!(lab.take(1), []);
    assert_eq!(change(&mut lab, 0, 5, state::LIVE), []);
    assert_eq!(change(&mut lab, 0, 5, 0), [(2, 0)]);
    assert_eq!(
        change(&mut lab, 0, 5, state::LINK_DOWN),
        [(2, state::LINK_DOWN)]
    );
}
