//! Outbound packets: encrypted, and sent to the peer.

use std::sync::atomic::Ordering;

use nf_balancing::frames::Frame;
use nf_packet::{decrement_ttl, ethertype, protocol, Fragment, Headers, Icmp, MacAddress, Version};
use nf_runtime::Packet;

use crate::{
    cipher::{Numbers, TAG},
    config::DontFragment,
    esp,
    headers::{class, dont_fragment},
    keys::outbound,
    outer::{self, Outer, Peer},
    pass::{reason, Pass},
    sequence::Sequence,
    setup::{Protecting, Tunnel},
};

const ETHERNET: usize = 14;
/// The time for which a told path MTU holds (RFC 1191, 6.3).
const PATH_MTU_LIFETIME: u64 = 600 * 1_000_000_000;

impl Pass<'_> {
    /// Protects a packet from a protected network.
    pub(crate) fn protect(&mut self, packet: &mut Packet, headers: &Headers) {
        let setup = self.setup;
        let Some(tunnel) = setup.outbound(packet.bytes(), headers) else {
            return packet.drop_for(reason::NO_POLICY);
        };
        let now = self.link.context.now();
        let Some((association, sequence)) = tunnel.protecting(self.outbound, now) else {
            return packet.drop_for(reason::NO_ASSOCIATION);
        };
        let peer = tunnel.peer();
        let room = self.room(tunnel, sequence, peer);
        let longest = esp::longest_payload(room);
        let length = headers.packet(packet.bytes()).len();
        if length > longest {
            self.refuse_length(packet, headers, longest);
            return packet.drop_for(reason::TOO_BIG);
        }
        let Some(mac) = self.toward(tunnel, peer) else {
            return packet.drop_for(reason::UNRESOLVED);
        };
        if !decrement_ttl(packet.bytes_mut(), headers) {
            return packet.drop_for(reason::TIME_TO_LIVE);
        }
        match self.seal(packet, headers, (tunnel, association, sequence), peer) {
            Ok(()) => {
                tunnel.sent.store(now, Ordering::Relaxed);
                self.outbound.count(sequence.row(), length as u64);
                self.link.send(packet, self.outside(), mac);
            }
            Err(reason) => packet.drop_for(reason),
        }
    }

    /// Returns the longest ESP packet on the way to a peer.
    fn room(&self, tunnel: &Tunnel, sequence: &Sequence, peer: Peer) -> usize {
        let mut mtu = tunnel.way.mtu;
        let told = self.outbound.get(sequence.row(), outbound::PATH_MTU) as usize;
        if told != 0 && told < mtu {
            let at = self.outbound.get(sequence.row(), outbound::PATH_MTU_AT);
            let age = self.link.context.now().saturating_sub(at);
            if age < PATH_MTU_LIFETIME {
                mtu = told;
            }
        }
        mtu.saturating_sub(outer::length(peer.address.is_ipv4(), tunnel.udp))
    }

    /// Returns the MAC address of the next station toward a peer.
    pub(crate) fn toward(&mut self, tunnel: &Tunnel, peer: Peer) -> Option<MacAddress> {
        if !tunnel.has_moved() {
            if let Some(mac) = tunnel.way.mac() {
                return Some(mac);
            }
        }
        self.next(self.outside(), peer.address)
    }

    /// Tells the sender how long a packet may be. Errors and later fragments get no answer (RFC 1122, 3.2.2).
    #[cold]
    fn refuse_length(&mut self, packet: &Packet, headers: &Headers, longest: usize) {
        let frame = packet.bytes();
        let is_icmp = matches!(headers.protocol, protocol::ICMP | protocol::ICMPV6);
        let message = Icmp::new_checked(headers.segment(frame));
        let is_error = is_icmp && message.is_ok_and(|message| message.is_error(headers.version));
        let may = dont_fragment(headers.packet(frame), headers.version);
        if !may || is_error || headers.fragment == Fragment::Later {
            return;
        }
        if let Some(answer) = Frame::too_big(frame, headers, longest) {
            self.link.out.emit(packet.port(), answer.bytes());
        }
    }

    /// Turns a frame into the one of the outer packet, without MAC addresses.
    fn seal(
        &self,
        packet: &mut Packet,
        headers: &Headers,
        (tunnel, association, sequence): (&Tunnel, &Protecting, &Sequence),
        peer: Peer,
    ) -> Result<(), &'static str> {
        let no_room = || reason::TOO_BIG;
        let inner = headers.packet(packet.bytes());
        let (length, class) = (inner.len(), class(inner, headers.version));
        let keep = dont_fragment(inner, headers.version);
        let front = ETHERNET + outer::length(peer.address.is_ipv4(), tunnel.udp);
        packet.truncate(headers.end as usize);
        packet
            .pop_front(headers.network.into())
            .ok_or_else(no_room)?;
        let behind = esp::length(length) - esp::FRONT - length;
        packet.push_back(behind).ok_or_else(no_room)?;
        let number = sequence.take(self.outbound, association.last());
        let number = number.ok_or(reason::SEQUENCE_EXHAUSTED)?;
        let frame = packet.push_front(front + esp::FRONT).ok_or_else(no_room)?;
        let (head, body) = frame.split_at_mut(front + esp::FRONT);
        let (body, tag) = body.split_at_mut(length + behind - TAG);
        let next = match headers.version {
            Version::V4 => protocol::IPV4,
            Version::V6 => protocol::IPV6,
        };
        esp::write_trailer(body, length, next);
        let numbers = Numbers {
            spi: association.life.spi,
            sequence: number.sequence,
            extended: association.life.extended,
        };
        let value = association.life.cipher.seal(numbers, number.iv, body);
        tag.copy_from_slice(&value.ok_or_else(no_room)?);
        let low = number.sequence as u32;
        esp::write_front(&mut head[front..], numbers.spi, low, number.iv);
        let outer = Outer {
            local: tunnel.config.local,
            peer,
            udp: tunnel.udp,
            class,
            dont_fragment: match tunnel.config.dont_fragment {
                DontFragment::Copy => keep,
                DontFragment::Set => true,
                DontFragment::Clear => false,
            },
            identification: low as u16,
        };
        let ethertype = match outer.local.is_ipv4() {
            true => ethertype::IPV4,
            false => ethertype::IPV6,
        };
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        outer.write(&mut frame[ETHERNET..]).ok_or_else(no_room)
    }
}
