//! Decides each packet of the switch.

use std::collections::HashMap;

use nf_balancing::{
    cells::{Stripes, Worker},
    link::{is_to_all, Handled, Link},
    network::Owner,
    tunnelling::encapsulate,
};
use nf_packet::{
    decrement_ttl, dissect, protocol, rewrite_address, Ethernet, Fragment, Headers, MacAddress,
    Outcome, Side, Udp, Version,
};
use nf_runtime::Packet;

use super::{
    servers::Row,
    setup::Setup,
    sides::{INSIDE, OUTSIDE},
    stations::{Living, Next},
};
use crate::metadata::{Barrier, Metadata};

const VXLAN_PORT: u16 = 4789;
const VXLAN: usize = 8;
/// The flag that says that the header has a network's identifier.
const HAS_NETWORK: u8 = 0x08;

/// An event that is counted. The drop reasons are counted as well, by the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Event {
    ToNic,
    ToMux,
    Encapsulated,
    Decapsulated,
    FromMux,
    /// A T-NIC named a server without a row; the packet took the slow path.
    UnknownServer,
    /// The packet does not fit into the tunnel, or the tunnel endpoint's MAC address is unknown; it took the slow path.
    Unfit,
}

impl Event {
    pub const ALL: [Self; 7] = [
        Self::ToNic,
        Self::ToMux,
        Self::Encapsulated,
        Self::Decapsulated,
        Self::FromMux,
        Self::UnknownServer,
        Self::Unfit,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToNic => "to nic",
            Self::ToMux => "to mux",
            Self::Encapsulated => "encapsulated",
            Self::Decapsulated => "decapsulated",
            Self::FromMux => "from mux",
            Self::UnknownServer => "unknown server",
            Self::Unfit => "unfit for the fast path",
        }
    }
}

/// The context of a batch.
pub struct Pass<'a> {
    pub link: Link<'a>,
    pub setup: &'a Setup,
    pub living: &'a Living,
    pub servers: &'a HashMap<u32, Row>,
    pub counts: &'a Stripes,
    pub worker: Worker,
}

impl Pass<'_> {
    fn count(&self, event: Event) {
        self.counts.add(self.worker, 0, event as usize, 1);
    }

    pub fn decide(&mut self, packet: &mut Packet) {
        if packet.port() == INSIDE && self.link.is_to_me(packet) && self.is_from_nic(packet) {
            if Barrier::read(packet.bytes()).is_some() {
                return self.link.turn_back(packet);
            }
            if let Some(metadata) = Metadata::remove(packet) {
                return self.carry(packet, metadata);
            }
        }
        match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) => self.ip(packet, &headers),
            Ok(Outcome::Arp { offset }) => {
                let handled = self.link.arp(packet, offset);
                finish(packet, handled);
            }
            Ok(Outcome::Other { .. }) => packet.drop_for("not for us"),
            Err(fault) => packet.drop_for(fault.name()),
        }
    }

    fn is_from_nic(&self, packet: &Packet) -> bool {
        let source = Ethernet::new_checked(packet.bytes()).map(|ethernet| ethernet.source());
        source.is_ok_and(|mac| self.setup.stations.has_nic(mac))
    }

    fn ip(&mut self, packet: &mut Packet, headers: &Headers) {
        let frame = packet.bytes();
        let (source, destination) = (headers.source(frame), headers.destination(frame));
        if is_to_all(packet) && !destination.is_multicast() {
            return packet.drop_for("not for us");
        }
        let is_vip = |address| self.link.network.owner(address) == Some(Owner::Vip);
        let (to_vip, from_vip) = (is_vip(destination), is_vip(source));
        if packet.port() == INSIDE && from_vip && self.link.is_to_me(packet) {
            self.count(Event::FromMux);
            return self.send_to_client(packet, headers);
        }
        if matches!(headers.protocol, protocol::ICMP | protocol::ICMPV6) {
            let handled = self.link.icmp(packet, headers);
            if !(to_vip && matches!(handled, Handled::Error | Handled::Unsupported)) {
                return finish(packet, handled);
            }
        }
        if packet.port() == OUTSIDE && to_vip && self.link.is_to_me(packet) {
            return self.share(packet, headers, false);
        }
        let is_own = self.link.network.owner(destination) == Some(Owner::Interface(INSIDE));
        let is_tunnel = headers.protocol == protocol::UDP && headers.destination_port == VXLAN_PORT;
        if packet.port() == INSIDE && is_own && is_tunnel && headers.fragment == Fragment::Whole {
            return self.decapsulate(packet, headers);
        }
        packet.drop_for("not for us");
    }

    /// Sends a packet to a VIP on to a T-NIC, or to a load balancer while no T-NIC can take it.
    fn share(&mut self, packet: &mut Packet, headers: &Headers, slow: bool) {
        let rss = headers.rss(packet.bytes());
        match self.setup.stations.next(self.living, rss, slow) {
            Next::Nic(_, mac) => {
                self.count(Event::ToNic);
                self.link.send(packet, INSIDE, mac);
            }
            Next::Mux(_, mac) => {
                self.count(Event::ToMux);
                self.link.send(packet, INSIDE, mac);
            }
            Next::Nobody => packet.drop_for("no load balancer is alive"),
        }
    }

    /// Sends a packet to the server that a T-NIC has chosen: Port NAT, IP NAT and VXLAN (section 3.2.2). A load balancer does the rest.
    fn carry(&mut self, packet: &mut Packet, metadata: Metadata) {
        let headers = match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) => headers,
            Ok(_) => return packet.drop_for("not for us"),
            Err(fault) => return packet.drop_for(fault.name()),
        };
        let is_fit = |row: &&Row| row.address.is_ipv4() == (headers.version == Version::V4);
        let Some(row) = self.servers.get(&metadata.rs_index).filter(is_fit) else {
            self.count(Event::UnknownServer);
            return self.share(packet, &headers, true);
        };
        let mtu = self.link.network.interfaces()[INSIDE].mtu;
        let length = headers.end as usize - usize::from(headers.network);
        let next = self.link.reach(row.tunnel.destination());
        let (Ok((interface, mac)), true) = (next, length + row.tunnel.overhead() <= mtu) else {
            self.count(Event::Unfit);
            return self.share(packet, &headers, true);
        };
        if !decrement_ttl(packet.bytes_mut(), &headers) {
            return packet.drop_for("time to live");
        }
        let side = Side::Destination;
        rewrite_address(
            packet.bytes_mut(),
            &headers,
            side,
            row.address,
            metadata.rs_port,
        );
        if !encapsulate(packet, &headers, &row.tunnel, metadata.rss, self.setup.mac) {
            return packet.drop_for("too big");
        }
        self.count(Event::Encapsulated);
        self.link.send(packet, interface, mac);
    }

    /// Sends the packet inside a server's tunnel on to its client.
    fn decapsulate(&mut self, packet: &mut Packet, headers: &Headers) {
        let inner = usize::from(headers.transport) + Udp::HEADER + VXLAN;
        let flags = packet
            .bytes()
            .get(inner - VXLAN)
            .copied()
            .unwrap_or_default();
        packet.truncate(headers.end as usize);
        if flags & HAS_NETWORK == 0 || packet.pop_front(inner).is_none() {
            return packet.drop_for("not a VXLAN header");
        }
        let to = packet
            .bytes()
            .first_chunk::<6>()
            .copied()
            .unwrap_or_default();
        let headers = match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) if MacAddress(to) == self.setup.mac => headers,
            Ok(_) => return packet.drop_for("not for us"),
            Err(fault) => return packet.drop_for(fault.name()),
        };
        let source = headers.source(packet.bytes());
        if self.link.network.owner(source) != Some(Owner::Vip) {
            return packet.drop_for("not from a VIP");
        }
        self.count(Event::Decapsulated);
        self.send_to_client(packet, &headers);
    }

    fn send_to_client(&mut self, packet: &mut Packet, headers: &Headers) {
        if !decrement_ttl(packet.bytes_mut(), headers) {
            return packet.drop_for("time to live");
        }
        let client = headers.destination(packet.bytes());
        match self.link.reach(client) {
            Ok((interface, mac)) => self.link.send(packet, interface, mac),
            Err(_) => packet.drop_for("neighbour unresolved"),
        }
    }
}

/// Gives a verdict to a packet that the link has handled.
fn finish(packet: &mut Packet, handled: Handled) {
    match handled {
        Handled::Done | Handled::EchoAnswered => {}
        Handled::Malformed => packet.drop_for("malformed"),
        Handled::ForOthers | Handled::Error | Handled::Unsupported => packet.drop_for("not for us"),
    }
}
