//! Two gateways, west and east, with a protected network each, and packets between them.

#![allow(dead_code, clippy::unwrap_used)] // each test uses some

use std::{net::IpAddr, sync::atomic::Ordering};

use nf_arena::Memory;
use nf_ipsec::{Config, Ipsec};
use nf_packet::{dissect, Headers, Ipv4, Ipv6, Outcome, Udp};
use nf_runtime::testing::{Harness, Output};
use serde_json::{json, Value};

pub type Gateway = Harness<Ipsec>;

pub const INSIDE: usize = 0;
pub const OUTSIDE: usize = 1;
pub const WEST: usize = 0;
pub const EAST: usize = 1;

/// The ends' addresses inside and outside, IPv4 and IPv6.
const GATEWAYS: [[&str; 2]; 2] = [["192.0.2.1", "2001:db8::1"], ["192.0.2.2", "2001:db8::2"]];
const NETWORKS: [[&str; 2]; 2] = [["10.1.0.0/24", "fd01::/64"], ["10.2.0.0/24", "fd02::/64"]];
const INSIDES: [[&str; 2]; 2] = [["10.1.0.1/24", "fd01::1/64"], ["10.2.0.1/24", "fd02::1/64"]];
pub const HOSTS: [[&str; 2]; 2] = [["10.1.0.5", "fd01::5"], ["10.2.0.5", "fd02::5"]];
pub const HOST_MAC: [u8; 6] = [2, 0xaa, 0, 0, 0, 5];

/// The properties of a pair of gateways.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Of the outer packets.
    pub is_ipv6: bool,
    pub udp: bool,
    pub esn: bool,
    /// Of keys with their salts, in bytes.
    pub material: usize,
    pub window: u32,
    /// The numbers of keys, the first of which protects.
    pub keys: Vec<u8>,
    /// More values of tunnels, and of outbound associations.
    pub tunnel: Value,
    pub association: Value,
}

impl Default for Pair {
    fn default() -> Self {
        Self {
            is_ipv6: false,
            udp: false,
            esn: true,
            material: 20,
            window: 64,
            keys: vec![1],
            tunnel: json!({}),
            association: json!({}),
        }
    }
}

fn merge(mut value: Value, more: &Value) -> Value {
    for (key, each) in more.as_object().unwrap() {
        value[key] = each.clone();
    }
    value
}

impl Pair {
    fn key(&self, number: u8, from: usize) -> String {
        format!("{number:02x}{from:02x}").repeat(self.material / 2)
    }

    pub fn spi(number: u8, from: usize) -> u32 {
        0x1000 * (1 + from as u32) + u32::from(number)
    }

    fn associations(&self, from: usize, is_inbound: bool) -> Vec<Value> {
        let each = self.keys.iter().map(|number| {
            let value = json!({"spi": Self::spi(*number, from), "secret": self.key(*number, from), "esn": self.esn});
            match is_inbound {
                true => merge(value, &json!({"window": self.window})),
                false => merge(value, &self.association),
            }
        });
        each.collect()
    }

    pub fn json(&self, end: usize) -> Value {
        let (other, outer) = (1 - end, usize::from(self.is_ipv6));
        let outside: Vec<String> = vec![
            format!("{}/24", GATEWAYS[end][0]),
            format!("{}/64", GATEWAYS[end][1]),
        ];
        let mac = HOST_MAC.map(|byte| format!("{byte:02x}")).join(":");
        let mut neighbours = Vec::new();
        for version in [0, 1] {
            neighbours
                .push(json!({"address": HOSTS[end][version], "mac": mac, "interface": INSIDE}));
            neighbours.push(json!({"address": GATEWAYS[other][version], "mac": "02:00:00:00:00:01", "interface": OUTSIDE}));
        }
        let selectors: Vec<Value> = [0, 1]
            .map(|version| json!({"local": NETWORKS[end][version], "remote": NETWORKS[other][version]}))
            .to_vec();
        let tunnel = json!({
            "name": "t", "local": GATEWAYS[end][outer], "remote": GATEWAYS[other][outer],
            "encapsulation": if self.udp { "udp" } else { "none" }, "selectors": selectors,
            "outbound": self.associations(end, false), "inbound": self.associations(other, true),
        });
        json!({
            "interfaces": [{"addresses": INSIDES[end]}, {"addresses": outside}],
            "neighbours": neighbours, "keys": 16, "tunnels": [merge(tunnel, &self.tunnel)],
        })
    }

    pub fn config(&self, end: usize) -> Config {
        serde_json::from_value(self.json(end)).unwrap()
    }

    pub fn gateways(&self) -> [Gateway; 2] {
        [WEST, EAST].map(|end| Harness::new(self.config(end)).unwrap())
    }
}

/// Builds a frame with a UDP datagram from one protected host to the other.
pub fn frame(from: usize, is_ipv6: bool, payload: &[u8]) -> Vec<u8> {
    let version = usize::from(is_ipv6);
    let (source, destination) = (HOSTS[from][version], HOSTS[1 - from][version]);
    let ends: [IpAddr; 2] = [source, destination].map(|text| text.parse().unwrap());
    packet(ends, payload)
}

pub fn packet(ends: [IpAddr; 2], payload: &[u8]) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 0][..], &HOST_MAC].concat();
    let length = Udp::HEADER + payload.len();
    let mut datagram = vec![0; length];
    datagram[Udp::HEADER..].copy_from_slice(payload);
    let mut udp = Udp::write(&mut datagram[..], 7000, 8000, payload.len()).unwrap();
    udp.fill_checksum(ends[0], ends[1]);
    match (ends[0], ends[1]) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([8, 0]);
            frame.extend([0; 20]);
            Ipv4::write(&mut frame[14..], source, destination, 17, length).unwrap();
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd]);
            frame.extend([0; 40]);
            Ipv6::write(&mut frame[14..], source, destination, 17, length).unwrap();
        }
        _ => unreachable!(),
    }
    frame.extend(datagram);
    frame
}

/// Changes a frame's IPv4 header, and its checksum with it.
pub fn with_header(mut frame: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut frame[14..34]);
    Ipv4::new_checked(&mut frame[14..]).unwrap().fill_checksum();
    frame
}

pub fn headers(frame: &[u8]) -> Headers {
    match dissect(frame) {
        Ok(Outcome::Ip(headers)) => headers,
        other => panic!("{other:?}"),
    }
}

/// Returns the frame that a packet became.
#[track_caller]
pub fn sent(output: Output, port: usize) -> Vec<u8> {
    match output {
        Output::Sent(by, frame) if by == port => frame,
        other => panic!("{other:?}"),
    }
}

/// Where the ESP packet is in a frame.
pub fn esp(frame: &[u8]) -> usize {
    let headers = headers(frame);
    usize::from(headers.transport)
        + if headers.protocol == 17 {
            Udp::HEADER
        } else {
            0
        }
}

/// Returns SPI, sequence number and IV of an ESP packet.
pub fn numbers(frame: &[u8]) -> (u32, u32, u64) {
    let at = esp(frame);
    let word = |at: usize| u32::from_be_bytes(*frame[at..].first_chunk().unwrap());
    let iv = u64::from_be_bytes(*frame[at + 8..].first_chunk().unwrap());
    (word(at), word(at + 4), iv)
}

pub fn payload(frame: &[u8]) -> &[u8] {
    &headers(frame).segment(frame)[Udp::HEADER..]
}

/// Writes a word of the state's row of a gateway's first key.
pub fn put(gateway: &Gateway, region: &str, word: usize, value: u64) {
    let region = gateway.arena().region(region).unwrap();
    region.words()[word].store(value, Ordering::Relaxed);
}
