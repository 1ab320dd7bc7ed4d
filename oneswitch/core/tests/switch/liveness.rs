//! Ports that fast-failover groups watch.

use crate::build::{failover, request, watching};
use crate::lab::Lab;
use crate::moves::stage;
use crate::recovery::repairs;
use oneswitch_core::{Bridge, MoveStage, MoveUntil};
use openflow13::{group_no, port_no, GroupModCommand, Message, MultipartReply, MultipartRequest};
use std::time::Duration;

#[test]
fn ports_that_groups_watch_are_found_as_they_were() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.ask(1, &failover(9, &[1, 2, 3]));
    lab.edge(2).carrier(3, false);
    lab.run();
    let before = lab.accepted();
    lab.restart();
    lab.run();
    assert_eq!((lab.accepted(), repairs(&lab)), (before, 0));
    assert!(!lab.virt(0).is_live(3));
}

#[test]
fn a_port_and_a_group_that_a_bucket_watches_are_found_as_they_were() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.ask(1, &failover(8, &[3]));
    lab.ask(1, &watching(GroupModCommand::Add, 9, &[(2, 8, 1)]));
    lab.run();
    let pairs = |lab: &Lab, switch: usize| {
        let groups = lab.switches[switch].virt.groups.keys().copied();
        let of_pairs = groups.filter(|id| (0xfffe_ff00..0xfffe_ffff).contains(id));
        of_pairs.collect::<Vec<u32>>()
    };
    assert!((0..3).all(|switch| pairs(&lab, switch).len() == 1));
    let watched = lab.switches[0].virt.groups[&9]
        .1
        .iter()
        .map(|b| b.watch_group);
    assert_eq!(watched.collect::<Vec<_>>(), pairs(&lab, 0));
    lab.send(1, 9, &request(MultipartRequest::GroupDesc));
    lab.run();
    assert_eq!(described(&mut lab), [(2, 8)]);
    let before = lab.accepted();
    lab.restart();
    lab.run();
    assert_eq!((lab.accepted(), repairs(&lab)), (before, 0));
}

#[test]
fn a_switch_that_lost_everything_takes_ports_that_nobody_sees_for_live() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &failover(9, &[2]));
    lab.disconnect(1);
    lab.virt(0).groups.clear();
    lab.restart();
    lab.run();
    assert!(lab.virt(0).is_live(2));
}

#[test]
fn a_switch_that_comes_late_takes_a_port_that_nobody_has_seen_for_live_as_the_others_do() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.disconnect(1);
    lab.disconnect(2);
    lab.restart();
    lab.run();
    lab.ask(1, &failover(9, &[3]));
    assert!(lab.virt(0).is_live(3));
    lab.connect(1);
    lab.run();
    assert!(lab.virt(1).is_live(3));
    // Later reports must not repeat the earlier one.
    lab.connect(2);
    lab.run();
    lab.edge(2).carrier(3, false);
    lab.run();
    lab.disconnect(1);
    lab.disconnect(2);
    lab.restart();
    lab.run();
    lab.connect(1);
    lab.run();
    assert!(!lab.virt(1).is_live(3));
}

#[test]
fn what_changes_while_a_bridge_is_read_is_no_drift() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.ask(1, &failover(9, &[3]));
    lab.core.set_audit(Duration::from_secs(30), lab.now);
    let before = repairs(&lab);
    for is_up in [false, true] {
        lab.virt(0).slow = true;
        lab.now += Duration::from_secs(31);
        lab.core.tick(lab.now);
        lab.edge(2).carrier(3, is_up);
        lab.run();
        lab.virt(0).slow = false;
        lab.run();
        let drift = repairs(&lab) - before;
        assert_eq!((drift, lab.virt(0).is_live(3)), (0, is_up));
    }
    // Nor are floods to other ports than before.
    lab.virt(0).slow = true;
    lab.now += Duration::from_secs(31);
    lab.core.tick(lab.now);
    lab.core
        .remove_port(2, &Default::default(), lab.now)
        .unwrap();
    lab.run();
    lab.virt(0).slow = false;
    lab.run();
    assert_eq!(repairs(&lab), before);
    lab.virt(0).groups.remove(&0xfffe_0003);
    lab.wait(Duration::from_secs(31));
    assert_eq!((repairs(&lab), lab.virt(0).is_live(3)), (before + 1, true));
}

#[test]
fn a_port_without_carrier_is_dead_for_groups_whoever_is_connected() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.execute_at(1, Some(1));
    lab.ask(1, &failover(9, &[1]));
    // Its executor is away, so for controllers it is down already.
    lab.disconnect(1);
    lab.run();
    assert!(lab.virt(0).is_live(1));
    lab.edge(0).carrier(1, false);
    lab.run();
    assert!(!lab.virt(0).is_live(1));
    // Of a bridge that goes nothing is known but what was known before.
    lab.disconnect_bridge(0, Bridge::Edge);
    lab.run();
    assert!(!lab.virt(0).is_live(1));
    lab.edge(0).carrier(1, true);
    lab.edge(0).output.clear();
    lab.connect(0);
    lab.run();
    assert!(lab.virt(0).is_live(1));
}

#[test]
fn a_group_that_watches_a_port_while_a_bridge_is_read_disturbs_no_move() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.begin_move(2, 0, 5, MoveUntil::Prepared);
    lab.run();
    lab.core.set_audit(Duration::from_secs(30), lab.now);
    lab.now += Duration::from_secs(31);
    lab.core.tick(lab.now);
    lab.ask(1, &failover(9, &[1]));
    assert!(lab.virt(0).is_live(1));
    assert_eq!(stage(&lab, 2), Some(MoveStage::Prepared));
}

/// The port and the group that each bucket of group 9 watches.
type Watches = Vec<(u32, u32)>;

fn watches_of(buckets: &openflow13::Buckets) -> Watches {
    let buckets = buckets.iter();
    buckets.map(|b| (b.watch_port, b.watch_group)).collect()
}

/// Returns the watched ports and groups that controller 1 is told of.
fn described(lab: &mut Lab) -> Watches {
    let told = lab.take(1).into_iter();
    let mut groups = told.filter_map(|(_, message)| match message {
        Message::MultipartReply(reply) => match reply.body {
            MultipartReply::GroupDesc(groups) => Some(groups),
            other => panic!("{other:?}"),
        },
        _ => None,
    });
    let groups = groups.next().unwrap();
    let group = groups.into_iter().find(|g| g.group_id == 9);
    watches_of(&group.unwrap().buckets)
}

#[test]
fn what_a_group_watched_is_told_as_of_the_time_of_the_request() {
    for later in [port_no::ANY, 2] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.ask(1, &failover(9, &[1]));
        lab.send(1, 2, &request(MultipartRequest::GroupDesc));
        let buckets = [(later, 8, 1)];
        lab.send(1, 3, &watching(GroupModCommand::Modify, 9, &buckets));
        lab.run();
        assert_eq!(described(&mut lab), [(1, group_no::ANY)]);
    }
}
