//! TCP.

use super::{Look, Sender};
use crate::{
    checks::Check,
    connections::{known, Side},
    fingerprint::{self, flag, Way},
    ports,
    signatures::{ServiceSignatures, System},
    view::protocol,
};

/// The fewest bytes of payload that are looked at, and the most.
const LEAST: u32 = 10;
const MOST: u32 = 600;

impl Look<'_> {
    pub fn tcp(&mut self) {
        let Some(mut sender) = self.sender(protocol::TCP, self.ports()) else {
            return;
        };
        let checks = self.inspector.checks;
        let tcp = self.ip.transport(self.frame.octets);
        let flags = self.frame.octets.byte(tcp + 13);
        let has = |wanted: u8| flags & wanted == wanted;
        if has(flag::SYN) && !has(flag::ACK) && checks.has(Check::Syn) {
            self.segment(&sender, Way::Syn);
            return;
        }
        if has(flag::SYN | flag::ACK) && checks.has(Check::SynAck) {
            self.segment(&sender, Way::SynAck);
            if sender.connection.side != Side::Server {
                self.reverse(&mut sender);
            }
            return;
        }
        match sender.connection.side {
            Side::New => return,
            Side::Client => self.client(&mut sender),
            Side::Server => self.server(&mut sender),
        }
        let opens_or_ends = flags & (flag::SYN | flag::RST | flag::FIN) != 0;
        if checks.has(Check::Ack) && has(flag::ACK) && !opens_or_ends {
            self.segment(&sender, Way::Ack);
        } else if checks.has(Check::Fin) && has(flag::FIN) {
            self.segment(&sender, Way::Fin);
        } else if checks.has(Check::Rst) && has(flag::RST) {
            self.segment(&sender, Way::Rst);
        }
    }

    fn client(&mut self, sender: &mut Sender) {
        if !self.inspector.checks.has(Check::TcpClient) || sender.connection.knows(known::CLIENT) {
            return;
        }
        let signatures = &self.inspector.signatures.clients;
        let most = if self.ip.is_v6 { u32::MAX } else { MOST };
        if self.program(sender, signatures, most) {
            self.note(sender, known::CLIENT);
        } else {
            self.by_port(sender, sender.ports[1], known::CLIENT_BY_PORT);
        }
    }

    fn server(&mut self, sender: &mut Sender) {
        if !self.inspector.checks.has(Check::TcpServer) || sender.connection.knows(known::SERVICE) {
            return;
        }
        let signatures = &self.inspector.signatures.servers;
        if self.program(sender, signatures, MOST) {
            self.note(sender, known::SERVICE);
        } else {
            self.by_port(sender, sender.ports[0], known::SERVICE_BY_PORT);
        }
    }

    /// Returns the payload's start and its length by the frame's.
    fn segment_payload(&self) -> (usize, u32) {
        let octets = self.frame.octets;
        let tcp = self.ip.transport(octets);
        let header = 4 * usize::from(octets.byte(tcp + 12) >> 4);
        self.ip.payload(self.frame, header)
    }

    fn program(&mut self, sender: &Sender, signatures: &ServiceSignatures, most: u32) -> bool {
        let (start, length) = self.segment_payload();
        if length < LEAST {
            return false;
        }
        let payload = self.frame.octets.part(start, length.min(most) as usize);
        let program = signatures.find(payload);
        if let Some(program) = &program {
            self.service(sender, program.service, &program.title);
        }
        program.is_some()
    }

    /// Notes a service that only its port tells, once a connection.
    fn by_port(&mut self, sender: &mut Sender, port: u16, bit: u8) {
        let (_, length) = self.segment_payload();
        if length < LEAST || sender.connection.knows(bit) {
            return;
        }
        if let Some(name) = ports::tcp(port) {
            self.service(sender, b"unknown", name.as_bytes());
            self.note(sender, bit);
        }
    }

    /// Notes the operating system that a segment tells.
    fn segment(&mut self, sender: &Sender, way: Way) {
        let Some(mut packet) = fingerprint::of_tcp(self.frame, &self.ip, way) else {
            return;
        };
        let signatures = self.inspector.signatures;
        let of_way = match way {
            Way::Syn => &signatures.syn,
            Way::SynAck => &signatures.syn_ack,
            Way::Fin => &signatures.fin,
            Way::Rst => &signatures.rst,
            _ => &signatures.ack,
        };
        let unknown = System {
            line: 0,
            name: b"unknown",
            detail: b"unknown",
        };
        let system = of_way.find(&mut packet).unwrap_or(unknown);
        let mut text = fingerprint::text(&packet).into_bytes();
        for part in [system.name, system.detail] {
            text.push(b':');
            text.extend_from_slice(part);
        }
        if packet.segment_size != 0 {
            text.extend_from_slice(b":link:");
            text.extend(signatures.links.name(packet.segment_size));
        }
        // Most systems count 100 times a second.
        if packet.stamp != 0 {
            text.extend(format!(":uptime:{}hrs", packet.stamp / 360_000).into_bytes());
        }
        self.system(
            sender.host,
            way,
            sender.ports[0],
            Some(system.line),
            packet.stamp,
            &text,
        );
    }
}
