//! A function that owns addresses: its answers on its links, the stations that it learns, and the frames that it sends.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    net::IpAddr,
    sync::{atomic::AtomicBool, atomic::Ordering, Arc},
};

use nf_balancing::{
    check, config,
    frames::Segment,
    link::{Handled, Link, Unreached},
    network::Network,
    tables::Neighbours,
    ways::Way,
};
use nf_packet::{
    dissect, protocol, tcp_flags, Arp, ArpOperation, Headers, Icmp, MacAddress, NeighbourMessage,
    NeighbourSolicitation, Outcome, Tcp,
};
use nf_runtime::{
    state::StateBuilder,
    testing::{Harness, Output},
    Batch, Context, NetworkFunction, Refusal,
};
use serde_json::{json, Value};

const SECOND: u64 = 1_000_000_000;
/// The MAC address of port 0.
const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 0]);
const GATEWAY: MacAddress = MacAddress([2, 0xaa, 0, 0, 0, 1]);
const OTHER: MacAddress = MacAddress([2, 0xaa, 0, 0, 0, 2]);

/// Sends every datagram on to the first destination that it can reach, and a segment to each destination every second.
struct Node {
    network: Network,
    neighbours: Neighbours,
    destinations: Vec<(IpAddr, Arc<Way>)>,
    announced: AtomicBool,
}

#[derive(Clone, serde::Deserialize, serde::Serialize)]
struct Config {
    interfaces: Vec<config::Interface>,
    neighbours: Vec<config::StaticNeighbour>,
    vips: Vec<IpAddr>,
    destinations: Vec<IpAddr>,
}

impl NetworkFunction for Node {
    const KIND: &'static str = "node";
    const SUMMARY: &'static str = "owns addresses";
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        check::interfaces(&config.interfaces, &config.neighbours)?;
        let mut network = Network::new(&config.interfaces, &config.neighbours);
        for vip in &config.vips {
            network.add_vip(*vip);
        }
        let destinations = config.destinations.iter();
        Ok(Self {
            destinations: destinations
                .map(|address| (*address, network.add_destination(*address)))
                .collect(),
            network,
            neighbours: Neighbours::declare(state, 64)?,
            announced: AtomicBool::new(false),
        })
    }

    fn configure(&self, _: Config) -> Result<(), Refusal> {
        Ok(())
    }

    fn resumed(&self, context: &Context<'_>) {
        self.network.resolve(&self.neighbours, context.now());
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let (packets, out) = batch.parts();
        let mut link = self.link(context, out);
        for packet in packets {
            let handled = match dissect(packet.bytes()).unwrap() {
                Outcome::Arp { offset } => link.arp(packet, offset),
                Outcome::Ip(headers)
                    if matches!(headers.protocol, protocol::ICMP | protocol::ICMPV6) =>
                {
                    link.icmp(packet, &headers)
                }
                Outcome::Ip(headers) => {
                    match link.reach(headers.destination(packet.bytes())) {
                        Ok((interface, mac)) => link.send(packet, interface, mac),
                        Err(Unreached::Unresolved) => packet.drop_for("unresolved"),
                        Err(Unreached::NoRoute) => packet.drop_for("no route"),
                    }
                    Handled::Done
                }
                Outcome::Other { .. } => Handled::ForOthers,
            };
            match handled {
                Handled::Done | Handled::EchoAnswered => {}
                Handled::ForOthers if link.pass_on(packet) => {}
                Handled::ForOthers => packet.drop_for("for others"),
                Handled::Malformed => packet.drop_for("malformed"),
                Handled::Error => packet.drop_for("error"),
                Handled::Unsupported => packet.drop_for("unsupported"),
            }
        }
    }

    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        let (_, out) = out.parts();
        let mut link = self.link(context, out);
        if !self.announced.swap(true, Ordering::Relaxed) {
            link.announce();
        }
        link.refresh();
        for (address, way) in &self.destinations {
            let segment = Segment {
                sequence: 7,
                acknowledgement: 0,
                flags: tcp_flags::SYN,
                payload: Vec::new(),
            };
            link.send_segment(way, 61_000, (*address, 80), &segment);
        }
    }
}

impl Node {
    fn link<'a>(&'a self, context: &'a Context<'a>, out: &'a mut nf_runtime::Emitted) -> Link<'a> {
        Link {
            network: &self.network,
            neighbours: &self.neighbours,
            context,
            out,
        }
    }
}

fn config() -> Value {
    json!({
        "interfaces": [{"addresses": ["10.0.0.2/24", "fd00::2/64"], "gateways": ["10.0.0.1"]}, {"addresses": ["10.5.0.2/24"]}],
        "neighbours": [],
        "vips": ["192.0.2.1", "2001:db8::1", "192.0.2.1"],
        "destinations": ["203.0.113.1", "203.0.113.2", "10.0.0.1"],
    })
}

fn node() -> Harness<Node> {
    Harness::new(serde_json::from_value(config()).unwrap()).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn arp(operation: ArpOperation, (address, mac): (&str, MacAddress), target: &str) -> Vec<u8> {
    let message = Arp {
        operation,
        sender_mac: mac,
        sender: address.parse().unwrap(),
        target_mac: MacAddress::default(),
        target: target.parse().unwrap(),
    };
    let to = match operation {
        ArpOperation::Reply => OWN,
        _ => MacAddress::BROADCAST,
    };
    let mut bytes = [0; Arp::BYTES];
    message.write(&mut bytes);
    [&to.0[..], &mac.0, &[8, 6], &bytes].concat()
}

/// Builds a segment to an address, from another station to port 0.
fn segment(to: &str) -> Vec<u8> {
    let source = if ip(to).is_ipv4() {
        "10.0.0.9"
    } else {
        "fd00::9"
    };
    let ends = ((ip(source), 1), (ip(to), 2));
    let frame = nf_balancing::frames::Frame::tcp((OTHER, OWN), ends.0, ends.1, (1, 2), 16, b"");
    frame.unwrap().bytes().to_vec()
}

fn headers(frame: &[u8]) -> Headers {
    let Ok(Outcome::Ip(headers)) = dissect(frame) else {
        panic!("{frame:?}")
    };
    headers
}

/// Returns the ARP requests among emitted frames: station, target.
fn asked(node: &mut Harness<Node>) -> Vec<(MacAddress, String)> {
    let frames = node.take_emitted();
    let requests = frames.iter().filter_map(|(_, frame)| {
        let message = Arp::parse(frame.get(14..)?).ok()?;
        let to = MacAddress(frame[..6].try_into().ok()?);
        (message.sender != message.target).then(|| (to, message.target.to_string()))
    });
    requests.collect()
}

#[test]
fn it_answers_for_its_addresses_on_their_links_only() {
    let mut node = node();
    let asker = ("10.0.0.77", OTHER);
    for (port, target, is_own) in [
        (0, "10.0.0.2", true),
        (0, "192.0.2.1", true),
        (1, "192.0.2.1", true),
        (0, "10.5.0.2", false),
        (0, "10.0.0.3", false),
    ] {
        let request = arp(ArpOperation::Request, asker, target);
        let output = node.process(port, &request);
        if !is_own {
            assert_eq!(output, Output::Sent(1 - port, request), "{target}");
            continue;
        }
        let Output::Sent(by, frame) = output else {
            panic!("{target}: {output:?}")
        };
        let answer = Arp::parse(&frame[14..]).unwrap();
        let mac = MacAddress([2, 0, 0, 0, 0, port as u8]);
        assert_eq!(
            (by, &frame[..6], &frame[6..12]),
            (port, &OTHER.0[..], &mac.0[..])
        );
        assert_eq!(
            (
                answer.operation,
                answer.sender_mac,
                answer.sender.to_string()
            ),
            (ArpOperation::Reply, mac, target.into())
        );
    }
    let mut cut = arp(ArpOperation::Request, asker, "10.0.0.2");
    cut.truncate(20);
    assert_eq!(node.process(0, &cut), Output::Dropped("malformed"));
}

#[test]
fn it_answers_echo_requests_and_reports_other_messages() {
    let mut node = node();
    let message = |to: MacAddress, kind: u8, address: &str| {
        let macs = (OTHER, to);
        let kind = (kind, 0, 0x1234_0001);
        let built =
            nf_balancing::frames::Frame::icmp(macs, ip("10.0.0.9"), ip(address), kind, b"data");
        built.unwrap().bytes().to_vec()
    };
    for address in ["10.0.0.2", "192.0.2.1"] {
        let Output::Sent(0, frame) = node.process(0, &message(OWN, 8, address)) else {
            panic!("{address}")
        };
        let headers = headers(&frame);
        let (source, destination) = (headers.source(&frame), headers.destination(&frame));
        let answer = Icmp::new_checked(headers.segment(&frame)).unwrap();
        assert_eq!((source, destination), (ip(address), ip("10.0.0.9")));
        assert!(answer.checksum_holds(source, destination));
        assert_eq!((answer.kind(), answer.argument()), (0, 0x1234_0001));
        assert_eq!(&frame[..6], &OTHER.0);
    }
    assert_eq!(
        node.process(0, &message(OTHER, 8, "10.0.0.2")),
        Output::Dropped("unsupported")
    );
    assert_eq!(
        node.process(0, &message(OWN, 8, "10.0.0.3")),
        Output::Dropped("unsupported")
    );
    assert_eq!(
        node.process(0, &message(OWN, 13, "10.0.0.2")),
        Output::Dropped("unsupported")
    );
    assert_eq!(
        node.process(0, &message(OWN, 3, "10.0.0.2")),
        Output::Dropped("error")
    );
    let mut wrong = message(OWN, 8, "10.0.0.2");
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(node.process(0, &wrong), Output::Dropped("malformed"));
}

#[test]
fn it_advertises_its_ipv6_addresses() {
    let mut node = node();
    let solicitation = NeighbourMessage::Solicitation(NeighbourSolicitation {
        target: "2001:db8::1".parse().unwrap(),
        source_mac: Some(OTHER),
    });
    let macs = (OTHER, OWN);
    let group = ip("ff02::1:ff00:1");
    let built = nf_balancing::frames::Frame::neighbour(macs, ip("fd00::77"), group, solicitation);
    let output = node.process(0, built.unwrap().bytes());
    assert_eq!(output, Output::Dropped(nf_balancing::link::TAKEN));
    let (0, answer) = node.take_emitted().remove(0) else {
        panic!()
    };
    let Ok(Some(NeighbourMessage::Advertisement(message))) = NeighbourMessage::parse(&answer[54..])
    else {
        panic!("{answer:?}")
    };
    assert_eq!((message.target_mac, message.solicited), (Some(OWN), true));
    // The asker is known now.
    let Output::Sent(0, frame) = node.process(0, &segment("fd00::77")) else {
        panic!()
    };
    assert_eq!(&frame[..6], &OTHER.0);
}

#[test]
fn it_asks_for_a_station_once_a_second_and_sends_when_it_is_known() {
    let mut node = node();
    for _ in 0..3 {
        let output = node.process(0, &segment("10.0.0.50"));
        assert_eq!(output, Output::Dropped("unresolved"));
    }
    let all = || (MacAddress::BROADCAST, "10.0.0.50".to_owned());
    assert_eq!(asked(&mut node), [all()]);
    node.advance(SECOND);
    node.process(0, &segment("10.0.0.50"));
    assert_eq!(asked(&mut node), [all()]);
    node.process(
        0,
        &arp(ArpOperation::Reply, ("10.0.0.50", OTHER), "10.0.0.2"),
    );
    let Output::Sent(0, frame) = node.process(0, &segment("10.0.0.50")) else {
        panic!()
    };
    assert_eq!((&frame[..6], &frame[6..12]), (&OTHER.0[..], &OWN.0[..]));
    assert_eq!(
        node.process(0, &segment("2001:db8:5::1")),
        Output::Dropped("no route")
    );
}

#[test]
fn destinations_behind_one_next_hop_share_its_way() {
    let mut node = node();
    let ways: Vec<Arc<Way>> = node
        .function()
        .destinations
        .iter()
        .map(|each| Arc::clone(&each.1))
        .collect();
    assert!(Arc::ptr_eq(&ways[0], &ways[1]) && Arc::ptr_eq(&ways[0], &ways[2]));
    assert_eq!(
        (ways[0].next, ways[0].interface, ways[0].mtu),
        (ip("10.0.0.1"), 0, 1500)
    );
    node.tick();
    assert_eq!(
        asked(&mut node),
        [(MacAddress::BROADCAST, "10.0.0.1".into())]
    );
    node.process(
        0,
        &arp(ArpOperation::Reply, ("10.0.0.1", GATEWAY), "10.0.0.2"),
    );
    assert_eq!(ways[1].mac(), Some(GATEWAY));
    node.tick();
    let sent = node.take_emitted();
    let ends: Vec<_> = sent
        .iter()
        .map(|(port, frame)| {
            let headers = headers(frame);
            let tcp = Tcp::new_checked(headers.segment(frame)).unwrap();
            let (source, destination) = (headers.source(frame), headers.destination(frame));
            assert!(tcp.checksum_holds(source, destination));
            assert_eq!((*port, &frame[..6], tcp.sequence()), (0, &GATEWAY.0[..], 7));
            assert_eq!((source, headers.source_port), (ip("10.0.0.2"), 61_000));
            (destination.to_string(), headers.destination_port)
        })
        .collect();
    let expected = ["203.0.113.1", "203.0.113.2", "10.0.0.1"];
    assert_eq!(ends, expected.map(|address| (address.to_owned(), 80)));
    // A move of the instance keeps what it knows.
    let new = node
        .adopting(serde_json::from_value(config()).unwrap())
        .unwrap();
    assert_eq!(new.function().destinations[0].1.mac(), Some(GATEWAY));
}

#[test]
fn each_vip_is_announced_once_on_each_link() {
    let mut node = node();
    node.tick();
    let frames = node.take_emitted();
    let announced: Vec<(usize, IpAddr)> = frames
        .iter()
        .filter_map(|(port, frame)| {
            if let Ok(Some(NeighbourMessage::Advertisement(message))) =
                NeighbourMessage::parse(frame.get(54..).unwrap_or_default())
            {
                return Some((*port, message.target.into()));
            }
            let message = Arp::parse(frame.get(14..)?).ok()?;
            (message.sender == message.target).then(|| (*port, message.sender.into()))
        })
        .collect();
    let (four, six) = (ip("192.0.2.1"), ip("2001:db8::1"));
    assert_eq!(announced, [(0, four), (1, four), (0, six), (1, six)]);
}

#[test]
fn a_former_owner_that_answers_too_late_does_not_get_its_packets_back() {
    let mut node = node();
    let tell = |mac| arp(ArpOperation::Reply, ("10.0.0.1", mac), "10.0.0.2");
    node.process(0, &tell(GATEWAY));
    let way = Arc::clone(&node.function().destinations[0].1);
    node.advance(10 * SECOND);
    node.process(0, &tell(OTHER));
    assert_eq!(way.mac(), Some(GATEWAY), "the owner may object");
    // Nothing has used the entry since the time to object ended.
    node.advance(2 * SECOND);
    node.process(0, &tell(GATEWAY));
    assert_eq!(way.mac(), Some(OTHER), "its claim is asked about first");
    node.process(0, &tell(OTHER));
    for _ in 0..5 {
        node.advance(SECOND);
        node.tick();
        assert_eq!(way.mac(), Some(OTHER));
    }
}

#[test]
fn a_configured_neighbour_is_neither_asked_for_nor_learnt() {
    let mut configured = config();
    configured["neighbours"] = json!([{"address": "10.0.0.1", "mac": GATEWAY.to_string()}]);
    let mut node = Harness::<Node>::new(serde_json::from_value(configured).unwrap()).unwrap();
    node.tick();
    assert!(asked(&mut node).is_empty());
    node.process(
        0,
        &arp(ArpOperation::Reply, ("10.0.0.1", OTHER), "10.0.0.2"),
    );
    node.advance(200 * SECOND);
    node.tick();
    assert!(asked(&mut node).is_empty());
    assert_eq!(node.function().destinations[1].1.mac(), Some(GATEWAY));
}
