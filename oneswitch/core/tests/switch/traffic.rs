//! Ports gather where most of the measured traffic enters.

use crate::build::{add, any, delete, output, port_request};
use crate::lab::{switch_name, Lab};
use oneswitch_core::HOME;
use openflow13::{port_no, Message, MultipartRequest, PortStats};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// A little more than the time between two readings.
const SAMPLE: Duration = Duration::from_millis(5500);
const REST: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(2);

fn normal(cookie: u64) -> Message {
    Message::FlowMod(add(cookie, any(), &output(port_no::NORMAL)))
}

fn executed_at(lab: &Lab) -> Vec<String> {
    let ports = lab.core.ports();
    ports.into_iter().map(|port| port.executes_at).collect()
}

fn received(lab: &mut Lab, switch: usize, interface: u32, rx_bytes: u64) {
    let stats = PortStats {
        rx_bytes,
        ..PortStats::default()
    };
    lab.edge(switch).port_stats.insert(interface, stats);
}

fn gathered(lab: &Lab) -> (String, String) {
    let gathered = lab.core.status().gathered.expect("gathered ports");
    (gathered.at, gathered.choice)
}

#[test]
fn ports_gather_where_most_of_the_traffic_enters() {
    let mut lab = Lab::gathering(3, &[0, 0, 1, 2], None);
    received(&mut lab, 0, 1, 10);
    lab.wait(SAMPLE);
    received(&mut lab, 0, 1, 25);
    received(&mut lab, 1, 3, 50);
    received(&mut lab, 2, 4, 30);
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(1); 4]);
    // The first 10 bytes of port 1 count half.
    let why = "50 % of the traffic entered there";
    assert_eq!(gathered(&lab), (switch_name(1), why.to_owned()));
    // The choice holds until the ports are home again.
    received(&mut lab, 2, 4, 99_999);
    lab.wait(3 * SAMPLE);
    lab.ask(2, &Message::FlowMod(delete(any())));
    lab.wait(REST / 2);
    lab.send(1, 3, &normal(4));
    lab.wait(2 * REST);
    assert_eq!(executed_at(&lab), vec![switch_name(1); 4]);
    lab.ask(5, &Message::FlowMod(delete(any())));
    lab.wait(2 * REST);
    assert!(lab.core.ports().iter().all(|port| port.executor == HOME));
    assert!(lab.core.status().gathered.is_none());
    // Counts from before the ports came home do not matter.
    received(&mut lab, 0, 2, 1);
    lab.send(1, 6, &normal(7));
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(0); 4]);
}

#[test]
fn late_traffic_counts_more_than_early_traffic() {
    let mut lab = Lab::gathering(2, &[0, 1, 1], None);
    received(&mut lab, 1, 2, 1000);
    lab.wait(SAMPLE);
    received(&mut lab, 0, 1, 300);
    lab.wait(SAMPLE);
    received(&mut lab, 0, 1, 600);
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(0); 3]);
}

#[test]
fn without_traffic_ports_gather_at_the_executor_of_most() {
    let mut lab = Lab::gathering(2, &[0, 1, 1], None);
    lab.wait(3 * SAMPLE);
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    let why = "it executed for 2 of 3 ports";
    assert_eq!(gathered(&lab), (switch_name(1), why.to_owned()));
    let mut lab = Lab::gathering(2, &[1, 0], None);
    for (switch, interface) in [(0, 2), (1, 1)] {
        received(&mut lab, switch, interface, 500);
    }
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    let why = "50 % of the traffic entered there";
    assert_eq!(gathered(&lab), (switch_name(0), why.to_owned()));
}

#[test]
fn the_configured_switch_needs_no_readings() {
    for (at, readings) in [(Some(1), 0), (None, 3)] {
        let mut lab = Lab::gathering(2, &[0, 0, 1], at);
        let count = count_readings(&mut lab);
        lab.wait(3 * SAMPLE);
        assert_eq!(count.get(), readings);
    }
    let mut lab = Lab::gathering(2, &[0, 0, 1], Some(1));
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    let why = "gather_at names it";
    assert_eq!(gathered(&lab), (switch_name(1), why.to_owned()));
}

#[test]
fn nothing_is_read_while_the_ports_are_together() {
    let mut lab = Lab::gathering(2, &[0, 1], None);
    lab.send(1, 1, &normal(1));
    lab.wait(SOON);
    let count = count_readings(&mut lab);
    lab.wait(3 * SAMPLE);
    assert_eq!(count.get(), 0);
}

/// Counts the requests for port statistics that the hypervisor gets from now on.
fn count_readings(lab: &mut Lab) -> Rc<Cell<usize>> {
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    lab.edge(0).refuse = Some(Box::new(move |message| {
        let is_reading = matches!(message, Message::MultipartRequest(asked) if matches!(asked.body, MultipartRequest::PortStats { .. }));
        counted.set(counted.get() + usize::from(is_reading));
        None
    }));
    count
}

#[test]
fn a_bridge_that_does_not_answer_delays_the_choice_by_a_second() {
    let mut lab = Lab::gathering(2, &[0, 0, 1], None);
    received(&mut lab, 1, 3, 100);
    lab.wait(SAMPLE);
    lab.edge(0).slow = true;
    lab.send(1, 1, &normal(1));
    lab.wait(Duration::from_millis(900));
    assert!(lab.core.status().gathered.is_none());
    lab.wait(Duration::from_millis(200));
    assert_eq!(gathered(&lab).0, switch_name(1));
    lab.edge(0).slow = false;
    lab.wait(SOON);
    assert_eq!(executed_at(&lab), vec![switch_name(1); 3]);
}

#[test]
fn a_restart_keeps_the_place() {
    for pause in [20, 150, 400, 700, 2000] {
        let mut lab = Lab::gathering(2, &[0, 0, 1], None);
        received(&mut lab, 1, 3, 100);
        lab.ask(1, &normal(1));
        lab.wait(Duration::from_millis(pause));
        lab.restart();
        lab.run();
        let why = "they were there before oneswitchd restarted";
        assert_eq!(gathered(&lab), (switch_name(1), why.to_owned()));
        lab.ask(2, &normal(2));
        lab.wait(SOON);
        assert_eq!(executed_at(&lab), vec![switch_name(1); 3]);
        // A port that comes now joins them.
        let request = port_request(5, &switch_name(0), None);
        assert_eq!(lab.core.add_port(request, lab.now), Ok(5));
        lab.wait(SOON);
        assert_eq!(executed_at(&lab), vec![switch_name(1); 4]);
    }
}
