//! A load balancer in a small network, and packets for it. Frames are built and parsed with etherparse, not with the code under test.

use std::net::IpAddr;

use etherparse::{
    IpHeaders, Ipv4Header, Ipv6Header, NetSlice, PacketBuilder, SlicedPacket, TransportSlice,
};
use nf_l4lb::L4lb;
use nf_offload::FlowKey;
use nf_packet::{checksum, Arp, ArpOperation, Icmp, MacAddress};
use nf_runtime::testing::{Harness, Output};
use serde_json::{json, Value};

pub const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
pub const GATEWAY_MAC: [u8; 6] = [2, 0xaa, 0, 0, 0, 1];
pub const SECOND: u64 = 1_000_000_000;

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;
pub const FIN: u8 = 1;
pub const RST: u8 = 4;

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns the MAC address of backend 10.0.0.N or fd00::N.
pub fn mac_of(number: u8) -> [u8; 6] {
    [2, 0xbb, 0, 0, 0, number]
}

/// The identifier of the VXLAN network.
pub const NETWORK: u32 = 0x12_3456;

/// Returns the MAC address in the VXLAN network of a VIP's backend at a position.
pub fn inner_mac_of(position: usize) -> [u8; 6] {
    [2, 0xcc, 0, 0, 0, position as u8]
}

/// A configuration: one-armed at 10.0.0.2, gateway 10.0.0.1, backends 10.0.0.11 to 10.0.0.30, all with IPv6 as well.
pub fn config(vips: Value) -> Value {
    let mut neighbours = vec![
        json!({"address": "10.0.0.1", "mac": text(GATEWAY_MAC)}),
        json!({"address": "fd00::1", "mac": text(GATEWAY_MAC)}),
    ];
    for number in 11..=30_u8 {
        neighbours
            .push(json!({"address": format!("10.0.0.{number}"), "mac": text(mac_of(number))}));
        neighbours.push(json!({"address": format!("fd00::{number}"), "mac": text(mac_of(number))}));
    }
    json!({
        "interfaces": [{"addresses": ["10.0.0.2/24", "fd00::2/64"], "gateways": ["10.0.0.1", "fd00::1"]}],
        "neighbours": neighbours,
        "tables": {"connections_ipv4": 4096, "connections_ipv6": 4096, "sessions": 1024, "fragments": 256,
                   "neighbours": 256, "vips": 8, "backends": 64},
        "vips": vips,
    })
}

pub fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A VIP 192.0.2.1:80 with backends `web11`, ... at 10.0.0.11, ...
pub fn vip(mode: &str, backends: &[u8]) -> Value {
    let backends: Vec<Value> = backends
        .iter()
        .map(
            |number| json!({"name": format!("web{number}"), "address": format!("10.0.0.{number}")}),
        )
        .collect();
    in_mode(
        json!({"name": "web", "address": "192.0.2.1", "port": 80, "protocol": "tcp", "backends": backends}),
        mode,
    )
}

/// Gives a VIP a mode and what the mode requires.
pub fn in_mode(mut vip: Value, mode: &str) -> Value {
    vip["mode"] = json!(mode);
    if mode == "vxlan" {
        vip["vni"] = json!(NETWORK);
        let backends = vip["backends"].as_array_mut().unwrap();
        for (position, backend) in backends.iter_mut().enumerate() {
            backend["inner_mac"] = json!(text(inner_mac_of(position)));
        }
    }
    vip
}

pub fn with(mut value: Value, key: &str, other: impl Into<Value>) -> Value {
    value[key] = other.into();
    value
}

pub fn lb(vips: Value) -> Harness<L4lb> {
    start(config(vips))
}

pub fn start(config: Value) -> Harness<L4lb> {
    Harness::new(serde_json::from_value(config).unwrap())
        .unwrap()
        .with_ports(1)
}

pub const VTEP_MAC: [u8; 6] = [2, 0xdd, 0, 0, 0, 1];

/// A load balancer beside a switch at 10.0.0.3, whose backend has another address and port behind the tunnel.
pub fn beside_switch() -> Harness<L4lb> {
    let mut web = vip("vxlan", &[11]);
    web["backends"][0]["inner_address"] = json!("10.8.0.11");
    web["backends"][0]["port"] = json!(8080);
    let mut config = config(json!([web]));
    config["vtep"] = json!({"addresses": ["10.0.0.3", "fd00::3"], "mac": text(VTEP_MAC)});
    start(config)
}

/// Returns the flow of a packet, for a faster table.
pub fn key(sent: &Sent) -> FlowKey {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    FlowKey {
        source: octets(sent.source.0),
        destination: octets(sent.destination.0),
        source_port: sent.source.1,
        destination_port: sent.destination.1,
        protocol: if sent.udp { 17 } else { 6 },
    }
}

/// A packet to build.
#[derive(Clone, Debug)]
pub struct Sent {
    pub source: (IpAddr, u16),
    pub destination: (IpAddr, u16),
    pub flags: u8,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub udp: bool,
    pub payload: Vec<u8>,
    pub from: [u8; 6],
    pub ttl: u8,
}

impl Sent {
    /// Builds a client's segment to 192.0.2.1:80, with the gateway's MAC address.
    pub fn client(port: u16, flags: u8) -> Self {
        Self {
            source: (ip("198.51.100.7"), port),
            destination: (ip("192.0.2.1"), 80),
            flags,
            sequence: 1000,
            acknowledgement: if flags & ACK != 0 { 5000 } else { 0 },
            udp: false,
            payload: Vec::new(),
            from: GATEWAY_MAC,
            ttl: 64,
        }
    }

    pub fn to(mut self, address: &str, port: u16) -> Self {
        self.destination = (ip(address), port);
        self
    }

    pub fn of(mut self, address: &str) -> Self {
        self.source.0 = ip(address);
        self
    }

    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    pub fn numbers(mut self, sequence: u32, acknowledgement: u32) -> Self {
        (self.sequence, self.acknowledgement) = (sequence, acknowledgement);
        self
    }

    pub fn udp(mut self) -> Self {
        self.udp = true;
        self
    }

    pub fn station(mut self, mac: [u8; 6]) -> Self {
        self.from = mac;
        self
    }

    pub fn frame(&self) -> Vec<u8> {
        let protocol = etherparse::IpNumber::TCP;
        let headers = match (self.source.0, self.destination.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header =
                    Ipv4Header::new(0, self.ttl, protocol, source.octets(), destination.octets())
                        .unwrap();
                header.dont_fragment = true;
                IpHeaders::Ipv4(header, Default::default())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => IpHeaders::Ipv6(
                Ipv6Header {
                    source: source.octets(),
                    destination: destination.octets(),
                    hop_limit: self.ttl,
                    ..Default::default()
                },
                Default::default(),
            ),
            mixed => panic!("{mixed:?}"),
        };
        let builder = PacketBuilder::ethernet2(self.from, PORT_MAC).ip(headers);
        let mut frame = Vec::new();
        if self.udp {
            builder
                .udp(self.source.1, self.destination.1)
                .write(&mut frame, &self.payload)
                .unwrap();
            return frame;
        }
        let mut header =
            etherparse::TcpHeader::new(self.source.1, self.destination.1, self.sequence, 64_000);
        header.syn = self.flags & SYN != 0;
        header.ack = self.flags & ACK != 0;
        header.fin = self.flags & FIN != 0;
        header.rst = self.flags & RST != 0;
        header.acknowledgment_number = self.acknowledgement;
        builder
            .tcp_header(header)
            .write(&mut frame, &self.payload)
            .unwrap();
        frame
    }
}

/// Builds the answer of backend 10.0.0.`backend` to the usual client at its port `client`.
pub fn answer(backend: u8, client: u16, flags: u8) -> Sent {
    Sent {
        source: (ip(&format!("10.0.0.{backend}")), 80),
        destination: (ip("198.51.100.7"), client),
        from: mac_of(backend),
        ..Sent::client(0, flags)
    }
}

/// A packet as parsed by another library, which also verified every checksum.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub to: [u8; 6],
    /// The outer addresses of a tunnel.
    pub outer: Option<(IpAddr, IpAddr)>,
    /// A VXLAN frame's network, and its MAC addresses: from, to.
    pub inner: Option<(u32, [u8; 6], [u8; 6])>,
    pub source: (IpAddr, u16),
    pub destination: (IpAddr, u16),
    pub flags: u8,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub payload: Vec<u8>,
    pub ttl: u8,
}

pub fn read(frame: &[u8]) -> Seen {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let to = frame[..6].try_into().unwrap();
    let (source, destination, payload) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => (
            IpAddr::from(ip.header().source()),
            IpAddr::from(ip.header().destination()),
            ip.payload(),
        ),
        NetSlice::Ipv6(ip) => (
            IpAddr::from(ip.header().source()),
            IpAddr::from(ip.header().destination()),
            ip.payload(),
        ),
    };
    let inner = match payload.ip_number {
        etherparse::IpNumber::IPV4 | etherparse::IpNumber::IPV6 => Some(payload.payload),
        etherparse::IpNumber::UDP
            if u16::from_be_bytes([payload.payload[2], payload.payload[3]]) == 6080 =>
        {
            Some(&payload.payload[8..])
        }
        etherparse::IpNumber::UDP
            if u16::from_be_bytes([payload.payload[2], payload.payload[3]]) == 4789 =>
        {
            return Seen {
                to,
                outer: Some((source, destination)),
                ..read_vxlan(&payload.payload[8..])
            };
        }
        _ => None,
    };
    let Some(inner) = inner else {
        return Seen {
            to,
            ..read_ip(&frame[14..])
        };
    };
    Seen {
        to,
        outer: Some((source, destination)),
        ..read_ip(inner)
    }
}

/// Reads a VXLAN header (RFC 7348, section 5) and its frame.
fn read_vxlan(payload: &[u8]) -> Seen {
    let [flags, 0, 0, 0, network @ .., 0] = &payload[..8] else {
        panic!("reserved bits are set: {:?}", &payload[..8])
    };
    assert_eq!(*flags, 0x08, "flags");
    let network = [0, network[0], network[1], network[2]];
    let frame = &payload[8..];
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let link = sliced.link.unwrap().to_header().unwrap();
    let ethernet = link.ethernet2().unwrap();
    Seen {
        inner: Some((
            u32::from_be_bytes(network),
            ethernet.source,
            ethernet.destination,
        )),
        ..read_ip(&frame[14..])
    }
}

fn read_ip(packet: &[u8]) -> Seen {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let (source, destination, ttl): (IpAddr, IpAddr, u8) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(
                header.calc_header_checksum(),
                header.header_checksum,
                "IPv4 checksum"
            );
            (
                header.source.into(),
                header.destination.into(),
                header.time_to_live,
            )
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            (
                header.source.into(),
                header.destination.into(),
                header.hop_limit,
            )
        }
    };
    let mut seen = Seen {
        to: [0; 6],
        outer: None,
        inner: None,
        source: (source, 0),
        destination: (destination, 0),
        flags: 0,
        sequence: 0,
        acknowledgement: 0,
        payload: Vec::new(),
        ttl,
    };
    match sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let expected = match (source, destination) {
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    tcp.calc_checksum_ipv4(from.octets(), to.octets())
                }
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    tcp.calc_checksum_ipv6(from.octets(), to.octets())
                }
                _ => unreachable!(),
            };
            assert_eq!(expected.unwrap(), tcp.checksum(), "TCP checksum");
            seen.source.1 = tcp.source_port();
            seen.destination.1 = tcp.destination_port();
            seen.flags = u8::from(tcp.fin())
                | u8::from(tcp.syn()) << 1
                | u8::from(tcp.rst()) << 2
                | u8::from(tcp.ack()) << 4;
            seen.sequence = tcp.sequence_number();
            seen.acknowledgement = tcp.acknowledgment_number();
            seen.payload = tcp.payload().to_vec();
        }
        Some(TransportSlice::Udp(udp)) => {
            let header = udp.to_header();
            let expected = match sliced.net.as_ref().unwrap() {
                NetSlice::Ipv4(ip) => {
                    header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload())
                }
                NetSlice::Ipv6(ip) => {
                    header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
                }
            };
            assert_eq!(expected.unwrap(), udp.checksum(), "UDP checksum");
            seen.source.1 = udp.source_port();
            seen.destination.1 = udp.destination_port();
            seen.payload = udp.payload().to_vec();
        }
        _ => {}
    }
    seen
}

pub trait Lab {
    /// Returns the packet that comes out, or panics.
    fn pass(&mut self, sent: &Sent) -> Seen;
    /// Returns the drop reason.
    fn drops(&mut self, sent: &Sent) -> &'static str;
    /// Returns the last byte of the chosen backend's address.
    fn backend(&mut self, sent: &Sent) -> u8;
    fn reconfigure(&mut self, vips: Value);
    fn ask(&self, verb: &str, arguments: Value) -> Value;
    fn count(&self, name: &str) -> u64;
}

impl Lab for Harness<L4lb> {
    fn pass(&mut self, sent: &Sent) -> Seen {
        match self.process(0, &sent.frame()) {
            Output::Sent(0, frame) => read(&frame),
            other => panic!("{sent:?}: {other:?}"),
        }
    }

    fn drops(&mut self, sent: &Sent) -> &'static str {
        match self.process(0, &sent.frame()) {
            Output::Dropped(reason) => reason,
            other => panic!("{sent:?}: {other:?}"),
        }
    }

    fn backend(&mut self, sent: &Sent) -> u8 {
        let seen = self.pass(sent);
        let address = seen.outer.map_or(seen.destination.0, |(_, to)| to);
        let number = match address {
            IpAddr::V4(address) => address.octets()[3],
            // fd00::11 is backend 11, written in hexadecimal.
            IpAddr::V6(address) => format!("{:x}", address.octets()[15]).parse().unwrap(),
        };
        assert_eq!(seen.to, mac_of(number));
        number
    }

    fn reconfigure(&mut self, vips: Value) {
        use nf_runtime::NetworkFunction;
        let config = serde_json::from_value(config(vips)).unwrap();
        self.function().configure(config).unwrap();
    }

    fn ask(&self, verb: &str, arguments: Value) -> Value {
        use nf_runtime::NetworkFunction;
        self.function().control(verb, &arguments).unwrap().unwrap()
    }

    fn count(&self, name: &str) -> u64 {
        self.counters()[name].as_u64().unwrap_or(0)
    }
}

pub fn arp(operation: ArpOperation, sender: (&str, [u8; 6]), target: &str) -> Vec<u8> {
    let address = |text: &str| text.parse().unwrap();
    let message = Arp {
        operation,
        sender_mac: MacAddress(sender.1),
        sender: address(sender.0),
        target_mac: MacAddress(if operation == ArpOperation::Reply {
            PORT_MAC
        } else {
            [0; 6]
        }),
        target: address(target),
    };
    let mut frame = Vec::new();
    let to = if operation == ArpOperation::Reply {
        PORT_MAC
    } else {
        [0xff; 6]
    };
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&sender.1);
    frame.extend_from_slice(&[8, 6]);
    let mut bytes = [0; Arp::BYTES];
    message.write(&mut bytes);
    frame.extend_from_slice(&bytes);
    frame
}

pub fn icmpv6(source: &str, destination: &str, message: &[u8], hop_limit: u8) -> Vec<u8> {
    let (source, destination): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
        (source.parse().unwrap(), destination.parse().unwrap());
    let mut message = message.to_vec();
    Icmp::new_checked(&mut message[..])
        .unwrap()
        .fill_checksum(source.into(), destination.into());
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(GATEWAY_MAC, PORT_MAC)
        .ipv6(source.octets(), destination.octets(), hop_limit)
        .write(&mut frame, etherparse::IpNumber::IPV6_ICMP, &message)
        .unwrap();
    frame
}

/// Returns the two fragments of an IPv4 frame, with the payload cut after `at` bytes, a multiple of 8.
pub fn fragments(frame: &[u8], at: usize, id: u16) -> [Vec<u8>; 2] {
    let piece = |from: usize, to: usize, more: bool| {
        let mut piece = frame[..34].to_vec();
        piece.extend_from_slice(&frame[34 + from..34 + to]);
        let length = (piece.len() - 14) as u16;
        piece[16..18].copy_from_slice(&length.to_be_bytes());
        piece[18..20].copy_from_slice(&id.to_be_bytes());
        let field = (from as u16 / 8) | u16::from(more) << 13;
        piece[20..22].copy_from_slice(&field.to_be_bytes());
        piece[24..26].fill(0);
        let sum = checksum::of(&piece[14..34]);
        piece[24..26].copy_from_slice(&sum.to_be_bytes());
        piece
    };
    [piece(0, at, true), piece(at, frame.len() - 34, false)]
}
