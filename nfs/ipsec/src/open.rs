//! Inbound packets: checked, decrypted, and sent into a protected network.

use std::net::IpAddr;

use nf_packet::{
    decrement_ttl, dissect, ethertype, protocol, Headers, MacAddress, Outcome, Version,
};
use nf_runtime::Packet;

use crate::{
    cipher::{Numbers, TAG},
    config::INSIDE,
    esp::{self, Sealed},
    headers::{class, combined, set_congestion},
    keys::inbound,
    outer::{Peer, ETHERNET},
    pass::{reason, Pass},
    runs::{self, Opening},
    setup::Tunnel,
    window::Seen,
};

impl Pass<'_> {
    /// Opens the ESP packet that starts at an offset of the frame. `peer`: its sender, if it came in UDP.
    pub(crate) fn open(
        &mut self,
        packet: &mut Packet,
        outer: &Headers,
        start: usize,
        peer: Option<Peer>,
    ) {
        packet.truncate(outer.end as usize);
        let bytes = packet.bytes().get(start..).unwrap_or_default();
        let sealed = match Sealed::read(bytes) {
            Ok(sealed) => sealed,
            Err(fault) => return packet.drop_for(fault.name()),
        };
        let slot = runs::inbound_slot(sealed.spi);
        let opened = self.opened(packet, outer, (start, &sealed), peer);
        let sent = opened.and_then(|()| self.deliver(packet, slot));
        if let Err(reason) = sent {
            packet.drop_for(reason);
        }
        let run = &mut self.opening[slot];
        if run.as_ref().is_some_and(Opening::is_over) {
            *run = None;
        }
    }

    /// Leaves the tunnelled packet behind 14 bytes for an Ethernet header.
    fn opened(
        &mut self,
        packet: &mut Packet,
        outer: &Headers,
        (start, sealed): (usize, &Sealed),
        peer: Option<Peer>,
    ) -> Result<(), &'static str> {
        let congestion = class(outer.packet(packet.bytes()), outer.version);
        let local = outer.destination(packet.bytes());
        let slot = runs::inbound_slot(sealed.spi);
        let is_same = |run: &Opening| run.is_for(sealed.spi, local, peer.is_some());
        if !self.opening[slot].as_ref().is_some_and(is_same) {
            self.begin_opening(sealed.spi, local, peer.is_some())?;
        }
        let run = self.opening[slot].as_mut();
        let run = run.ok_or(reason::NO_ASSOCIATION)?;
        let bytes = packet.bytes_mut().get_mut(start..).unwrap_or_default();
        let seen = authenticate(run, bytes, sealed)?;
        if let (Seen::First { highest: true }, Some(peer)) = (seen, peer) {
            if run.peer != Some(peer) {
                run.peer = Some(peer);
                let (tunnel, row) = (run.tunnel, run.row());
                self.follow(tunnel, row, peer);
            }
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
        let length = inner.len();
        if let Some(run) = &mut self.opening[slot] {
            run.count(length);
        }
        Ok(())
    }

    fn begin_opening(&mut self, spi: u32, local: IpAddr, udp: bool) -> Result<(), &'static str> {
        let setup = self.setup;
        let found = setup.inbound(spi);
        let (tunnel, association) = found
            .filter(|(tunnel, _)| tunnel.config.local == local)
            .ok_or(reason::UNKNOWN_SPI)?;
        if tunnel.udp != udp {
            return Err(reason::ENCAPSULATION);
        }
        let window = association.window.get().ok_or(reason::NO_ASSOCIATION)?;
        // Its counts go into the state and it releases its window, which may be this one.
        let slot = runs::inbound_slot(spi);
        self.opening[slot] = None;
        let state = (self.inbound, self.link.context);
        let run = Opening::new(state, (tunnel, association), window);
        self.opening[slot] = Some(run.ok_or(reason::EXPIRED)?);
        Ok(())
    }

    /// Notes the address and port from which the peer's latest packet came (RFC 3948, 4.1): NATs change them.
    fn follow(&mut self, tunnel: &Tunnel, row: usize, peer: Peer) {
        if tunnel.peer() == peer {
            return;
        }
        // Packets that are protected from now on go to the new address.
        self.sealing[runs::outbound_slot(tunnel)] = None;
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
    fn deliver(&mut self, packet: &mut Packet, slot: usize) -> Result<(), &'static str> {
        let headers = match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) => headers,
            Ok(_) => return Err(reason::NOT_IP),
            Err(fault) => return Err(fault.name()),
        };
        let run = self.opening[slot].as_ref();
        let run = run.ok_or(reason::NO_ASSOCIATION)?;
        let (tunnel, known) = (run.tunnel, run.next);
        let frame = packet.bytes();
        let (source, destination) = (headers.source(frame), headers.destination(frame));
        let remote = (source.into(), headers.source_port);
        let local = (destination.into(), headers.destination_port);
        if !tunnel.selects(&headers, local, remote) {
            return Err(reason::SELECTOR);
        }
        let interfaces = self.link.network.interfaces();
        let mtu = interfaces.get(INSIDE).map_or(0, |each| each.mtu);
        if headers.packet(frame).len() > mtu {
            return Err(reason::TOO_BIG);
        }
        let mac = match known {
            Some((address, mac)) if address == local.0 => mac,
            _ => self.station(destination, slot).ok_or(reason::UNRESOLVED)?,
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
    fn station(&mut self, address: IpAddr, slot: usize) -> Option<MacAddress> {
        let mac = self.next(INSIDE, address)?;
        if let Some(run) = &mut self.opening[slot] {
            run.next = Some((address.into(), mac));
        }
        Some(mac)
    }
}

/// Checks that a packet is authentic and new, and decrypts it. The check value covers no more than the packet's length.
fn authenticate(
    run: &mut Opening,
    bytes: &mut [u8],
    sealed: &Sealed,
) -> Result<Seen, &'static str> {
    let life = &run.association.life;
    let sequence = run.number(sealed.sequence);
    let seen = first(run.look(sequence))?;
    let numbers = Numbers {
        spi: sealed.spi,
        sequence,
        extended: life.extended,
    };
    let body = bytes.get_mut(esp::FRONT..).unwrap_or_default();
    if !life.cipher.open(numbers, sealed.iv, body) {
        return Err(reason::FORGED);
    }
    first(run.accept(sequence, seen))
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
