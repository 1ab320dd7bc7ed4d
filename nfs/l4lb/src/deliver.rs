//! Sends packets on: rewrites, encapsulates and addresses them to the next station.

use std::net::IpAddr;

use nf_packet::{
    decrement_ttl, ethertype, rewrite_address, Fragment, Headers, MacAddress, Side, Version,
};
use nf_runtime::Packet;
use nf_tables::{Class, Entry};

use crate::{
    events::Event,
    flow::Flow,
    frames::Frame,
    pass::{Pass, Station},
    snapshot::Backend,
    state::traffic,
};

const ETHERNET: usize = 14;

impl Pass<'_> {
    /// Sends a client's packet to the chosen backend.
    #[inline]
    pub(crate) fn send_to_backend<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        entry: Entry,
    ) {
        let Some(backend) = self.snapshot.backend_at(entry.value) else {
            return self.refuse(packet, None, Event::NoBackend);
        };
        self.send_to(packet, headers, flow, entry, backend);
    }

    #[inline]
    pub(crate) fn send_to<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        entry: Entry,
        backend: &Backend,
    ) {
        let number = entry.value;
        let snapshot = self.snapshot;
        let Some(mac) = backend.way.mac() else {
            return self.unresolved(packet, backend);
        };
        if headers.fragment == Fragment::First {
            self.note_fragment(packet, headers, number);
        }
        let bytes = u64::from(headers.end) - u64::from(headers.network);
        if backend.tunnel.is_some() {
            // The source port carries the flow's hash, by which the receiver spreads flows over its queues.
            let entropy = headers.source_port ^ headers.destination_port;
            if !self.encapsulate(packet, headers, backend, entropy) {
                return;
            }
        } else if snapshot.vips[backend.vip].has_sessions() {
            let behind = self.is_behind(flow);
            if !self.session_to_backend(packet, headers, flow, entry.class, backend) {
                return;
            }
            if behind {
                self.send(packet, backend.way.interface, mac);
                self.send_behind(packet, backend.way.interface);
                return self.count_traffic(number, traffic::PACKETS, bytes);
            }
        } else {
            if !self.live_on(packet, headers, backend.vip) {
                return;
            }
            let side = Side::Destination;
            rewrite_address(
                packet.bytes_mut(),
                headers,
                side,
                backend.address,
                backend.port,
            );
        }
        self.send(packet, backend.way.interface, mac);
        self.count_traffic(number, traffic::PACKETS, bytes);
    }

    #[inline]
    pub(crate) fn count_traffic(&self, number: u16, column: usize, bytes: u64) {
        let row = usize::from(number);
        self.state
            .traffic
            .add_all(self.worker, row, column, [1, bytes]);
    }

    #[cold]
    pub(crate) fn unresolved(&mut self, packet: &mut Packet, backend: &Backend) {
        self.solicit(backend.way.next, backend.way.interface);
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

    /// Prepends the backend's tunnel header; [`send`](Self::send) must follow. False: the packet did not fit and was dropped.
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
        let network = usize::from(headers.network);
        let inner = headers.end as usize - network;
        let mtu = backend.way.mtu;
        if inner + overhead > mtu {
            self.too_big(packet, headers, backend.vip, mtu - overhead);
            return false;
        }
        packet.truncate(headers.end as usize);
        let Some(frame) = packet.push_front(overhead) else {
            self.refuse(packet, Some(backend.vip), Event::TooBig);
            return false;
        };
        // VLAN tags move to the new front, together with the MAC addresses. Without tags, `send` writes the MAC addresses.
        if network != ETHERNET {
            frame.copy_within(overhead..overhead + network, 0);
        }
        let ethertype = match tunnel.version() {
            Version::V4 => ethertype::IPV4,
            Version::V6 => ethertype::IPV6,
        };
        frame[network - 2..network].copy_from_slice(&ethertype.to_be_bytes());
        let written = tunnel.write(&mut frame[network..], headers.version, entropy);
        if written.is_err() {
            self.refuse(packet, Some(backend.vip), Event::TooBig);
        }
        written.is_ok()
    }

    /// Drops a packet that exceeds the MTU toward the backend, and tells its sender if it must not be fragmented.
    #[cold]
    fn too_big(&mut self, packet: &mut Packet, headers: &Headers, vip: usize, mtu: usize) {
        if let Some(frame) = Frame::too_big(packet.bytes(), headers, mtu) {
            self.out.emit(packet.port(), frame.bytes());
        }
        self.refuse(packet, Some(vip), Event::TooBig);
    }

    /// Sends a backend's packet to its client, in mode nat without source NAT.
    pub(crate) fn answer<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        number: u16,
        entry: Option<Entry>,
    ) {
        let Some(backend) = self.snapshot.backend_at(number) else {
            return self.not_ours(packet, headers);
        };
        let vip = &self.snapshot.vips[backend.vip];
        match entry {
            Some(entry) if entry.value == number => {
                self.note_answer(packet, headers, flow, entry);
            }
            // The lookup has renewed the record, so it must be deleted, as in `named`.
            Some(entry) if self.backend_of(flow, entry.value).is_none() => self.forget(flow),
            _ => {}
        }
        if headers.fragment == Fragment::First {
            self.note_answered_fragment(packet, headers, number, None);
        }
        if vip.proxy_protocol {
            let class = entry.map_or(Class::Established, |entry| entry.class);
            self.session_to_client(packet, headers, &flow.tuple(), class);
        }
        let bytes = u64::from(headers.end) - u64::from(headers.network);
        let side = Side::Source;
        rewrite_address(packet.bytes_mut(), headers, side, vip.address, vip.port);
        let (client, _) = flow.source();
        if self.send_to_client(packet, headers, client, backend.vip) {
            self.count_traffic(number, traffic::ANSWERS, bytes);
        }
    }

    /// Sends a packet, already rewritten, toward a client. A frame addressed to another station goes on to that station.
    pub(crate) fn send_to_client(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        client: IpAddr,
        vip: usize,
    ) -> bool {
        if !self.is_to_me(packet) {
            self.pass_on(packet);
            return true;
        }
        if !self.live_on(packet, headers, vip) {
            return false;
        }
        self.send_to_station(packet, client, Some(vip))
    }

    /// Forwards a packet as a router does.
    pub(crate) fn route(&mut self, packet: &mut Packet, headers: &Headers) {
        if !decrement_ttl(packet.bytes_mut(), headers) {
            return self.refuse(packet, None, Event::TimeToLive);
        }
        let destination = headers.destination(packet.bytes());
        self.send_to_station(packet, destination, None);
    }

    pub(crate) fn send_to_station(
        &mut self,
        packet: &mut Packet,
        address: IpAddr,
        vip: Option<usize>,
    ) -> bool {
        match self.station(address) {
            Station::Known(interface, mac) => {
                self.send(packet, interface, mac);
                return true;
            }
            Station::Unknown(interface, next) => {
                self.solicit(next, interface);
                self.refuse(packet, vip, Event::NeighbourUnresolved);
            }
            Station::Nowhere => self.refuse(packet, vip, Event::NoRoute),
        }
        false
    }

    #[inline]
    pub(crate) fn send(&self, packet: &mut Packet, interface: usize, to: MacAddress) {
        let from = self.mac(interface);
        if let Some(stations) = packet.bytes_mut().first_chunk_mut::<12>() {
            stations[..6].copy_from_slice(&to.0);
            stations[6..].copy_from_slice(&from.0);
        }
        packet.send(interface);
    }
}
