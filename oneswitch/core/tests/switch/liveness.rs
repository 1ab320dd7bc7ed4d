//! Ports that fast-failover groups watch.

use crate::build::failover;
use crate::lab::Lab;
use crate::moves::stage;
use crate::recovery::repairs;
use oneswitch_core::{Bridge, MoveStage, MoveUntil};
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
