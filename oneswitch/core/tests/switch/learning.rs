//! Rules that a switch makes by itself are virtual rules.

use crate::build::{add, any, delete, from, output, packet_out};
use crate::fake::{FakeBridge, Flow};
use crate::lab::Lab;
use oneswitch_core::Bridge;
use openflow13::{
    encode, kind, ActionList, Experimenter, FlowMod, FlowRemoved, Match, Message, Multipart,
    MultipartReply, ONF_VENDOR,
};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(60);
const FLOW_MONITOR: u32 = 1870;
const LEARNED: u64 = 77;

/// The addition of a rule that learns.
pub fn learner(cookie: u64) -> Message {
    Message::FlowMod(add(cookie, any(), &learn_action()))
}

/// NXAST_LEARN of nothing into table 1.
fn learn_action() -> ActionList {
    let head = [0xff, 0xff, 0, 32, 0, 0, 0x23, 0x20, 0, 16];
    let mut rest = [0; 22];
    rest[16] = 1;
    ActionList::from_bytes([&head[..], &rest].concat()).unwrap()
}

fn learned(matching: Match, flags: u16) -> FlowMod {
    FlowMod {
        table_id: 1,
        idle_timeout: 600,
        flags,
        ..add(LEARNED, matching, &output(1))
    }
}

/// Writes a switch's report of a rule that changes by itself.
fn told(flow: &Flow, event: u8, reason: u8) -> Vec<u8> {
    let mut body = vec![0, 0, 0, event, 0, reason];
    body.extend(flow.priority.to_be_bytes());
    body.extend([0, 60, 0, 0, 0, 4, flow.table, 0]);
    body.extend(flow.cookie.to_be_bytes());
    let oxm = flow.matching.as_oxm();
    body.extend([0, 1, 0, 4 + oxm.len() as u8]);
    body.extend(oxm);
    body.resize(body.len().next_multiple_of(8), 0);
    body[1] = body.len() as u8;
    reply(body)
}

/// The report about our own message that changed rules.
pub fn own(xid: &[u8]) -> Vec<u8> {
    reply([&[0, 8, 0, 3], xid].concat())
}

fn reply(body: Vec<u8>) -> Vec<u8> {
    let reply = MultipartReply::Experimenter(Experimenter {
        vendor: ONF_VENDOR,
        subtype: FLOW_MONITOR,
        body: body.into(),
    });
    encode(0, &Message::MultipartReply(Multipart::last(reply))).unwrap()
}

/// The switch learns a rule, and tells of it.
fn learn(virt: &mut FakeBridge, rule: &FlowMod) {
    virt.handle(&encode(0, &Message::FlowMod(rule.clone())).unwrap());
    let flow = virt.flows.last().unwrap().clone();
    if virt.is_monitored {
        virt.output.push(told(&flow, 0, 0));
    }
}

/// The switch removes a learned rule, and tells of it.
fn forget(virt: &mut FakeBridge, reason: u8) {
    let is_it = |flow: &Flow| flow.cookie == LEARNED;
    let flow = virt.flows.iter().find(|flow| is_it(flow)).unwrap().clone();
    if virt.is_monitored {
        virt.output.push(told(&flow, 1, reason));
    }
    let chosen: Vec<bool> = virt.flows.iter().map(is_it).collect();
    virt.remove(&chosen, reason);
}

/// Ports of two switches, gathered at the first one, which has learned a rule.
fn with_learned(flags: u16) -> Lab {
    let mut lab = Lab::gathering(2, &[0, 1, 0], None);
    lab.send(1, 1, &learner(1));
    lab.wait(SOON);
    lab.take(1);
    assert!(lab.switches[0].virt.is_monitored);
    learn(&mut lab.switches[0].virt, &learned(any(), flags));
    lab.run();
    lab
}

fn virtual_rules(lab: &Lab) -> usize {
    lab.core.status().flows
}

fn audit(lab: &mut Lab) -> u64 {
    let before: u64 = lab.core.status().switches.iter().map(|s| s.repairs).sum();
    let now = lab.now;
    lab.core.request_audit(now);
    lab.run();
    let after: u64 = lab.core.status().switches.iter().map(|s| s.repairs).sum();
    after - before
}

#[test]
fn a_learned_rule_is_a_virtual_rule() {
    let mut lab = with_learned(0);
    assert_eq!(virtual_rules(&lab), 2);
    assert_eq!(audit(&mut lab), 0);
    lab.restart();
    assert_eq!(virtual_rules(&lab), 2);
    lab.run();
    assert_eq!(lab.cookies(), [vec![1, LEARNED], vec![]]);
    assert_eq!(audit(&mut lab), 0);
    // A deletion deletes it everywhere.
    lab.ask(1, &Message::FlowMod(delete(any())));
    assert_eq!(virtual_rules(&lab), 0);
    assert_eq!(lab.cookies(), [[], []] as [[u64; 0]; 2]);
}

#[test]
fn a_rule_that_its_switch_removes_is_gone() {
    for flags in [0, FlowMod::SEND_FLOW_REM] {
        for reason in [FlowRemoved::IDLE_TIMEOUT, FlowRemoved::DELETE] {
            let mut lab = with_learned(flags);
            forget(&mut lab.switches[0].virt, reason);
            lab.run();
            assert_eq!(virtual_rules(&lab), 1);
            let reported: Vec<u8> = lab
                .take_removals(1)
                .into_iter()
                .filter_map(|(_, message)| match message {
                    Message::FlowRemoved(removed) => Some(removed.reason),
                    _ => None,
                })
                .collect();
            assert_eq!(reported, vec![reason; flags.into()]);
        }
    }
}

#[test]
fn a_rule_that_nobody_has_told_of_is_kept_as_long_as_rules_learn() {
    let mut lab = with_learned(0);
    let untold = learned(from(1), 0);
    lab.switches[0]
        .virt
        .handle(&encode(0, &Message::FlowMod(untold)).unwrap());
    assert_eq!(audit(&mut lab), 0);
    assert_eq!(virtual_rules(&lab), 3);
    // Those that are gone are gone.
    lab.switches[0]
        .virt
        .flows
        .retain(|flow| flow.cookie != LEARNED);
    assert_eq!(audit(&mut lab), 0);
    assert_eq!(virtual_rules(&lab), 1);
}

#[test]
fn a_deletion_behind_the_learning_counts() {
    let mut lab = with_learned(0);
    learn(&mut lab.switches[0].virt, &learned(from(1), 0));
    let frames = std::mem::take(&mut lab.switches[0].virt.output);
    lab.send(1, 2, &Message::FlowMod(delete(from(1))));
    for frame in frames {
        let now = lab.now;
        lab.core.switch_message(0, Bridge::Virt, &frame, now);
    }
    lab.run();
    assert_eq!(virtual_rules(&lab), 2);
    assert_eq!(lab.cookies(), [vec![1, LEARNED], vec![]]);
    assert_eq!(audit(&mut lab), 0);
}

#[test]
fn a_switch_that_has_lost_everything_gets_what_it_learned() {
    let mut lab = with_learned(0);
    lab.disconnect(0);
    lab.switches[0].virt.flows.clear();
    lab.switches[0].virt.is_monitored = false;
    lab.connect(0);
    lab.run();
    assert_eq!(lab.cookies(), [vec![1, LEARNED], vec![]]);
    assert!(lab.switches[0].virt.is_monitored);
    assert_eq!(virtual_rules(&lab), 2);
    assert_eq!(audit(&mut lab), 0);
}

#[test]
fn what_was_learned_follows_the_ports_home_as_an_ordinary_rule() {
    let mut lab = with_learned(0);
    let gone = FlowMod {
        cookie: 1,
        cookie_mask: u64::MAX,
        ..delete(any())
    };
    lab.ask(1, &Message::FlowMod(gone));
    lab.wait(LONG);
    assert!(!lab.switches[0].virt.is_monitored);
    assert_eq!(lab.cookies(), [vec![LEARNED], vec![LEARNED]]);
    let reports = |flow: &Flow| flow.flags & FlowMod::SEND_FLOW_REM != 0;
    assert!(lab
        .switches
        .iter()
        .all(|s| s.virt.flows.iter().all(reports)));
    assert_eq!(audit(&mut lab), 0);
    // A rule that appears now is foreign.
    let foreign = Message::FlowMod(learned(from(1), 0));
    lab.switches[0].virt.handle(&encode(0, &foreign).unwrap());
    assert_eq!(audit(&mut lab), 1);
}

#[test]
fn what_a_packet_out_has_made_a_switch_learn_follows_the_ports_home() {
    let mut lab = Lab::gathering(2, &[0, 1, 0], None);
    lab.send(1, 1, &packet_out(1, learn_action()));
    lab.wait(SOON);
    let virt = &mut lab.switches[0].virt;
    learn(virt, &learned(any(), 0));
    virt.untold = std::mem::take(&mut virt.output);
    lab.run();
    assert_eq!(virtual_rules(&lab), 0);
    lab.wait(LONG);
    assert_eq!(lab.cookies(), [vec![LEARNED], vec![LEARNED]]);
    assert_eq!(audit(&mut lab), 0);
}

/// A controller adds a rule where its switch has just removed one, or which goes with another one at once.
#[test]
fn a_removal_is_before_or_behind_a_message_in_flight() {
    for is_behind in [false, true] {
        let mut lab = with_learned(0);
        lab.send(1, 2, &Message::FlowMod(add(5, from(1), &output(1))));
        lab.flush();
        let virt = &mut lab.switches[0].virt;
        let is_addition = |frame: &&Vec<u8>| frame[1] == kind::FLOW_MOD;
        let sent = virt.input.iter().find(is_addition).unwrap().clone();
        virt.work();
        let flow = virt
            .flows
            .iter()
            .find(|flow| flow.cookie == 5)
            .unwrap()
            .clone();
        let mut told = vec![told(&flow, 1, FlowRemoved::DELETE)];
        told.insert(usize::from(!is_behind), own(&sent[4..8]));
        told.append(&mut virt.output);
        virt.output = told;
        if is_behind {
            virt.flows.retain(|flow| flow.cookie != 5);
        }
        lab.run();
        assert_eq!(virtual_rules(&lab), 3 - usize::from(is_behind));
        assert_eq!(audit(&mut lab), 0);
    }
}

/// The virtual tables have the refused rule until the switch has answered, and then none.
#[test]
fn a_rule_behind_a_refused_one_is_not_taken_for_a_learned_one() {
    let mut lab = with_learned(0);
    let rule = FlowMod {
        flags: FlowMod::SEND_FLOW_REM,
        ..add(2, from(1), &output(1))
    };
    lab.ask(2, &Message::FlowMod(rule));
    lab.virt(0).reports_at_once = true;
    let to_group = ActionList::default().group(9);
    lab.send(1, 3, &Message::FlowMod(add(3, from(1), &to_group)));
    lab.send(1, 4, &Message::FlowMod(delete(from(1))));
    lab.run();
    assert!(matches!(
        lab.take(1)[..],
        [(_, Message::Error(_)), (_, Message::FlowRemoved(_))]
    ));
    lab.wait(LONG);
    assert_eq!(lab.take(1), []);
}

#[test]
fn rules_that_are_learned_at_once_are_read_together() {
    let mut lab = with_learned(0);
    for port in 1..4 {
        learn(&mut lab.switches[0].virt, &learned(from(port), 0));
    }
    let told = std::mem::take(&mut lab.switches[0].virt.output);
    for frame in told {
        let now = lab.now;
        lab.core.switch_message(0, Bridge::Virt, &frame, now);
    }
    lab.flush();
    let is_reading = |frame: &&Vec<u8>| frame[1] == kind::MULTIPART_REQUEST;
    let input = &lab.switches[0].virt.input;
    assert_eq!(input.iter().filter(is_reading).count(), 1);
    lab.run();
    assert_eq!(virtual_rules(&lab), 5);
    assert_eq!(audit(&mut lab), 0);
}
