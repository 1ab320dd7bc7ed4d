//! The features that only OpenFlow 1.0 has: switches get them over connections of that version.

use crate::build::{add, any, output, request};
use crate::check::{ALL_GROUP, FLOOD_GROUP};
use crate::lab::{port, Answer, Lab};
use openflow13::openflow10::{self, encode_barrier, encode_port_mod, kind, Formats, Request};
use openflow13::{
    config, port_no, Action, ActionList, ErrorCode, Instructions, Message, MultipartReply,
    MultipartRequest, PortMod,
};
use std::collections::BTreeMap;
use std::time::Duration;

const OLD: u64 = 15;
/// `OFPT_VENDOR`.
const VENDOR: u8 = 4;
const FLAGS: u32 = config::NO_FLOOD | config::NO_RECV_STP;

/// The flags at each switch's patch ports.
type Patches = BTreeMap<(usize, u32), u32>;

fn port_mod(number: u32, config: u32) -> Vec<u8> {
    let message = PortMod {
        port: number,
        hw_addr: port(number, "").hw_addr,
        config,
        mask: FLAGS,
        advertise: 0,
    };
    encode_port_mod(7, &message)
}

/// Two switches with a port each, and a controller of OpenFlow 1.0.
fn lab(links: &[usize]) -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(OLD, openflow10::VERSION);
    for switch in links {
        lab.core.version10_up(*switch, lab.now);
    }
    lab
}

/// The switches answer what they got over OpenFlow 1.0; returns the number of port-mods.
fn answer(lab: &mut Lab, patches: &mut Patches) -> usize {
    let mut port_mods = 0;
    loop {
        lab.run();
        if lab.version10.is_empty() {
            return port_mods;
        }
        for (switch, frame) in std::mem::take(&mut lab.version10) {
            let mut reply = vec![1, 0, 0, 0];
            reply.extend(&frame[4..8]);
            match frame[1] {
                kind::STATS_REQUEST => {
                    reply[1] = kind::STATS_REPLY;
                    reply.extend([0, 13, 0, 0]);
                    for number in [1u32, 2] {
                        reply.extend((number as u16).to_be_bytes());
                        reply.extend(port(number, "").hw_addr);
                        reply.extend([0; 16]);
                        let has = patches.get(&(switch, number)).copied();
                        reply.extend(has.unwrap_or_default().to_be_bytes());
                        reply.extend([0; 20]);
                    }
                }
                kind::PORT_MOD => {
                    port_mods += 1;
                    let number = u32::from(frame[9]);
                    assert_eq!(frame[23], FLAGS as u8, "the mask");
                    patches.insert((switch, number), u32::from(frame[19]));
                    continue;
                }
                kind::BARRIER_REQUEST => reply[1] = kind::BARRIER_REPLY,
                VENDOR => {
                    rewrite(lab, switch, &frame);
                    continue;
                }
                other => panic!("a message of type {other}"),
            }
            let length = reply.len() as u16;
            reply[2..4].copy_from_slice(&length.to_be_bytes());
            lab.core.version10_told(switch, &reply, lab.now);
        }
    }
}

/// A switch does what a message of Nicira's says.
fn rewrite(lab: &mut Lab, switch: usize, frame: &[u8]) {
    let formats = Formats {
        table_id: true,
        ..Formats::default()
    };
    let (request, _) = openflow10::decode(frame, &formats).unwrap();
    let Request::Modify(modify) = request else {
        return assert_eq!(request, Request::Formats(formats));
    };
    let message = modify.flow_mod;
    let key = message.matching.canonical().unwrap();
    for flow in &mut lab.virt(switch).flows {
        let place = (flow.table, flow.priority, flow.cookie);
        if flow.key == key && place == (message.table_id, message.priority, message.cookie) {
            flow.instructions = message.instructions.clone();
        }
    }
}

fn kinds(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().map(|frame| frame[1]).collect()
}

#[test]
fn a_controller_waits_until_all_switches_have_the_flags() {
    let mut lab = lab(&[0, 1]);
    let mut patches = Patches::new();
    lab.ask(1, &Message::FlowMod(add(1, any(), &output(port_no::FLOOD))));
    lab.send_raw(OLD, &port_mod(2, FLAGS));
    lab.send_raw(OLD, &encode_barrier(8));
    lab.run();
    assert_eq!(kinds(&lab.take_raw(OLD)), [] as [u8; 0]);
    assert_eq!(answer(&mut lab, &mut patches), 2);
    assert_eq!(patches, [((0, 2), FLAGS), ((1, 2), FLAGS)].into());
    assert_eq!(kinds(&lab.take_raw(OLD)), [kind::BARRIER_REPLY]);
    for from in [0, 1] {
        let sent = |group| lab.sent_by(group, from, 0, &[]);
        assert_eq!(sent(FLOOD_GROUP), [(0, 1)]);
        assert_eq!(sent(ALL_GROUP), [(0, 1), (1, 2)]);
    }
    // Others neither see nor change them.
    let ports = |answers: &[Answer]| match &answers[0].1 {
        Message::MultipartReply(reply) => match &reply.body {
            MultipartReply::PortDesc(ports) => ports.iter().map(|p| p.config).sum::<u32>(),
            _ => panic!(),
        },
        _ => panic!(),
    };
    assert_eq!(ports(&lab.ask(3, &request(MultipartRequest::PortDesc))), 0);
    // Nothing to tell: no switch is asked again.
    lab.send_raw(OLD, &port_mod(2, FLAGS));
    lab.run();
    assert!(lab.version10.is_empty());
    lab.send_raw(OLD, &port_mod(2, 0));
    assert_eq!(answer(&mut lab, &mut patches), 2);
    assert_eq!(patches, [((0, 2), 0), ((1, 2), 0)].into());
    assert_eq!(lab.sent_by(FLOOD_GROUP, 0, 0, &[]), [(0, 1), (1, 2)]);
}

#[test]
fn a_switch_without_such_a_connection_makes_it_refused() {
    let mut lab = lab(&[0]);
    lab.send_raw(OLD, &port_mod(2, config::NO_FLOOD));
    lab.send_raw(OLD, &encode_barrier(8));
    lab.run();
    assert_eq!(kinds(&lab.take_raw(OLD)), [] as [u8; 0]);
    lab.wait(Duration::from_secs(2));
    let told = lab.take_raw(OLD);
    assert_eq!(kinds(&told), [1, kind::BARRIER_REPLY]);
    assert_eq!(told[0][8..12], [0, 1, 0, 5], "EPERM");
    assert_eq!(lab.sent_by(FLOOD_GROUP, 0, 0, &[]), [(0, 1), (1, 2)]);
    // Other bits need no connection.
    lab.send_raw(OLD, &port_mod(2, 0));
    lab.run();
    assert!(lab.take_raw(OLD).is_empty());
}

#[test]
fn a_switch_that_comes_back_gets_them_again_also_after_a_restart() {
    let mut lab = lab(&[0, 1]);
    let mut patches = Patches::new();
    lab.send_raw(OLD, &port_mod(1, config::NO_FLOOD));
    answer(&mut lab, &mut patches);
    let wanted = patches.clone();
    // The connection breaks: what the switch has is read again.
    lab.core.version10_down(1, lab.now);
    lab.core.version10_up(1, lab.now);
    assert_eq!(answer(&mut lab, &mut patches), 0);
    // A switch that has lost its state.
    lab.disconnect(1);
    patches.remove(&(1, 1));
    lab.connect(1);
    assert_eq!(answer(&mut lab, &mut patches), 1);
    assert_eq!(patches, wanted);
    lab.controller_down(OLD);
    lab.restart();
    assert!(lab.core.wants_version10(), "the journal has the flags");
    patches.clear();
    for switch in [0, 1] {
        lab.core.version10_up(switch, lab.now);
    }
    assert_eq!(answer(&mut lab, &mut patches), 2);
    assert_eq!(patches, wanted);
    assert_eq!(lab.sent_by(FLOOD_GROUP, 1, 0, &[]), [(1, 2)]);
}

const SET_NW_SRC: [u8; 8] = [0, 6, 0, 8, 10, 0, 0, 9];
/// In OpenFlow 1.1, and in 1.3.
const SET_NW_SRC_11: [u8; 8] = [0, 5, 0, 8, 10, 0, 0, 9];
const COOKIE: u64 = 3;

/// An addition, or another command, of a rule for all packets: set_nw_src, and an output to port 2.
fn rule(command: u8) -> Vec<u8> {
    let mut frame = vec![1, kind::FLOW_MOD, 0, 88, 0, 0, 0, 7];
    frame.extend(0x003f_ffffu32.to_be_bytes());
    frame.extend([0; 36]);
    frame.extend(COOKIE.to_be_bytes());
    frame.extend([0, command, 0, 0, 0, 0, 0, 10]);
    frame.extend([0xff; 6]);
    frame.extend([0, 0]);
    frame.extend(SET_NW_SRC);
    frame.extend([0, 0, 0, 8, 0, 2, 0, 0]);
    frame
}

fn whole() -> Instructions {
    let actions = [&SET_NW_SRC_11[..], output(2).as_bytes()].concat();
    Instructions::apply(&ActionList::from_bytes(actions).unwrap())
}

/// As [`lab`]; the switches refuse set_nw_src over OpenFlow 1.3.
fn refusing(links: &[usize]) -> Lab {
    let mut lab = lab(links);
    for switch in [0, 1] {
        lab.virt(switch).refuse = Some(Box::new(|message| {
            let Message::FlowMod(message) = message else {
                return None;
            };
            let mut is_old = false;
            message.instructions.for_each_action(&mut |item| {
                is_old |= matches!(item.action, Action::Other { .. });
            });
            is_old.then_some(ErrorCode::BAD_ACTION_MATCH_INCONSISTENT)
        }));
    }
    lab
}

fn rules(lab: &mut Lab, switch: usize) -> Vec<Instructions> {
    let flows = lab.virt(switch).flows.iter();
    flows.map(|flow| flow.instructions.clone()).collect()
}

#[test]
fn a_controller_waits_until_a_rule_has_all_its_actions() {
    let (mut lab, mut patches) = (refusing(&[0, 1]), Patches::new());
    lab.send_raw(OLD, &rule(0));
    lab.send_raw(OLD, &encode_barrier(8));
    lab.run();
    assert_eq!(kinds(&lab.take_raw(OLD)), [] as [u8; 0]);
    assert_eq!(rules(&mut lab, 1), [Instructions::apply(&output(2))]);
    answer(&mut lab, &mut patches);
    assert_eq!(kinds(&lab.take_raw(OLD)), [kind::BARRIER_REPLY]);
    for switch in [0, 1] {
        assert_eq!(rules(&mut lab, switch), [whole()]);
    }
    // Rules that a modification changes, too.
    lab.ask(4, &Message::FlowMod(add(COOKIE, any(), &output(1))));
    assert_eq!(rules(&mut lab, 0), [Instructions::apply(&output(1))]);
    lab.send_raw(OLD, &rule(1));
    answer(&mut lab, &mut patches);
    assert_eq!(rules(&mut lab, 0), [whole()]);
    assert!(lab.take_raw(OLD).is_empty());
}

#[test]
fn later_versions_and_servers_without_such_connections_refuse_it() {
    let mut lab = refusing(&[1]);
    lab.send_raw(OLD, &rule(0));
    lab.wait(Duration::from_secs(2));
    let told = lab.take_raw(OLD);
    assert_eq!(kinds(&told), [1]);
    assert!(rules(&mut lab, 1).is_empty());
    lab.core.version10_up(0, lab.now);
    answer(&mut lab, &mut Patches::new());
    let actions = ActionList::from_bytes(SET_NW_SRC_11.to_vec()).unwrap();
    let answers = lab.ask(4, &Message::FlowMod(add(1, any(), &actions)));
    let [(_, Message::Error(error))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(error.error, ErrorCode::BAD_ACTION_MATCH_INCONSISTENT);
}

#[test]
fn a_lost_copy_comes_back_where_it_cannot_be_completed() {
    let (mut lab, mut patches) = (refusing(&[0]), Patches::new());
    lab.execute_at(2, Some(0));
    lab.send_raw(OLD, &rule(0));
    answer(&mut lab, &mut patches);
    lab.execute_at(2, None);
    let incomplete = [Instructions::apply(&output(2))];
    assert_eq!(rules(&mut lab, 1), incomplete);
    lab.disconnect(1);
    lab.virt(1).flows.clear();
    lab.connect(1);
    lab.run();
    assert_eq!(rules(&mut lab, 1), incomplete);
}

#[test]
fn copies_are_complete_before_packets_meet_them() {
    let (mut lab, mut patches) = (refusing(&[0, 1]), Patches::new());
    lab.execute_at(2, Some(0));
    lab.send_raw(OLD, &rule(0));
    answer(&mut lab, &mut patches);
    assert!(rules(&mut lab, 1).is_empty());
    lab.begin_executor_change(2, None, oneswitch_core::MoveUntil::Prepared);
    lab.wait(Duration::from_secs(1));
    assert_eq!(lab.core.move_outcome(2), None, "it waits for the actions");
    answer(&mut lab, &mut patches);
    lab.finish_move(2);
    assert_eq!(rules(&mut lab, 1), [whole()]);
    // Nothing is repaired, and a rule that is lost comes back whole.
    let before = lab.accepted();
    for switch in [0, 1] {
        lab.disconnect(switch);
        lab.connect(switch);
    }
    answer(&mut lab, &mut patches);
    assert_eq!(lab.accepted(), before);
    lab.disconnect(1);
    lab.virt(1).flows.clear();
    lab.connect(1);
    answer(&mut lab, &mut patches);
    assert_eq!(rules(&mut lab, 1), [whole()]);
    lab.restart();
    answer(&mut lab, &mut patches);
    assert_eq!(rules(&mut lab, 1), [whole()]);
}
