//! Packets that are not for a VIP: those for the load balancer itself, and those that it routes.

use nf_balancing::network::Owner;
use nf_packet::{decrement_ttl, protocol, Fragment, Headers};
use nf_runtime::Packet;

use crate::{events::Event, pass::Pass};

impl Pass<'_> {
    /// Handles a packet that is not for a VIP: it is for the load balancer itself or for another station.
    pub(crate) fn not_ours(&mut self, packet: &mut Packet, headers: &Headers) {
        let (source, destination) = {
            let frame = packet.bytes();
            (headers.source(frame), headers.destination(frame))
        };
        match self.snapshot.network.owner(destination) {
            Some(Owner::Interface(_)) if self.link.is_to_me(packet) => {
                if headers.protocol == protocol::TCP && headers.fragment == Fragment::Whole {
                    self.health_answer(packet, headers);
                } else {
                    self.refuse(packet, None, Event::NotForUs);
                }
            }
            Some(_) => self.refuse(packet, None, Event::NotForUs),
            None if !self.link.is_to_me(packet) => self.pass_on(packet),
            None if self.snapshot.is_routed(destination) || self.snapshot.is_routed(source) => {
                self.route(packet, headers);
            }
            None => self.refuse(packet, None, Event::NotForUs),
        }
    }

    /// Forwards a packet as a router does.
    fn route(&mut self, packet: &mut Packet, headers: &Headers) {
        if !decrement_ttl(packet.bytes_mut(), headers) {
            return self.refuse(packet, None, Event::TimeToLive);
        }
        let destination = headers.destination(packet.bytes());
        self.send_to_station(packet, destination, None);
    }
}
