//! Outbound packets: encrypted, and sent to the peer.

use nf_balancing::frames::Frame;
use nf_packet::{decrement_ttl_of, protocol, Headers, MacAddress, Version};
use nf_runtime::{Batch, Packet};

use crate::{
    cipher::{Numbers, TAG},
    config::{DontFragment, INSIDE},
    esp,
    headers::{dont_fragment, Outline},
    keys::outbound,
    outer::{self, Front, Outer, Peer},
    pass::Pass,
    reason,
    runs::Sealing,
    sequence::{Number, Sequence},
    setup::Tunnel,
    waiting::ToSeal,
};

/// The time for which a told path MTU holds (RFC 1191, 6.3).
const PATH_MTU_LIFETIME: u64 = 600 * 1_000_000_000;

impl<'a> Pass<'a> {
    /// Prepares a packet from a protected network for its encryption.
    #[inline(always)]
    pub(crate) fn protect(
        &mut self,
        (index, packet): (usize, &mut Packet),
        headers: &Headers,
        outline: &Outline,
    ) {
        let setup = self.setup;
        let Some(tunnel) = setup.outbound(headers, outline) else {
            return packet.drop_for(reason::NO_POLICY);
        };
        let at = self.sealing.of(tunnel.number as u32);
        match self.prepare((at, tunnel), (index, packet), headers, outline) {
            Ok(false) => {}
            Ok(true) => self.sealing.end(at),
            Err(reason) => packet.drop_for(reason),
        }
    }

    /// Encrypts the waiting packets of a batch.
    pub(crate) fn seal_all(&mut self, packets: &mut [Packet]) {
        for waiting in &self.to_seal {
            let packet = &mut packets[waiting.index];
            let bytes = packet.bytes_mut().get_mut(waiting.start..);
            let parts = bytes.and_then(|bytes| bytes.split_last_chunk_mut::<TAG>());
            let seal = |(body, tag): (&mut [u8], &mut [u8; TAG])| {
                let cipher = waiting.cipher;
                cipher.seal_into(&waiting.data, waiting.iv, body, tag)
            };
            if !parts.is_some_and(seal) {
                packet.drop_for(reason::TOO_BIG);
            } else if waiting.is_summed {
                outer::sum_udp6(packet.bytes_mut());
            }
        }
        self.to_seal.clear();
    }

    /// Prepares a packet for its encryption, and tells whether its run ends with it.
    #[inline(always)]
    fn prepare(
        &mut self,
        (at, tunnel): (usize, &'a Tunnel),
        (index, packet): (usize, &mut Packet),
        headers: &Headers,
        outline: &Outline,
    ) -> Result<bool, &'static str> {
        let is_ready = |run: &mut Sealing| run.is_ready() && outline.length <= run.longest;
        if !self.sealing.get(at).is_some_and(is_ready) {
            self.make_ready((at, tunnel), packet, *headers, outline.length)?;
        }
        if outline.hops <= 1 {
            self.tell_time_exceeded(packet, *headers);
            return Err(reason::TIME_TO_LIVE);
        }
        let run = self.sealing.get(at).ok_or(reason::NO_ASSOCIATION)?;
        let (number, start) = wrap(run, packet, headers, outline).ok_or(reason::TOO_BIG)?;
        let life = &run.association.life;
        let numbers = Numbers {
            spi: life.spi,
            sequence: number.sequence,
            extended: life.extended,
        };
        let waiting = ToSeal {
            index,
            cipher: &life.cipher,
            data: numbers.into(),
            iv: number.iv,
            start,
            is_summed: run.front.as_ref().is_some_and(Front::is_summed),
        };
        let is_over = run.tally.is_over();
        self.to_seal.push(waiting);
        packet.send(self.outside());
        Ok(is_over)
    }

    /// Makes a run ready for a packet: with a number, and prepared headers.
    #[cold]
    fn make_ready(
        &mut self,
        (at, tunnel): (usize, &'a Tunnel),
        packet: &Packet,
        headers: Headers,
        length: usize,
    ) -> Result<(), &'static str> {
        if !self.sealing.get(at).is_some_and(Sealing::has_number) {
            self.begin_sealing(at, tunnel)?;
        }
        let run = self.sealing.get(at).ok_or(reason::NO_ASSOCIATION)?;
        let (longest, is_ready) = (run.longest, run.front.is_some());
        if length > longest {
            self.refuse_length(packet, &headers, longest);
            return Err(reason::TOO_BIG);
        }
        if !is_ready {
            self.prepare_front(at, tunnel).ok_or(reason::UNRESOLVED)?;
        }
        Ok(())
    }

    fn begin_sealing(&mut self, at: usize, tunnel: &'a Tunnel) -> Result<(), &'static str> {
        // Counts and unused numbers go back first: the choice depends on them.
        self.sealing.end(at);
        let now = self.link.context.now();
        let (association, sequence) = tunnel
            .protecting(self.outbound, now)
            .ok_or(reason::NO_ASSOCIATION)?;
        let longest = esp::longest_payload(self.room(tunnel, sequence, tunnel.peer()));
        let state = (self.outbound, self.link.context);
        let mut run = Sealing::new(state, tunnel, (association, sequence), longest);
        if !run.has_number() {
            return Err(reason::NO_ASSOCIATION);
        }
        self.sealing.begin(at, run);
        self.to_seal.reserve(Batch::MAX);
        Ok(())
    }

    /// Prepares the headers of a run. None: the next station's MAC address is unknown.
    fn prepare_front(&mut self, at: usize, tunnel: &Tunnel) -> Option<()> {
        let run = self.sealing.get(at)?;
        let (peer, spi) = (run.peer, run.association.life.spi);
        let to = self.toward(tunnel, peer)?;
        let from = self.link.mac(self.outside());
        let outer = Outer {
            local: tunnel.config.local,
            peer,
            udp: tunnel.udp,
        };
        let front = Front::new(outer, to, from, spi)?;
        self.sealing.get(at)?.front = Some(front);
        Some(())
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

    /// Tells the sender how long a packet may be.
    #[cold]
    fn refuse_length(&mut self, packet: &Packet, headers: &Headers, longest: usize) {
        let frame = packet.bytes();
        if !dont_fragment(headers.packet(frame), headers.version) {
            return;
        }
        if let Some(answer) = Frame::too_big(frame, headers, longest) {
            self.link.out.emit(packet.port(), answer.bytes());
        }
    }

    /// Tells the sender of a packet that its time to live ends here.
    #[cold]
    fn tell_time_exceeded(&mut self, packet: &Packet, headers: Headers) {
        let frame = packet.bytes();
        let inside = self.link.network.interfaces().get(INSIDE);
        let own = inside.and_then(|each| each.address(headers.source(frame)));
        let Some(own) = own else {
            return;
        };
        if let Some(answer) = Frame::time_exceeded(frame, &headers, own) {
            self.link.out.emit(packet.port(), answer.bytes());
        }
    }
}

/// Turns a frame into the one of the outer packet, but for the encryption, and returns its number and where the part to encrypt starts.
/// None: it has no room for it.
#[inline(always)]
fn wrap(
    run: &mut Sealing,
    packet: &mut Packet,
    headers: &Headers,
    outline: &Outline,
) -> Option<(Number, usize)> {
    let length = outline.length;
    let dont_fragment = match run.tunnel.config.dont_fragment {
        DontFragment::Copy => outline.dont_fragment,
        DontFragment::Set => true,
        DontFragment::Clear => false,
    };
    let start = run.front.as_ref()?.length();
    let behind = esp::length(length) - esp::FRONT;
    let frame = packet.reframe(headers.network.into(), start, start + behind)?;
    let next = match headers.version {
        Version::V4 => protocol::IPV4,
        Version::V6 => protocol::IPV6,
    };
    let body = frame.get_mut(start..)?;
    if !decrement_ttl_of(body, headers.version) {
        return None;
    }
    esp::write_trailer(body, length, next);
    let number = run.number()?;
    let front = run.front.as_ref()?;
    front.write(frame, outline.class, dont_fragment, number)?;
    run.tally.count(length);
    Some((number, start))
}
