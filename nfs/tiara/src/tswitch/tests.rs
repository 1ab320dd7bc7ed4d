//! The switch beside a software load balancer: both paths send the same packets.

use std::net::IpAddr;

use nf_l4lb::L4lb;
use nf_packet::{
    ethertype, protocol, rss_hash, Arp, ArpOperation, Ipv4, Ipv6, MacAddress, Udp, Version,
};
use nf_runtime::{
    testing::{Harness, Output},
    NetworkFunction, Packet,
};
use proptest::prelude::*;
use serde_json::{json, Value};

use super::Tswitch;
use crate::metadata::{Barrier, Metadata};

const CLIENT: [u8; 6] = [2, 0xaa, 0, 0, 0, 1];
const NIC: [u8; 6] = [2, 0xbb, 0, 0, 0, 2];
const MUX: [u8; 6] = [2, 0xbb, 0, 0, 0, 3];
const SERVER: [u8; 6] = [2, 0xbb, 0, 0, 0, 11];
const OUTSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
const INSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const INNER: &str = "02:dd:00:00:00:01";
const STATION: &str = "52:54:00:12:34:56";
const ROW: u32 = 0x0100_0007;
const PORT: u16 = 8080;

fn text(mac: [u8; 6]) -> String {
    MacAddress(mac).to_string()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn config() -> Value {
    json!({
        "interfaces": [
            {"addresses": ["198.51.100.1/24", "2001:db8:1::1/64"]},
            {"addresses": ["10.0.0.1/24", "fd00::1/64"]},
        ],
        "neighbours": [
            {"address": "198.51.100.7", "mac": text(CLIENT)},
            {"address": "2001:db8:1::7", "mac": text(CLIENT)},
            {"address": "10.0.0.11", "mac": text(SERVER), "interface": 1},
        ],
        "vips": ["192.0.2.1", "2001:db8::1"],
        "mac": INNER,
        "nics": [{"name": "tnic0", "address": "10.0.0.2", "muxes": ["mux0"]}],
        "muxes": [{"name": "mux0", "address": "10.0.0.3"}],
        "servers": [
            {"index": ROW, "address": "10.8.0.11", "vtep": "10.0.0.11", "vni": 5000, "mac": STATION},
            {"index": ROW + 1, "address": "fd08::11", "vtep": "10.0.0.11", "vni": 5000, "mac": STATION},
        ],
    })
}

fn switch() -> Harness<Tswitch> {
    Harness::new(serde_json::from_value(config()).unwrap()).unwrap()
}

/// Lets stations answer ARP.
fn answers(switch: &mut Harness<Tswitch>, stations: &[(&str, [u8; 6])]) {
    switch.tick();
    for (address, mac) in stations {
        let IpAddr::V4(sender) = ip(address) else {
            unreachable!()
        };
        let reply = Arp {
            operation: ArpOperation::Reply,
            sender_mac: MacAddress(*mac),
            sender,
            target_mac: MacAddress(INSIDE_MAC),
            target: [10, 0, 0, 1].into(),
        };
        let mut message = [0; Arp::BYTES];
        reply.write(&mut message);
        let kind = ethertype::ARP.to_be_bytes();
        let frame = [&INSIDE_MAC[..], &mac[..], &kind, &message, &[0; 18]].concat();
        assert_eq!(
            switch.process(1, &frame),
            Output::Dropped(nf_balancing::link::TAKEN)
        );
    }
    switch.tick();
}

/// Builds a client's datagram to the VIP.
fn datagram(version: Version, port: u16, ttl: u8, class: u8, payload: &[u8]) -> Vec<u8> {
    let length = Udp::HEADER + payload.len();
    let ends = match version {
        Version::V4 => (ip("198.51.100.7"), ip("192.0.2.1")),
        Version::V6 => (ip("2001:db8:1::7"), ip("2001:db8::1")),
    };
    let mut packet = vec![0; 60 + length];
    let at = match ends {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            Ipv4::write(&mut packet[..], from, to, protocol::UDP, length).unwrap();
            (packet[1], packet[8]) = (class, ttl);
            packet[10..12].copy_from_slice(&[0, 0]);
            let sum = !nf_packet::checksum::fold(nf_packet::checksum::sum(&packet[..20]));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            20
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            Ipv6::write(&mut packet[..], from, to, protocol::UDP, length).unwrap();
            (packet[0], packet[1], packet[7]) = (0x60 | class >> 4, class << 4, ttl);
            40
        }
        _ => unreachable!(),
    };
    packet.truncate(at + length);
    packet[at + Udp::HEADER..].copy_from_slice(payload);
    Udp::write(&mut packet[at..], port, 80, payload.len()).unwrap();
    let pseudo = nf_packet::checksum::pseudo_header(ends.0, ends.1, protocol::UDP, length as u32);
    let sum = !nf_packet::checksum::fold(nf_packet::checksum::sum(&packet[at..]) + pseudo);
    packet[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
    let kind = match version {
        Version::V4 => ethertype::IPV4,
        Version::V6 => ethertype::IPV6,
    };
    [&OUTSIDE_MAC[..], &CLIENT[..], &kind.to_be_bytes(), &packet].concat()
}

/// Returns what a T-NIC sends back.
fn decided(frame: &[u8], version: Version, rs_index: u32, rss: u16) -> Vec<u8> {
    let mut packet = Packet::new();
    assert!(packet.fill(0, frame));
    let metadata = Metadata {
        rs_index,
        rs_port: PORT,
        rss,
    };
    assert!(metadata.insert(&mut packet, version));
    packet.bytes_mut()[..6].copy_from_slice(&INSIDE_MAC);
    packet.bytes_mut()[6..12].copy_from_slice(&NIC);
    packet.bytes().to_vec()
}

/// A load balancer with the same server, beside the switch.
fn mux() -> Harness<L4lb> {
    let vip = |address: &str, inner: &str| {
        json!({"name": address, "address": address, "port": 80, "protocol": "udp", "mode": "vxlan", "vni": 5000,
               "backends": [{"name": "a", "address": "10.0.0.11", "port": PORT, "inner_mac": STATION, "inner_address": inner}]})
    };
    let config = json!({
        "interfaces": [{"addresses": ["10.0.0.3/24"]}],
        "neighbours": [{"address": "10.0.0.11", "mac": text(SERVER)}],
        "tables": {"connections_ipv4": 4096, "connections_ipv6": 4096, "sessions": 64, "fragments": 64, "vips": 2, "backends": 2},
        "vtep": {"addresses": ["10.0.0.1"], "mac": INNER},
        "vips": [vip("192.0.2.1", "10.8.0.11"), vip("2001:db8::1", "fd08::11")],
    });
    let mux = Harness::<L4lb>::new(serde_json::from_value(config).unwrap());
    mux.unwrap().with_ports(1)
}

fn sent<N: NetworkFunction>(function: &mut Harness<N>, port: usize, frame: &[u8]) -> Vec<u8> {
    match function.process(port, frame) {
        Output::Sent(_, frame) => frame,
        Output::Dropped(why) => panic!("dropped: {why}"),
    }
}

/// A packet's version, source port, TTL, traffic class and payload.
fn packet() -> impl Strategy<Value = (Version, u16, u8, u8, Vec<u8>)> {
    let version = prop_oneof![Just(Version::V4), Just(Version::V6)];
    let payload = prop::collection::vec(any::<u8>(), 0..1300);
    (version, 1..u16::MAX, 2..=255u8, any::<u8>(), payload)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_paths_send_the_same_packets(packets in prop::collection::vec(packet(), 100)) {
        let (mut switch, mut mux) = (switch(), mux());
        answers(&mut switch, &[("10.0.0.2", NIC)]);
        for (version, port, ttl, class, payload) in packets {
            let frame = datagram(version, port, ttl, class, &payload);
            let (row, ends) = match version {
                Version::V4 => (ROW, (ip("198.51.100.7"), ip("192.0.2.1"))),
                Version::V6 => (ROW + 1, (ip("2001:db8:1::7"), ip("2001:db8::1"))),
            };
            let rss = rss_hash((ends.0, port), (ends.1, 80)) as u16;
            let fast = sent(&mut switch, 1, &decided(&frame, version, row, rss));
            let slow = sent(&mut mux, 0, &frame);
            prop_assert_eq!(&fast[..6], &SERVER[..]);
            prop_assert_eq!(&fast[..6], &slow[..6]);
            prop_assert_eq!(&fast[12..], &slow[12..]);
            let source_port = u16::from_be_bytes([fast[34], fast[35]]);
            prop_assert_eq!(source_port, (rss & (65535 - 49152)) + 49152);
        }
    }
}

#[test]
fn packets_go_to_a_t_nic_and_to_its_load_balancer_while_it_is_dead() {
    let mut switch = switch();
    let frame = datagram(Version::V4, 4000, 64, 0, b"data");
    assert_eq!(
        switch.process(0, &frame),
        Output::Dropped("no load balancer is alive")
    );
    answers(&mut switch, &[("10.0.0.2", NIC), ("10.0.0.3", MUX)]);
    let to_nic = sent(&mut switch, 0, &frame);
    assert_eq!((&to_nic[..6], &to_nic[6..12]), (&NIC[..], &INSIDE_MAC[..]));
    assert_eq!(to_nic[12..], frame[12..]);
    switch.advance(900_000_000);
    answers(&mut switch, &[("10.0.0.3", MUX)]);
    assert_eq!(sent(&mut switch, 0, &frame)[..6], NIC);
    switch.advance(200_000_000);
    answers(&mut switch, &[("10.0.0.3", MUX)]);
    assert_eq!(sent(&mut switch, 0, &frame)[..6], MUX);
    answers(&mut switch, &[("10.0.0.2", NIC)]);
    assert_eq!(sent(&mut switch, 0, &frame)[..6], NIC);
}

#[test]
fn what_the_fast_path_cannot_do_a_load_balancer_does() {
    let mut switch = switch();
    answers(&mut switch, &[("10.0.0.2", NIC), ("10.0.0.3", MUX)]);
    let short = datagram(Version::V4, 4000, 64, 0, b"data");
    let long = datagram(Version::V4, 4000, 64, 0, &[7; 1450]);
    for (frame, row) in [(&short, ROW + 2), (&short, ROW + 1), (&long, ROW)] {
        let back = sent(&mut switch, 1, &decided(frame, Version::V4, row, 1));
        assert_eq!(back[..6], MUX);
        assert_eq!(back[12..], frame[12..]);
    }
    assert_eq!(switch.counters()["packets{event=\"unknown server\"}"], 2);
    assert_eq!(
        switch.counters()["packets{event=\"unfit for the fast path\"}"],
        1
    );
    // A row makes a server known; only a T-NIC can name it.
    let row = json!([{"index": ROW + 2, "address": "10.8.0.12", "vtep": "10.0.0.11", "vni": 1, "mac": STATION}]);
    let put = switch
        .function()
        .control("put_servers", &json!({"servers": row}));
    put.unwrap().unwrap();
    let decided = decided(&short, Version::V4, ROW + 2, 1);
    assert_eq!(sent(&mut switch, 1, &decided)[..6], SERVER);
    let mut forged = decided.clone();
    forged[6..12].copy_from_slice(&MUX);
    assert_eq!(switch.process(1, &forged), Output::Dropped("not for us"));
    let dropped = switch
        .function()
        .control("drop_servers", &json!({"indices": [ROW + 2]}));
    dropped.unwrap().unwrap();
    assert_eq!(sent(&mut switch, 1, &decided)[..6], MUX);
}

#[test]
fn answers_come_out_of_the_tunnel() {
    let mut switch = switch();
    answers(&mut switch, &[("10.0.0.2", NIC)]);
    let request = datagram(Version::V4, 4000, 64, 0, b"data");
    let mut tunnelled = sent(&mut switch, 1, &decided(&request, Version::V4, ROW, 1));
    // The server's answer, with the addresses turned round; addition is commutative, so the checksums hold.
    let (client, vip) = ([198, 51, 100, 7], [192, 0, 2, 1]);
    let inner = &request[14..];
    let mut answer = inner.to_vec();
    answer[12..16].copy_from_slice(&vip);
    answer[16..20].copy_from_slice(&client);
    tunnelled.truncate(64);
    tunnelled[..6].copy_from_slice(&INSIDE_MAC);
    tunnelled[26..30].copy_from_slice(&[10, 0, 0, 11]);
    tunnelled[30..34].copy_from_slice(&[10, 0, 0, 1]);
    tunnelled[50..56].copy_from_slice(&MacAddress([2, 0xdd, 0, 0, 0, 1]).0);
    tunnelled.extend_from_slice(&answer);
    let out = sent(&mut switch, 1, &tunnelled);
    assert_eq!((&out[..6], &out[6..12]), (&CLIENT[..], &OUTSIDE_MAC[..]));
    assert_eq!((out[14 + 8], &out[14 + 12..]), (63, &answer[12..]));
    // The same from another address than a VIP.
    let mut other = tunnelled.clone();
    other[64 + 12..64 + 16].copy_from_slice(&client);
    other[64 + 16..64 + 20].copy_from_slice(&vip);
    assert_eq!(switch.process(1, &other), Output::Dropped("not from a VIP"));
}

#[test]
fn a_barrier_comes_back_behind_the_frames_before_it() {
    let mut switch = switch();
    answers(&mut switch, &[("10.0.0.2", NIC)]);
    let frame = datagram(Version::V4, 4000, 64, 0, b"data");
    let barrier = Barrier(7).frame((MacAddress(NIC), MacAddress(INSIDE_MAC)));
    let frames = [decided(&frame, Version::V4, ROW, 1), barrier.to_vec()];
    let leaving = switch.process_leaving(&[(1, &frames[0][..]), (1, &frames[1][..])]);
    assert_eq!(leaving.len(), 2);
    assert_eq!(leaving[0].1[..6], SERVER);
    assert_eq!(
        (leaving[1].0, Barrier::read(&leaving[1].1)),
        (1, Some(Barrier(7)))
    );
    assert_eq!(leaving[1].1[..6], NIC);
}

/// A barrier that overtakes packets in another queue would end a removal too early.
const _: () = assert!(<Tswitch as nf_runtime::NetworkFunction>::ONE_WORKER);
