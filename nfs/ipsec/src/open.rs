//! Inbound packets: checked, decrypted, and sent into a protected network.

use nf_packet::{decrement_ttl, dissect, ethertype, protocol, Headers, Outcome, Version};
use nf_runtime::Packet;

use crate::{
    cipher::{Numbers, TAG},
    config::INSIDE,
    esp::{self, Sealed},
    headers::{class, combined, set_congestion},
    keys::inbound,
    outer::Peer,
    pass::{reason, Pass},
    setup::{Age, Opening, Tunnel},
    window::{Seen, Window},
};

const ETHERNET: usize = 14;

impl<'a> Pass<'a> {
    /// Opens the ESP packet that starts at an offset of the frame. `peer`: its sender, if it came in UDP.
    pub(crate) fn open(
        &mut self,
        packet: &mut Packet,
        outer: &Headers,
        start: usize,
        peer: Option<Peer>,
    ) {
        packet.truncate(outer.end as usize);
        let opened = self.opened(packet, outer, start, peer);
        let sent = opened.and_then(|tunnel| self.deliver(packet, tunnel));
        if let Err(reason) = sent {
            packet.drop_for(reason);
        }
    }

    /// Leaves the tunnelled packet behind 14 bytes for an Ethernet header.
    fn opened(
        &self,
        packet: &mut Packet,
        outer: &Headers,
        start: usize,
        peer: Option<Peer>,
    ) -> Result<&'a Tunnel, &'static str> {
        let congestion = class(outer.packet(packet.bytes()), outer.version);
        let local = outer.destination(packet.bytes());
        let frame = packet.bytes_mut();
        let bytes = frame.get_mut(start..).unwrap_or_default();
        let sealed = Sealed::read(bytes).map_err(esp::Fault::name)?;
        let setup = self.setup;
        let found = setup.inbound(sealed.spi);
        let (tunnel, association) = found
            .filter(|(tunnel, _)| tunnel.config.local == local)
            .ok_or(reason::UNKNOWN_SPI)?;
        if tunnel.udp != peer.is_some() {
            return Err(reason::ENCAPSULATION);
        }
        let window = association.window.get().ok_or(reason::NO_ASSOCIATION)?;
        let now = self.link.context.now();
        if association.life.age(self.inbound, window.row(), now) == Age::Over {
            return Err(reason::EXPIRED);
        }
        let seen = self.authenticate(bytes, &sealed, association, window)?;
        if let (Seen::First { highest: true }, Some(peer)) = (seen, peer) {
            self.follow(tunnel, window, peer);
        }
        let body = &bytes[esp::FRONT..bytes.len() - TAG];
        let (range, next) = esp::payload(body).map_err(esp::Fault::name)?;
        let at = start + esp::FRONT + range.start;
        let end = start + esp::FRONT + range.end;
        packet.truncate(end);
        let too_short = esp::Fault::Truncated.name();
        packet.pop_front(at - ETHERNET).ok_or(too_short)?;
        let (version, ethertype) = match next {
            protocol::IPV4 => (Version::V4, ethertype::IPV4),
            _ => (Version::V6, ethertype::IPV6),
        };
        let frame = packet.bytes_mut();
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        let inner = &mut frame[ETHERNET..];
        let bits = combined(congestion, class(inner, version)).ok_or(reason::CONGESTION)?;
        if inner
            .first()
            .is_some_and(|first| first >> 4 == if version == Version::V4 { 4 } else { 6 })
        {
            set_congestion(inner, version, bits);
        }
        self.inbound.count(window.row(), inner.len() as u64);
        Ok(tunnel)
    }

    /// Checks that a packet is authentic and new, and decrypts it. The check value covers no more than the packet's length.
    fn authenticate(
        &self,
        bytes: &mut [u8],
        sealed: &Sealed,
        association: &Opening,
        window: &Window,
    ) -> Result<Seen, &'static str> {
        let extended = association.life.extended;
        let sequence = match extended {
            true => window.extend(self.inbound, sealed.sequence),
            false => sealed.sequence.into(),
        };
        first(window.look(self.inbound, sequence))?;
        let numbers = Numbers {
            spi: sealed.spi,
            sequence,
            extended,
        };
        let body = bytes.get_mut(esp::FRONT..).unwrap_or_default();
        if !association.life.cipher.open(numbers, sealed.iv, body) {
            return Err(reason::FORGED);
        }
        // Another worker may have opened a copy meanwhile.
        first(window.accept(self.inbound, sequence))
    }

    /// Notes the address and port from which the peer's latest packet came (RFC 3948, 4.1): NATs change them.
    fn follow(&self, tunnel: &Tunnel, window: &Window, peer: Peer) {
        if tunnel.peer() == peer {
            return;
        }
        let address = nf_balancing::tuple::Address::from(peer.address);
        let words: [u64; 2] = bytemuck::cast(address);
        let now = self.link.context.now();
        for (word, value) in [
            (inbound::PEER_ADDRESS, words[0]),
            (inbound::PEER_ADDRESS + 1, words[1]),
            (inbound::PEER_PORT, peer.port.into()),
            (inbound::PEER_AT, now),
        ] {
            self.inbound.set(window.row(), word, value);
        }
        tunnel.set_peer(peer);
    }

    /// Sends a tunnelled packet to its destination, if the tunnel may carry it.
    fn deliver(&mut self, packet: &mut Packet, tunnel: &Tunnel) -> Result<(), &'static str> {
        let headers = match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) => headers,
            Ok(_) => return Err(reason::NOT_IP),
            Err(fault) => return Err(fault.name()),
        };
        let frame = packet.bytes();
        let remote = (headers.source(frame), headers.source_port);
        let local = (headers.destination(frame), headers.destination_port);
        if !tunnel.selects(&headers, local, remote) {
            return Err(reason::SELECTOR);
        }
        let interfaces = self.link.network.interfaces();
        let mtu = interfaces.get(INSIDE).map_or(0, |each| each.mtu);
        if headers.packet(frame).len() > mtu {
            return Err(reason::TOO_BIG);
        }
        let mac = self.next(INSIDE, local.0).ok_or(reason::UNRESOLVED)?;
        if !decrement_ttl(packet.bytes_mut(), &headers) {
            return Err(reason::TIME_TO_LIVE);
        }
        // Bytes behind the packet only hid its length.
        packet.truncate(headers.end as usize);
        self.link.send(packet, INSIDE, mac);
        Ok(())
    }
}

/// Lets packets pass that were not seen before.
#[inline]
fn first(seen: Seen) -> Result<Seen, &'static str> {
    match seen {
        Seen::First { .. } => Ok(seen),
        Seen::Before => Err(reason::REPLAYED),
        Seen::Behind => Err(reason::BEHIND_WINDOW),
        Seen::Distrusted => Err(reason::DISTRUSTED),
    }
}
