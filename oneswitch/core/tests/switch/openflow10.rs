//! Behaviour for controllers of OpenFlow 1.0 only: their modifications become several messages of OpenFlow 1.3, which are refused once and as a
//! whole; and they get the packets that meet no rule.

use crate::build::{add, any, from, output};
use crate::lab::Lab;
use oneswitch_core::ControllerId;
use openflow13::{
    kind, openflow10, state, ErrorCode, FlowMod, FlowModCommand, Instructions, Match, Message,
    MultipartReply, MultipartRequest, PortStatus,
};
use std::time::Duration;

const OLD: u64 = 10;
const MODIFY: u8 = 1;
/// It leaves the rules' cookies.
const NO_COOKIE: u64 = u64::MAX;

/// A modification of all rules that outputs to port 3.
fn modification(cookie: u64) -> Vec<u8> {
    let mut frame = vec![1, openflow10::kind::FLOW_MOD, 0, 80, 0, 0, 0, 7];
    frame.extend(0x003f_ffffu32.to_be_bytes());
    frame.extend([0; 36]);
    frame.extend(cookie.to_be_bytes());
    frame.extend([0, MODIFY, 0, 0, 0, 0, 0, 1]);
    frame.extend([0xff; 6]);
    frame.extend([0, 0]);
    frame.extend([0, 0, 0, 8, 0, 3, 0, 0]);
    frame
}

/// Switches that refuse the flow-mods of modifications for which this is so, with rules of cookies 1 and 2 in tables 0 and 1.
fn lab(with_rules: bool, is_refused: fn(&FlowMod) -> bool) -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(OLD, openflow10::VERSION);
    if with_rules {
        lab.ask(1, &Message::FlowMod(add(1, from(1), &output(1))));
        let other = FlowMod {
            table_id: 1,
            ..add(2, any(), &output(1))
        };
        lab.ask(2, &Message::FlowMod(other));
    }
    for switch in 0..2 {
        lab.virt(switch).refuse = Some(Box::new(move |message| match message {
            Message::FlowMod(message) if is_refused(message) => {
                Some(ErrorCode::BAD_ACTION_MATCH_INCONSISTENT)
            }
            _ => None,
        }));
    }
    lab.run();
    lab.take_raw(OLD);
    lab
}

/// Sends a modification; returns the number of errors.
fn errors(lab: &mut Lab, cookie: u64) -> usize {
    lab.send_raw(OLD, &modification(cookie));
    lab.run();
    let told = lab.take_raw(OLD);
    let is_error = |frame: &&Vec<u8>| frame[1] == openflow13::kind::ERROR;
    told.iter().filter(is_error).count()
}

fn is_modify(message: &FlowMod) -> bool {
    message.command == FlowModCommand::Modify
}

#[test]
fn a_modification_of_two_tables_is_refused_once() {
    let mut lab = lab(true, is_modify);
    assert_eq!(errors(&mut lab, NO_COOKIE), 1);
    assert_eq!(lab.cookies(), [vec![1, 2], vec![2]]);
}

#[test]
fn a_modification_of_no_rule_is_checked() {
    let mut lab = lab(false, is_modify);
    assert_eq!(errors(&mut lab, NO_COOKIE), 1);
    assert_eq!(errors(&mut lab, 9), 0);
    assert_eq!(lab.cookies(), [vec![9], vec![9]]);
}

#[test]
fn a_change_of_cookies_is_refused_for_what_its_own_match_lacks() {
    let mut lab = lab(true, is_modify);
    assert_eq!(errors(&mut lab, 9), 1);
    assert_eq!(lab.cookies(), [vec![1, 2], vec![2]]);
    lab.virt(0).refuse = None;
    lab.virt(1).refuse = None;
    assert_eq!(errors(&mut lab, 9), 0);
    assert_eq!(lab.cookies(), [vec![9, 9], vec![9]]);
}

#[test]
fn a_modification_waits_for_the_verdict_on_the_one_before_it() {
    let mut lab = lab(false, |message| {
        message.instructions == Instructions::apply(&output(3))
    });
    let first = modification(7);
    let mut second = modification(7);
    second[77] = 4; // it outputs to another port
                    // The first one would add a rule, and is refused; so the second one adds it.
    lab.send_raw(OLD, &first);
    lab.send_raw(OLD, &second);
    lab.run();
    assert_eq!(lab.cookies(), [vec![7], vec![7]]);
    assert_eq!(lab.core.status().flows, 1);
}

/// Lets the interface of port 1 have this state; tells which controllers, one of OpenFlow 1.0 and one of 1.3, hear of it.
fn hear_of_state(lab: &mut Lab, state: u32) -> [bool; 2] {
    let edge = lab.edge(0);
    let port = edge.ports.get_mut(&1).unwrap();
    port.state = state;
    let (reason, port) = (PortStatus::MODIFY, *port);
    edge.reply(0, Message::PortStatus(PortStatus { reason, port }));
    lab.run();
    let is_status = |frame: &Vec<u8>| frame[1] == kind::PORT_STATUS;
    [OLD, 1].map(|id| lab.take_raw(id).iter().any(is_status))
}

#[test]
fn a_port_that_is_live_is_news_only_for_later_versions() {
    let mut lab = lab(false, |_| false);
    lab.take_raw(1);
    assert_eq!(hear_of_state(&mut lab, state::LIVE), [false, true]);
    assert_eq!(hear_of_state(&mut lab, state::LINK_DOWN), [true, true]);
}

#[test]
fn messages_wait_until_packets_without_a_rule_come() {
    let ready = [1, openflow10::kind::BARRIER_REPLY, 0, 8, 0, 0, 0, 4];
    let mut lab = Lab::new(2, &[0, 1]);
    let takes = |lab: &Lab| lab.core.takes_messages_of(ControllerId(OLD));
    lab.controller_of_version(OLD, openflow10::VERSION);
    lab.run();
    lab.core.packet_missed(0, &ready);
    assert!(!takes(&lab), "one switch is missing");
    lab.core.packet_missed(1, &ready);
    assert!(takes(&lab));

    // Another controller finds them; one that comes after the last one has left does not wait without end.
    lab.controller_of_version(OLD + 1, openflow10::VERSION);
    lab.run();
    assert!(takes(&lab));
    lab.controller_down(OLD);
    lab.controller_down(OLD + 1);
    lab.run();
    lab.core.misses_down(1);
    lab.controller_of_version(OLD, openflow10::VERSION);
    lab.run();
    assert!(!takes(&lab));
    lab.wait(Duration::from_secs(2));
    assert!(takes(&lab));
}

#[test]
fn only_this_version_sees_a_bit_that_others_lack() {
    const NO_STP: u8 = 2;
    let mut lab = Lab::new(2, &[0, 1]);
    for id in [OLD, OLD + 1] {
        lab.controller_of_version(id, openflow10::VERSION);
    }
    let mut port_mod = vec![1, openflow10::kind::PORT_MOD, 0, 32, 0, 0, 0, 7, 0, 1];
    port_mod.extend(crate::lab::port(1, "").hw_addr);
    port_mod.extend([0, 0, 0, NO_STP, 0, 0, 0, NO_STP, 0, 0, 0, 0, 0, 0, 0, 0]);
    lab.send_raw(OLD, &port_mod);
    lab.run();
    assert!(lab.take_raw(OLD).is_empty());
    assert!(lab.take_raw(1).is_empty());
    let told = lab.take_raw(OLD + 1);
    let configurations: Vec<u8> = told
        .iter()
        .map(|status| status[16 + 2 + 6 + 16 + 3])
        .collect();
    assert_eq!(configurations, [NO_STP]);
    let described = lab.ask(1, &crate::build::request(MultipartRequest::PortDesc));
    let Message::MultipartReply(reply) = &described[0].1 else {
        panic!()
    };
    let MultipartReply::PortDesc(ports) = &reply.body else {
        panic!()
    };
    assert!(ports.iter().all(|port| port.config == 0));
}

/// Asks for the rules that match TCP, whatever the Ethernet type; returns their cookies.
fn cookies_of_tcp(lab: &mut Lab) -> Vec<u64> {
    let open = 0x003f_ffffu32 & !(1 << 5);
    let mut request = vec![
        1,
        openflow10::kind::STATS_REQUEST,
        0,
        56,
        0,
        0,
        0,
        7,
        0,
        1,
        0,
        0,
    ];
    request.extend(open.to_be_bytes());
    request.extend([0; 21]);
    request.push(6);
    request.extend([0; 14]);
    request.extend([0xff, 0, 0xff, 0xff]);
    lab.send_raw(OLD, &request);
    lab.run();
    let replies = lab.take_raw(OLD);
    let mut rules = &replies[0][12..];
    let mut cookies = Vec::new();
    while let Some(cookie) = rules.get(64..72) {
        cookies.push(u64::from_be_bytes(cookie.try_into().unwrap()));
        rules = &rules[usize::from(rules[1])..];
    }
    cookies
}

#[test]
fn a_request_without_a_prerequisite_finds_only_rules_with_the_field() {
    let mut lab = lab(true, |_| false);
    assert_eq!(cookies_of_tcp(&mut lab), []);
    let tcp = Match::from_oxm(vec![0x80, 0, 10, 2, 8, 0, 0x80, 0, 20, 1, 6]).unwrap();
    lab.ask(3, &Message::FlowMod(add(3, tcp, &output(1))));
    lab.take_raw(OLD);
    assert_eq!(cookies_of_tcp(&mut lab), [3]);
}
