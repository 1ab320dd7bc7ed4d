//! Sends packets on: encapsulates them and addresses them to the next station.

use std::net::IpAddr;

use nf_balancing::{frames::Frame, link::Unreached, tunnelling::encapsulate};
use nf_packet::{decrement_ttl, rewrite_address, Headers, Side};
use nf_runtime::Packet;

use crate::{events::Event, pass::Pass, snapshot::Backend};

impl Pass<'_> {
    #[cold]
    pub(crate) fn unresolved(&mut self, packet: &mut Packet, backend: &Backend) {
        self.link.solicit(backend.way.next, backend.way.interface);
        self.refuse(packet, Some(backend.vip), Event::NeighbourUnresolved);
    }

    /// Decrements the TTL; false: it reached zero, and the packet is dropped.
    #[inline]
    pub(crate) fn live_on(&mut self, packet: &mut Packet, headers: &Headers, vip: usize) -> bool {
        let lives = decrement_ttl(packet.bytes_mut(), headers);
        if !lives {
            self.refuse(packet, Some(vip), Event::TimeToLive);
        }
        lives
    }

    /// Rewrites the packet to the backend's address behind the tunnel, if it has one, and prepends the tunnel header; [`send`](Self::send) must follow.
    /// `entropy` identifies the flow. False: the packet did not fit and was dropped.
    #[inline(always)]
    pub(crate) fn encapsulate(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        backend: &Backend,
        entropy: u16,
    ) -> bool {
        let Some(tunnel) = &backend.tunnel else {
            return false;
        };
        let overhead = tunnel.overhead();
        let inner = headers.end as usize - usize::from(headers.network);
        let mtu = backend.way.mtu;
        if inner + overhead > mtu {
            self.too_big(packet, headers, backend.vip, mtu - overhead);
            return false;
        }
        // A switch that encapsulates alike has the NIC's hash only.
        let entropy = match self.snapshot.vtep {
            Some(_) => headers.rss(packet.bytes()) as u16,
            None => entropy,
        };
        if let Some(inside) = backend.inside {
            if !self.live_on(packet, headers, backend.vip) {
                return false;
            }
            let frame = packet.bytes_mut();
            rewrite_address(frame, headers, Side::Destination, inside, backend.port);
        }
        let own = self.link.mac(backend.way.interface);
        let from = self.snapshot.vtep.unwrap_or(own);
        let fits = encapsulate(packet, headers, tunnel, entropy, from);
        if !fits {
            self.refuse(packet, Some(backend.vip), Event::TooBig);
        }
        fits
    }

    /// Drops a packet that exceeds the MTU toward the backend, and tells its sender, whether or not the packet may be fragmented: nothing here
    /// fragments it.
    #[cold]
    fn too_big(&mut self, packet: &mut Packet, headers: &Headers, vip: usize, mtu: usize) {
        if let Some(frame) = Frame::too_big(packet.bytes(), headers, mtu) {
            self.link.out.emit(packet.port(), frame.bytes());
        }
        self.refuse(packet, Some(vip), Event::TooBig);
    }

    /// Sends a packet, already rewritten, toward a client. A frame addressed to another station goes on to that station.
    pub(crate) fn send_to_client(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        client: IpAddr,
        vip: usize,
    ) -> bool {
        if !self.link.is_to_me(packet) {
            self.pass_on(packet);
            return true;
        }
        if !self.live_on(packet, headers, vip) {
            return false;
        }
        self.send_to_station(packet, client, Some(vip))
    }

    pub(crate) fn send_to_station(
        &mut self,
        packet: &mut Packet,
        address: IpAddr,
        vip: Option<usize>,
    ) -> bool {
        match self.link.reach(address) {
            Ok((interface, mac)) => {
                self.link.send(packet, interface, mac);
                return true;
            }
            Err(Unreached::Unresolved) => self.refuse(packet, vip, Event::NeighbourUnresolved),
            Err(Unreached::NoRoute) => self.refuse(packet, vip, Event::NoRoute),
        }
        false
    }
}
