//! The way of IKE's packets through the gateway: between the peers and the host that exchanges keys under the gateway's outer address.

use std::net::IpAddr;

use nf_packet::{decrement_ttl, protocol, Fragment, Headers};
use nf_runtime::Packet;

use crate::{
    config::{INSIDE, KEY_EXCHANGE, NAT_TRAVERSAL},
    pass::Pass,
    reason,
};

impl Pass<'_> {
    /// Tells whether a packet from the protected network is one of the host that exchanges keys.
    #[inline]
    pub(crate) fn is_from_ike(&self, packet: &Packet, headers: &Headers) -> bool {
        self.setup.config.ike_host.is_some()
            && headers.protocol == protocol::UDP
            && headers.fragment != Fragment::Later
            && matches!(headers.source_port, KEY_EXCHANGE | NAT_TRAVERSAL)
            && self.is_outer(headers.source(packet.bytes()))
    }

    fn is_outer(&self, address: IpAddr) -> bool {
        let outside = self.link.network.interfaces().get(self.outside());
        outside.is_some_and(|each| each.prefixes.iter().any(|own| own.address == address))
    }

    /// Passes a packet from that host on to its destination among the peers.
    pub(crate) fn pass_to_peer(&mut self, packet: &mut Packet, headers: &Headers) {
        let destination = headers.destination(packet.bytes());
        self.forward(packet, headers, self.outside(), destination);
    }

    /// Passes a packet for the gateway on to that host.
    pub(crate) fn pass_to_ike_host(&mut self, packet: &mut Packet, headers: &Headers) {
        match self.setup.config.ike_host {
            Some(host) => self.forward(packet, headers, INSIDE, host),
            None => packet.drop_for(reason::NOT_ESP),
        }
    }

    fn forward(&mut self, packet: &mut Packet, headers: &Headers, interface: usize, next: IpAddr) {
        let interfaces = self.link.network.interfaces();
        let mtu = interfaces.get(interface).map_or(0, |each| each.mtu);
        if headers.packet(packet.bytes()).len() > mtu {
            return packet.drop_for(reason::TOO_BIG);
        }
        let Some(mac) = self.next(interface, next) else {
            return packet.drop_for(reason::UNRESOLVED);
        };
        if !decrement_ttl(packet.bytes_mut(), headers) {
            return packet.drop_for(reason::TIME_TO_LIVE);
        }
        packet.truncate(headers.end as usize);
        self.link.send(packet, interface, mac);
    }
}
