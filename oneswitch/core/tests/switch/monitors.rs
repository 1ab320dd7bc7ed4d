//! Flow monitors: controllers are told of changes that are in force, once, in the order of their replies, and within bounds.

use crate::budget::note;
use crate::build::{add, any, delete, from, group, output};
use crate::bundles::frames;
use crate::fake::FakeBridge;
use crate::lab::Lab;
use crate::learning::{learner, own};
use oneswitch_core::{ControllerId, MoveUntil};
use openflow13::flow_monitor::{
    decode_updates, encode_paused, encode_resumed, flags, Event, Form, FullUpdate, MonitorCommand,
    MonitorRequest, MonitorRequests, Update,
};
use openflow13::{
    bundle, decode, encode, encode_error, group_no, kind, port_no, ErrorCode, FlowMod,
    FlowModCommand, GroupModCommand, Header, Message, Multipart, MultipartRequest, VERSION,
};
use std::time::Duration;

const WATCHER: u64 = 2;
const CHANGES: u16 = flags::ADD | flags::REMOVED | flags::MODIFY;

/// A report to a controller: a change of the rule with this cookie, an abbreviated one, or another message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Full(Event, u64, u8),
    Own(u32),
    Paused,
    Resumed,
    Other(u8, u32),
}
use Event::{Added, Modified, Removed};
use Told::{Full, Other, Own, Paused, Resumed};

fn monitor(wanted: u16) -> Vec<u8> {
    monitor_of(1, wanted, any())
}

fn monitor_of(id: u32, wanted: u16, matching: openflow13::Match) -> Vec<u8> {
    let request = MonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags: wanted,
        out_port: port_no::ANY,
        out_group: group_no::ANY,
        table_id: openflow13::ALL_TABLES,
        matching,
    };
    let mut entries = Vec::new();
    request.put(Form::Onf, &mut entries);
    let body = MultipartRequest::FlowMonitor(MonitorRequests {
        form: Form::Onf,
        parts: vec![entries.into()],
    });
    encode(7, &Message::MultipartRequest(Multipart::last(body))).unwrap()
}

fn told(frames: Vec<Vec<u8>>) -> Vec<Told> {
    let of_update = |update: Update| match update {
        Update::Abbreviated(xid) => Own(xid),
        Update::Full(update) => {
            let FullUpdate {
                event,
                cookie,
                reason,
                ..
            } = *update;
            Full(event, cookie, reason)
        }
    };
    let of_frame = |frame: Vec<u8>| match decode_updates(&frame) {
        Ok(updates) => updates.into_iter().map(of_update).collect(),
        Err(_) if frame == encode_paused(VERSION) => vec![Paused],
        Err(_) if frame == encode_resumed(VERSION) => vec![Resumed],
        Err(_) => {
            let header = Header::parse(&frame).unwrap();
            vec![Other(header.kind, header.xid)]
        }
    };
    frames.into_iter().flat_map(of_frame).collect()
}

/// Two switches, a rule of each port, and a controller that monitors everything.
fn watched(wanted: u16) -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    for port in [1, 2] {
        lab.ask(1, &rule(port));
    }
    lab.controller_up(WATCHER);
    lab.send_raw(WATCHER, &monitor(wanted));
    lab.run();
    lab
}

fn rule(port: u32) -> Message {
    Message::FlowMod(add(port.into(), from(port), &output(1)))
}

fn take(lab: &mut Lab, id: u64) -> Vec<Told> {
    let frames = lab.take_raw(id);
    told(frames)
}

#[test]
fn a_monitor_begins_with_the_rules_that_are_there() {
    let mut lab = watched(flags::INITIAL | CHANGES);
    let mut rules = take(&mut lab, WATCHER);
    rules.sort_by_key(|told| format!("{told:?}"));
    // The ONF's extension calls them additions.
    assert_eq!(rules, [Full(Added, 1, 0), Full(Added, 2, 0)]);
}

#[test]
fn a_change_is_reported_when_it_is_in_force() {
    let mut lab = watched(CHANGES);
    lab.take_raw(WATCHER);
    lab.virt(1).slow = true;
    lab.send(1, 1, &rule(3));
    lab.send(1, 2, &Message::FlowMod(add(9, any(), &output(2))));
    lab.run();
    assert_eq!(take(&mut lab, WATCHER), []);
    lab.virt(1).slow = false;
    lab.run();
    assert_eq!(
        take(&mut lab, WATCHER),
        [Full(Added, 3, 0), Full(Added, 9, 0)]
    );
}

#[test]
fn reports_keep_their_place_among_replies() {
    let mut lab = watched(CHANGES);
    lab.take_raw(WATCHER);
    lab.virt(1).slow = true;
    lab.send(WATCHER, 1, &rule(2));
    lab.send(WATCHER, 2, &Message::BarrierRequest);
    lab.send(1, 3, &rule(1));
    lab.send(WATCHER, 4, &Message::BarrierRequest);
    lab.send(1, 5, &Message::FlowMod(delete(from(1))));
    lab.run();
    lab.virt(1).slow = false;
    lab.run();
    let expected = [
        Own(1),
        Other(kind::BARRIER_REPLY, 2),
        Full(Added, 1, 0),
        Other(kind::BARRIER_REPLY, 4),
        Full(Removed, 1, 2),
    ];
    assert_eq!(take(&mut lab, WATCHER), expected);
}

#[test]
fn what_a_switch_refuses_is_not_reported() {
    let mut lab = watched(CHANGES);
    lab.take_raw(WATCHER);
    let refused = Message::FlowMod(add(8, from(1), &openflow13::ActionList::new().group(77)));
    lab.send(WATCHER, 1, &rule(1));
    lab.send(WATCHER, 2, &refused);
    lab.send(1, 3, &rule(2));
    lab.run();
    let error = Header::parse(&encode_error(2, ErrorCode::BAD_ACTION_BAD_OUT_GROUP, &[4])).unwrap();
    let expected = [Own(1), Other(error.kind, 2), Full(Added, 2, 0)];
    assert_eq!(take(&mut lab, WATCHER), expected);
}

#[test]
fn a_modification_that_changes_nothing_is_not_reported() {
    let mut lab = watched(CHANGES | flags::OWN);
    lab.take_raw(WATCHER);
    let modify = |port| {
        Message::FlowMod(FlowMod {
            command: FlowModCommand::Modify,
            ..add(5, from(1), &output(port))
        })
    };
    lab.send(WATCHER, 1, &modify(1));
    lab.send(WATCHER, 2, &modify(2));
    lab.run();
    assert_eq!(take(&mut lab, WATCHER), [Full(Modified, 1, 0)]);
}

#[test]
fn rules_that_go_with_their_group_are_not_the_senders_own() {
    let mut lab = watched(CHANGES);
    lab.send(WATCHER, 1, &group(GroupModCommand::Add, 5, &[1]));
    let to_group = openflow13::ActionList::new().group(5);
    lab.send(WATCHER, 2, &Message::FlowMod(add(5, from(2), &to_group)));
    lab.run();
    lab.take_raw(WATCHER);
    lab.send(WATCHER, 3, &group(GroupModCommand::Delete, 5, &[]));
    lab.run();
    assert_eq!(take(&mut lab, WATCHER), [Full(Removed, 5, 3)]);
}

#[test]
fn neither_moves_nor_restarts_change_rules() {
    let mut lab = watched(CHANGES);
    lab.take_raw(WATCHER);
    lab.move_port(2, 0, 5);
    lab.begin_move(1, 1, 6, MoveUntil::Done);
    lab.wait(Duration::from_secs(5));
    lab.disconnect(1);
    lab.connect(1);
    lab.wait(Duration::from_secs(5));
    let reports = take(&mut lab, WATCHER).into_iter();
    assert_eq!(reports.filter(|t| matches!(t, Full(..))).count(), 0);
}

#[test]
fn a_rule_that_times_out_is_reported_with_the_reason() {
    let mut lab = watched(CHANGES);
    lab.ask(
        1,
        &Message::FlowMod(FlowMod {
            hard_timeout: 9,
            ..add(4, from(2), &output(1))
        }),
    );
    lab.take_raw(WATCHER);
    lab.now += Duration::from_secs(20);
    lab.virt(1).expire(4, 1);
    lab.run();
    assert_eq!(take(&mut lab, WATCHER), [Full(Removed, 4, 1)]);
}

const PAUSE: usize = 128 << 10;

/// Changes the rule of port 1 until its watcher, whose socket takes nothing, is told of a pause.
fn pause(lab: &mut Lab) {
    let id = ControllerId(WATCHER);
    let long = Message::FlowMod(add(1, from(1), &note(20_800)));
    lab.core.controller_unsent(id, 0, true);
    let mut unsent = 0;
    let mut reports = 0;
    loop {
        lab.ask(1, &long);
        let frames = lab.take_raw(WATCHER);
        unsent += frames.iter().map(Vec::len).sum::<usize>();
        lab.core.controller_unsent(id, unsent, true);
        let seen = told(frames);
        reports += seen.len();
        if seen.contains(&Paused) {
            break;
        }
        assert!(unsent <= PAUSE + (1 << 16), "it is not paused");
    }
    assert!(unsent > PAUSE / 2, "{unsent} bytes, {reports} reports");
}

/// Lets the watcher's socket take everything; returns what it gets of the pause, in the order of cookies.
fn resume(lab: &mut Lab) -> Vec<Told> {
    lab.core.controller_unsent(ControllerId(WATCHER), 0, false);
    lab.core.end_of_batch(lab.now);
    lab.run();
    let mut missed = take(lab, WATCHER);
    assert_eq!(missed.pop(), Some(Resumed));
    missed.sort_by_key(|told| format!("{told:?}"));
    missed
}

#[test]
fn a_watcher_that_does_not_read_misses_changes_and_gets_the_difference() {
    let id = ControllerId(WATCHER);
    let mut lab = watched(CHANGES | flags::INSTRUCTIONS);
    lab.take_raw(WATCHER);
    let long = Message::FlowMod(add(1, from(1), &note(20_800)));
    // Its socket takes them all.
    for _ in 0..PAUSE / 20_800 + 2 {
        lab.core.controller_unsent(id, 2 * PAUSE, false);
        lab.ask(1, &long);
        assert!(!take(&mut lab, WATCHER).contains(&Paused));
    }
    pause(&mut lab);
    // Removals of older rules are reported, everything else is not.
    lab.core.controller_unsent(id, 1, true);
    lab.ask(1, &rule(1));
    lab.ask(1, &Message::FlowMod(delete(from(2))));
    for port in [3, 4] {
        lab.ask(1, &rule(port));
    }
    lab.ask(1, &Message::FlowMod(delete(from(4))));
    assert_eq!(take(&mut lab, WATCHER), [Full(Removed, 2, 2)]);
    assert!(lab.core.awaits_silence_of(id));
    let missed = resume(&mut lab);
    assert_eq!(missed, [Full(Added, 1, 0), Full(Added, 3, 0)]);
    assert!(!lab.core.awaits_silence_of(id));
    lab.ask(1, &rule(5));
    assert_eq!(take(&mut lab, WATCHER), [Full(Added, 5, 0)]);
}

#[test]
fn a_monitor_that_is_made_during_a_pause_gets_the_changes_since_it_began() {
    let mut lab = Lab::new(2, &[0, 1]);
    for port in [1, 2, 3, 4] {
        lab.ask(1, &rule(port));
    }
    lab.controller_up(WATCHER);
    let wanted = CHANGES | flags::INSTRUCTIONS;
    lab.send_raw(WATCHER, &monitor_of(1, wanted, from(1)));
    lab.run();
    lab.take_raw(WATCHER);
    pause(&mut lab);
    let modify = FlowMod {
        command: FlowModCommand::ModifyStrict,
        ..add(3, from(3), &output(2))
    };
    lab.ask(1, &Message::FlowMod(modify));
    lab.ask(1, &Message::FlowMod(delete(from(2))));
    lab.ask(1, &rule(5));
    lab.ask(1, &rule(6));
    lab.ask(1, &Message::FlowMod(delete(from(6))));
    assert_eq!(take(&mut lab, WATCHER), []);
    lab.send_raw(WATCHER, &monitor_of(2, wanted, any()));
    lab.run();
    lab.take_raw(WATCHER);
    // A rule that is older than the pause.
    lab.ask(1, &Message::FlowMod(delete(from(4))));
    lab.ask(1, &rule(7));
    assert_eq!(take(&mut lab, WATCHER), [Full(Removed, 4, 2)]);
    let expected = [Full(Added, 5, 0), Full(Added, 7, 0), Full(Modified, 3, 0)];
    assert_eq!(resume(&mut lab), expected);
}

#[test]
fn a_cancelled_monitor_reports_what_was_sent_before() {
    let mut lab = watched(CHANGES);
    lab.take_raw(WATCHER);
    lab.virt(0).slow = true;
    lab.send(1, 1, &rule(1));
    let cancel = Message::Experimenter(openflow13::Experimenter {
        vendor: openflow13::ONF_VENDOR,
        subtype: 1870,
        body: 1u32.to_be_bytes().into(),
    });
    lab.send(WATCHER, 2, &cancel);
    lab.send(1, 3, &rule(1));
    lab.run();
    lab.virt(0).slow = false;
    lab.run();
    assert_eq!(take(&mut lab, WATCHER), [Full(Added, 1, 0)]);
}

/// Returns the xids of what a switch gets in the final bundle, and not in the trial of it.
fn committed(virt: &FakeBridge) -> Vec<[u8; 4]> {
    const FINAL: u32 = 3;
    let part = |frame: &Vec<u8>| match decode(frame).unwrap() {
        (header, Message::Experimenter(m)) => match bundle::decode(header.xid, &m)?.unwrap() {
            bundle::Bundle::Add(add) if add.bundle_id == FINAL => add.inner[4..8].try_into().ok(),
            _ => None,
        },
        _ => None,
    };
    virt.input.iter().filter_map(part).collect()
}

/// Learned rules end with the second part of a bundle: Open vSwitch sends what it has reported until then, and begins again.
#[test]
fn a_bundle_is_reported_again_behind_the_end_of_learned_rules() {
    for again in [&[][..], &[2]] {
        let mut lab = Lab::gathering(2, &[0, 1, 0, 1], None);
        lab.controller_up(WATCHER);
        lab.send_raw(WATCHER, &monitor(CHANGES));
        lab.ask(1, &learner(9));
        lab.wait(Duration::from_secs(2));
        lab.take_raw(WATCHER);
        let parts = [1, 2, 3, 4].map(rule);
        for frame in frames(&parts) {
            lab.send_raw(WATCHER, &frame);
        }
        let xids = loop {
            lab.flush();
            let xids = committed(lab.virt(0));
            if !xids.is_empty() {
                break xids;
            }
            assert!(lab.round(), "it has not committed the bundle");
        };
        let virt = lab.virt(0);
        virt.work();
        let mut told: Vec<Vec<u8>> = [0].iter().chain(again).map(|i| own(&xids[*i])).collect();
        told.append(&mut virt.output);
        virt.output = told;
        lab.run();
        let reports = take(&mut lab, WATCHER).into_iter();
        let own: Vec<Told> = reports.filter(|told| matches!(told, Own(_))).collect();
        let expected: Vec<Told> = [100]
            .iter()
            .chain(again.iter().map(|_| &102))
            .map(|xid| Own(*xid))
            .collect();
        assert_eq!(own, expected);
    }
}
