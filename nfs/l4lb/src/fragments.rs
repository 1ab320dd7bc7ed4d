//! Fragments: the first one has the ports and is decided like a whole packet; later ones follow it.
//!
//! A fragment that overtakes the first is dropped and counted, and the sender retransmits the packet. Overlapping fragments pass unchanged; the backend
//! refuses them (RFC 5722, RFC 1858).

use std::net::IpAddr;

use bytemuck::Zeroable;
use nf_balancing::{network::Owner, tuple::Address};
use nf_packet::{rewrite_address, Headers, Side, Version};
use nf_runtime::Packet;

use crate::{
    events::Event,
    pass::Pass,
    state::{traffic, FragmentKey, FragmentWay},
};

/// The lifetime of a packet's entry after its last fragment. Senders send all fragments at once. Hosts wait longer (Linux: 30 s), but a host
/// keeps the packets of only one receiver, and identifications repeat after 65,536 packets.
const LIFETIME: u64 = 3_000_000_000;

const TO_BACKEND: u32 = 1;
const TO_CLIENT: u32 = 2;

impl Pass<'_> {
    fn fragment_key(packet: &Packet, headers: &Headers) -> FragmentKey {
        let frame = packet.bytes();
        // The protocol is part of the identity for IPv4 only (RFC 791; RFC 8200, 4.5): behind a fragment's extension headers it is unknown.
        let protocol = match headers.version {
            Version::V4 => headers.protocol.into(),
            Version::V6 => 0,
        };
        FragmentKey {
            source: headers.source(frame).into(),
            destination: headers.destination(frame).into(),
            id: headers.fragment_id,
            protocol,
        }
    }

    /// Notes the backend of a packet's first fragment, before the fragment is rewritten.
    pub(crate) fn note_fragment(&mut self, packet: &Packet, headers: &Headers, number: u16) {
        let Some(backend) = self.snapshot.backend_at(number) else {
            return;
        };
        let nothing = Address::zeroed();
        let session = if self.snapshot.vips[backend.vip].snat {
            self.snapshot.local_address(backend)
        } else {
            None
        };
        let way = FragmentWay {
            source: session.map_or(nothing, Address::from),
            destination: if backend.tunnel.is_some() {
                nothing
            } else {
                backend.address.into()
            },
            backend: number.into(),
            direction: TO_BACKEND,
        };
        self.note(packet, headers, way);
    }

    /// Notes a first fragment on its way to a client; `client`: its new destination.
    pub(crate) fn note_answered_fragment(
        &mut self,
        packet: &Packet,
        headers: &Headers,
        number: u16,
        client: Option<IpAddr>,
    ) {
        let Some(backend) = self.snapshot.backend_at(number) else {
            return;
        };
        let way = FragmentWay {
            source: self.snapshot.vips[backend.vip].address.into(),
            destination: client.map_or(Address::zeroed(), Address::from),
            backend: number.into(),
            direction: TO_CLIENT,
        };
        self.note(packet, headers, way);
    }

    /// Stores an entry. If the table is full, it replaces the packet that is idle longest, which is complete or never will be.
    fn note(&mut self, packet: &Packet, headers: &Headers, way: FragmentWay) {
        let key = Self::fragment_key(packet, headers);
        let now = self.link.context.now();
        if self.state.fragments.replace(&key, now, LIFETIME, way) {
            self.count(None, Event::FragmentsFull);
        }
    }

    /// Handles a fragment without ports.
    pub(crate) fn later_fragment(&mut self, packet: &mut Packet, headers: &Headers) {
        let key = Self::fragment_key(packet, headers);
        let way = self
            .state
            .fragments
            .get(&key, self.link.context.now(), LIFETIME);
        let Some(way) = way else {
            let ours = self.snapshot.network.owner(key.destination.ip()) == Some(Owner::Vip)
                || self.snapshot.is_routed(key.source.ip());
            if ours {
                return self.refuse(packet, None, Event::FragmentWithoutFirst);
            }
            return self.not_ours(packet, headers);
        };
        let number = way.backend as u16;
        let Some(backend) = self.snapshot.backend_at(number) else {
            return self.refuse(packet, None, Event::NoBackend);
        };
        let bytes = u64::from(headers.end) - u64::from(headers.network);
        if backend.tunnel.is_some() {
            let Some(mac) = backend.way.mac() else {
                return self.unresolved(packet, backend);
            };
            if self.encapsulate(packet, headers, backend, key.id as u16) {
                self.link.send(packet, backend.way.interface, mac);
                self.count_traffic(number, traffic::PACKETS, bytes);
            }
            return;
        }
        for (side, address) in [
            (Side::Source, way.source),
            (Side::Destination, way.destination),
        ] {
            if address != Address::zeroed() {
                rewrite_address(packet.bytes_mut(), headers, side, address.ip(), 0);
            }
        }
        if way.direction == TO_CLIENT {
            let client = headers.destination(packet.bytes());
            if self.send_to_client(packet, headers, client, backend.vip) {
                self.count_traffic(number, traffic::ANSWERS, bytes);
            }
            return;
        }
        let Some(mac) = backend.way.mac() else {
            return self.unresolved(packet, backend);
        };
        if self.live_on(packet, headers, backend.vip) {
            self.link.send(packet, backend.way.interface, mac);
            self.count_traffic(number, traffic::PACKETS, bytes);
        }
    }
}
