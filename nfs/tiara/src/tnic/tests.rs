//! The T-NIC's packets: hits go back to the switch, and all others to a load balancer.

use std::net::IpAddr;

use nf_balancing::link::TAKEN;
use nf_packet::{ethertype, protocol, tcp_flags, Arp, ArpOperation, Ipv4, MacAddress};
use nf_runtime::testing::{Harness, Output};
use nf_tables::Ipv4Flow;
use serde_json::json;

use super::TnicFunction;
use crate::{
    metadata::{Barrier, Metadata},
    share::{mux_share, Shares},
    table::Decision,
};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0];
const SWITCH: [u8; 6] = [2, 0xbb, 0, 0, 0, 1];
const MUXES: [[u8; 6]; 2] = [[2, 0xbb, 0, 0, 0, 3], [2, 0xbb, 0, 0, 0, 4]];
const ACK: u8 = tcp_flags::ACK;
const MILLISECOND: u64 = 1_000_000;

fn nic() -> Harness<TnicFunction> {
    let config = json!({
        "interfaces": [{"addresses": ["10.0.0.2/24"]}],
        "number": 1,
        "tswitch": {"address": "10.0.0.1"},
        "muxes": [{"name": "smux0", "address": "10.0.0.3"}, {"name": "smux1", "address": "10.0.0.4"}],
        "table": {"depth": 64},
    });
    let nic = Harness::<TnicFunction>::new(serde_json::from_value(config).unwrap());
    let mut nic = nic.unwrap().with_ports(1);
    answers(&mut nic, &[(1, SWITCH), (3, MUXES[0]), (4, MUXES[1])]);
    nic
}

/// Lets stations answer ARP.
fn answers(nic: &mut Harness<TnicFunction>, stations: &[(u8, [u8; 6])]) {
    nic.tick();
    for (number, mac) in stations {
        let reply = Arp {
            operation: ArpOperation::Reply,
            sender_mac: MacAddress(*mac),
            sender: [10, 0, 0, *number].into(),
            target_mac: MacAddress(OWN),
            target: [10, 0, 0, 2].into(),
        };
        let mut message = [0; Arp::BYTES];
        reply.write(&mut message);
        let kind = ethertype::ARP.to_be_bytes();
        let frame = [&OWN[..], &mac[..], &kind, &message].concat();
        assert_eq!(nic.process(0, &frame), Output::Dropped(TAKEN));
    }
    nic.tick();
}

fn flow(port: u16) -> Ipv4Flow {
    Ipv4Flow {
        source: [198, 51, 100, 7].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: port,
        destination_port: 80,
        protocol: 6,
    }
}

/// Builds a client's segment, as the switch sends it.
fn segment(port: u16, flags: u8) -> Vec<u8> {
    let flow = flow(port);
    let mut packet = [0; 40];
    Ipv4::write(
        &mut packet[..],
        flow.source,
        flow.destination,
        protocol::TCP,
        20,
    )
    .unwrap();
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[22..24].copy_from_slice(&80u16.to_be_bytes());
    (packet[32], packet[33]) = (5 << 4, flags);
    [&OWN[..], &SWITCH[..], &[8, 0], &packet].concat()
}

fn rss(port: u16) -> u32 {
    let flow = flow(port);
    let ends: [IpAddr; 2] = [flow.source.into(), flow.destination.into()];
    nf_packet::rss_hash((ends[0], port), (ends[1], 80))
}

/// Lets the table carry a flow, for the load balancer with this number.
fn install(nic: &Harness<TnicFunction>, port: u16, mux: u32) -> Decision {
    let table = &nic.function().shared.nic.tables.ipv4;
    let decision = Decision {
        rs_index: 1 << 24 | mux << 16 | 9,
        rs_port: 8080,
    };
    let places = table.shape().places(&flow(port));
    table.write(places.slots()[0], &flow(port), decision);
    decision
}

fn sent(nic: &mut Harness<TnicFunction>, frame: &[u8]) -> Vec<u8> {
    match nic.process(0, frame) {
        Output::Sent(0, frame) => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hit_goes_back_with_the_decision_and_is_counted_and_signalled_once() {
    let mut nic = nic();
    let decision = install(&nic, 4000, 1);
    for _ in 0..3 {
        let back = sent(&mut nic, &segment(4000, ACK));
        assert_eq!((&back[..6], &back[6..12]), (&SWITCH[..], &OWN[..]));
        let mut packet = nf_runtime::Packet::new();
        assert!(packet.fill(0, &back));
        let metadata = Metadata {
            rs_index: decision.rs_index,
            rs_port: decision.rs_port,
            rss: rss(4000) as u16,
        };
        assert_eq!(Metadata::remove(&mut packet), Some(metadata));
        assert_eq!(packet.bytes()[14..], segment(4000, ACK)[14..]);
    }
    let part = &nic.function().shared.nic.parts[1];
    assert_eq!(part.totals.of(nf_offload::CounterId(9)), (3, 3 * 54));
    assert_eq!(part.take_signals().len(), 1);
    assert_eq!(nic.counters()["packets{event=\"hit\"}"], 3);
}

#[test]
fn a_miss_goes_to_the_load_balancer_of_its_share() {
    let mut nic = nic();
    let shares = Shares::new([("smux0", true), ("smux1", true)]);
    let mut seen = [0; 2];
    for port in 1..100 {
        let mux = shares.of(mux_share(rss(port))).unwrap();
        seen[mux] += 1;
        let frame = sent(&mut nic, &segment(port, ACK));
        assert_eq!(
            (&frame[..6], &frame[12..]),
            (&MUXES[mux][..], &segment(port, ACK)[12..])
        );
    }
    assert!(seen.iter().all(|count| *count > 20));
    nic.advance(1100 * MILLISECOND);
    answers(&mut nic, &[(1, SWITCH), (4, MUXES[1])]);
    assert!((1..100).all(|port| sent(&mut nic, &segment(port, ACK))[..6] == MUXES[1]));
}

#[test]
fn what_opens_or_ends_a_connection_goes_to_its_own_load_balancer() {
    let mut nic = nic();
    for port in 4000..4010 {
        for (mux, mac) in (0..).zip(MUXES) {
            install(&nic, port, mux);
            for flags in [tcp_flags::SYN, tcp_flags::FIN | ACK, tcp_flags::RST] {
                assert_eq!(sent(&mut nic, &segment(port, flags))[..6], mac);
            }
        }
    }
    // Another one could choose another server for a new connection while the entry acts.
    nic.advance(1100 * MILLISECOND);
    answers(&mut nic, &[(1, SWITCH), (3, MUXES[0])]);
    let opens = nic.process(0, &segment(4000, tcp_flags::SYN));
    assert_eq!(opens, Output::Dropped("its load balancer is dead"));
    assert_eq!(
        sent(&mut nic, &segment(4000, tcp_flags::FIN))[..6],
        MUXES[0]
    );
}

#[test]
fn fragments_and_other_protocols_take_the_slow_path() {
    let mut nic = nic();
    install(&nic, 4000, 0);
    let mut fragment = segment(4000, ACK);
    fragment[20] |= 0x20;
    let mut other = segment(4000, ACK);
    other[23] = 50;
    for frame in [&mut fragment, &mut other] {
        frame[24..26].copy_from_slice(&[0, 0]);
        let sum = !nf_packet::checksum::fold(nf_packet::checksum::sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert!(MUXES
            .iter()
            .any(|mac| sent(&mut nic, frame)[..6] == mac[..]));
    }
    assert_eq!(nic.counters()["packets{event=\"slow path only\"}"], 4);
}

#[test]
fn only_the_switch_and_load_balancers_are_heard() {
    let mut nic = nic();
    let mut answer = segment(4000, ACK);
    answer[6..12].copy_from_slice(&MUXES[1]);
    assert_eq!(sent(&mut nic, &answer)[..6], SWITCH);
    answer[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    assert_eq!(
        nic.process(0, &answer),
        Output::Dropped("not from the switch")
    );
}

#[test]
fn a_barrier_is_sent_until_it_comes_back() {
    let mut nic = nic();
    nic.take_emitted();
    let barriers = &nic.function().shared.nic.barriers;
    let wanted = barriers.ask();
    let passed = barriers.passed();
    for _ in 0..2 {
        nic.tick();
        let frames = nic.take_emitted();
        let read = frames.iter().filter_map(|(_, frame)| Barrier::read(frame));
        assert_eq!(read.collect::<Vec<_>>(), [Barrier(wanted)]);
    }
    for (from, number, now) in [
        (SWITCH, wanted + 1, passed),
        (MUXES[0], wanted, passed),
        (SWITCH, wanted, wanted),
    ] {
        let frame = Barrier(number).frame((MacAddress(from), MacAddress(OWN)));
        assert!(matches!(nic.process(0, &frame), Output::Dropped(_)));
        assert_eq!(nic.function().shared.nic.barriers.passed(), now);
    }
    nic.tick();
    assert!(nic
        .take_emitted()
        .iter()
        .all(|(_, frame)| Barrier::read(frame).is_none()));
}

/// A barrier that overtakes packets in another queue would end a removal too early.
const _: () = assert!(<TnicFunction as nf_runtime::NetworkFunction>::ONE_WORKER);
