//! UDP, ICMP and DHCP.

use super::{Look, Sender};
use crate::{
    checks::Check,
    connections::{known, Side},
    fingerprint::{self, Way},
    links,
    octets::Octets,
    ports,
    register::Address,
    signatures::Message,
    view::{mapped, protocol},
};

const UDP: usize = 8;
/// The fewest bytes of payload that are looked at.
const LEAST: u32 = 5;
const DOMAIN: u16 = 53;
/// Ports of DHCP: client and server.
const DHCP: [u16; 2] = [68, 67];

/// Where a message's options start: after the fixed fields (RFC 2131, 2) and the four bytes that tell DHCP from BOOTP.
const OPTIONS: usize = 240;
const CLIENT_ADDRESS: usize = 12;
mod dhcp_option {
    pub const PAD: u8 = 0;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const KIND: u8 = 53;
    pub const REQUESTED: u8 = 55;
    pub const CLASS: u8 = 60;
    pub const END: u8 = 255;
}

impl Look<'_> {
    pub fn udp(&mut self) {
        let Some(mut sender) = self.sender(protocol::UDP, self.ports()) else {
            return;
        };
        let checks = self.inspector.checks;
        match sender.ports {
            [_, DOMAIN] => sender.connection.side = Side::Client,
            [DOMAIN, _] => sender.connection.side = Side::Server,
            _ => {}
        }
        if checks.has(Check::Dhcp) && sender.ports == DHCP && !self.ip.is_v6 {
            self.dhcp();
        }
        if !checks.has(Check::UdpService) {
            return;
        }
        self.datagram(&mut sender);
        if checks.has(Check::UdpSystem) && !self.ip.is_v6 {
            if let Some(text) = fingerprint::of_udp(self.frame, &self.ip) {
                self.untold(&sender, Way::Udp, &text);
            }
        }
    }

    /// Notes traits of an operating system for which there are no signatures.
    fn untold(&mut self, sender: &Sender, way: Way, text: &str) {
        let text = format!("{text}:unknown:unknown");
        self.system(sender.host, way, 0, None, 0, text.as_bytes());
    }

    fn datagram(&mut self, sender: &mut Sender) {
        let (start, length) = self.ip.payload(self.frame, UDP);
        if length < LEAST {
            return;
        }
        let signatures = &self.inspector.signatures.datagrams;
        let program = if self.ip.is_v6 {
            // PRADS has no signatures for UDP over IPv6.
            None
        } else if (length as i32) < 0 {
            // It takes a length below zero for a match.
            signatures.first()
        } else {
            signatures.find(self.frame.octets.part(start, length as usize))
        };
        if let Some(program) = program {
            self.service(sender, program.service, &program.title);
            self.note(sender, known::SERVICE);
        } else {
            self.datagram_by_port(sender);
        }
    }

    /// Notes a service that only its port tells. If it is the port of the other end than the connection's start says, the connection is turned round.
    fn datagram_by_port(&mut self, sender: &mut Sender) {
        let [own, other] = sender.ports;
        let (expected, opposite, bit) = match sender.connection.side {
            Side::New => return,
            Side::Client => (other, own, known::CLIENT_BY_PORT),
            Side::Server => (own, other, known::SERVICE_BY_PORT),
        };
        if sender.connection.knows(bit) {
            return;
        }
        let name = ports::udp(expected).or_else(|| {
            let name = ports::udp(opposite)?;
            self.reverse(sender);
            Some(name)
        });
        if let Some(name) = name {
            self.service(sender, b"unknown", name.as_bytes());
            self.note(sender, bit);
        }
    }

    pub fn icmp(&mut self, protocol: u8) {
        let Some(mut sender) = self.sender(protocol, [0, 0]) else {
            return;
        };
        let checks = self.inspector.checks;
        if checks.has(Check::IcmpSystem) && !sender.connection.is_known() {
            self.note(&mut sender, known::ICMP);
            if self.ip.is_v6 {
                // PRADS begins a new record here, and finds nothing of the old one again.
                let register = self.inspector.register;
                register.begin_again(sender.host, self.ip.vlan, self.frame.time);
            } else if let Some(text) = fingerprint::of_icmp(self.frame, &self.ip) {
                self.untold(&sender, Way::Icmp, &text);
            }
        }
        if checks.has(Check::Neighbours) && self.ip.is_v6 {
            links::neighbour(&self.inspector, self.frame, &self.ip, self.lines);
        }
    }

    /// Notes what a client of DHCP shows of its implementation, with the address that it has or asks for.
    fn dhcp(&mut self) {
        let (start, length) = self.ip.payload(self.frame, UDP);
        let octets = Octets::new(self.frame.octets.part(start, length as usize));
        let Some((message, address)) = parse(octets) else {
            return;
        };
        let sent_from = self.source.octets;
        let octets = if sent_from == mapped([0; 4]) {
            mapped(address)
        } else {
            sent_from
        };
        let address = Address { octets, version: 4 };
        let register = self.inspector.register;
        let Some(host) = register.see(&address, self.ip.vlan, self.frame.time) else {
            return;
        };
        let found = self.inspector.signatures.dhcp.find(&message);
        let (system, detail) = found.unwrap_or((b"unknown", b"unknown"));
        let mut text = self.dhcp_text(&message).into_bytes();
        for part in [message.class.as_deref().unwrap_or(b"."), system, detail] {
            text.push(b':');
            text.extend_from_slice(part);
        }
        self.system(host, Way::Dhcp, DHCP[0], None, 0, &text);
    }

    fn dhcp_text(&self, message: &Message) -> String {
        let numbers = |numbers: &[u8]| {
            let each: Vec<String> = numbers.iter().map(u8::to_string).collect();
            if each.is_empty() {
                ".".to_owned()
            } else {
                each.join(",")
            }
        };
        let ttl = self.ip.ttl(self.frame.octets);
        let (options, requested) = (numbers(&message.options), numbers(&message.requested));
        format!("{}:{ttl}:{options}:{requested}", message.kind)
    }
}

/// Parses a client's message, and the address that it has or asks for. None: it is BOOTP, or it is cut.
fn parse(octets: Octets<'_>) -> Option<(Message, [u8; 4])> {
    const COOKIE: u32 = 0x6382_5363;
    if octets.len() <= OPTIONS || octets.four(OPTIONS - 4) != COOKIE {
        return None;
    }
    let mut message = Message::default();
    let mut address = octets.array(CLIENT_ADDRESS);
    let mut at = OPTIONS;
    while at < octets.len() {
        let kind = octets.byte(at);
        if kind == dhcp_option::PAD {
            at += 1;
            continue;
        }
        message.options.push(kind);
        if kind == dhcp_option::END {
            break;
        }
        let value = octets.part(at + 2, octets.byte(at + 1).into());
        match kind {
            dhcp_option::KIND => message.kind = value.first().copied().unwrap_or(0),
            dhcp_option::REQUESTED => message.requested = value.to_vec(),
            // Commas and line breaks would break the line.
            dhcp_option::CLASS => message.class = Some(value.iter().map(printable).collect()),
            dhcp_option::REQUESTED_ADDRESS if address == [0; 4] => {
                address = value.first_chunk().copied().unwrap_or_default();
            }
            _ => {}
        }
        at += 2 + usize::from(octets.byte(at + 1));
    }
    Some((message, address))
}

fn printable(byte: &u8) -> u8 {
    if byte.is_ascii_graphic() || *byte == b' ' {
        *byte
    } else {
        b'?'
    }
}
