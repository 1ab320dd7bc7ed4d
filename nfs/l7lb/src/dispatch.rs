//! The way of each packet to the part that handles it.

use nf_balancing::{
    link::{is_to_all, Handled, TAKEN},
    network::Owner,
    tuple::Tuple,
};
use nf_packet::{dissect, protocol, tcp_flags, Fragment, Headers, Outcome, Tcp};
use nf_runtime::Packet;

use crate::{
    idle_legs::IdleLegs,
    pass::{Fate, Pass, Received},
    record::{reversed, stage},
    segments::{Outgoing, Segment, ACK},
    tables::Event,
};

impl Pass<'_> {
    pub(crate) fn run(&mut self, packets: &mut [Packet]) {
        self.take_handshakes();
        for (index, packet) in packets.iter_mut().enumerate() {
            self.out.follow(index);
            self.one(packet);
        }
        self.out.follow_all();
    }

    fn one(&mut self, packet: &mut Packet) {
        let headers = match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) => headers,
            Ok(Outcome::Arp { offset }) => {
                let handled = self.link().arp(packet, offset);
                return self.handled(packet, handled);
            }
            Ok(Outcome::Other { .. }) => return self.pass_on(packet),
            Err(malformed) => return packet.drop_for(malformed.name()),
        };
        if is_to_all(packet) && !headers.destination(packet.bytes()).is_multicast() {
            return self.pass_on(packet);
        }
        match headers.protocol {
            protocol::ICMP | protocol::ICMPV6 => {
                let handled = self.link().icmp(packet, &headers);
                self.handled(packet, handled);
            }
            protocol::TCP if headers.fragment == Fragment::Whole => self.tcp(packet, headers),
            _ => self.pass_on(packet),
        }
    }

    fn handled(&mut self, packet: &mut Packet, handled: Handled) {
        match handled {
            Handled::Done | Handled::EchoAnswered => {}
            Handled::ForOthers => self.pass_on(packet),
            Handled::Malformed => packet.drop_for("malformed"),
            Handled::Error => packet.drop_for("an ICMP error"),
            Handled::Unsupported => packet.drop_for("not supported"),
        }
    }

    fn pass_on(&mut self, packet: &mut Packet) {
        if !self.link().pass_on(packet) {
            packet.drop_for("not for this function");
        }
    }

    fn tcp(&mut self, packet: &mut Packet, headers: Headers) {
        let frame = packet.bytes();
        let destination = headers.destination(frame);
        let is_client = match self.snapshot.network.owner(destination) {
            Some(Owner::Vip) => true,
            Some(Owner::Interface(_)) => false,
            None => return self.pass_on(packet),
        };
        if !self.link().is_to_me(packet) {
            return self.pass_on(packet);
        }
        let frame = packet.bytes();
        let Some(segment) = Segment::of(frame, &headers) else {
            return packet.drop_for("malformed");
        };
        let tuple = Tuple {
            source: headers.source(frame).into(),
            destination: destination.into(),
            source_port: headers.source_port,
            destination_port: headers.destination_port,
            protocol: protocol::TCP.into(),
        };
        // The function is the receiver of what it reads: a corrupt segment must not reach a head.
        let is_left = packet.offloads().checksum().is_some();
        if segment.len > 0 && !is_left && !has_checksum(frame, &headers) {
            self.tables.count(Event::Corrupt);
            return packet.drop_for("checksum");
        }
        if !is_client && self.health_answer(frame, &headers) {
            return packet.drop_for(TAKEN);
        }
        let table = if is_client {
            &self.tables.clients
        } else {
            &self.tables.answers
        };
        let id = table.look(&tuple, self.now()).unwrap_or_default();
        if !is_client && IdleLegs::is_marked(id) {
            self.idle_backend_says(id, &segment);
            return packet.drop_for(TAKEN);
        }
        let mut received = Received {
            packet,
            headers,
            segment,
            id,
            went: false,
        };
        if received.id.is_none() || !self.known(&mut received, &tuple, is_client) {
            self.unknown(&mut received, &tuple, is_client);
        }
        self.settle_endpoints();
        if !received.went {
            received.packet.drop_for(TAKEN);
        }
    }

    /// Handles a segment of a connection. Returns false if the connection does not exist any more.
    fn known(&mut self, received: &mut Received<'_>, tuple: &Tuple, is_client: bool) -> bool {
        let (tables, id) = (self.tables, received.id);
        let is_new = received.segment.has(tcp_flags::SYN) && is_client;
        let fate = tables.connections.update(id, |connection| {
            if is_new && connection.stage == stage::CLOSING {
                return None;
            }
            let before = connection.deadline();
            let fate = if is_client {
                self.client_says(connection, received)
            } else {
                let index = connection.legs.iter().position(|leg| leg.tuple == *tuple);
                match index {
                    Some(index) => self.backend_says(connection, index, received),
                    None => return None,
                }
            };
            let after = connection.deadline();
            if after != before {
                tables.timers.set(id.slot(), after);
            }
            Some(fate)
        });
        match fate {
            Some(Some(Fate::Stays)) => true,
            Some(Some(Fate::Ends)) => {
                self.tables.remove(id);
                true
            }
            Some(None) if is_new => {
                self.tables.remove(id);
                false
            }
            _ => false,
        }
    }

    /// Handles a segment that belongs to no connection.
    fn unknown(&mut self, received: &mut Received<'_>, tuple: &Tuple, is_client: bool) {
        if is_client && self.tls_client_says(received, tuple) {
            return;
        }
        let segment = received.segment;
        let is_listener = self
            .snapshot
            .listener((tuple.destination.ip(), tuple.destination_port))
            .is_some();
        if is_client && is_listener {
            if segment.has(tcp_flags::SYN) && !segment.has(ACK) {
                return self.answer_syn(received, tuple);
            }
            let may_open = segment.has(ACK) && !segment.has(tcp_flags::RST);
            if may_open && (self.opens(received, tuple) || self.is_early(&segment, tuple)) {
                return;
            }
        }
        if !segment.has(tcp_flags::RST) {
            self.refuse(tuple, &segment);
        }
    }

    fn opens(&mut self, received: &mut Received<'_>, tuple: &Tuple) -> bool {
        if self.snapshot.is_tls(tuple) {
            self.open_endpoint(received, tuple)
        } else {
            self.open(received, tuple)
        }
    }

    /// Resets the sender of a segment that belongs to no connection (RFC 9293, 3.10.7.1).
    fn refuse(&mut self, tuple: &Tuple, segment: &Segment) {
        self.tables.count(Event::Refused);
        let counted = segment.len as u32
            + u32::from(segment.has(tcp_flags::SYN))
            + u32::from(segment.has(tcp_flags::FIN));
        let answer = if segment.has(ACK) {
            Outgoing {
                flags: tcp_flags::RST,
                seq: segment.ack,
                ..Outgoing::default()
            }
        } else {
            Outgoing {
                flags: tcp_flags::RST | ACK,
                ack: segment.seq.wrapping_add(counted),
                ..Outgoing::default()
            }
        };
        self.send(reversed(tuple), &answer);
    }
}

fn has_checksum(frame: &[u8], headers: &Headers) -> bool {
    let (source, destination) = (headers.source(frame), headers.destination(frame));
    Tcp::new_checked(headers.segment(frame))
        .is_ok_and(|tcp| tcp.checksum_holds(source, destination))
}
