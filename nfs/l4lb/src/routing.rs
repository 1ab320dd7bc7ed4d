//! Packets that are not for a VIP: those for the load balancer itself, and those that it routes.

use nf_packet::{decrement_ttl, protocol, Fragment, Headers};
use nf_runtime::Packet;

use crate::{events::Event, pass::Pass, snapshot::Owner};

impl Pass<'_> {
    /// Handles a packet that is not for a VIP: it is for the load balancer itself or for another station.
    pub(crate) fn not_ours(&mut self, packet: &mut Packet, headers: &Headers) {
        let (source, destination) = {
            let frame = packet.bytes();
            (headers.source(frame), headers.destination(frame))
        };
        match self.snapshot.owner(destination) {
            Some(Owner::Own(_)) if self.is_to_me(packet) => {
                if headers.protocol == protocol::TCP && headers.fragment == Fragment::Whole {
                    self.health_answer(packet, headers);
                } else {
                    self.refuse(packet, None, Event::NotForUs);
                }
            }
            Some(Owner::Own(_) | Owner::Vip) => self.refuse(packet, None, Event::NotForUs),
            owner => {
                // Only backends in mode nat are routed.
                let for_backend = owner == Some(Owner::Backend)
                    || self.snapshot.owner(source) == Some(Owner::Backend);
                if !self.is_to_me(packet) {
                    self.pass_on(packet);
                } else if for_backend {
                    self.route(packet, headers);
                } else {
                    self.refuse(packet, None, Event::NotForUs);
                }
            }
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
