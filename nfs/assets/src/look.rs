//! A look at one packet, and what it may note about the packet's sender.

mod datagrams;
mod segments;

use nf_runtime::state::SlabId;

use crate::{
    connections::{Connection, End, Side},
    fingerprint::Way,
    inspector::Inspector,
    lines,
    register::{kind, Address, Finding},
    view::{Captured, Ip},
};

/// How many packets must show another program before it replaces the known one.
const MOST_OTHERS: u16 = 200;

/// A look at one packet.
pub struct Look<'a> {
    pub inspector: Inspector<'a>,
    pub frame: &'a Captured<'a>,
    pub ip: Ip,
    pub source: Address,
    /// The time of the state's clock, in nanoseconds.
    pub now: u64,
    pub lines: &'a mut Vec<u8>,
}

/// A look at one packet with a transport header, whose sender is in the register.
pub struct Sender {
    pub host: SlabId,
    pub connection: Connection,
    pub protocol: u8,
    /// Source and destination.
    pub ports: [u16; 2],
}

impl Look<'_> {
    pub fn see(&self) -> Option<SlabId> {
        let register = self.inspector.register;
        register.see(&self.source, self.ip.vlan, self.frame.time)
    }

    pub fn connection(&self, protocol: u8, ports: [u16; 2]) -> Connection {
        let [from, to] = self.ip.addresses(self.frame.octets);
        let end = |address, port| End { address, port };
        let (from, to) = (end(from, ports[0]), end(to, ports[1]));
        let version = self.source.version as u8;
        self.inspector
            .connections
            .of(from, to, protocol, version, self.now)
    }

    pub fn sender(&self, protocol: u8, ports: [u16; 2]) -> Option<Sender> {
        let connection = self.connection(protocol, ports);
        Some(Sender {
            host: self.see()?,
            connection,
            protocol,
            ports,
        })
    }

    /// Reads the ports of a transport header.
    pub fn ports(&self) -> [u16; 2] {
        let transport = self.ip.transport(self.frame.octets);
        [transport, transport + 2].map(|at| self.frame.octets.two(at))
    }

    pub fn note(&self, sender: &mut Sender, bit: u8) {
        let connections = self.inspector.connections;
        connections.note(&mut sender.connection, bit, self.now);
    }

    pub fn reverse(&self, sender: &mut Sender) {
        let connections = self.inspector.connections;
        connections.reverse(&mut sender.connection, self.now);
    }

    /// Notes the service that a packet's sender offers or uses.
    pub fn service(&mut self, sender: &Sender, service: &[u8], title: &[u8]) {
        let register = self.inspector.register;
        let is_client = sender.connection.side == Side::Client;
        let port = sender.ports[usize::from(is_client)];
        let time = self.frame.time;
        let known = register.search(sender.host, |id, finding| {
            let is_it =
                (finding.kind, finding.way, finding.port) == (kind::SERVICE, sender.protocol, port);
            is_it.then_some((id, *finding))
        });
        let text = [service, b":", title].concat();
        let Some((id, finding)) = known else {
            let finding = Finding {
                kind: kind::SERVICE,
                way: sender.protocol,
                is_server: u8::from(sender.connection.side == Side::Server),
                ttl: self.ip.ttl(self.frame.octets),
                port,
                title: service.len() as u16 + 1,
                first_seen: time,
                last_seen: time,
                ..Finding::default()
            };
            register.add(sender.host, finding, &text);
            self.write(sender.host, &finding, &text);
            return;
        };
        let known_title = usize::from(finding.title);
        let is_guess = |title: &[u8]| title.first() == Some(&b'@');
        let is_same = register.has_text(&finding, known_title, title);
        let known_is_guess = || {
            is_guess(
                register
                    .text(&finding)
                    .get(known_title..)
                    .unwrap_or_default(),
            )
        };
        let replaces =
            !is_same && ((!is_guess(title) && known_is_guess()) || finding.others > MOST_OTHERS);
        let others = if is_same || replaces {
            0
        } else {
            finding.others + 1
        };
        register.change(id, |finding| {
            (finding.others, finding.last_seen) = (others, time)
        });
        if replaces {
            register.change(id, |finding| finding.title = service.len() as u16 + 1);
            register.set_text(sender.host, id, &text);
            let finding = Finding {
                last_seen: time,
                ..finding
            };
            self.write(sender.host, &finding, &text);
        }
    }

    /// Notes an operating system, known by a signature's line (0: unknown) or, where there are no signatures, by the text.
    pub fn system(
        &mut self,
        host: SlabId,
        way: Way,
        port: u16,
        line: Option<u32>,
        stamp: u32,
        text: &[u8],
    ) {
        let register = self.inspector.register;
        let time = self.frame.time;
        let known = register.search(host, |id, finding| {
            let is_way = (finding.kind, finding.way) == (kind::SYSTEM, way as u8);
            let is_it = is_way
                && match line {
                    Some(line) => finding.line == line,
                    None => register.has_text(finding, 0, text),
                };
            is_it.then_some(id)
        });
        if let Some(id) = known {
            register.change(id, |finding| {
                (finding.port, finding.last_seen) = (port, time);
                if stamp != 0 {
                    finding.stamp = stamp;
                }
            });
            return;
        }
        let finding = Finding {
            kind: kind::SYSTEM,
            way: way as u8,
            ttl: self.ip.ttl(self.frame.octets),
            port,
            line: line.unwrap_or(0),
            stamp,
            first_seen: time,
            last_seen: time,
            ..Finding::default()
        };
        register.add(host, finding, text);
        self.write(host, &finding, text);
    }

    pub fn write(&mut self, host: SlabId, finding: &Finding, text: &[u8]) {
        if let Some(host) = self.inspector.register.host(host) {
            lines::finding(&host, finding, text, self.lines);
        }
    }
}
