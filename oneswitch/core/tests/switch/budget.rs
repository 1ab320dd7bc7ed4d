//! The memory kept for a controller: counted, bounded, and given back.

use crate::build::{add, any, flow_stats, from, output, request};
use crate::lab::Lab;
use crate::verdicts::dumped;
use oneswitch_core::{Bridge, ControllerId};
use openflow13::{
    encode, ActionList, FlowMod, FlowModCommand, Match, Message, MultipartRequest, PacketIn,
    NO_BUFFER,
};

const ONE: ControllerId = ControllerId(1);
const BUDGET: usize = 4 << 20;
const WINDOW: usize = 1 << 20;
const PACKET_IN_WINDOW: usize = 8 << 20;
/// Bytes of a [`long_rule`].
const RULE: usize = 20_800;
/// The longest message.
const MESSAGE: usize = 65_535;

/// Sends `message` as often as the core takes it; how often that was.
fn send_while_taken(lab: &mut Lab, message: &Message) -> u32 {
    let mut sent = 0;
    while lab.core.takes_messages_of(ONE) {
        lab.send(1, sent, message);
        lab.flush();
        sent += 1;
        assert!(sent < 100_000, "it takes without end");
    }
    sent
}

/// One long action, which is quick to read: NXAST_NOTE.
pub fn note(length: u16) -> ActionList {
    let [high, low] = length.to_be_bytes();
    let mut bytes = vec![0xff, 0xff, high, low, 0, 0, 0x23, 0x20, 0, 8];
    bytes.resize(length.into(), 0);
    ActionList::from_bytes(bytes).unwrap()
}

/// A rule whose list of actions is long; three of them fill a message.
fn long_rule(number: u16, in_port: u32) -> FlowMod {
    let actions = note(RULE as u16);
    add(number.into(), from(in_port).with_vlan_vid(number), &actions)
}

#[test]
fn replies_that_wait_for_a_stalled_switch_are_bounded() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.virt(1).slow = true;
    lab.ask(1, &Message::FlowMod(add(1, any(), &output(1))));
    let asked = send_while_taken(&mut lab, &request(MultipartRequest::Desc));
    assert!(asked > 1_000 && lab.take(1).is_empty(), "{asked}");
    let kept = lab.core.kept_for(ONE);
    assert!((BUDGET..BUDGET + MESSAGE).contains(&kept), "{kept}");
    lab.virt(1).slow = false;
    lab.run();
    let xids: Vec<u32> = lab.take(1).iter().map(|(header, _)| header.xid).collect();
    assert_eq!(xids, (0..asked).collect::<Vec<_>>());
    assert_eq!(lab.core.kept_for(ONE), 0);
    assert!(lab.core.takes_messages_of(ONE));
}

#[test]
fn barriers_and_errors_that_wait_are_bounded() {
    let refused = Message::QueueGetConfigRequest { port: 77 };
    for message in [Message::BarrierRequest, refused] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.virt(1).slow = true;
        lab.ask(1, &Message::FlowMod(add(1, any(), &output(1))));
        let asked = send_while_taken(&mut lab, &message);
        lab.virt(1).slow = false;
        lab.run();
        assert_eq!(lab.take(1).len(), asked as usize);
        assert_eq!(lab.core.kept_for(ONE), 0);
    }
}

#[test]
fn answers_that_switches_owe_are_reserved_before_they_come() {
    let mut lab = Lab::new(2, &[0, 1]);
    for number in 0..100 {
        lab.ask(1, &Message::FlowMod(long_rule(number, 2)));
    }
    lab.virt(1).slow = true;
    let asked = send_while_taken(&mut lab, &flow_stats());
    assert!(
        (1..=3).contains(&asked),
        "{asked} dumps of {} bytes",
        100 * RULE
    );
    lab.virt(1).slow = false;
    lab.run();
    assert_eq!(dumped(&lab.take(1)).len(), 100 * asked as usize);
    assert_eq!(lab.core.kept_for(ONE), 0);
}

#[test]
fn messages_that_a_stalled_switch_owes_a_verdict_are_bounded_by_their_bytes() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.virt(1).slow = true;
    let mut sent = 0;
    while lab.core.takes_messages_of(ONE) {
        // It finds nothing, so that no switch has much to do.
        let modify = FlowMod {
            command: FlowModCommand::Modify,
            ..long_rule(sent, 2)
        };
        lab.send(1, 1, &Message::FlowMod(modify));
        sent += 1;
        assert!(sent < 4_000, "it takes without end");
    }
    assert!(usize::from(sent) * RULE <= 64 << 20, "{sent}");
    lab.virt(1).slow = false;
    lab.run();
    assert!(lab.core.takes_messages_of(ONE));
}

#[test]
fn changes_of_many_rules_are_counted_with_the_rules() {
    let mut lab = Lab::new(2, &[0, 1]);
    for number in 0..300 {
        lab.send(
            1,
            1,
            &Message::FlowMod(add(number.into(), any().with_vlan_vid(number), &output(1))),
        );
    }
    lab.run();
    lab.virt(1).slow = true;
    let modify = FlowMod {
        command: FlowModCommand::Modify,
        ..add(0, any(), &output(2))
    };
    let sent = send_while_taken(&mut lab, &Message::FlowMod(modify));
    assert!(sent < 2_000, "{sent}");
    lab.virt(1).slow = false;
    lab.run();
    assert!(lab.core.takes_messages_of(ONE));
}

#[test]
fn a_long_reply_leaves_as_its_controller_reads() {
    let mut lab = Lab::new(2, &[0, 1]);
    for number in 0..300 {
        lab.ask(1, &Message::FlowMod(long_rule(number, 2)));
    }
    lab.core.controller_unsent(ONE, WINDOW, true);
    lab.send(1, 2, &flow_stats());
    lab.send(1, 3, &Message::BarrierRequest);
    lab.run();
    assert!(lab.take_raw(1).is_empty());
    assert!(lab.core.withholds_replies_of(ONE));
    assert!(!lab.core.takes_messages_of(ONE));
    let mut answers = Vec::new();
    let mut kept = lab.core.kept_for(ONE);
    while lab.core.withholds_replies_of(ONE) {
        lab.core.controller_unsent(ONE, 0, false);
        lab.flush();
        lab.core.controller_unsent(ONE, WINDOW, true);
        let frames = lab.take_raw(1);
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert!((1..=WINDOW + MESSAGE).contains(&bytes), "{bytes}");
        assert!(lab.core.kept_for(ONE) < kept);
        kept = lab.core.kept_for(ONE);
        answers.extend(frames.iter().map(|f| openflow13::decode(f).unwrap()));
    }
    assert_eq!(dumped(&answers), (0..300).collect::<Vec<u64>>());
    let (last, parts) = answers.split_last().unwrap();
    assert_eq!(last.1, Message::BarrierReply);
    let more = |m: &Message| matches!(m, Message::MultipartReply(reply) if reply.more);
    let (end, parts) = parts.split_last().unwrap();
    assert!(!more(&end.1) && parts.iter().all(|(_, m)| more(m)));
    assert_eq!(kept, 0);
}

#[test]
fn answers_for_a_controller_that_is_gone_are_not_kept() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_up(2);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    lab.virt(1).slow = true;
    lab.send(2, 2, &flow_stats());
    lab.send(1, 3, &flow_stats());
    lab.run();
    lab.controller_down(2);
    lab.virt(1).slow = false;
    lab.run();
    assert_eq!(dumped(&lab.take(1)), [1]);
    assert_eq!(lab.core.kept_for(ONE), 0);
    assert_eq!(lab.core.in_flight(), 0);
}

fn packet_in(lab: &mut Lab, switch: usize) {
    let message = Message::PacketIn(PacketIn {
        buffer_id: NO_BUFFER,
        total_len: 60_000,
        reason: PacketIn::ACTION,
        table_id: 0,
        cookie: 0,
        matching: Match::any().with_in_port(1),
        data: vec![0; 60_000].into(),
    });
    let frame = encode(0, &message).unwrap();
    lab.core
        .switch_message(switch, Bridge::Virt, &frame, lab.now);
}

#[test]
fn packet_ins_that_a_slow_controller_does_not_read_are_dropped_and_counted() {
    let mut lab = Lab::new(1, &[0]);
    lab.controller_up(2);
    lab.core
        .controller_unsent(ONE, PACKET_IN_WINDOW - 130_000, true);
    for _ in 0..5 {
        packet_in(&mut lab, 0);
    }
    lab.run();
    assert_eq!((lab.take(1).len(), lab.take(2).len()), (2, 5));
    assert_eq!(lab.core.packet_ins_dropped(ONE), 3);
    assert_eq!(lab.core.packet_ins_dropped(ControllerId(2)), 0);
    lab.core.controller_unsent(ONE, 0, false);
    packet_in(&mut lab, 0);
    lab.run();
    assert_eq!(lab.take(1).len(), 1);
    assert_eq!((lab.core.packet_ins_dropped(ONE), lab.disconnects), (3, 0));
}
