//! Feeds frames of hosts that obey nothing to firewalls with arbitrary rules, while the inspector answers whatever it likes, dies, and the state moves.
//!
//! Each frame carries a number behind its packet. Each frame that leaves must be one that came, unchanged, once, and behind the earlier ones of its flow, or an answer to
//! a rejected one; and nothing is left of flows that have ended.

#![no_main]

use std::{cell::Cell, collections::HashMap, net::IpAddr};

use libfuzzer_sys::fuzz_target;
use nf_firewall::{Config, Firewall};
use nf_packet::{dissect, protocol, tcp_flags, Fragment, Icmp, Ipv4, Ipv6, Outcome, Tcp, Udp};
use nf_runtime::{testing::Harness, NetworkFunction};
use serde_json::{json, Value};

#[path = "firewall/whim.rs"]
mod whim;

use whim::{Whim, IS_HONEST};

type Nf = Harness<Firewall<Whim>>;

/// Takes bytes from the front; 0 after the end.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *byte
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(self.0.len().min(count));
        self.0 = rest;
        bytes
    }

    fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[usize::from(self.byte()) % values.len()].clone()
    }

    /// A text of the fuzzer's own, or one that means something.
    fn text(&mut self, values: &[&str]) -> String {
        let length = self.byte();
        if length >= 0xf0 {
            return String::from_utf8_lossy(self.bytes(usize::from(length & 15))).into_owned();
        }
        values[usize::from(length) % values.len()].to_owned()
    }
}

const PREFIXES: [&str; 7] = ["10.0.0.0/8", "10.0.0.1", "servers", "::/0", "fd00::1", "0.0.0.0/0", "10.0.0.2/31"];

fn rule(source: &mut Source<'_>, name: usize) -> Value {
    let mut rule = json!({
        "name": format!("r{name}"),
        "action": source.one_of(&["allow", "drop", "reject"]),
        "undecided": source.one_of(&["allow", "drop"]),
    });
    let conditions = source.byte();
    let mut add = |bit: u8, key: &str, source: &mut Source<'_>, values: &[&str]| {
        if conditions & 1 << bit != 0 {
            rule[key] = json!([source.text(values)]);
        }
    };
    add(0, "from", source, &["inside", "outside"]);
    add(1, "source", source, &PREFIXES);
    add(2, "destination", source, &PREFIXES);
    add(3, "protocols", source, &["tcp", "udp", "icmp"]);
    add(4, "ports", source, &["53", "80", "0-1023", "443"]);
    add(5, "applications", source, &["HTTP", "TLS", "TLS.YouTube", "Unknown"]);
    add(6, "hosts", source, &["*.example.com", "www.example.com"]);
    if conditions & 1 << 7 != 0 {
        let kind = source.one_of(&["packets", "connections"]);
        rule["rate"] = json!({kind: source.byte()});
    }
    rule
}

fn config(source: &mut Source<'_>) -> Option<Config> {
    let rules: Vec<Value> = (0..usize::from(source.byte() % 5)).map(|name| rule(source, name)).collect();
    let config = json!({
        "default": source.one_of(&["allow", "drop", "reject"]),
        "midstream": source.one_of(&["evaluate", "drop"]),
        "other_frames": "allow",
        "zones": {"inside": {"ports": [0]}, "outside": {"prefixes": [source.text(&PREFIXES)]}},
        "sets": {"servers": [source.text(&PREFIXES[3..])]},
        "flows": 16,
        "inspection": {"memory_mib": 1, "packets": source.byte() % 8},
        "rules": rules,
    });
    serde_json::from_value(config).ok()
}

/// Returns a packet of one of a few hosts.
fn packet(source: &mut Source<'_>) -> Vec<u8> {
    let (how, ends) = (source.byte(), source.byte());
    let is_tcp = how & 1 != 0;
    let ports = (source.one_of(&[53, 80, 443, 1024]), source.one_of(&[53, 80, 443, 1024]));
    let (flags, sequence, acknowledgement) = (source.byte(), source.byte(), source.byte());
    let length = usize::from(source.byte() & 31);
    let payload = source.bytes(length);
    let mut transport = vec![0; if is_tcp { 20 } else { 8 }];
    transport.extend(payload);
    let host = |bits: u8| bits & 3;
    let addresses: (IpAddr, IpAddr) = if how & 2 == 0 {
        ([10, 0, 0, host(ends)].into(), [10, 0, 0, host(ends >> 2)].into())
    } else {
        let host = |bits| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host(bits))]);
        (host(ends), host(ends >> 2))
    };
    if is_tcp {
        // The numbers wrap around.
        let number = |byte: u8| u32::from(byte).wrapping_sub(8);
        let mut tcp = Tcp::write(&mut transport[..], ports, number(sequence), number(acknowledgement), flags & 63, 1000).unwrap();
        tcp.fill_checksum(addresses.0, addresses.1);
    } else {
        Udp::write(&mut transport[..], ports.0, ports.1, length).unwrap();
    }
    let number = if is_tcp { protocol::TCP } else { protocol::UDP };
    let mut packet = vec![0; if how & 2 == 0 { 20 } else { 40 }];
    match addresses {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = Ipv4::write(&mut packet[..], from, to, number, transport.len()).unwrap();
            if how & 0x30 == 0x30 {
                // A fragment: the first one, or a later one.
                packet[6..8].copy_from_slice(&if how & 0x40 == 0 { [0x20, 0] } else { [0, 3] });
                header = Ipv4::new_cut(&mut packet[..]).unwrap();
            }
            header.fill_checksum();
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => drop(Ipv6::write(&mut packet[..], from, to, number, transport.len()).unwrap()),
        _ => unreachable!(),
    }
    packet.extend(&transport);
    packet
}

/// Returns a packet of arbitrary bytes, with a right checksum if so.
fn garbage(source: &mut Source<'_>) -> Vec<u8> {
    let how = source.byte();
    let length = usize::from(source.byte());
    let mut packet = source.bytes(length).to_vec();
    let header = packet.first().map_or(0, |byte| usize::from(byte & 15) * 4);
    if how & 1 != 0 && header >= 20 {
        if let Some(header) = packet.get_mut(..header) {
            header[10..12].fill(0);
            let sum = nf_packet::checksum::of(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
    packet
}

/// The frames that came, and the last one of each direction of a flow that left.
#[derive(Default)]
struct Ledger {
    came: Vec<(usize, Vec<u8>)>,
    left: Vec<bool>,
    last: HashMap<Vec<u8>, usize>,
    answers: usize,
}

impl Ledger {
    /// Adds a frame; returns it with its number.
    fn frame(&mut self, port: usize, tagged: bool, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 9, 0, 0, 0, 1, 2, 9, 0, 0, 0, 2];
        if tagged {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend(if packet.first().is_some_and(|byte| byte >> 4 == 6) { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(packet);
        frame.extend((self.came.len() as u32).to_be_bytes());
        self.came.push((port, frame.clone()));
        self.left.push(false);
        frame
    }

    fn check(&mut self, leaving: Vec<(usize, Vec<u8>)>) {
        for (port, frame) in leaving {
            let number = frame.last_chunk().map(|number| u32::from_be_bytes(*number) as usize);
            let came = number.and_then(|number| self.came.get(number)).filter(|came| came.1 == frame);
            let Some((ingress, _)) = came else {
                assert!(is_answer(&frame), "made up: {frame:02x?}");
                self.answers += 1;
                continue;
            };
            let number = number.unwrap();
            assert_ne!(*ingress, port, "sent back");
            assert!(!std::mem::replace(&mut self.left[number], true), "doubled: {frame:02x?}");
            if let Some(flow) = flow(*ingress, &frame) {
                let last = self.last.insert(flow, number);
                assert!(last < Some(number), "reordered: {frame:02x?}");
            }
        }
        // Two for a connection: its ends are told.
        assert!(self.answers <= 2 * self.came.len());
    }
}

/// Returns the direction of a flow. None: its order does not matter.
fn flow(port: usize, frame: &[u8]) -> Option<Vec<u8>> {
    let Ok(Outcome::Ip(headers)) = dissect(frame) else {
        return None;
    };
    if headers.fragment != Fragment::Whole || !matches!(headers.protocol, protocol::TCP | protocol::UDP) {
        return None;
    }
    let ports = [headers.source_port, headers.destination_port];
    Some(format!("{port} {:?} {} {} {} {ports:?}", &frame[12..16], headers.source(frame), headers.destination(frame), headers.protocol).into_bytes())
}

/// Tells whether a frame is a whole RST or ICMP error.
fn is_answer(frame: &[u8]) -> bool {
    let Ok(Outcome::Ip(headers)) = dissect(frame) else {
        return false;
    };
    let segment = headers.segment(frame);
    match headers.protocol {
        protocol::TCP => Tcp::new_checked(segment).is_ok_and(|tcp| tcp.flags() & tcp_flags::RST != 0 && tcp.payload().is_empty()),
        protocol::ICMP | protocol::ICMPV6 => Icmp::new_checked(segment).is_ok_and(|icmp| icmp.is_error(headers.version)),
        _ => false,
    }
}

fn within_bounds(nf: &Nf) {
    let counters = nf.counters();
    let value = |name: &str| counters[name].as_f64().unwrap();
    assert!(value("flows_unanswered") <= value("flows"), "{counters}");
    assert!(value("flows") <= value("flows_room"), "{counters}");
    assert!(value("prefix_bytes_free") <= value("prefix_bytes"), "{counters}");
}

fuzz_target!(|bytes: &[u8]| {
    let mut source = Source(bytes);
    IS_HONEST.with(|honest: &Cell<bool>| honest.set(false));
    let Some(mut current) = config(&mut source) else { return };
    let Ok(mut nf) = Nf::new(current.clone()) else { return };
    let mut ledger = Ledger::default();
    while !source.0.is_empty() {
        let how = source.byte();
        match how & 7 {
            0 => nf.tick(),
            1 => nf.advance(u64::from(source.byte()) << (how >> 3)),
            2 => nf = nf.adopting(current.clone()).unwrap(),
            3 => {
                if let Some(new) = config(&mut source) {
                    if nf.function().configure(new.clone()).is_ok() {
                        current = new;
                    }
                }
            }
            kind => {
                let packet = if kind == 4 { garbage(&mut source) } else { packet(&mut source) };
                let port = usize::from(how >> 3 & 1);
                let frame = ledger.frame(port, how >> 4 & 7 == 7, &packet);
                ledger.check(nf.process_leaving(&[(port, &frame[..])]));
            }
        }
        ledger.check(nf.take_emitted());
        within_bounds(&nf);
    }
    // All that waits has its fate, and all flows end.
    IS_HONEST.with(|honest| honest.set(true));
    for seconds in [0, 0, 11, 4000] {
        nf.advance(seconds * 1_000_000_000);
        (0..64).for_each(|_| nf.tick());
        ledger.check(nf.take_emitted());
    }
    let counters = nf.counters();
    assert_eq!((&counters["flows"], &counters["flows_unanswered"]), (&json!(0), &json!(0)));
    assert_eq!(counters["prefix_bytes_free"], counters["prefix_bytes"]);
});
