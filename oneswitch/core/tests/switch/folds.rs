//! Counters of copies that go while messages about the same rules, groups and meters are in flight.

use crate::build::{add, any, flow_stats, from, group, meter, output, request};
use crate::lab::Lab;
use crate::moves::stage;
use crate::removals::count;
use crate::statistics::{bodies, counted};
use crate::verdicts::refuse_cookie;
use oneswitch_core::MoveUntil;
use openflow13::{
    ErrorCode, FlowMod, FlowModCommand, GroupModCommand, Message, MeterModCommand, MultipartReply,
    MultipartRequest,
};

const REFUSED: u64 = 66;

/// Port 2 is about to go from switch 1 to switch 0, which is slow, and refuses rules with one cookie, groups and meters to come.
fn moving(before: &[Message]) -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    before.iter().for_each(|message| drop(lab.ask(1, message)));
    lab.begin_move(2, 0, 5, MoveUntil::Flipped);
    lab.run();
    lab.virt(0).refuse = Some(Box::new(|message| match message {
        Message::FlowMod(m) if m.cookie == REFUSED => Some(ErrorCode::FLOW_MOD_FAILED_UNKNOWN),
        Message::GroupMod(m) if m.command == GroupModCommand::Modify && m.group_id == 5 => {
            Some(ErrorCode::GROUP_MOD_FAILED_EPERM)
        }
        Message::MeterMod(m) if m.command == MeterModCommand::Modify => {
            Some(ErrorCode::METER_MOD_FAILED_UNKNOWN)
        }
        _ => None,
    }));
    lab.virt(0).slow = true;
    lab
}

/// The move ends with the messages in flight; then the verdict on them comes.
fn end(lab: &mut Lab, messages: &[Message]) {
    for (xid, message) in (10..).zip(messages) {
        lab.send(1, xid, message);
    }
    lab.run();
    lab.finish_move(2);
    assert_eq!(stage(lab, 2), None);
    lab.virt(0).slow = false;
    lab.run();
    lab.take(1);
    lab.check_journal();
}

fn of_two(cookie: u64) -> FlowMod {
    add(cookie, from(2), &output(1))
}

fn refused(command: FlowModCommand, flags: u16) -> Message {
    Message::FlowMod(FlowMod {
        command,
        flags,
        ..of_two(REFUSED)
    })
}

#[test]
fn a_refused_message_does_not_take_folded_counters_along() {
    for (command, flags) in [
        (FlowModCommand::Modify, 0),
        (FlowModCommand::Add, 0),
        (FlowModCommand::Add, FlowMod::RESET_COUNTS),
        (FlowModCommand::ModifyStrict, FlowMod::RESET_COUNTS),
    ] {
        let mut lab = moving(&[Message::FlowMod(of_two(1))]);
        count(&mut lab, 1, 1, 20);
        // It changes what the slow switch refuses, and so is refused; the other one is not asked.
        lab.virt(1).refuse = Some(refuse_cookie(REFUSED, ErrorCode::FLOW_MOD_FAILED_UNKNOWN));
        end(&mut lab, &[refused(command, flags)]);
        assert_eq!(counted(&mut lab), [(1, 20)], "{command:?} {flags}");
    }
}

#[test]
fn an_accepted_message_keeps_folded_counters() {
    let reset = FlowMod {
        flags: FlowMod::RESET_COUNTS,
        ..of_two(2)
    };
    let modify = FlowMod {
        command: FlowModCommand::Modify,
        ..of_two(1)
    };
    let again = of_two(2);
    let other = Message::FlowMod(add(REFUSED, any(), &output(1)));
    for (message, is) in [(reset, 2), (modify, 1), (again, 2)] {
        for with_refusal in [false, true] {
            let mut lab = moving(&[Message::FlowMod(of_two(1))]);
            let mut messages = vec![Message::FlowMod(message.clone())];
            messages.extend(with_refusal.then(|| other.clone()));
            lab.send(1, 9, &messages.remove(0));
            lab.run();
            count(&mut lab, 1, is, 20);
            end(&mut lab, &messages);
            assert_eq!(counted(&mut lab), [(is, 20)], "{message:?} {with_refusal}");
        }
    }
}

#[test]
fn a_rule_without_a_verdict_keeps_folded_counters() {
    let other = Message::FlowMod(add(REFUSED, any(), &output(1)));
    for with_refusal in [false, true] {
        let mut lab = moving(&[]);
        lab.send(1, 9, &Message::FlowMod(of_two(1)));
        lab.run();
        count(&mut lab, 1, 1, 20);
        let messages: Vec<_> = with_refusal.then(|| other.clone()).into_iter().collect();
        end(&mut lab, &messages);
        assert_eq!(counted(&mut lab), [(1, 20)]);
    }
}

/// Packets that group 5 and meter 1 have counted.
fn of_group_and_meter(lab: &mut Lab) -> (u64, u64) {
    let of_group = bodies(lab.ask(80, &request(MultipartRequest::Group { group: 5 })));
    let of_meter = bodies(lab.ask(81, &request(MultipartRequest::Meter { meter: 1 })));
    match (&of_group[..], &of_meter[..]) {
        ([MultipartReply::Group(groups)], [MultipartReply::Meter(meters)]) => {
            (groups[0].packet_count, meters[0].packet_in_count)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_and_meters_keep_folded_counters_too() {
    let made = [
        group(GroupModCommand::Add, 5, &[1]),
        meter(MeterModCommand::Add, 1, 10),
    ];
    let changed = [
        group(GroupModCommand::Modify, 5, &[2]),
        meter(MeterModCommand::Modify, 1, 20),
    ];
    let other = Message::FlowMod(add(REFUSED, any(), &output(1)));
    for (before, after) in [(&made[..], &changed[..]), (&[], &made[..])] {
        let mut lab = moving(before);
        let (now, later) = if before.is_empty() {
            (after, std::slice::from_ref(&other))
        } else {
            (&[][..], after)
        };
        for (xid, message) in (7..).zip(now) {
            lab.send(1, xid, message);
        }
        lab.run();
        lab.virt(1).group_packets.insert(5, 3);
        lab.virt(1).meter_packets.insert(1, 4);
        end(&mut lab, later);
        lab.ask(90, &flow_stats());
        assert_eq!(of_group_and_meter(&mut lab), (3, 4));
    }
}
