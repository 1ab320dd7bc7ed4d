//! Inbound packets: checked, decrypted, and sent into a protected network.

use nf_packet::{decrement_ttl, dissect, ethertype, protocol, MacAddress, Outcome, Version};
use nf_runtime::Packet;

use crate::{
    cipher::{Numbers, TAG},
    config::INSIDE,
    esp::{self, Fault, Sealed},
    headers::{changes_congestion, class, combined, set_congestion, Outline},
    keys::inbound,
    outer::{Peer, ETHERNET},
    pass::{reason, Pass},
    runs::Opening,
    selecting::Address,
    setup::Tunnel,
    waiting::ToOpen,
    window::Seen,
};

impl<'a> Pass<'a> {
    /// Checks the ESP packet from an offset of the frame to its end, for its decryption. `peer`: its sender, if it came in UDP.
    pub(crate) fn open(
        &mut self,
        (index, packet): (usize, &mut Packet),
        outer: &Outline,
        start: usize,
        peer: Option<Peer>,
    ) {
        if let Err(reason) = self.check((index, packet), outer, start, peer) {
            packet.drop_for(reason);
        }
    }

    #[inline]
    fn check(
        &mut self,
        (index, packet): (usize, &Packet),
        outer: &Outline,
        start: usize,
        peer: Option<Peer>,
    ) -> Result<(), &'static str> {
        let bytes = packet.bytes().get(start..).unwrap_or_default();
        let sealed = Sealed::read(bytes).map_err(Fault::name)?;
        let local = outer.destination;
        let at = self.opening.of(sealed.spi);
        let is_same = |run: &mut Opening| run.is_for(sealed.spi, local, peer.is_some());
        if !self.opening.get(at).is_some_and(is_same) {
            self.begin_opening(at, sealed.spi, local, peer.is_some())?;
        }
        let run = self.opening.get(at).ok_or(reason::NO_ASSOCIATION)?;
        let sequence = run.number(sealed.sequence);
        first(run.look(sequence))?;
        // The peer may have moved; packets to it follow.
        let moves = peer.is_some() && run.peer != peer;
        self.is_due = run.tally.is_over() || moves;
        self.to_open.push(ToOpen {
            index,
            at,
            start,
            sequence,
            iv: sealed.iv,
            class: outer.class,
            peer,
            is_authentic: false,
        });
        Ok(())
    }

    /// Decrypts the waiting packets of a batch, and sends them into the protected network.
    pub(crate) fn open_all(&mut self, packets: &mut [Packet]) {
        let mut waiting = std::mem::take(&mut self.to_open);
        for each in &mut waiting {
            let Some(run) = self.opening.get(each.at) else {
                continue;
            };
            let life = &run.association.life;
            let numbers = Numbers {
                spi: life.spi,
                sequence: each.sequence,
                extended: life.extended,
            };
            let body = packets[each.index].bytes_mut();
            let body = body.get_mut(each.start + esp::FRONT..).unwrap_or_default();
            each.is_authentic = life.cipher.open(numbers, each.iv, body);
        }
        for each in waiting.drain(..) {
            let packet = &mut packets[each.index];
            let opened = self.opened(packet, &each);
            if let Err(reason) = opened.and_then(|()| self.deliver(packet, each.at)) {
                packet.drop_for(reason);
            }
            let run = self.opening.get(each.at);
            if run.is_some_and(|run| run.tally.is_over()) {
                self.opening.end(each.at);
            }
        }
        self.to_open = waiting;
    }

    /// Leaves the tunnelled packet behind 14 bytes for an Ethernet header.
    fn opened(&mut self, packet: &mut Packet, waiting: &ToOpen) -> Result<(), &'static str> {
        if !waiting.is_authentic {
            return Err(reason::FORGED);
        }
        let run = self.opening.get(waiting.at);
        let run = run.ok_or(reason::NO_ASSOCIATION)?;
        // Copies may have come before in the batch, or to another worker.
        let seen = first(run.accept(waiting.sequence))?;
        let peer = waiting.peer.filter(|peer| run.peer != Some(*peer));
        if let (Seen::First { highest: true }, Some(peer)) = (seen, peer) {
            run.peer = Some(peer);
            let (tunnel, row) = (run.tunnel, run.row());
            self.follow(tunnel, row, peer);
        }
        let start = waiting.start + esp::FRONT;
        let bytes = packet.bytes();
        let body = bytes.get(start..bytes.len() - TAG).unwrap_or_default();
        let (range, next) = esp::payload(body).map_err(Fault::name)?;
        packet.truncate(start + range.end);
        let ethernet = start + range.start - ETHERNET;
        packet.pop_front(ethernet).ok_or(Fault::Truncated.name())?;
        let (version, ethertype) = match next {
            protocol::IPV4 => (Version::V4, ethertype::IPV4),
            _ => (Version::V6, ethertype::IPV6),
        };
        let frame = packet.bytes_mut();
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        let inner = &mut frame[ETHERNET..];
        if changes_congestion(waiting.class) {
            let bits = combined(waiting.class, class(inner, version)).ok_or(reason::CONGESTION)?;
            let first = if version == Version::V4 { 4 } else { 6 };
            if inner.first().is_some_and(|byte| byte >> 4 == first) {
                set_congestion(inner, version, bits);
            }
        }
        let length = inner.len();
        if let Some(run) = self.opening.get(waiting.at) {
            run.tally.count(length);
        }
        Ok(())
    }

    fn begin_opening(
        &mut self,
        at: usize,
        spi: u32,
        local: Address,
        udp: bool,
    ) -> Result<(), &'static str> {
        let setup = self.setup;
        let found = setup.inbound(spi);
        let (tunnel, association) = found
            .filter(|(tunnel, _)| tunnel.local == local)
            .ok_or(reason::UNKNOWN_SPI)?;
        if tunnel.udp != udp {
            return Err(reason::ENCAPSULATION);
        }
        let window = association.window.get().ok_or(reason::NO_ASSOCIATION)?;
        // Its counts go into the state, and it releases the window.
        self.opening.end(at);
        let state = (self.inbound, self.link.context);
        let run = Opening::new(state, (tunnel, association), window);
        self.opening.begin(at, run.ok_or(reason::EXPIRED)?);
        Ok(())
    }

    /// Notes the address and port from which the peer's latest packet came (RFC 3948, 4.1): NATs change them.
    fn follow(&mut self, tunnel: &Tunnel, row: usize, peer: Peer) {
        if tunnel.peer() == peer {
            return;
        }
        // Packets that are protected from now on go to the new address.
        let at = self.sealing.of(tunnel.number as u32);
        self.sealing.end(at);
        let address = nf_balancing::tuple::Address::from(peer.address);
        let words: [u64; 2] = bytemuck::cast(address);
        let now = self.link.context.now();
        for (word, value) in [
            (inbound::PEER_ADDRESS, words[0]),
            (inbound::PEER_ADDRESS + 1, words[1]),
            (inbound::PEER_PORT, peer.port.into()),
            (inbound::PEER_AT, now),
        ] {
            self.inbound.set(row, word, value);
        }
        tunnel.set_peer(peer);
    }

    /// Sends a tunnelled packet to its destination, if the tunnel may carry it.
    fn deliver(&mut self, packet: &mut Packet, at: usize) -> Result<(), &'static str> {
        let headers = match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) => headers,
            Ok(_) => return Err(reason::NOT_IP),
            Err(fault) => return Err(fault.name()),
        };
        let run = self.opening.get(at).ok_or(reason::NO_ASSOCIATION)?;
        let (tunnel, known) = (run.tunnel, run.next);
        let outline = Outline::of(packet.bytes(), &headers);
        let remote = (outline.source, headers.source_port);
        let local = (outline.destination, headers.destination_port);
        if !tunnel.selects(&headers, local, remote) {
            return Err(reason::SELECTOR);
        }
        let interfaces = self.link.network.interfaces();
        let mtu = interfaces.get(INSIDE).map_or(0, |each| each.mtu);
        if outline.length > mtu {
            return Err(reason::TOO_BIG);
        }
        let mac = match known {
            Some((address, mac)) if address == local.0 => mac,
            _ => self.station(local.0, at).ok_or(reason::UNRESOLVED)?,
        };
        if !decrement_ttl(packet.bytes_mut(), &headers) {
            return Err(reason::TIME_TO_LIVE);
        }
        // Bytes behind the packet only hid its length.
        packet.truncate(headers.end as usize);
        self.link.send(packet, INSIDE, mac);
        Ok(())
    }

    /// Finds the next station toward an address of the protected network, for the packets of the run.
    fn station(&mut self, address: Address, at: usize) -> Option<MacAddress> {
        let mac = self.next(INSIDE, address.into())?;
        if let Some(run) = self.opening.get(at) {
            run.next = Some((address, mac));
        }
        Some(mac)
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
