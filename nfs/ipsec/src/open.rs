//! Inbound packets: checked, decrypted, and sent into a protected network.

use nf_packet::{
    decrement_ttl, dissect, ethertype, protocol, Headers, MacAddress, Outcome, Version,
};
use nf_runtime::{Batch, Packet};

use crate::{
    cipher::{Numbers, TAG},
    config::INSIDE,
    esp::{self, Fault, Sealed},
    headers::{changes_congestion, class, combined, set_congestion, Outline},
    keys::inbound,
    outer::{Peer, ETHERNET},
    pass::Pass,
    plain, reason,
    runs::Opening,
    selecting::Address,
    setup::Tunnel,
    waiting::ToOpen,
    window::Seen,
};

impl<'a> Pass<'a> {
    /// Checks the ESP packet from an offset of the frame to its end, for its decryption. `outer`: the outer packet's destination and class. `peer`: its sender, if it came in UDP.
    #[inline(always)]
    pub(crate) fn open(
        &mut self,
        (index, packet): (usize, &mut Packet),
        outer: (Address, u8),
        start: usize,
        peer: Option<Peer>,
    ) {
        if let Err(reason) = self.check((index, packet), outer, start, peer) {
            packet.drop_for(reason);
        }
    }

    #[inline(always)]
    fn check(
        &mut self,
        (index, packet): (usize, &Packet),
        (local, class): (Address, u8),
        start: usize,
        peer: Option<Peer>,
    ) -> Result<(), &'static str> {
        let bytes = packet.bytes().get(start..);
        let bytes = bytes.ok_or(Fault::Truncated.name())?;
        let sealed = Sealed::read(bytes).map_err(Fault::name)?;
        let at = self.opening.of(sealed.spi);
        let is_same = |run: &mut Opening| run.is_for(local, peer.is_some());
        if !self.opening.get(at).is_some_and(is_same) {
            self.begin_opening(at, sealed.spi, local, peer.is_some())?;
        }
        let run = self.opening.get(at).ok_or(reason::NO_ASSOCIATION)?;
        let sequence = run.number(sealed.sequence);
        first(run.look(sequence))?;
        // The peer may have moved; packets to it follow.
        let moves = peer.is_some() && run.peer != peer;
        let is_last = run.tally.is_over();
        self.is_due = is_last || moves;
        let life = &run.association.life;
        let numbers = Numbers {
            spi: sealed.spi,
            sequence,
            extended: life.extended,
        };
        self.to_open.push(ToOpen {
            index,
            cipher: &life.cipher,
            at,
            start,
            sequence,
            data: numbers.into(),
            iv: sealed.iv,
            class,
            peer,
            is_authentic: false,
            is_last,
        });
        Ok(())
    }

    /// Decrypts the waiting packets of a batch, and sends them into the protected network.
    pub(crate) fn open_all(&mut self, packets: &mut [Packet]) {
        let mut waiting = std::mem::take(&mut self.to_open);
        for each in &mut waiting {
            let body = packets[each.index].bytes_mut();
            if let Some(body) = body.get_mut(each.start + esp::FRONT..) {
                each.is_authentic = each.cipher.open(&each.data, each.iv, body);
            }
        }
        for each in &waiting {
            let packet = &mut packets[each.index];
            if let Err(reason) = self.deliver(packet, each) {
                packet.drop_for(reason);
            }
            if each.is_last {
                self.opening.end(each.at);
            }
        }
        waiting.clear();
        self.to_open = waiting;
    }

    /// Notes a decrypted packet in the window, and sends its content to the destination.
    #[inline(always)]
    fn deliver(&mut self, packet: &mut Packet, waiting: &ToOpen<'a>) -> Result<(), &'static str> {
        if !waiting.is_authentic {
            return Err(reason::FORGED);
        }
        let run = self.opening.get(waiting.at);
        let mut run = run.ok_or(reason::NO_ASSOCIATION)?;
        // Copies may have come before in the batch, or to another worker.
        let seen = first(run.accept(waiting.sequence))?;
        if waiting.peer.is_some() && waiting.peer != run.peer {
            self.moved(seen, waiting);
            run = self.opening.get(waiting.at).ok_or(reason::NO_ASSOCIATION)?;
        }
        // The Ethernet header is written over the headers that are not needed any more.
        let frame = packet.pop_front(waiting.start + esp::FRONT - ETHERNET);
        let (ethernet, body) = frame
            .and_then(<[u8]>::split_first_chunk_mut::<ETHERNET>)
            .ok_or(Fault::Truncated.name())?;
        let (body, _) = body
            .split_last_chunk_mut::<TAG>()
            .ok_or(Fault::Truncated.name())?;
        let (length, next) = esp::payload(body).map_err(Fault::name)?;
        let (version, ethertype) = match next {
            protocol::IPV4 => (Version::V4, ethertype::IPV4),
            _ => (Version::V6, ethertype::IPV6),
        };
        [ethernet[12], ethernet[13]] = ethertype.to_be_bytes();
        if changes_congestion(waiting.class) {
            mark(body, version, waiting.class)?;
        }
        run.tally.count(length);
        packet.truncate(ETHERNET + length);
        let is_ipv4 = version == Version::V4;
        let plain = is_ipv4.then(|| plain::read_ipv4(packet.bytes())).flatten();
        match plain {
            Some((headers, outline)) => {
                let next = run.next(&headers, &outline, self.mtu)?;
                self.forward_opened(packet, (waiting.at, next), &headers, &outline)
            }
            None => self.forward_any(packet, waiting.at),
        }
    }

    #[inline(never)]
    fn forward_any(&mut self, packet: &mut Packet, at: usize) -> Result<(), &'static str> {
        let frame = packet.bytes();
        let headers = match dissect(frame) {
            Ok(Outcome::Ip(headers)) => headers,
            Ok(_) => return Err(reason::NOT_IP),
            Err(fault) => return Err(fault.name()),
        };
        let outline = Outline::of(frame, &headers);
        let run = self.opening.get(at).ok_or(reason::NO_ASSOCIATION)?;
        let next = run.next(&headers, &outline, self.mtu)?;
        self.forward_opened(packet, (at, next), &headers, &outline)
    }

    /// Sends a tunnelled packet to its destination. `at`: the place of its run, and the next station if the run knows it.
    #[inline(always)]
    fn forward_opened(
        &mut self,
        packet: &mut Packet,
        (at, next): (usize, Option<MacAddress>),
        headers: &Headers,
        outline: &Outline,
    ) -> Result<(), &'static str> {
        let to = match next {
            Some(mac) => mac,
            None => self
                .station(outline.destination, at)
                .ok_or(reason::UNRESOLVED)?,
        };
        let from = self.link.mac(INSIDE);
        let frame = packet.bytes_mut();
        if !decrement_ttl(frame, headers) {
            return Err(reason::TIME_TO_LIVE);
        }
        if let Some(stations) = frame.first_chunk_mut::<12>() {
            stations[..6].copy_from_slice(&to.0);
            stations[6..].copy_from_slice(&from.0);
        }
        // Bytes behind the packet only hid its length.
        packet.truncate(headers.end as usize);
        packet.send(INSIDE);
        Ok(())
    }

    /// Notes where the sender of an authentic packet is, if no later one shows another place.
    #[cold]
    fn moved(&mut self, seen: Seen, waiting: &ToOpen) {
        let run = self.opening.get(waiting.at);
        if let (Seen::First { highest: true }, Some(run), Some(peer)) = (seen, run, waiting.peer) {
            run.peer = Some(peer);
            let (tunnel, row) = (run.tunnel, run.row());
            self.follow(tunnel, row, peer);
        }
    }

    #[cold]
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
        self.to_open.reserve(Batch::MAX);
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

    /// Finds the next station toward an address of the protected network, for the packets of the run.
    fn station(&mut self, address: Address, at: usize) -> Option<MacAddress> {
        let mac = self.next(INSIDE, address.into())?;
        if let Some(run) = self.opening.get(at) {
            run.latest = Some((address, mac));
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

/// Hands a mark of congestion on the way to a tunnelled packet.
fn mark(packet: &mut [u8], version: Version, outer: u8) -> Result<(), &'static str> {
    let bits = combined(outer, class(packet, version)).ok_or(reason::CONGESTION)?;
    let first = if version == Version::V4 { 4 } else { 6 };
    if packet.first().is_some_and(|byte| byte >> 4 == first) {
        set_congestion(packet, version, bits);
    }
    Ok(())
}
