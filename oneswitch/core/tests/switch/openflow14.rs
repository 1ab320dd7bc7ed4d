//! Behaviour for controllers of OpenFlow 1.4 only.

use crate::build::{add, any, everything, output};
use crate::lab::Lab;
use oneswitch_core::Bridge;
use openflow13::openflow10::{encode_packet_in, PacketInFormat};
use openflow13::openflow14::VERSION;
use openflow13::{
    encode, kind, FlowMod, FlowModCommand, Message, Multipart, MultipartRequest, PacketIn,
};

const NEW: u64 = 14;
const EVICTION: u8 = 4;
const VACANCY_EVENTS: u8 = 8;

/// A message that is the same in OpenFlow 1.3.
fn frame(message: &Message) -> Vec<u8> {
    let mut frame = encode(7, message).unwrap();
    frame[0] = VERSION;
    frame
}

fn raw(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![VERSION, kind, 0, 8 + body.len() as u8, 0, 0, 0, 7];
    frame.extend(body);
    frame
}

/// Returns the answers to a request, without changes of ports.
fn ask(lab: &mut Lab, id: u64, frame: &[u8]) -> Vec<Vec<u8>> {
    lab.send_raw(id, frame);
    lab.run();
    let mut answers = lab.take_raw(id);
    answers.retain(|answer| answer[1] != kind::PORT_STATUS);
    answers
}

/// The importance of the only rule, as shown to a controller.
fn importance(lab: &mut Lab, id: u64) -> [u8; 2] {
    let request = Message::MultipartRequest(Multipart::last(MultipartRequest::Flow(everything())));
    let request = match id {
        NEW => frame(&request),
        _ => encode(7, &request).unwrap(),
    };
    let replies = ask(lab, id, &request);
    [replies[0][16 + 20], replies[0][16 + 21]]
}

/// The configuration of table 2.
fn description(lab: &mut Lab) -> Vec<u8> {
    let request = [0, 14, 0, 0, 0, 0, 0, 0];
    let replies = ask(lab, NEW, &raw(kind::MULTIPART_REQUEST, &request));
    let (_, mut rest) = replies[0].split_at(16);
    while rest[2] != 2 {
        rest = &rest[usize::from(rest[1])..];
    }
    rest[..usize::from(rest[1])].to_vec()
}

#[test]
fn importance_and_configurations_of_tables_outlive_a_restart() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(NEW, VERSION);
    let rule = FlowMod {
        importance: 0x0102,
        ..add(1, any(), &output(1))
    };
    assert!(ask(&mut lab, NEW, &frame(&Message::FlowMod(rule))).is_empty());
    let change = FlowMod {
        command: FlowModCommand::Modify,
        importance: 3,
        ..add(1, any(), &output(2))
    };
    assert!(ask(&mut lab, NEW, &frame(&Message::FlowMod(change))).is_empty());
    let vacancy = [0, 3, 0, 8, 10, 90, 0, 0];
    let body = [
        &[2, 0, 0, 0, 0, 0, 0, EVICTION | VACANCY_EVENTS],
        &vacancy[..],
    ]
    .concat();
    assert!(ask(&mut lab, NEW, &raw(kind::TABLE_MOD, &body)).is_empty());
    for restarts in 0..2 {
        assert_eq!(
            importance(&mut lab, NEW),
            [1, 2],
            "after {restarts} restarts"
        );
        assert_eq!(importance(&mut lab, 1), [0, 0]);
        let factors = [0, 2, 0, 8, 0, 0, 0, 7];
        let limits = [0, 3, 0, 8, 10, 90, 100, 0];
        let head = [0, 24, 2, 0, 0, 0, 0, EVICTION | VACANCY_EVENTS];
        assert_eq!(description(&mut lab), [head, factors, limits].concat());
        lab.restart();
        lab.controller_down(NEW);
        lab.controller_of_version(NEW, VERSION);
        lab.run();
    }
    lab.check_journal();
}

#[test]
fn openflow13_has_padding_in_the_place_of_importance() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(NEW, VERSION);
    let rule = FlowMod {
        importance: 9,
        ..add(1, any(), &output(1))
    };
    lab.ask(1, &Message::FlowMod(rule));
    assert_eq!(importance(&mut lab, NEW), [0, 0]);
}

#[test]
fn packet_ins_come_with_all_reasons_and_once() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(NEW, VERSION);
    lab.run();
    assert_eq!(lab.core.collected_ids(), [0].into());
    let ready = encode(0, &Message::BarrierReply).unwrap();
    lab.core.collected(0, 0, &ready);
    let packet = |reason| PacketIn {
        buffer_id: openflow13::NO_BUFFER,
        total_len: 0,
        reason,
        table_id: 0,
        cookie: 7,
        matching: any().with_in_port(1),
        data: Box::default(),
    };
    const GROUP: u8 = 4;
    // Switch 1 sends them only to the ordinary connection yet.
    for switch in [0, 1] {
        let ordinary = encode(0, &Message::PacketIn(packet(PacketIn::ACTION))).unwrap();
        lab.core
            .switch_message(switch, Bridge::Virt, &ordinary, lab.now);
        let format = PacketInFormat::Nicira2;
        let all_reasons = encode_packet_in(VERSION, &packet(GROUP), format).unwrap();
        if switch == 0 {
            lab.core.collected(switch, 0, &all_reasons);
        }
    }
    lab.run();
    let mut reasons = |id: u64| -> Vec<u8> {
        let told = lab.take_raw(id).into_iter();
        let packet_ins = told.filter(|frame| frame[1] == kind::PACKET_IN);
        packet_ins.map(|frame| frame[14]).collect()
    };
    assert_eq!(reasons(NEW), [GROUP, PacketIn::ACTION]);
    assert_eq!(reasons(1), [PacketIn::ACTION; 2]);
}
