//! Nicira's messages: fields of tunnels' options are on every switch, and packet-ins come in the format that some controller wants.

use crate::build::{add, from, output};
use crate::fake::FakeBridge;
use crate::lab::Lab;
use oneswitch_core::ControllerId;
use openflow13::extension::{self, set_controller_id, set_packet_in_format, Extension};
use openflow13::openflow10::{encode_packet_in, PacketInFormat};
use openflow13::tlv_table::{self, TlvCommand, TlvMapping, TlvTableMod};
use openflow13::{encode, AsyncMasks, ErrorCode, Experimenter, Message, PacketIn, VERSION};
use std::time::Duration;

impl FakeBridge {
    pub fn nicira(&mut self, xid: u32, message: &Experimenter) -> Result<(), ErrorCode> {
        match extension::decode(openflow13::VERSION, message, AsyncMasks::NONE)
            .map_err(|refusal| refusal.error)?
        {
            Extension::PacketInFormat(format) => self.packet_in_format = format,
            Extension::Resume => self.resumed += 1,
            Extension::TlvTableRequest => {
                let mappings: Vec<TlvMapping> = self.tlv_table.values().copied().collect();
                self.reply(xid, tlv_table::reply(&mappings));
            }
            Extension::TlvTableMod(change) => {
                for mapping in change.mappings {
                    match change.command {
                        TlvCommand::Add => self.tlv_table.insert(mapping.index, mapping),
                        _ => self.tlv_table.remove(&mapping.index),
                    };
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn mapping(index: u16) -> TlvMapping {
    TlvMapping {
        class: 1,
        kind: index as u8,
        length: 4,
        index,
    }
}

fn change(command: TlvCommand, indices: &[u16]) -> Message {
    let mappings = indices.iter().map(|index| mapping(*index)).collect();
    TlvTableMod { command, mappings }.message()
}

fn fields(lab: &mut Lab, switch: usize) -> Vec<u16> {
    lab.virt(switch).tlv_table.keys().copied().collect()
}

#[test]
fn fields_are_those_of_the_controllers_on_every_switch_and_after_restarts() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.send(1, 1, &change(TlvCommand::Add, &[1, 2, 3]));
    lab.send(1, 2, &change(TlvCommand::Delete, &[2]));
    lab.run();
    assert!(lab.take(1).is_empty());
    lab.disconnect(1);
    lab.send(1, 3, &change(TlvCommand::Add, &[4]));
    lab.run();
    let away = lab.virt(1);
    away.tlv_table = [1, 7].map(|index| (index, mapping(index))).into();
    lab.connect(1);
    lab.run();
    for switch in 0..3 {
        assert_eq!(fields(&mut lab, switch), [1, 3, 4], "at switch {switch}");
    }
    lab.restart();
    lab.run();
    lab.take(1);
    let answers = lab.ask(4, &tlv_table::request());
    assert_eq!(answers[0].1, tlv_table::reply(&[1, 3, 4].map(mapping)));
    for switch in 0..3 {
        assert_eq!(fields(&mut lab, switch), [1, 3, 4], "at switch {switch}");
    }
}

#[test]
fn a_change_that_a_switch_refuses_is_undone() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.send(1, 1, &change(TlvCommand::Add, &[1]));
    lab.run();
    for switch in 0..2 {
        lab.virt(switch).refuse = Some(Box::new(|message| {
            let change = change(TlvCommand::Delete, &[1]);
            (*message == change).then_some(ErrorCode::NX_TLV_INVALID_DEL)
        }));
    }
    lab.send(1, 2, &change(TlvCommand::Delete, &[1]));
    lab.run();
    assert_eq!(lab.take(1).len(), 1);
    let answers = lab.ask(3, &tlv_table::request());
    assert_eq!(answers[0].1, tlv_table::reply(&[mapping(1)]));
}

#[test]
fn packet_ins_come_with_what_continues_them_while_a_controller_wants_that() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.send(1, 1, &Message::FlowMod(add(1, from(1), &output(2))));
    lab.controller_up(2);
    let formats = |lab: &mut Lab| [0, 1].map(|switch| lab.virt(switch).packet_in_format);
    assert_eq!(formats(&mut lab), [PacketInFormat::Standard; 2]);
    lab.send(2, 1, &set_packet_in_format(PacketInFormat::Nicira2));
    lab.run();
    assert_eq!(formats(&mut lab), [PacketInFormat::Nicira2; 2]);
    lab.controller_down(2);
    lab.run();
    assert_eq!(formats(&mut lab), [PacketInFormat::Standard; 2]);
}

/// A packet-in without bytes that a rule has sent.
fn from_port_1() -> PacketIn {
    PacketIn {
        buffer_id: openflow13::NO_BUFFER,
        total_len: 0,
        reason: PacketIn::ACTION,
        table_id: 0,
        cookie: 7,
        matching: from(1),
        data: Box::default(),
    }
}

#[test]
fn packets_are_continued_at_their_switch_after_a_restart() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.send(1, 1, &set_packet_in_format(PacketInFormat::Nicira2));
    lab.run();
    let packet = from_port_1();
    let continued = |bridge: u8| {
        let nested = [0, 8, 0, 32, 0, 0, 0, 0, 0x80, 0, 0, 20];
        [&nested[..], &[bridge; 16], &[0; 4]].concat()
    };
    for (switch, bridge) in [(1, 7), (2, 8), (2, 9)] {
        let mut frame = encode_packet_in(VERSION, &packet, PacketInFormat::Nicira2).unwrap();
        frame.extend(continued(bridge));
        let length = u16::try_from(frame.len()).unwrap();
        frame[2..4].copy_from_slice(&length.to_be_bytes());
        lab.virt(switch).output.push(frame);
        lab.run();
    }
    lab.restart();
    lab.run();
    lab.take(1);
    // Bridge 8 was there before 9. The hypervisor refuses packets of unknown bridges.
    for (bridge, at) in [(7, 1), (9, 2), (8, 0), (5, 0)] {
        let resume = Message::Experimenter(Experimenter {
            vendor: openflow13::NX_VENDOR,
            subtype: 28,
            body: continued(bridge).into(),
        });
        lab.send(1, 9, &resume);
        lab.run();
        let got = [0, 1, 2].map(|switch| std::mem::take(&mut lab.virt(switch).resumed));
        let expected = [0, 1, 2].map(|switch| usize::from(at == switch));
        assert_eq!(got, expected, "{bridge}");
    }
}

#[test]
fn messages_wait_until_the_packet_ins_of_a_new_id_come_from_all_switches() {
    const ME: ControllerId = ControllerId(1);
    let ready = encode(0, &Message::BarrierReply).unwrap();
    let mut lab = Lab::new(2, &[0, 1]);
    lab.send(1, 1, &set_controller_id(5));
    lab.run();
    assert_eq!(lab.core.collected_ids(), [5].into());
    lab.core.collected(0, 5, &ready);
    assert!(!lab.core.takes_messages_of(ME), "one switch is missing");
    lab.core.collected(1, 5, &ready);
    assert!(lab.core.takes_messages_of(ME));

    // Its packet-ins come from there only.
    let packet = from_port_1();
    let frame = encode_packet_in(VERSION, &packet, PacketInFormat::Nicira2).unwrap();
    lab.core.collected(1, 6, &frame);
    lab.core.collected(1, 5, &frame);
    lab.run();
    let told: Vec<Message> = lab.take(1).into_iter().map(|(_, m)| m).collect();
    assert_eq!(told, [Message::PacketIn(packet)]);

    // A switch that does not answer is not waited for without end.
    lab.core.collector_down(1, 5);
    lab.send(1, 2, &set_controller_id(5));
    assert!(!lab.core.takes_messages_of(ME));
    lab.wait(Duration::from_secs(2));
    assert!(lab.core.takes_messages_of(ME));
    lab.send(1, 3, &set_controller_id(0));
    assert!(lab.core.collected_ids().is_empty());
}
