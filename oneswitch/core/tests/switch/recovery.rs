//! The daemon is killed and starts again.

use crate::build::{add, any, delete, failover, flow_stats, from, group, meter, output};
use crate::fake::Flow;
use crate::lab::{Lab, PATCH};
use crate::verdicts::{cookies, dumped};
use openflow13::{
    config, port_no, state, FlowMod, FlowModCommand, FlowRemoved, GroupModCommand, Message,
    MeterModCommand, PortMod, PortStatus,
};
use std::time::Duration;

/// Bytes of the journal's magic, and of a record before its body.
const MAGIC: usize = 8;
const FRAMING: usize = 12;

/// Offsets at which records end, the magic's first.
fn ends(journal: &[u8]) -> Vec<usize> {
    let mut ends = vec![MAGIC];
    let mut at = MAGIC;
    while let Some(length) = journal.get(at..at + 4) {
        at += FRAMING + u32::from_be_bytes(length.try_into().unwrap()) as usize;
        ends.push(at);
    }
    assert_eq!(at, journal.len());
    ends
}

/// A snapshot's records in a fixed order, as rules have none, without checksums and without the settings' time.
fn sorted(snapshot: &[u8]) -> Vec<Vec<u8>> {
    let ends = ends(snapshot);
    let mut records: Vec<_> = ends
        .windows(2)
        .map(|w| snapshot[w[0] + FRAMING..w[1]].to_vec())
        .collect();
    for settings in records.iter_mut().filter(|r| r[0] == 4) {
        settings[1..9].fill(0);
    }
    records.sort();
    records
}

impl Lab {
    /// State-changing messages that the switches have accepted.
    pub fn accepted(&self) -> Vec<usize> {
        let both = |s: &crate::lab::Fake| [s.virt.accepted, s.edge.accepted];
        self.switches.iter().flat_map(both).collect()
    }

    /// Checks that the journal restores the present core, also after it was compacted.
    pub fn check_journal(&mut self) {
        let snapshot = self.core.snapshot();
        let (mut restored, report) = self.restored(&self.journal).unwrap();
        assert_eq!(report.cut_off, 0);
        let again = restored.snapshot();
        assert_eq!(sorted(&again), sorted(&snapshot));
        let (mut compacted, _) = self.restored(&snapshot).unwrap();
        assert_eq!(sorted(&compacted.snapshot()), sorted(&snapshot));
    }
}

fn flow(message: FlowMod) -> Message {
    Message::FlowMod(message)
}

/// Something of everything, in several rounds.
fn workload(lab: &mut Lab) -> Vec<(usize, Vec<Vec<u8>>)> {
    let timed = FlowMod {
        idle_timeout: 60,
        hard_timeout: 600,
        flags: FlowMod::SEND_FLOW_REM,
        ..add(5, from(2), &output(1))
    };
    let messages = [
        flow(add(1, any(), &output(2))),
        flow(add(2, from(1), &output(port_no::FLOOD))),
        group(GroupModCommand::Add, 1, &[1, 2]),
        group(GroupModCommand::Add, 2, &[3]),
        meter(MeterModCommand::Add, 1, 100),
        flow(timed),
        flow(add(3, from(3), &output(1).group(1))),
        group(GroupModCommand::Modify, 2, &[port_no::FLOOD]),
        meter(MeterModCommand::Modify, 1, 200),
        flow(FlowMod {
            command: FlowModCommand::Modify,
            ..add(0, from(1), &output(3))
        }),
        Message::PortMod(PortMod {
            port: 2,
            hw_addr: [2, 0, 0, 0, 0, 2],
            config: config::NO_PACKET_IN,
            mask: config::NO_PACKET_IN,
            advertise: 0,
        }),
        group(GroupModCommand::Delete, 1, &[]),
        flow(delete(from(2))),
        flow(add(9, from(77), &output(2))),
    ];
    let mut states = vec![(lab.journal.len(), sorted(&lab.core.snapshot()))];
    for (xid, message) in (1..).zip(messages) {
        lab.now += Duration::from_millis(10);
        let answers = lab.ask(xid, &message);
        assert!(answers
            .iter()
            .all(|(_, m)| matches!(m, Message::FlowRemoved(_))));
        states.push((lab.journal.len(), sorted(&lab.core.snapshot())));
    }
    states
}

#[test]
fn the_size_of_a_snapshot_is_known_before_it_is_made() {
    let mut lab = Lab::new(1, &[0]);
    let sizes = |lab: &mut Lab| (lab.core.snapshot_size(), lab.core.snapshot().len());
    let empty = sizes(&mut lab);
    for matching in [
        any(),
        from(1),
        any().with_vlan_vid(5),
        from(1).with_vlan_vid(5),
    ] {
        let (estimated, is) = sizes(&mut lab);
        lab.ask(1, &Message::FlowMod(add(1, matching, &output(1))));
        let (estimated_after, is_after) = sizes(&mut lab);
        assert_eq!(estimated_after - estimated, is_after - is);
    }
    lab.ask(2, &Message::FlowMod(delete(any())));
    assert_eq!(sizes(&mut lab), empty);
    for message in [
        group(GroupModCommand::Add, 5, &[1]),
        meter(MeterModCommand::Add, 6, 100),
        meter(MeterModCommand::Add, 7, 100),
    ] {
        let (estimated, is) = sizes(&mut lab);
        lab.ask(3, &message);
        let (estimated_after, is_after) = sizes(&mut lab);
        assert!(estimated_after - estimated >= is_after - is);
    }
}

#[test]
fn cut_anywhere_it_says_what_was_true_then() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    let states = workload(&mut lab);
    let ends = ends(&lab.journal);
    for cut in 0..=lab.journal.len() {
        let (mut core, restored) = lab.restored(&lab.journal[..cut]).unwrap();
        let whole = ends.iter().copied().take_while(|end| *end <= cut).last();
        assert_eq!(restored.cut_off, cut - whole.unwrap_or(0));
        if let Some((_, state)) = states.iter().find(|(end, _)| *end == cut) {
            assert_eq!(&sorted(&core.snapshot()), state, "cut at {cut}");
        }
    }
}

#[test]
fn damage_is_named_and_not_restored_from() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    workload(&mut lab);
    let ends = ends(&lab.journal);
    for at in 0..lab.journal.len() {
        let mut damaged = lab.journal.clone();
        damaged[at] ^= 0x10;
        let error = lab.restored(&damaged).err().unwrap();
        let record = ends.iter().copied().take_while(|end| *end <= at).last();
        assert_eq!(error.offset, record.unwrap_or(0), "{error}");
        let said = format!("damaged at byte {}: {}", error.offset, error.reason);
        assert!(error.to_string() == said && !error.reason.is_empty());
    }
}

#[test]
fn nothing_is_rewritten_where_nothing_differs() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    workload(&mut lab);
    let accepted = lab.accepted();
    lab.restart();
    lab.run();
    assert_eq!(lab.accepted(), accepted);
    lab.move_port(2, 0, 5);
    let before = (lab.switches[2].virt.accepted, lab.core.ports());
    lab.restart();
    lab.run();
    assert_eq!(lab.switches[2].virt.accepted, before.0);
    let views = |ports: &[oneswitch_core::PortView]| format!("{ports:?}");
    assert_eq!(views(&lab.core.ports()), views(&before.1));
    lab.take(1);
    let mut there = dumped(&lab.ask(9, &flow_stats()));
    there.sort_unstable();
    assert_eq!(there, [1, 2, 9]);
}

#[test]
fn what_differs_is_rewritten_and_nothing_else() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    workload(&mut lab);
    lab.virt(1).flows.retain(|f| f.cookie != 1);
    lab.virt(2).flows[0].cookie = 8;
    let stranger = flow(add(66, from(8), &output(8)));
    let frame = openflow13::encode(1, &stranger).unwrap();
    lab.virt(0).handle(&frame);
    let before = lab.accepted();
    lab.restart();
    lab.run();
    let changed: Vec<usize> = lab
        .accepted()
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    assert_eq!(changed, [1, 0, 1, 0, 1, 0]);
    assert_eq!(cookies(lab.virt(0)), [1, 2, 9]);
    assert_eq!(cookies(lab.virt(1)), [1]);
    assert_eq!(cookies(lab.virt(2)), [1]);
}

#[test]
fn unacknowledged_messages_do_not_survive() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &flow(add(1, any(), &output(2))));
    lab.virt(1).slow = true;
    lab.send(1, 2, &flow(add(2, any().with_vlan_vid(2), &output(2))));
    lab.run();
    assert_eq!(cookies(lab.virt(0)), [1, 2]);
    lab.check_journal();
    lab.virt(1).slow = false;
    lab.restart();
    lab.run();
    assert_eq!(cookies(lab.virt(0)), [1]);
    assert_eq!(cookies(lab.virt(1)), [1]);
}

fn timed(cookie: u64, port: u32, idle_timeout: u16, hard_timeout: u16) -> Message {
    flow(FlowMod {
        idle_timeout,
        hard_timeout,
        flags: FlowMod::SEND_FLOW_REM,
        ..add(cookie, from(port), &output(1))
    })
}

/// Cookies and reasons of the flow_removed messages that controller 1 got.
fn removed(lab: &mut Lab) -> Vec<(u64, u8)> {
    let told = lab.take(1).into_iter();
    told.filter_map(|(_, message)| match message {
        Message::FlowRemoved(m) => Some((m.cookie, m.reason)),
        _ => None,
    })
    .collect()
}

#[test]
fn timeouts_go_on_while_nobody_listens() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &flow(add(1, any(), &output(1))));
    lab.ask(2, &timed(2, 1, 10, 0));
    lab.ask(3, &timed(3, 77, 10, 0));
    lab.ask(4, &timed(4, 78, 0, 30));
    lab.ask(5, &timed(5, 79, 0, 30));
    lab.ask(6, &timed(6, 2, 0, 3000));
    // One idle rule and one with a hard timeout end meanwhile.
    lab.virt(0).flows.retain(|f| f.cookie != 2 && f.cookie != 4);
    lab.now += Duration::from_secs(40);
    lab.restart();
    lab.run();
    assert_eq!(cookies(lab.virt(0)), [1, 3]);
    let mut told = removed(&mut lab);
    told.sort_unstable();
    let (idle, hard) = (FlowRemoved::IDLE_TIMEOUT, FlowRemoved::HARD_TIMEOUT);
    assert_eq!(told, [(2, idle), (4, hard), (5, hard)]);
    assert_eq!(cookies(lab.virt(1)), [1, 6]);
    lab.check_journal();
}

#[test]
fn a_switch_that_lost_everything_gets_idle_rules_again() {
    let mut lab = Lab::new(1, &[0]);
    lab.ask(1, &timed(1, 1, 10, 0));
    lab.ask(2, &flow(add(2, any(), &output(1))));
    lab.virt(0).flows.clear();
    lab.now += Duration::from_secs(40);
    lab.restart();
    lab.run();
    assert_eq!(cookies(lab.virt(0)), [1, 2]);
    assert!(removed(&mut lab).is_empty());
}

pub fn repairs(lab: &Lab) -> u64 {
    lab.core.status().switches.iter().map(|s| s.repairs).sum()
}

/// Audits every bridge, `virt` and `edge` of the hypervisor first: the changes found, and those found repeatedly.
fn audit(lab: &mut Lab) -> Vec<(Vec<String>, Vec<String>)> {
    let requested = lab.core.request_audit(lab.now);
    lab.wait(Duration::from_secs(2));
    let audits = lab.core.audited(requested, lab.now).into_iter();
    audits
        .map(|each| {
            assert!(each.is_audited);
            let found = each
                .found
                .map(|f| (f.changes.named.clone(), f.again.clone()));
            found.unwrap_or_default()
        })
        .collect()
}

#[test]
fn a_requested_audit_names_what_it_repairs() {
    let mut lab = Lab::new(2, &[0, 1]);
    for message in [
        flow(add(1, from(1), &output(2))),
        flow(add(2, any(), &output(1))),
        group(GroupModCommand::Add, 2, &[1]),
        meter(MeterModCommand::Add, 1, 100),
    ] {
        lab.ask(1, &message);
    }
    let (before, repairs_before) = (lab.accepted(), repairs(&lab));
    let is_clean = |audits: Vec<_>| audits.into_iter().all(|each| each == Default::default());
    assert!(is_clean(audit(&mut lab)) && lab.accepted() == before);
    let wanted = (cookies(lab.virt(0)), lab.edge(1).flows.len());
    lab.virt(0).flows.retain(|f| f.cookie != 1);
    lab.virt(0).flows[0].instructions = openflow13::Instructions::apply(&output(9));
    lab.virt(0).groups.remove(&2);
    lab.virt(0).meters.get_mut(&1).unwrap().0 = 0;
    let delivery = |f: &Flow| f.matching.in_port() == Some(PATCH + 2);
    lab.edge(1).flows.retain(|f| !delivery(f));
    let shadow = FlowMod {
        priority: 40_000,
        ..add(0, from(2), &output(1))
    };
    let shadow = openflow13::encode(1, &flow(shadow)).unwrap();
    lab.edge(1).handle(&shadow);
    let stranger = group(GroupModCommand::Add, 7, &[1]);
    lab.edge(0)
        .handle(&openflow13::encode(1, &stranger).unwrap());
    let found: Vec<_> = audit(&mut lab).into_iter().map(|each| each.0).collect();
    let virt = [
        "missing rule table=0,priority=10 in_port=1 (from virt-1)",
        "changed rule table=0,priority=10 any packet",
        "changed meter 1",
        "missing group 2",
    ];
    let shadowing = "foreign rule table=0,priority=40000 in_port=2 (from if2)";
    let edge = [
        shadowing,
        "missing rule table=0,priority=100 in_port=102 (from edge-2)",
    ];
    assert_eq!(found, [&virt[..], &["foreign group 7"], &[], &edge]);
    let repaired = (cookies(lab.virt(0)), lab.edge(1).flows.len());
    assert_eq!((repaired, repairs(&lab)), (wanted, repairs_before + 7));
    assert_eq!(
        audit(&mut lab)[1].0,
        ["foreign group 7"],
        "not forgotten yet"
    );
    // A change that comes back is told apart, unless the earlier one is long ago.
    for again in [vec![shadowing.to_owned()], vec![]] {
        lab.edge(1).handle(&shadow);
        assert_eq!(audit(&mut lab)[3], (vec![shadowing.into()], again));
        lab.wait(Duration::from_secs(300));
    }
    assert!(is_clean(audit(&mut lab)));
}

#[test]
fn a_bridge_that_does_not_answer_is_not_audited() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.virt(1).slow = true;
    let requested = lab.core.request_audit(lab.now);
    lab.run();
    let audits = lab.core.audited(requested, lab.now).into_iter();
    let is_audited: Vec<_> = audits.map(|each| each.is_audited).collect();
    assert_eq!(is_audited, [true, true, false, true]);
}

#[test]
fn an_end_on_its_way_is_waited_for() {
    let mut lab = Lab::new(1, &[0]);
    lab.ask(1, &timed(1, 1, 10, 0));
    lab.ask(2, &flow(add(2, any(), &output(1))));
    lab.core.set_audit(Duration::from_secs(30), lab.now);
    lab.virt(0).flows.remove(0);
    lab.now += Duration::from_secs(11);
    for _ in 0..2 {
        lab.core.request_audit(lab.now);
        lab.wait(Duration::from_secs(1));
        assert_eq!(cookies(lab.virt(0)), [2], "it may have expired");
    }
    lab.wait(Duration::from_secs(31));
    assert_eq!(cookies(lab.virt(0)), [1, 2], "somebody took it");
}

#[test]
fn what_a_switch_spells_otherwise_is_rewritten_once() {
    let mut lab = Lab::new(1, &[0]);
    lab.ask(1, &flow(add(1, from(1), &output(2))));
    lab.core.set_audit(Duration::from_secs(30), lab.now);
    let before = lab.accepted()[0];
    let spell = |lab: &mut Lab| {
        lab.virt(0).flows[0].instructions = openflow13::Instructions::apply(&output(2).pop_vlan());
    };
    for rewritten in [1, 1, 1] {
        spell(&mut lab);
        lab.wait(Duration::from_secs(31));
        assert_eq!(lab.accepted()[0], before + rewritten);
    }
}

/// The ports that were said to be down, and up.
fn announced(lab: &mut Lab) -> (Vec<u32>, Vec<u32>) {
    let told = lab.take(1).into_iter();
    told.filter_map(|(_, message)| match message {
        Message::PortStatus(m) if m.reason == PortStatus::MODIFY => Some(m.port),
        _ => None,
    })
    .map(|port| (port.number, port.state & state::LINK_DOWN != 0))
    .fold((vec![], vec![]), |(mut down, mut up), (number, is_down)| {
        if is_down { &mut down } else { &mut up }.push(number);
        (down, up)
    })
}

#[test]
fn a_dead_pcie_link_takes_down_exactly_the_ports_behind_it() {
    let mut lab = Lab::new(3, &[0, 1, 2, 1]);
    lab.ask(1, &failover(9, &[1, 2, 3, 4]));
    for (switch, name, dead) in [
        (0, "pcie-snic0", true),
        (0, "pcie-snic0", false),
        (1, "pf0hpf", true),
        (1, "pf0hpf", false),
    ] {
        let ports = &lab.edge(switch).ports;
        let pcie = ports.values().find(|p| p.name_str() == name);
        let number = pcie.unwrap().number;
        lab.edge(switch).carrier(number, !dead);
        lab.run();
        let expected = if dead {
            (vec![2, 4], vec![])
        } else {
            (vec![], vec![2, 4])
        };
        assert_eq!(announced(&mut lab), expected);
        let reasons: Vec<bool> = lab
            .core
            .ports()
            .iter()
            .map(|p| p.reason.is_some())
            .collect();
        assert_eq!(reasons, [false, dead, false, dead]);
        // Fast-failover groups see it where packets would have to cross the link.
        let down = |lab: &Lab, at: usize, port: u32| !lab.switches[at].virt.is_live(port);
        assert_eq!(
            [down(&lab, 0, 2), down(&lab, 2, 4), down(&lab, 1, 1)],
            [dead; 3]
        );
        assert!(!down(&lab, 1, 2) && !down(&lab, 0, 1) && !down(&lab, 0, 3));
    }
}
