//! Offloaded flows that leave unchanged as if another port had sent them, and those that are dropped.

use crate::lab::{Lab, PATCH};
use crate::offload::{hello, install, PORT};
use oneswitch_core::{
    Claim, OffloadEvent, OffloadRefused, OffloadRequest, OffloadTarget, WriterId,
};
use openflow13::Action;

/// The other port of a function with two, at the same switch.
const PEER: u32 = 3;

fn pass(peer: u32) -> OffloadRequest {
    OffloadRequest::Target(7, Some(OffloadTarget::Pass(peer)))
}

/// A function at ports 2 and 3 of snic0, with a connected writer for port 2.
fn bump() -> Lab {
    let mut lab = Lab::new(2, &[0, 1, 1]);
    lab.writer(1, 5, 1);
    lab
}

/// The actions of the only target of the port: outputs, and tables that it leads to.
fn ways(lab: &mut Lab) -> (Vec<u32>, usize) {
    let (_, buckets) = lab.edge(1).groups[&(PORT << 16 | 7)].clone();
    let bucket = buckets.iter().next().unwrap();
    let outputs = bucket.actions.iter().filter_map(|item| match item.action {
        Action::Output { port, .. } => Some(port),
        _ => None,
    });
    (outputs.collect(), bucket.actions.iter().count())
}

#[test]
fn passed_packets_leave_as_the_peers_and_are_counted_there() {
    let mut lab = bump();
    lab.offload(1, &[pass(PEER), install(1, 1)]);
    assert_eq!(lab.told(1), [OffloadEvent::Installed(vec![1])]);
    assert_eq!(ways(&mut lab).0, [PATCH + PEER]);
    lab.carry(1, 1, 3);
    // (received from the port, sent to it)
    assert_eq!(lab.port_packets(PORT), (0, 3));
    assert_eq!(lab.port_packets(PEER), (3, 0));
}

#[test]
fn denied_packets_only_reach_the_port() {
    let mut lab = bump();
    let deny = OffloadRequest::Target(7, Some(OffloadTarget::Deny));
    lab.offload(1, &[deny, install(1, 1)]);
    assert_eq!(ways(&mut lab), (vec![], 0));
    lab.carry(1, 1, 3);
    assert_eq!(lab.port_packets(PORT), (0, 3));
    lab.restart();
    lab.run();
    assert_eq!(lab.offloaded(1), [1]);
    assert_eq!(lab.port_packets(PORT), (0, 3));
}

#[test]
fn a_restart_adopts_the_peer() {
    let mut lab = bump();
    lab.offload(1, &[pass(PEER), install(1, 1)]);
    lab.carry(1, 1, 3);
    let before = (lab.edge(1).flows.clone(), lab.edge(1).groups.clone());
    lab.restart();
    lab.core.offload_hello(WriterId(2), hello(5, 2), lab.now);
    lab.run();
    assert_eq!(
        (lab.edge(1).flows.clone(), lab.edge(1).groups.clone()),
        before
    );
    assert_eq!(lab.port_packets(PEER), (3, 0));
}

#[test]
fn where_the_peer_is_elsewhere_the_function_gets_the_packets() {
    let mut lab = bump();
    lab.offload(1, &[pass(PEER), install(1, 1)]);
    lab.move_port(PEER, 0, 9);
    let (outputs, actions) = ways(&mut lab);
    assert_eq!((outputs, actions > 0), (vec![], true));
    lab.move_port(PEER, 1, 3);
    assert_eq!(ways(&mut lab).0, [PATCH + PEER]);
}

#[test]
fn a_port_of_another_owner_is_no_peer() {
    for peer in [77, 1] {
        let mut lab = bump();
        let claim = Claim {
            owner: Some("another".into()),
            force: false,
        };
        lab.core.give_port(1, claim).unwrap();
        lab.offload(1, &[pass(peer), install(1, 1)]);
        let refused = OffloadEvent::Refused(vec![(1, OffloadRefused::Unsupported)]);
        assert_eq!(lab.told(1), [refused], "{peer}");
    }
}
