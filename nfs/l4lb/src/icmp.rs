//! ICMP: answers echo requests, and forwards errors to those concerned, with the quoted packet translated.

use std::net::IpAddr;

use nf_balancing::{
    frames::Frame,
    health,
    link::{Handled, Station, TAKEN},
    network::Owner,
};
use nf_packet::{
    dissect_quoted, icmp4, icmp6, protocol, rewrite_address, rewrite_sequence, Fragment, Headers,
    Icmp, Side, Version,
};
use nf_runtime::Packet;

use crate::{events::Event, flow::AnyFlow, pass::Pass, snapshot::Backend, source_nat::Translated};

impl Pass<'_> {
    /// Handles every protocol besides TCP and UDP.
    pub(crate) fn without_ports(&mut self, packet: &mut Packet, headers: &Headers) {
        let own = match headers.version {
            Version::V4 => protocol::ICMP,
            Version::V6 => protocol::ICMPV6,
        };
        if headers.protocol == own {
            return self.control_message(packet, headers);
        }
        let destination = headers.destination(packet.bytes());
        if self.snapshot.network.owner(destination) == Some(Owner::Vip) {
            return self.refuse(packet, None, Event::ProtocolUnsupported);
        }
        self.not_ours(packet, headers);
    }

    fn control_message(&mut self, packet: &mut Packet, headers: &Headers) {
        let owner = self
            .snapshot
            .network
            .owner(headers.destination(packet.bytes()));
        let handled = self.link.icmp(packet, headers);
        match (handled, owner) {
            (Handled::Done, _) => {}
            (Handled::EchoAnswered, _) => self.count(None, Event::EchoAnswered),
            (Handled::ForOthers, _) => self.pass_on(packet),
            (Handled::Malformed, _) => self.refuse(packet, None, Event::Malformed),
            (Handled::Error, Some(Owner::Vip)) => self.error_to_vip(packet, headers),
            (Handled::Error, Some(Owner::Interface(_))) => self.error_to_own(packet, headers),
            (Handled::Error, None) => self.error_to_client(packet, headers),
            (Handled::Unsupported, Some(_)) => self.refuse(packet, None, Event::IcmpUnsupported),
            (Handled::Unsupported, None) => self.not_ours(packet, headers),
        }
    }

    /// Forwards an error about a backend's answer to that backend, which needs it for path MTU discovery above all.
    fn error_to_vip(&mut self, packet: &mut Packet, headers: &Headers) {
        let Some(quoted) = quoted(packet, headers) else {
            return self.refuse(packet, None, Event::IcmpErrorOrphan);
        };
        let bytes = quoted_bytes(packet, headers);
        let (vip, client) = (quoted.source(bytes), quoted.destination(bytes));
        let flow = AnyFlow::new(
            (client, quoted.destination_port),
            (vip, quoted.source_port),
            quoted.protocol,
        );
        let service = self
            .snapshot
            .service(vip, quoted.source_port, quoted.protocol);
        let (Some(flow), Some(index)) = (flow, service) else {
            return self.refuse(packet, None, Event::IcmpErrorOrphan);
        };
        // Without a record, the backend was chosen by the common Maglev table.
        let number = match self.records.named(&flow) {
            Some(entry) => Some(entry.value),
            None => self.snapshot.vips[index].agreed(flow.flow_hash()),
        };
        let Some(backend) = number.and_then(|number| self.snapshot.backend_at(number)) else {
            return self.refuse(packet, Some(index), Event::IcmpErrorOrphan);
        };
        let Some(mac) = backend.way.mac() else {
            return self.unresolved(packet, backend);
        };
        if backend.tunnel.is_some() {
            if let Some(inside) = backend.inside {
                let inner = quoted_bytes_mut(packet, headers);
                rewrite_address(inner, &quoted, Side::Source, inside, backend.port);
                let source = headers.source(packet.bytes());
                self.finish(packet, headers, source, inside);
            }
            if self.encapsulate(packet, headers, backend, flow.flow_hash() as u16) {
                self.count(Some(index), Event::IcmpErrorForwarded);
                self.link.send(packet, backend.way.interface, mac);
            }
            return;
        }
        if !self.live_on(packet, headers, index) {
            return;
        }
        let local = self.local_end(&flow, backend);
        let inner = quoted_bytes_mut(packet, headers);
        rewrite_address(inner, &quoted, Side::Source, backend.address, backend.port);
        if let Some((local, port)) = local {
            rewrite_address(inner, &quoted, Side::Destination, local, port);
        }
        let source = headers.source(packet.bytes());
        self.finish(packet, headers, source, backend.address);
        self.count(Some(index), Event::IcmpErrorForwarded);
        self.link.send(packet, backend.way.interface, mac);
    }

    /// Returns the local address and port of a connection with source NAT.
    fn local_end(&self, flow: &AnyFlow, backend: &Backend) -> Option<(IpAddr, u16)> {
        if !self.snapshot.vips[backend.vip].snat {
            return None;
        }
        let session = self.records.session(&flow.tuple())?;
        let local = self.snapshot.local_address(backend)?;
        Some((local, session.local_port))
    }

    /// Handles an error about a packet with an own source address: a client's behind source NAT, or a tunnel's.
    fn error_to_own(&mut self, packet: &mut Packet, headers: &Headers) {
        let Some(quoted) = quoted(packet, headers) else {
            return self.refuse(packet, None, Event::IcmpErrorOrphan);
        };
        let bytes = quoted_bytes(packet, headers);
        let (local, target) = (quoted.source(bytes), quoted.destination(bytes));
        if quoted.protocol == protocol::TCP && quoted.source_port >= health::FIRST_PORT {
            // It concerns a health check, which will time out.
            return packet.drop_for(TAKEN);
        }
        let end = (target, quoted.destination_port);
        if self
            .snapshot
            .endpoint(end.0, end.1, quoted.protocol)
            .is_none()
        {
            return self.error_of_tunnel(packet, headers, &quoted);
        }
        let found = self.session_at(end, (local, quoted.source_port), quoted.protocol);
        let Some(Translated { entry, flow }) = found else {
            return self.refuse(packet, None, Event::IcmpErrorOrphan);
        };
        self.tell_client(packet, headers, &quoted, entry.value, &flow, true);
    }

    /// Forwards an error about a client's rewritten packet to that client.
    fn error_to_client(&mut self, packet: &mut Packet, headers: &Headers) {
        let Some(quoted) = quoted(packet, headers) else {
            return self.not_ours(packet, headers);
        };
        let bytes = quoted_bytes(packet, headers);
        let (client, target) = (quoted.source(bytes), quoted.destination(bytes));
        let end = self
            .snapshot
            .endpoint(target, quoted.destination_port, quoted.protocol);
        let to_same = headers.destination(packet.bytes()) == client;
        let found = end.filter(|_| to_same).and_then(|end| {
            let backend = self.snapshot.backend_at(end.plain)?;
            let vip = &self.snapshot.vips[backend.vip];
            let flow = AnyFlow::new(
                (client, quoted.source_port),
                (vip.address, vip.port),
                quoted.protocol,
            )?;
            Some((end.plain, flow))
        });
        match found {
            Some((number, flow)) => {
                self.tell_client(packet, headers, &quoted, number, &flow, false);
            }
            None => self.not_ours(packet, headers),
        }
    }

    /// Restores the quoted packet to the one that the client sent, and sends the error to the client.
    fn tell_client(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        quoted: &Headers,
        number: u16,
        flow: &AnyFlow,
        translated: bool,
    ) {
        let Some(backend) = self.snapshot.backend_at(number) else {
            return self.refuse(packet, None, Event::IcmpErrorOrphan);
        };
        let vip = &self.snapshot.vips[backend.vip];
        let (client, port) = match flow {
            AnyFlow::V4(flow) => (IpAddr::from(flow.source), flow.source_port),
            AnyFlow::V6(flow) => (IpAddr::from(flow.source), flow.source_port),
        };
        let session = self
            .records
            .session(&flow.tuple())
            .filter(|session| session.inserted > 0);
        let inner = quoted_bytes_mut(packet, headers);
        rewrite_address(inner, quoted, Side::Destination, vip.address, vip.port);
        if translated {
            rewrite_address(inner, quoted, Side::Source, client, port);
        }
        if let Some(session) = session {
            rewrite_sequence(inner, quoted, |number| session.map().back(number));
        }
        // An error from the backend comes from the VIP's address; a router's keeps its source.
        let source = headers.source(packet.bytes());
        let source = if source == backend.address {
            vip.address
        } else {
            source
        };
        self.finish(packet, headers, source, client);
        if self.send_to_client(packet, headers, client, backend.vip) {
            self.count(Some(backend.vip), Event::IcmpErrorForwarded);
        }
    }

    /// Handles an error about a tunnel's packet: for "too big", tells the client how much fits.
    fn error_of_tunnel(&mut self, packet: &mut Packet, headers: &Headers, outer: &Headers) {
        let orphan = |pass: &mut Self, packet: &mut Packet| {
            pass.refuse(packet, None, Event::IcmpErrorOrphan);
        };
        let bytes = quoted_bytes(packet, headers);
        let Ok(message) = Icmp::new_checked(headers.segment(packet.bytes())) else {
            return orphan(self, packet);
        };
        let limit = match (headers.version, message.kind(), message.code()) {
            (Version::V4, icmp4::UNREACHABLE, icmp4::FRAGMENTATION_NEEDED) => {
                message.argument() & 0xffff
            }
            (Version::V6, icmp6::PACKET_TOO_BIG, _) => message.argument(),
            _ => return orphan(self, packet),
        };
        let found = self.snapshot.in_use().find_map(|(_, backend)| {
            let tunnel = backend.tunnel.as_ref()?;
            Some((tunnel.inner(bytes, outer)?, tunnel.overhead()))
        });
        let Some((inner, overhead)) = found else {
            return orphan(self, packet);
        };
        let Ok(lost) = dissect_quoted(inner) else {
            return orphan(self, packet);
        };
        let (client, vip) = (lost.source(inner), lost.destination(inner));
        let service = self
            .snapshot
            .service(vip, lost.destination_port, lost.protocol);
        let mtu = (limit as usize).saturating_sub(overhead);
        let least = if lost.version == Version::V4 {
            68
        } else {
            1280
        };
        let (Some(index), Station::Known(interface, mac)) = (service, self.link.station(client))
        else {
            return orphan(self, packet);
        };
        if mtu < least {
            return orphan(self, packet);
        }
        let kind = match lost.version {
            Version::V4 => (icmp4::UNREACHABLE, icmp4::FRAGMENTATION_NEEDED, mtu as u32),
            Version::V6 => (icmp6::PACKET_TOO_BIG, 0, mtu as u32),
        };
        let quote = &inner[..inner.len().min(548)];
        let macs = (self.link.mac(interface), mac);
        if let Some(frame) = Frame::icmp(macs, vip, client, kind, quote) {
            self.link.out.emit(interface, frame.bytes());
        }
        self.count(Some(index), Event::IcmpErrorForwarded);
        packet.drop_for(TAKEN);
    }

    /// Sets the message's addresses and its checksum.
    fn finish(&self, packet: &mut Packet, headers: &Headers, source: IpAddr, destination: IpAddr) {
        let frame = packet.bytes_mut();
        rewrite_address(frame, headers, Side::Source, source, 0);
        rewrite_address(frame, headers, Side::Destination, destination, 0);
        if let Ok(mut message) = Icmp::new_checked(headers.segment_mut(frame)) {
            message.fill_checksum(source, destination);
        }
    }
}

/// Returns the quoted packet's headers if it has ports.
fn quoted(packet: &Packet, headers: &Headers) -> Option<Headers> {
    let bytes = quoted_bytes(packet, headers);
    let quoted = dissect_quoted(bytes).ok()?;
    (quoted.version == headers.version && quoted.fragment != Fragment::Later).then_some(quoted)
}

fn quoted_bytes<'a>(packet: &'a Packet, headers: &Headers) -> &'a [u8] {
    headers
        .segment(packet.bytes())
        .get(Icmp::HEADER..)
        .unwrap_or_default()
}

fn quoted_bytes_mut<'a>(packet: &'a mut Packet, headers: &Headers) -> &'a mut [u8] {
    headers
        .segment_mut(packet.bytes_mut())
        .get_mut(Icmp::HEADER..)
        .unwrap_or_default()
}
