//! Who has which address: ARP and neighbour discovery, asked and answered.

use std::net::IpAddr;

use nf_packet::{
    Arp, ArpOperation, Ethernet, Headers, Icmp, MacAddress, NeighbourAdvertisement,
    NeighbourMessage,
};
use nf_runtime::Packet;

use crate::{
    events::Event,
    frames::Frame,
    pass::Pass,
    snapshot::Owner,
    state::{Address, Neighbour},
};

const SECOND: u64 = 1_000_000_000;
/// Without confirmation an entry is forgotten after this.
pub const LIFETIME: u64 = 120 * SECOND;
/// And asked for again after this.
const STALE: u64 = 30 * SECOND;

/// Why a packet goes nowhere that was for the load balancer itself.
pub const TAKEN: &str = "for the load balancer";

impl Pass<'_> {
    pub(crate) fn arp(&mut self, packet: &mut Packet, offset: usize) {
        let Ok(message) = Arp::parse(packet.bytes().get(offset..).unwrap_or_default()) else {
            return self.refuse(packet, None, Event::Malformed);
        };
        let target = IpAddr::V4(message.target);
        if !self.is_mine(target, packet.port()) {
            return self.pass_on(packet);
        }
        self.learn(message.sender.into(), message.sender_mac, packet.port());
        if message.operation == ArpOperation::Reply {
            return packet.drop_for(TAKEN);
        }
        let port = packet.port();
        let mac = self.mac(port);
        let answer = Arp {
            operation: ArpOperation::Reply,
            sender_mac: mac,
            sender: message.target,
            target_mac: message.sender_mac,
            target: message.sender,
        };
        let mut bytes = [0; Arp::BYTES];
        answer.write(&mut bytes);
        packet.bytes_mut()[offset..offset + Arp::BYTES].copy_from_slice(&bytes);
        self.turn_back(packet);
        packet.send(port);
    }

    /// True: it was one. Checked before: the message's checksum.
    pub(crate) fn neighbour_message(&mut self, packet: &mut Packet, headers: &Headers) -> bool {
        let frame = packet.bytes();
        let message = match NeighbourMessage::parse(headers.segment(frame)) {
            Ok(None) => return false,
            Ok(Some(message)) => message,
            Err(_) => {
                self.refuse(packet, None, Event::Malformed);
                return true;
            }
        };
        let hop_limit = frame[usize::from(headers.network) + 7];
        let (source, port) = (headers.source(frame), packet.port());
        let target = match &message {
            NeighbourMessage::Solicitation(solicitation) => solicitation.target,
            NeighbourMessage::Advertisement(advertisement) => advertisement.target,
        };
        if hop_limit != 255 {
            self.refuse(packet, None, Event::Malformed);
            return true;
        }
        match message {
            NeighbourMessage::Solicitation(solicitation) if self.is_mine(target.into(), port) => {
                if let Some(mac) = solicitation.source_mac {
                    self.learn(source, mac, port);
                }
                self.advertise(packet, solicitation.target.into(), source);
                packet.drop_for(TAKEN);
            }
            NeighbourMessage::Advertisement(advertisement) if self.is_to_me(packet) => {
                if let Some(mac) = advertisement.target_mac {
                    self.learn(target.into(), mac, port);
                }
                packet.drop_for(TAKEN);
            }
            _ => self.pass_on(packet),
        }
        true
    }

    fn advertise(&mut self, packet: &Packet, target: IpAddr, asker: IpAddr) {
        let (IpAddr::V6(address), Ok(ethernet)) = (target, Ethernet::new_checked(packet.bytes()))
        else {
            return;
        };
        let mac = self.mac(packet.port());
        let unknown = asker.is_unspecified();
        let destination = if unknown {
            IpAddr::from([0xff02, 0, 0, 0, 0, 0, 0, 1])
        } else {
            asker
        };
        let to = if unknown {
            MacAddress([0x33, 0x33, 0, 0, 0, 1])
        } else {
            ethernet.source()
        };
        let message = NeighbourMessage::Advertisement(NeighbourAdvertisement {
            target: address,
            target_mac: Some(mac),
            solicited: !unknown,
        });
        if let Some(frame) = Frame::neighbour((mac, to), target, destination, message) {
            self.out.emit(packet.port(), frame.bytes());
        }
    }

    /// Is it an address that this load balancer answers for on this port?
    pub(crate) fn is_mine(&self, address: IpAddr, port: usize) -> bool {
        match self.snapshot.owner(address) {
            Some(Owner::Vip) => true,
            Some(Owner::Own(interface)) => interface == port,
            Some(Owner::Backend) | None => false,
        }
    }

    /// Remembers a neighbour, if it can be one.
    pub(crate) fn learn(&self, address: IpAddr, mac: MacAddress, interface: usize) {
        if mac.is_multicast()
            || mac.to_bits() == 0
            || self.snapshot.on_link(address) != Some(interface)
            || self.snapshot.fixed(address).is_some()
            || matches!(
                self.snapshot.owner(address),
                Some(Owner::Vip | Owner::Own(_))
            )
        {
            return;
        }
        let now = self.context.now();
        let changed = self.state().neighbours.update_or_insert(
            &Address::from(address),
            now,
            LIFETIME,
            bytemuck::Zeroable::zeroed,
            |neighbour: &mut Neighbour| {
                let changed = neighbour.mac != mac.to_bits();
                neighbour.mac = mac.to_bits();
                neighbour.interface = interface as u64;
                neighbour.confirmed = now;
                changed
            },
        );
        if changed == Some(true) {
            self.snapshot.learn(address, interface, mac);
        }
    }

    /// Asks who has an address, at most once a second.
    pub(crate) fn solicit(&mut self, address: IpAddr, interface: usize) {
        let now = self.context.now();
        let due = self.state().neighbours.update_or_insert(
            &Address::from(address),
            now,
            LIFETIME,
            bytemuck::Zeroable::zeroed,
            |neighbour: &mut Neighbour| {
                let due = neighbour.asked == 0 || now.saturating_sub(neighbour.asked) >= SECOND;
                if due {
                    neighbour.asked = now;
                }
                due
            },
        );
        let own = self
            .snapshot
            .interfaces
            .get(interface)
            .and_then(|interface| interface.address(address));
        if let (Some(true), Some(own)) = (due, own) {
            if let Some(frame) = Frame::solicitation(self.mac(interface), own, address) {
                self.out.emit(interface, frame.bytes());
            }
        }
    }

    /// The MAC address of a station on a link, where it is known.
    pub(crate) fn neighbour(&self, address: IpAddr) -> Option<MacAddress> {
        if let Some(mac) = self.snapshot.fixed(address) {
            return Some(mac);
        }
        let now = self.context.now();
        let neighbour = self
            .state()
            .neighbours
            .get(&Address::from(address), now, LIFETIME)?;
        (neighbour.mac != 0).then(|| MacAddress::from_bits(neighbour.mac))
    }

    /// For each next station: asks where it is not known or was not confirmed lately, forgets where it does not answer. Once a second.
    pub(crate) fn refresh_neighbours(&mut self) {
        let now = self.context.now();
        let snapshot = self.snapshot;
        for way in snapshot.ways() {
            if snapshot.fixed(way.next).is_some() {
                continue;
            }
            let known = self
                .state()
                .neighbours
                .get(&Address::from(way.next), now, LIFETIME)
                .filter(|neighbour| neighbour.mac != 0);
            match known {
                Some(neighbour) if now.saturating_sub(neighbour.confirmed) > LIFETIME => {
                    self.state()
                        .neighbours
                        .remove(&Address::from(way.next), now);
                    snapshot.forget(way.next);
                    self.solicit(way.next, way.interface);
                }
                Some(neighbour) if now.saturating_sub(neighbour.confirmed) > STALE => {
                    self.solicit(way.next, way.interface);
                }
                Some(neighbour) => {
                    if way.mac().is_none() {
                        way.set_mac(Some(MacAddress::from_bits(neighbour.mac)));
                    }
                }
                None => self.solicit(way.next, way.interface),
            }
        }
    }

    /// Tells everybody where the VIPs are: after a start, a move, a new configuration.
    pub(crate) fn announce(&mut self) {
        for vip in &self.snapshot.vips {
            for port in 0..self.context.ports().min(self.snapshot.interfaces.len()) {
                let mac = self.mac(port);
                let frame = match vip.address {
                    IpAddr::V4(address) => Some(Frame::arp(
                        (mac, MacAddress::BROADCAST),
                        &Arp {
                            operation: ArpOperation::Request,
                            sender_mac: mac,
                            sender: address,
                            target_mac: MacAddress::default(),
                            target: address,
                        },
                    )),
                    IpAddr::V6(address) => Frame::neighbour(
                        (mac, MacAddress([0x33, 0x33, 0, 0, 0, 1])),
                        vip.address,
                        IpAddr::from([0xff02, 0, 0, 0, 0, 0, 0, 1]),
                        NeighbourMessage::Advertisement(NeighbourAdvertisement {
                            target: address,
                            target_mac: Some(mac),
                            solicited: false,
                        }),
                    ),
                };
                if let Some(frame) = frame {
                    self.out.emit(port, frame.bytes());
                }
            }
        }
    }

    /// Answers an echo request to one of our addresses in place.
    pub(crate) fn answer_echo(&mut self, packet: &mut Packet, headers: &Headers, reply: u8) {
        let (source, destination) = {
            let frame = packet.bytes();
            (headers.source(frame), headers.destination(frame))
        };
        let all = nf_packet::Side::Source;
        nf_packet::rewrite_address(packet.bytes_mut(), headers, all, destination, 0);
        let to = nf_packet::Side::Destination;
        nf_packet::rewrite_address(packet.bytes_mut(), headers, to, source, 0);
        if let Ok(mut message) = Icmp::new_checked(headers.segment_mut(packet.bytes_mut())) {
            let argument = message.argument();
            message.set(reply, 0, argument);
            message.fill_checksum(destination, source);
        }
        self.count(None, Event::EchoAnswered);
        self.turn_back(packet);
        packet.send(packet.port());
    }

    /// Stations of an answer: to whoever sent the frame, from the port's own address.
    pub(crate) fn turn_back(&self, packet: &mut Packet) {
        let mac = self.mac(packet.port());
        if let Ok(mut ethernet) = Ethernet::new_checked(packet.bytes_mut()) {
            let to = ethernet.source();
            ethernet.set_destination(to);
            ethernet.set_source(mac);
        }
    }
}
