//! Outbound packets: encrypted, and sent to the peer.

use nf_balancing::frames::Frame;
use nf_packet::{decrement_ttl, protocol, Fragment, Headers, Icmp, MacAddress, Version};
use nf_runtime::Packet;

use crate::{
    cipher::{Numbers, TAG},
    config::DontFragment,
    esp,
    headers::{class, dont_fragment},
    keys::outbound,
    outer::{self, Front, Outer, Peer},
    pass::{reason, Pass},
    runs::{self, Sealing},
    sequence::Sequence,
    setup::Tunnel,
};

/// The time for which a told path MTU holds (RFC 1191, 6.3).
const PATH_MTU_LIFETIME: u64 = 600 * 1_000_000_000;

impl<'a> Pass<'a> {
    /// Protects a packet from a protected network.
    pub(crate) fn protect(&mut self, packet: &mut Packet, headers: &Headers) {
        let setup = self.setup;
        let Some(tunnel) = setup.outbound(packet.bytes(), headers) else {
            return packet.drop_for(reason::NO_POLICY);
        };
        if let Err(reason) = self.sealed(packet, headers, tunnel) {
            packet.drop_for(reason);
        }
        let run = &mut self.sealing[runs::outbound_slot(tunnel)];
        if run.as_ref().is_some_and(Sealing::is_over) {
            *run = None;
        }
    }

    fn sealed(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        tunnel: &'a Tunnel,
    ) -> Result<(), &'static str> {
        let is_same = |run: &mut Sealing| std::ptr::eq(run.tunnel, tunnel) && run.has_number();
        let slot = runs::outbound_slot(tunnel);
        if !self.sealing[slot].as_mut().is_some_and(is_same) {
            self.begin_sealing(tunnel)?;
        }
        let run = self.sealing[slot].as_ref().ok_or(reason::NO_ASSOCIATION)?;
        let (longest, is_ready) = (run.longest, run.front.is_some());
        if headers.packet(packet.bytes()).len() > longest {
            self.refuse_length(packet, headers, longest);
            return Err(reason::TOO_BIG);
        }
        if !is_ready {
            self.prepare_front(tunnel).ok_or(reason::UNRESOLVED)?;
        }
        if !decrement_ttl(packet.bytes_mut(), headers) {
            return Err(reason::TIME_TO_LIVE);
        }
        self.seal(packet, headers, slot).ok_or(reason::TOO_BIG)?;
        packet.send(self.outside());
        Ok(())
    }

    fn begin_sealing(&mut self, tunnel: &'a Tunnel) -> Result<(), &'static str> {
        // Counts and unused numbers go back first: the choice depends on them.
        self.sealing[runs::outbound_slot(tunnel)] = None;
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
        self.sealing[runs::outbound_slot(tunnel)] = Some(run);
        Ok(())
    }

    /// Prepares the headers of a run. None: the next station's MAC address is unknown.
    fn prepare_front(&mut self, tunnel: &Tunnel) -> Option<()> {
        let run = self.sealing[runs::outbound_slot(tunnel)].as_ref()?;
        let (peer, spi) = (run.peer, run.association.life.spi);
        let to = self.toward(tunnel, peer)?;
        let from = self.link.mac(self.outside());
        let outer = Outer {
            local: tunnel.config.local,
            peer,
            udp: tunnel.udp,
        };
        let front = Front::new(outer, to, from, spi)?;
        self.sealing[runs::outbound_slot(tunnel)].as_mut()?.front = Some(front);
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

    /// Turns a frame into the one of the outer packet. None: it has no room for it.
    fn seal(&mut self, packet: &mut Packet, headers: &Headers, slot: usize) -> Option<()> {
        let run = self.sealing[slot].as_mut()?;
        let inner = headers.packet(packet.bytes());
        let (length, class) = (inner.len(), class(inner, headers.version));
        let dont_fragment = match run.tunnel.config.dont_fragment {
            DontFragment::Copy => dont_fragment(inner, headers.version),
            DontFragment::Set => true,
            DontFragment::Clear => false,
        };
        packet.truncate(headers.end as usize);
        packet.pop_front(headers.network.into())?;
        let behind = esp::length(length) - esp::FRONT - length;
        packet.push_back(behind)?;
        let front = run.front.as_ref()?.length();
        let frame = packet.push_front(front)?;
        let (body, tag) = frame[front..].split_at_mut_checked(length + behind - TAG)?;
        let next = match headers.version {
            Version::V4 => protocol::IPV4,
            Version::V6 => protocol::IPV6,
        };
        esp::write_trailer(body, length, next);
        let number = run.number()?;
        let life = &run.association.life;
        let numbers = Numbers {
            spi: life.spi,
            sequence: number.sequence,
            extended: life.extended,
        };
        if !life.cipher.seal_into(numbers, number.iv, body, tag) {
            return None;
        }
        let written = run.front.as_ref()?;
        written.write(frame, class, dont_fragment, number)?;
        run.count(length);
        Some(())
    }
}
