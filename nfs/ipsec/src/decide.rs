//! The decision on a packet: answer, protect, open, or drop.

use nf_balancing::link::{is_to_all, Handled};
use nf_packet::{dissect, protocol, Fragment, Headers, Outcome, Udp};
use nf_runtime::Packet;

use crate::{
    config::{INSIDE, KEY_EXCHANGE, NAT_TRAVERSAL},
    esp,
    headers::Outline,
    outer::{Peer, ESP},
    pass::Pass,
    plain, reason,
    station::Station,
};

impl Pass<'_> {
    /// Decides on all packets of a batch in stages: what belongs to a stage stays in the processor, and no stage reads at once what the one
    /// before has just written.
    pub fn process(&mut self, packets: &mut [Packet]) {
        for index in 0..packets.len() {
            self.decide(index, &mut packets[index]);
            if std::mem::take(&mut self.is_due) {
                self.open_all(packets);
            }
        }
        self.seal_all(packets);
        self.open_all(packets);
    }

    /// Decides on the packet with this index in its batch. Packets for the ciphers wait there.
    #[inline(always)]
    fn decide(&mut self, index: usize, packet: &mut Packet) {
        let Some((headers, outline)) = plain::read(packet.bytes()) else {
            return self.decide_any(index, packet);
        };
        // What most packets need comes first; all others are judged from the start.
        let (port, to) = (packet.port(), Station::of(packet.bytes()));
        if port == self.outside() && to == self.stations[1] && headers.protocol == ESP {
            if self.setup.is_own(outline.destination) {
                packet.truncate(headers.end as usize);
                let outer = (outline.destination, outline.class);
                return self.open((index, packet), outer, headers.transport.into(), None);
            }
        } else if port == INSIDE && to == self.stations[0] {
            let destination = outline.destination;
            let is_other = self.setup.is_own(destination) || destination.is_multicast();
            if !is_other && !self.is_from_ike(packet, &headers) {
                return self.protect((index, packet), &headers, &outline);
            }
        }
        self.decide_any(index, packet);
    }

    /// Decides on any packet, from the start: plain headers are read a second time.
    #[inline(never)]
    fn decide_any(&mut self, index: usize, packet: &mut Packet) {
        match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) => {
                let outline = Outline::of(packet.bytes(), &headers);
                self.ip((index, packet), &headers, &outline);
            }
            Ok(Outcome::Arp { offset }) => {
                let handled = self.link.arp(packet, offset);
                finish(packet, handled);
            }
            Ok(Outcome::Other { .. }) => packet.drop_for(reason::NOT_IP),
            Err(fault) => packet.drop_for(fault.name()),
        }
    }

    fn ip(&mut self, (index, packet): (usize, &mut Packet), headers: &Headers, outline: &Outline) {
        let destination = outline.destination;
        if self.setup.is_own(destination) || destination.is_multicast() {
            return self.addressed((index, packet), headers, outline);
        }
        if is_to_all(packet) || !self.link.is_to_me(packet) {
            return packet.drop_for(reason::NOT_FOR_GATEWAY);
        }
        if packet.port() == INSIDE && self.is_from_ike(packet, headers) {
            self.pass_to_peer(packet, headers);
        } else if packet.port() == INSIDE {
            self.protect((index, packet), headers, outline);
        } else {
            packet.drop_for(reason::UNPROTECTED);
        }
    }

    fn addressed(
        &mut self,
        (index, packet): (usize, &mut Packet),
        headers: &Headers,
        outline: &Outline,
    ) {
        let is_outside = packet.port() == self.outside() && self.link.is_to_me(packet);
        match headers.protocol {
            protocol::ICMP | protocol::ICMPV6 => match self.link.icmp(packet, headers) {
                Handled::Error if is_outside => self.note_path_mtu(packet, headers),
                handled => finish(packet, handled),
            },
            ESP | protocol::UDP if is_outside && headers.fragment != Fragment::Whole => {
                packet.drop_for(reason::FRAGMENT);
            }
            ESP if is_outside => {
                packet.truncate(headers.end as usize);
                let outer = (outline.destination, outline.class);
                self.open((index, packet), outer, headers.transport.into(), None);
            }
            protocol::UDP if is_outside && headers.destination_port == NAT_TRAVERSAL => {
                self.datagram((index, packet), headers, outline);
            }
            protocol::UDP
                if is_outside
                    && headers.destination_port == KEY_EXCHANGE
                    && self.setup.config.ike_host.is_some() =>
            {
                self.pass_to_ike_host(packet, headers);
            }
            _ => packet.drop_for(reason::NOT_FOR_GATEWAY),
        }
    }

    /// Handles a datagram to the port of UDP encapsulation (RFC 3948, 2).
    fn datagram(
        &mut self,
        (index, packet): (usize, &mut Packet),
        headers: &Headers,
        outline: &Outline,
    ) {
        let frame = packet.bytes();
        let Ok(datagram) = Udp::new_checked(headers.segment(frame)) else {
            return packet.drop_for(esp::Fault::Truncated.name());
        };
        match datagram.payload() {
            [0xff] => return packet.drop_for(reason::KEEPALIVE),
            [0, 0, 0, 0, ..] => return self.pass_to_ike_host(packet, headers),
            _ => {}
        }
        let start = usize::from(headers.transport) + Udp::HEADER;
        let end = start + datagram.payload().len();
        let peer = Peer {
            address: headers.source(frame),
            port: headers.source_port,
        };
        packet.truncate(end);
        let outer = (outline.destination, outline.class);
        self.open((index, packet), outer, start, Some(peer));
    }
}

/// Gives a verdict to a packet that the link has handled.
fn finish(packet: &mut Packet, handled: Handled) {
    match handled {
        Handled::Done | Handled::EchoAnswered => {}
        Handled::Malformed => packet.drop_for("malformed"),
        Handled::ForOthers | Handled::Error | Handled::Unsupported => {
            packet.drop_for(reason::NOT_FOR_GATEWAY);
        }
    }
}
