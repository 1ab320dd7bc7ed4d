//! Hidden groups step aside when a controller names their numbers.

use crate::build::{add, any, failover, flow_stats, group, output, request, watching};
use crate::check::{ALL_GROUP, FLOOD_GROUP};
use crate::lab::{Answer, Lab};
use crate::recovery::repairs;
use openflow13::bundle::{self, Bundle, ControlType};
use openflow13::{
    encode, group_no, port_no, Action, ActionList, FlowStats, GroupModCommand, Message,
    MultipartReply, MultipartRequest,
};
use std::time::Duration;

/// The usual number of the hidden group of port 2.
const PORT_2: u32 = 0xfffe_0002;
const GRACE: Duration = Duration::from_millis(500);

fn added(id: u32) -> Message {
    group(GroupModCommand::Add, id, &[1])
}

fn floods(cookie: u64) -> Message {
    Message::FlowMod(add(cookie, any(), &output(port_no::FLOOD)))
}

/// The groups that the rules of a switch send to.
fn used(lab: &Lab, switch: usize) -> Vec<u32> {
    let mut used = Vec::new();
    for flow in &lab.switches[switch].virt.flows {
        flow.instructions.for_each_action(&mut |item| {
            if let Action::Group(id) = item.action {
                used.push(id);
            }
        });
    }
    used
}

/// What each bucket of a group watches on a switch.
fn watched(lab: &Lab, switch: usize, id: u32) -> Vec<(u32, u32)> {
    let (_, buckets) = &lab.switches[switch].virt.groups[&id];
    let buckets = buckets.iter();
    buckets.map(|b| (b.watch_port, b.watch_group)).collect()
}

/// The actions of each bucket of a group on the first switch.
fn sent_by(lab: &Lab, id: u32) -> Vec<Vec<u8>> {
    let (_, buckets) = &lab.switches[0].virt.groups[&id];
    let buckets = buckets.iter();
    buckets
        .map(|b| b.actions.iter().flat_map(|i| i.raw.to_vec()).collect())
        .collect()
}

fn has(lab: &Lab, id: u32) -> bool {
    let mut switches = lab.switches.iter();
    switches.all(|switch| switch.virt.groups.contains_key(&id))
}

fn is_errorless(answers: &[Answer]) -> bool {
    !answers
        .iter()
        .any(|(_, message)| matches!(message, Message::Error(_) | Message::FlowRemoved(_)))
}

fn rules(answers: Vec<Answer>) -> Vec<FlowStats> {
    let told = answers.into_iter().find_map(|(_, message)| match message {
        Message::MultipartReply(reply) => match reply.body {
            MultipartReply::Flow(flows) => Some(flows),
            _ => None,
        },
        _ => None,
    });
    told.expect("statistics of rules")
}

/// The packets of a group, as controller 1 is told.
fn packets(lab: &mut Lab, group: u32) -> u64 {
    let answers = lab.ask(50, &request(MultipartRequest::Group { group }));
    let told = answers.into_iter().find_map(|(_, message)| match message {
        Message::MultipartReply(reply) => match reply.body {
            MultipartReply::Group(groups) => Some(groups),
            _ => None,
        },
        _ => None,
    });
    let groups = told.expect("statistics of groups");
    groups.iter().map(|group| group.packet_count).sum()
}

/// A restarted daemon finds everything as it should be.
fn check_restart(lab: &mut Lab) {
    let before = (lab.accepted(), repairs(lab));
    lab.restart();
    lab.run();
    assert_eq!((lab.accepted(), repairs(lab)), (before.0, 0));
}

#[test]
fn a_controller_gets_the_number_of_the_flood_group() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &floods(7));
    for switch in 0..2 {
        lab.virt(switch).flows[0].packets = 5;
    }
    let flood = sent_by(&lab, FLOOD_GROUP);
    lab.send(1, 2, &added(FLOOD_GROUP));
    lab.send(1, 3, &Message::BarrierRequest);
    lab.run();
    assert_eq!(lab.take(1), [], "data paths may flood by the old number");
    assert_eq!(sent_by(&lab, FLOOD_GROUP), flood);
    lab.wait(GRACE);
    let answers = lab.take(1);
    assert!(
        matches!(&answers[..], [(header, Message::BarrierReply)] if header.xid == 3),
        "{answers:?}"
    );
    for switch in 0..2 {
        let [instead] = used(&lab, switch)[..] else {
            panic!("one rule floods");
        };
        let groups = &lab.switches[switch].virt.groups;
        assert_eq!(groups.len(), 3);
        assert_ne!(instead, FLOOD_GROUP);
        assert_eq!(groups[&FLOOD_GROUP].1.iter().count(), 1);
    }
    assert_eq!(sent_by(&lab, used(&lab, 0)[0]), flood);
    let told = rules(lab.ask(4, &flow_stats()));
    let [told] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((told.packet_count, told.cookie), (10, 7));
    let written = openflow13::Instructions::apply(&output(port_no::FLOOD));
    assert_eq!(told.instructions, written);
    check_restart(&mut lab);
    // It is a group like any other now.
    let uses = add(
        8,
        any().with_in_port(1),
        &ActionList::new().group(FLOOD_GROUP),
    );
    assert!(is_errorless(&lab.ask(5, &Message::FlowMod(uses))));
    assert_eq!(used(&lab, 0).len(), 2);
    let deleted = lab.ask(6, &group(GroupModCommand::Delete, FLOOD_GROUP, &[]));
    assert!(is_errorless(&deleted));
    assert!(!has(&lab, FLOOD_GROUP));
    assert_eq!(lab.cookies(), [[7], [7]]);
}

#[test]
fn groups_that_watch_a_port_keep_their_counters_when_its_group_steps_aside() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &failover(9, &[1, 2]));
    for switch in 0..2 {
        lab.virt(switch).resets_groups = true;
        lab.virt(switch).group_packets.insert(9, 5);
    }
    assert_eq!(packets(&mut lab, 9), 10);
    lab.send(1, 2, &added(PORT_2));
    lab.wait(GRACE);
    assert!(is_errorless(&lab.take(1)));
    for switch in 0..2 {
        let watched = watched(&lab, switch, 9);
        assert_eq!(watched[0], (port_no::ANY, 0xfffe_0001));
        assert!(watched[1].1 < 0xfffe_0000);
        assert!(has(&lab, watched[1].1) && has(&lab, PORT_2));
    }
    assert_eq!(packets(&mut lab, 9), 10);
    lab.virt(0).group_packets.insert(9, 1);
    assert_eq!(packets(&mut lab, 9), 11);
    check_restart(&mut lab);
    assert_eq!(packets(&mut lab, 9), 11);
    let instead = watched(&lab, 0, 9)[1].1;
    lab.edge(1).carrier(2, false);
    lab.run();
    assert!(!has(&lab, instead) && has(&lab, PORT_2));
}

#[test]
fn a_group_of_a_port_and_a_group_names_the_new_number_of_the_port() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &failover(8, &[1]));
    lab.ask(2, &watching(GroupModCommand::Add, 9, &[(2, 8, 1)]));
    let [(_, both)] = watched(&lab, 0, 9)[..] else {
        panic!("one bucket")
    };
    lab.send(1, 3, &added(PORT_2));
    lab.wait(GRACE);
    let of_port = watched(&lab, 0, both)[0].1;
    assert!(has(&lab, of_port) && of_port != PORT_2);
    lab.send(1, 4, &added(both));
    lab.wait(GRACE);
    assert!(is_errorless(&lab.take(1)));
    let instead = watched(&lab, 0, 9)[0].1;
    assert_ne!(instead, both);
    assert_eq!(watched(&lab, 0, instead)[0].1, of_port);
    check_restart(&mut lab);
}

#[test]
fn a_number_that_no_hidden_group_has_is_anybody_s() {
    let mut lab = Lab::new(2, &[0, 1]);
    assert_eq!(lab.ask(1, &added(PORT_2)), []);
    assert!(has(&lab, PORT_2), "at once");
    lab.ask(2, &failover(9, &[2]));
    let instead = watched(&lab, 0, 9)[0].1;
    assert!(has(&lab, instead) && instead != PORT_2);
    check_restart(&mut lab);
    // Nor does a hidden group get a number that some bucket names.
    let mut lab = Lab::new(2, &[0, 1]);
    let names = watching(GroupModCommand::Add, 8, &[(port_no::ANY, PORT_2, 1)]);
    assert_eq!(lab.ask(1, &names), []);
    lab.ask(2, &failover(9, &[2]));
    assert_ne!(watched(&lab, 0, 9)[0].1, PORT_2);
    let own = watching(GroupModCommand::Add, 0xfffe_0001, &[(1, group_no::ANY, 1)]);
    assert_eq!(lab.ask(3, &own), []);
    assert_ne!(watched(&lab, 0, 0xfffe_0001)[0].1, 0xfffe_0001);
    check_restart(&mut lab);
}

#[test]
fn a_bucket_watches_what_the_controller_names() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &failover(8, &[1, 2]));
    let written = [(port_no::ANY, PORT_2, 1), (port_no::ANY, FLOOD_GROUP, 1)];
    lab.send(1, 2, &watching(GroupModCommand::Add, 9, &written));
    lab.wait(GRACE);
    assert!(is_errorless(&lab.take(1)));
    let wanted = written.map(|(port, group, _)| (port, group));
    assert_eq!(watched(&lab, 0, 9), wanted);
    assert!(!has(&lab, PORT_2) && !has(&lab, FLOOD_GROUP));
    assert!(has(&lab, watched(&lab, 0, 8)[1].1));
    check_restart(&mut lab);
}

/// Found by the oracle: the hidden group went to and fro between two numbers that one message named.
#[test]
fn a_hidden_group_leaves_all_numbers_that_a_message_names() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &floods(7));
    lab.send(1, 2, &added(FLOOD_GROUP));
    lab.wait(GRACE);
    lab.send(1, 3, &group(GroupModCommand::Delete, FLOOD_GROUP, &[]));
    lab.run();
    let [aside] = used(&lab, 0)[..] else {
        panic!("one rule floods");
    };
    let names_usual = [(port_no::ANY, FLOOD_GROUP, 1)];
    lab.send(1, 4, &watching(GroupModCommand::Add, aside, &names_usual));
    lab.wait(GRACE);
    assert!(is_errorless(&lab.take(1)));
    assert_eq!(watched(&lab, 0, aside), [(port_no::ANY, FLOOD_GROUP)]);
    assert!(used(&lab, 0)[0] < aside);
    check_restart(&mut lab);
}

#[test]
fn hidden_groups_step_aside_for_a_bundle() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &floods(7));
    let parts = [
        failover(9, &[2]),
        added(PORT_2),
        added(FLOOD_GROUP),
        added(ALL_GROUP),
    ];
    lab.send_raw(1, &bundle::encode_open(1, 5));
    for (xid, part) in (100..).zip(&parts) {
        let inner = encode(xid, part).unwrap();
        lab.send_raw(1, &bundle::encode_add(5, &inner).unwrap());
    }
    lab.send_raw(1, &bundle::encode_commit(2, 5));
    lab.wait(GRACE);
    let answers = lab.take(1);
    let last = answers.last().map(|(_, message)| message);
    let Some(Message::Experimenter(last)) = last else {
        panic!("{answers:?}");
    };
    let told = bundle::decode(2, last);
    assert!(
        matches!(told, Some(Ok(Bundle::Control(c))) if c.control_type == ControlType::CommitReply),
        "{answers:?}"
    );
    for id in [9, PORT_2, FLOOD_GROUP, ALL_GROUP] {
        assert!(has(&lab, id), "{id:#x}");
    }
    assert_ne!(watched(&lab, 0, 9)[0].1, PORT_2);
    check_restart(&mut lab);
}

#[test]
fn a_switch_that_was_away_learns_the_new_numbers_without_losing_rules() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &floods(7));
    lab.virt(1).flows[0].packets = 5;
    lab.disconnect(1);
    lab.wait(Duration::from_secs(5));
    lab.take(1);
    lab.send(1, 2, &added(FLOOD_GROUP));
    lab.wait(GRACE);
    lab.connect(1);
    lab.wait(GRACE);
    assert!(is_errorless(&lab.take(1)));
    assert_eq!(used(&lab, 1), used(&lab, 0));
    assert_ne!(used(&lab, 1), [FLOOD_GROUP]);
    let told = rules(lab.ask(4, &flow_stats()));
    assert_eq!(told[0].packet_count, 5);
    check_restart(&mut lab);
}

#[test]
fn a_daemon_that_ends_in_the_middle_has_lost_no_rule_afterwards() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &floods(7));
    (0..2).for_each(|switch| lab.virt(switch).flows[0].packets = 5);
    lab.virt(1).slow = true;
    lab.send(1, 2, &added(FLOOD_GROUP));
    lab.run();
    lab.virt(1).input.clear();
    lab.virt(1).slow = false;
    lab.restart();
    lab.run();
    assert!(is_errorless(&lab.take(1)));
    assert_eq!(used(&lab, 1), used(&lab, 0));
    let told = rules(lab.ask(4, &flow_stats()));
    assert_eq!(told[0].packet_count, 10);
    assert_eq!(lab.ask(5, &added(FLOOD_GROUP)), []);
    check_restart(&mut lab);
}

#[test]
fn nothing_steps_aside_while_counters_are_on_their_way() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &failover(9, &[2]));
    for switch in 0..2 {
        lab.virt(switch).resets_groups = true;
        lab.virt(switch).group_packets.insert(9, 5);
    }
    lab.virt(1).slow = true;
    let asked = request(MultipartRequest::Group { group: 9 });
    lab.send(1, 2, &asked);
    lab.send(1, 3, &added(PORT_2));
    lab.run();
    lab.virt(1).slow = false;
    lab.wait(GRACE);
    let told = lab
        .take(1)
        .into_iter()
        .find_map(|(_, message)| match message {
            Message::MultipartReply(reply) => match reply.body {
                MultipartReply::Group(groups) => Some(groups[0].packet_count),
                _ => None,
            },
            _ => None,
        });
    assert_eq!(told, Some(10));
    assert_eq!(packets(&mut lab, 9), 10);
}
