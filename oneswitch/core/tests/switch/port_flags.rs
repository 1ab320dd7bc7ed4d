//! Flags of ports that only OpenFlow 1.0 can say: switches get them over connections of that version.

use crate::build::{add, any, output, request};
use crate::check::{ALL_GROUP, FLOOD_GROUP};
use crate::lab::{port, Answer, Lab};
use openflow13::openflow10::{self, encode_barrier, encode_port_mod, kind};
use openflow13::{config, port_no, Message, MultipartReply, MultipartRequest, PortMod};
use std::collections::BTreeMap;
use std::time::Duration;

const OLD: u64 = 15;
const FLAGS: u32 = config::NO_FLOOD | config::NO_RECV_STP;

/// What each switch's patch ports have of the flags.
type Patches = BTreeMap<(usize, u32), u32>;

fn port_mod(number: u32, config: u32) -> Vec<u8> {
    let message = PortMod {
        port: number,
        hw_addr: port(number, "").hw_addr,
        config,
        mask: FLAGS,
        advertise: 0,
    };
    encode_port_mod(7, &message)
}

/// Two switches with a port each, and a controller of OpenFlow 1.0.
fn lab(links: &[usize]) -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_of_version(OLD, openflow10::VERSION);
    for switch in links {
        lab.core.version10_up(*switch, lab.now);
    }
    lab
}

/// The switches answer what they got over OpenFlow 1.0; returns the number of port-mods.
fn answer(lab: &mut Lab, patches: &mut Patches) -> usize {
    let mut port_mods = 0;
    loop {
        lab.run();
        if lab.version10.is_empty() {
            return port_mods;
        }
        for (switch, frame) in std::mem::take(&mut lab.version10) {
            let mut reply = vec![1, 0, 0, 0];
            reply.extend(&frame[4..8]);
            match frame[1] {
                kind::STATS_REQUEST => {
                    reply[1] = kind::STATS_REPLY;
                    reply.extend([0, 13, 0, 0]);
                    for number in [1u32, 2] {
                        reply.extend((number as u16).to_be_bytes());
                        reply.extend(port(number, "").hw_addr);
                        reply.extend([0; 16]);
                        let has = patches.get(&(switch, number)).copied();
                        reply.extend(has.unwrap_or_default().to_be_bytes());
                        reply.extend([0; 20]);
                    }
                }
                kind::PORT_MOD => {
                    port_mods += 1;
                    let number = u32::from(frame[9]);
                    assert_eq!(frame[23], FLAGS as u8, "the mask");
                    patches.insert((switch, number), u32::from(frame[19]));
                    continue;
                }
                kind::BARRIER_REQUEST => reply[1] = kind::BARRIER_REPLY,
                other => panic!("a message of type {other}"),
            }
            let length = reply.len() as u16;
            reply[2..4].copy_from_slice(&length.to_be_bytes());
            lab.core.version10_told(switch, &reply, lab.now);
        }
    }
}

fn kinds(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().map(|frame| frame[1]).collect()
}

#[test]
fn a_controller_waits_until_all_switches_have_the_flags() {
    let mut lab = lab(&[0, 1]);
    let mut patches = Patches::new();
    lab.ask(1, &Message::FlowMod(add(1, any(), &output(port_no::FLOOD))));
    lab.send_raw(OLD, &port_mod(2, FLAGS));
    lab.send_raw(OLD, &encode_barrier(8));
    lab.run();
    assert_eq!(kinds(&lab.take_raw(OLD)), [] as [u8; 0]);
    assert_eq!(answer(&mut lab, &mut patches), 2);
    assert_eq!(patches, [((0, 2), FLAGS), ((1, 2), FLAGS)].into());
    assert_eq!(kinds(&lab.take_raw(OLD)), [kind::BARRIER_REPLY]);
    for from in [0, 1] {
        let sent = |group| lab.sent_by(group, from, 0, &[]);
        assert_eq!(sent(FLOOD_GROUP), [(0, 1)]);
        assert_eq!(sent(ALL_GROUP), [(0, 1), (1, 2)]);
    }
    // Others neither see nor change them.
    let ports = |answers: &[Answer]| match &answers[0].1 {
        Message::MultipartReply(reply) => match &reply.body {
            MultipartReply::PortDesc(ports) => ports.iter().map(|p| p.config).sum::<u32>(),
            _ => panic!(),
        },
        _ => panic!(),
    };
    assert_eq!(ports(&lab.ask(3, &request(MultipartRequest::PortDesc))), 0);
    // Nothing to tell: no switch is asked again.
    lab.send_raw(OLD, &port_mod(2, FLAGS));
    lab.run();
    assert!(lab.version10.is_empty());
    lab.send_raw(OLD, &port_mod(2, 0));
    assert_eq!(answer(&mut lab, &mut patches), 2);
    assert_eq!(patches, [((0, 2), 0), ((1, 2), 0)].into());
    assert_eq!(lab.sent_by(FLOOD_GROUP, 0, 0, &[]), [(0, 1), (1, 2)]);
}

#[test]
fn a_switch_without_such_a_connection_makes_it_refused() {
    let mut lab = lab(&[0]);
    lab.send_raw(OLD, &port_mod(2, config::NO_FLOOD));
    lab.send_raw(OLD, &encode_barrier(8));
    lab.run();
    assert_eq!(kinds(&lab.take_raw(OLD)), [] as [u8; 0]);
    lab.wait(Duration::from_secs(2));
    let told = lab.take_raw(OLD);
    assert_eq!(kinds(&told), [1, kind::BARRIER_REPLY]);
    assert_eq!(told[0][8..12], [0, 1, 0, 5], "EPERM");
    assert_eq!(lab.sent_by(FLOOD_GROUP, 0, 0, &[]), [(0, 1), (1, 2)]);
    // Other bits need no connection.
    lab.send_raw(OLD, &port_mod(2, 0));
    lab.run();
    assert!(lab.take_raw(OLD).is_empty());
}

#[test]
fn a_switch_that_comes_back_gets_them_again_also_after_a_restart() {
    let mut lab = lab(&[0, 1]);
    let mut patches = Patches::new();
    lab.send_raw(OLD, &port_mod(1, config::NO_FLOOD));
    answer(&mut lab, &mut patches);
    let wanted = patches.clone();
    // The connection breaks: what the switch has is read again.
    lab.core.version10_down(1, lab.now);
    lab.core.version10_up(1, lab.now);
    assert_eq!(answer(&mut lab, &mut patches), 0);
    // A switch that has lost its state.
    lab.disconnect(1);
    patches.remove(&(1, 1));
    lab.connect(1);
    assert_eq!(answer(&mut lab, &mut patches), 1);
    assert_eq!(patches, wanted);
    lab.controller_down(OLD);
    lab.restart();
    assert!(lab.core.wants_version10(), "the journal has the flags");
    patches.clear();
    for switch in [0, 1] {
        lab.core.version10_up(switch, lab.now);
    }
    assert_eq!(answer(&mut lab, &mut patches), 2);
    assert_eq!(patches, wanted);
    assert_eq!(lab.sent_by(FLOOD_GROUP, 1, 0, &[]), [(1, 2)]);
}
