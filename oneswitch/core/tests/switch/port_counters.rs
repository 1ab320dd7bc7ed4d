//! Counters of ports that only OpenFlow 1.4 has: connections of their own to each `edge` tell them.

use crate::lab::{Lab, GRACE};
use crate::statistics;
use openflow13::openflow14::{
    decode_port_stats, encode_port_stats, encode_port_stats_request, VERSION,
};
use openflow13::{
    encode_error, kind, port_no, ErrorCode, IntelPortStats, Port, PortStats, RFC2819,
};
use std::time::Duration;

const NEW: u64 = 14;
const NAMES: [&str; 2] = ["rx_custom", "tx_q0_packets"];

/// A controller of OpenFlow 1.4, and connections of that version to these switches.
fn linked(links: &[usize]) -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(NEW, VERSION);
    assert!(lab.core.wants_port_counters());
    for switch in links {
        lab.core.port_counters_up(*switch, lab.now);
    }
    lab
}

/// An interface has received this many packets.
fn count(lab: &mut Lab, switch: usize, interface: u32, packets: u64) {
    let stats = counted(interface, packets);
    lab.edge(switch).port_stats.insert(interface, stats);
}

fn counted(interface: u32, packets: u64) -> PortStats {
    let mut rfc2819 = [u64::MAX; RFC2819];
    rfc2819[0] = packets;
    let custom = NAMES.map(|name| (name.as_bytes().into(), 10 * packets));
    PortStats {
        port_no: interface,
        rx_packets: packets,
        intel: Some(Box::new(IntelPortStats {
            rfc2819,
            custom: custom.into(),
        })),
        ..PortStats::default()
    }
}

/// Answers what the switches were asked over OpenFlow 1.4, until nothing moves any more.
fn answer(lab: &mut Lab) {
    lab.run();
    while let Some((switch, frame)) = lab.asked_newer.pop() {
        let (xid, asked) = (number(&frame[4..8]), number(&frame[16..20]));
        let ports = lab.edge(switch).port_stats.values();
        let is_asked = |port: &&PortStats| [port_no::ANY, port.port_no].contains(&asked);
        let ports: Vec<PortStats> = ports.filter(is_asked).cloned().collect();
        for reply in encode_port_stats(xid, &ports) {
            lab.core.port_counters_told(switch, &reply, lab.now);
        }
        lab.run();
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

fn ask(lab: &mut Lab, port: u32) {
    lab.send_raw(NEW, &encode_port_stats_request(7, port));
    lab.run();
}

/// What the controller was told: packets, the first counter of RFC 2819, and the custom ones.
fn told(lab: &mut Lab) -> (u64, u64, Vec<u64>) {
    let mut frames = lab.take_raw(NEW);
    frames.retain(|frame| frame[1] == kind::MULTIPART_REPLY);
    let reply = frames.concat();
    let (ports, _) = decode_port_stats(&reply).unwrap();
    let intel = ports[0].intel.as_ref().unwrap();
    let names = intel.custom.iter().map(|(name, _)| &**name);
    assert!(intel.custom.is_empty() || names.eq(NAMES.map(str::as_bytes)));
    let custom = intel.custom.iter().map(|(_, count)| *count);
    (ports[0].rx_packets, intel.rfc2819[0], custom.collect())
}

fn asked(lab: &mut Lab, port: u32) -> (u64, u64, Vec<u64>) {
    ask(lab, port);
    answer(lab);
    told(lab)
}

#[test]
fn a_request_waits_for_the_connections_and_is_answered_as_the_switch_does() {
    let mut lab = linked(&[0]);
    count(&mut lab, 1, 2, 3);
    ask(&mut lab, 2);
    assert_eq!((lab.take_raw(NEW).len(), lab.asked_newer.len()), (0, 0));
    lab.core.port_counters_up(1, lab.now);
    answer(&mut lab);
    assert_eq!(told(&mut lab), (3, 3, vec![30, 30]));
    assert_eq!(statistics::port_stats(&mut lab, 2).len(), 1, "over 1.3");
}

#[test]
fn without_a_connection_a_request_is_answered_after_a_second() {
    let mut lab = linked(&[0]);
    count(&mut lab, 1, 2, 3);
    ask(&mut lab, 2);
    lab.wait(Duration::from_millis(999));
    assert_eq!(lab.take_raw(NEW), [[0; 0]; 0]);
    lab.wait(Duration::from_millis(1));
    assert_eq!(told(&mut lab), (3, u64::MAX, vec![]));
    ask(&mut lab, 2);
    assert_eq!(
        told(&mut lab),
        (3, u64::MAX, vec![]),
        "at once from then on"
    );
}

#[test]
fn a_connection_that_ends_or_refuses_is_replaced_by_that_of_openflow_13() {
    let mut lab = linked(&[0, 1]);
    count(&mut lab, 1, 2, 3);
    ask(&mut lab, 2);
    let (_, frame) = lab.asked_newer.pop().unwrap();
    let error = encode_error(
        number(&frame[4..8]),
        ErrorCode::BAD_REQUEST_BAD_TYPE,
        &frame,
    );
    assert_eq!((error[0], error[1]), (VERSION, kind::ERROR));
    lab.core.port_counters_told(1, &error, lab.now);
    lab.run();
    assert_eq!(told(&mut lab), (3, u64::MAX, vec![]));

    ask(&mut lab, 2);
    lab.core.port_counters_down(1);
    lab.run();
    assert_eq!(told(&mut lab), (3, u64::MAX, vec![]));
}

#[test]
fn local_is_asked_of_virt_over_openflow_15() {
    let mut lab = linked(&[0, 1]);
    lab.link_newer();
    lab.run();
    lab.answers_newer = false;
    let local = counted(port_no::LOCAL, 3);
    lab.virt(0).ports.insert(port_no::LOCAL, Port::default());
    lab.virt(0).port_stats.insert(port_no::LOCAL, local.clone());
    lab.virt(0).slow = true;
    ask(&mut lab, port_no::LOCAL);
    let (switch, frame) = lab.properties.pop().unwrap();
    assert_eq!(
        (switch, &frame[..2]),
        (0, &[6, kind::MULTIPART_REQUEST][..])
    );
    for reply in encode_port_stats(number(&frame[4..8]), &[local]) {
        lab.core.properties_told(0, &reply, lab.now);
    }
    lab.run();
    assert_eq!(told(&mut lab), (3, 3, vec![30, 30]));

    ask(&mut lab, port_no::LOCAL);
    lab.virt(0).slow = false;
    lab.core.properties_down(0, lab.now);
    lab.run();
    assert_eq!(told(&mut lab), (3, u64::MAX, vec![]));
}

#[test]
fn a_move_continues_the_counters_and_a_restart_keeps_them() {
    let mut lab = linked(&[0, 1]);
    count(&mut lab, 1, 2, 3);
    count(&mut lab, 0, 5, 100);
    assert_eq!(asked(&mut lab, 2), (3, 3, vec![30, 30]));
    lab.begin_move(2, 0, 5, oneswitch_core::MoveUntil::Done);
    answer(&mut lab);
    count(&mut lab, 0, 5, 104);
    for _ in 0..4 {
        lab.wait(GRACE);
        answer(&mut lab);
    }
    assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
    assert_eq!(asked(&mut lab, 2), (7, 7, vec![70, 70]));

    lab.restart();
    lab.controller_down(NEW);
    lab.controller_of_version(NEW, VERSION);
    (0..2).for_each(|switch| lab.core.port_counters_up(switch, lab.now));
    lab.run();
    assert_eq!(asked(&mut lab, 2), (7, 7, vec![70, 70]));
}
