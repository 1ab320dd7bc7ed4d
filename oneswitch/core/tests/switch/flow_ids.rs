//! Flow-ids that ports give back: no port gets one while a packet of the port before can have it.

use crate::build::port_request;
use crate::confirmed::LASTING;
use crate::lab::{Lab, GRACE};
use crate::removals::seconds;
use oneswitch_core::{Bridge, MoveUntil};

fn add_port(lab: &mut Lab, number: u32, executor: Option<&str>) {
    let request = port_request(number, "snic0", executor);
    lab.core.add_port(request, lab.now).unwrap();
    lab.run();
}

fn remove_port(lab: &mut Lab, number: u32) {
    lab.core
        .remove_port(number, &Default::default(), lab.now)
        .unwrap();
    lab.run();
}

/// DELIVER and INGRESS.
fn ids(lab: &Lab, number: u32) -> Vec<u32> {
    let ports = lab.core.ports();
    let port = ports.iter().find(|p| p.number == number).unwrap();
    [Some(port.flow_id), port.ingress_id]
        .into_iter()
        .flatten()
        .collect()
}

/// Port 5, executed at the hypervisor, was removed; which ids it had.
fn removed(away: bool) -> (Lab, Vec<u32>) {
    let mut lab = Lab::new(2, &[0, 1]);
    add_port(&mut lab, 5, Some("hypervisor"));
    let given_back = ids(&lab, 5);
    assert_eq!(given_back.len(), 2);
    if away {
        lab.disconnect_bridge(0, Bridge::Edge);
    }
    remove_port(&mut lab, 5);
    (lab, given_back)
}

fn gets_any(lab: &mut Lab, number: u32, ids_before: &[u32]) -> bool {
    add_port(lab, number, None);
    let got = ids(lab, number);
    got.iter().any(|id| ids_before.contains(id))
}

#[test]
fn ids_are_given_again_when_all_switches_have_forgotten_them_and_packets_have_arrived() {
    let (mut lab, before) = removed(false);
    assert!(!gets_any(&mut lab, 6, &before));
    lab.wait(seconds(1));
    assert!(gets_any(&mut lab, 7, &before));
}

#[test]
fn ids_that_a_switch_out_of_reach_may_use_are_not_given_again() {
    let (mut lab, before) = removed(true);
    lab.wait(seconds(60));
    assert!(!gets_any(&mut lab, 6, &before));
    lab.connect_bridge(0, Bridge::Edge);
    lab.run();
    assert!(!gets_any(&mut lab, 7, &before));
    lab.wait(seconds(1));
    assert!(gets_any(&mut lab, 8, &before));
}

#[test]
fn they_are_not_given_again_after_a_restart_either() {
    let (mut lab, before) = removed(true);
    lab.restart();
    lab.wait(seconds(60));
    lab.restart();
    lab.wait(LASTING);
    assert!(!gets_any(&mut lab, 6, &before));
    lab.check_journal();
    lab.connect_bridge(0, Bridge::Edge);
    lab.wait(seconds(2));
    assert!(gets_any(&mut lab, 7, &before));
    lab.check_journal();
}

#[test]
fn the_ids_of_a_port_that_was_removed_while_oneswitchd_was_away_are_not_given_again() {
    let mut lab = Lab::new(2, &[0, 1]);
    let ports = lab.core.port_configs();
    add_port(&mut lab, 5, Some("hypervisor"));
    let before = ids(&lab, 5);
    lab.disconnect_bridge(0, Bridge::Edge);
    lab.restart_with(ports);
    lab.wait(seconds(60));
    assert!(!gets_any(&mut lab, 6, &before));
}

#[test]
fn the_id_of_an_executor_that_came_home_rests_too() {
    let mut lab = Lab::new(2, &[1, 1]);
    lab.execute_at(1, Some(0));
    let before = ids(&lab, 1)[1];
    lab.begin_executor_change(1, None, MoveUntil::Done);
    lab.wait(GRACE);
    assert_eq!(ids(&lab, 1).len(), 1);
    assert!(!gets_any(&mut lab, 6, &[before]));
    lab.wait(seconds(1));
    assert!(gets_any(&mut lab, 7, &[before]));
}

#[test]
fn the_id_of_a_change_of_the_executor_that_was_undone_rests_too() {
    let mut lab = Lab::new(2, &[1, 1]);
    lab.begin_executor_change(1, Some(0), MoveUntil::Prepared);
    lab.run();
    let before = ids(&lab, 1)[1];
    lab.core.abort_move(1, lab.now).unwrap();
    lab.run();
    assert!(!gets_any(&mut lab, 6, &[before]));
    lab.wait(seconds(1));
    assert!(gets_any(&mut lab, 7, &[before]));
}
