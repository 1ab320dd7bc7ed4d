//! ARP and neighbour discovery: questions and answers.

use std::net::IpAddr;

use nf_packet::{
    Arp, ArpOperation, Ethernet, Headers, Icmp, MacAddress, NeighbourAdvertisement,
    NeighbourMessage,
};
use nf_runtime::Packet;

use crate::{
    claims::Manner,
    events::Event,
    frames::Frame,
    pass::{Pass, TAKEN},
    snapshot::Owner,
};

impl Pass<'_> {
    pub(crate) fn arp(&mut self, packet: &mut Packet, offset: usize) {
        let Ok(message) = Arp::parse(packet.bytes().get(offset..).unwrap_or_default()) else {
            return self.refuse(packet, None, Event::Malformed);
        };
        let (target, port) = (IpAddr::V4(message.target), packet.port());
        let sender = (message.sender.into(), message.sender_mac);
        if !self.is_mine(target, port) {
            if is_to_all(packet) {
                self.learn(sender, port, manner_of(&message), false);
            }
            return self.pass_on(packet);
        }
        self.learn(sender, port, Manner::Told, true);
        if message.operation == ArpOperation::Reply {
            return packet.drop_for(TAKEN);
        }
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

    /// Handles a neighbour discovery message; false: the packet is something else. The caller has verified the message's checksum.
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
                    self.learn((source, mac), port, Manner::Told, true);
                }
                self.advertise(packet, solicitation.target.into(), source);
                packet.drop_for(TAKEN);
            }
            NeighbourMessage::Advertisement(advertisement) if self.is_to_me(packet) => {
                if let Some(mac) = advertisement.target_mac {
                    self.learn((target.into(), mac), port, Manner::Told, true);
                }
                packet.drop_for(TAKEN);
            }
            NeighbourMessage::Advertisement(advertisement) if is_to_all(packet) => {
                if let Some(mac) = advertisement.target_mac {
                    self.learn((target.into(), mac), port, Manner::Announced, false);
                }
                self.pass_on(packet);
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

    /// Tells whether the load balancer answers for this address on this port.
    pub(crate) fn is_mine(&self, address: IpAddr, port: usize) -> bool {
        match self.snapshot.owner(address) {
            Some(Owner::Vip) => true,
            Some(Owner::Own(interface)) => interface == port,
            Some(Owner::Backend) | None => false,
        }
    }

    /// Announces the VIPs on all links: after a start, a move, or a new configuration.
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

    /// Answers an echo request to a VIP or an own address in place.
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

    /// Addresses the frame to its sender, from the port's own MAC address.
    pub(crate) fn turn_back(&self, packet: &mut Packet) {
        let mac = self.mac(packet.port());
        if let Ok(mut ethernet) = Ethernet::new_checked(packet.bytes_mut()) {
            let to = ethernet.source();
            ethernet.set_destination(to);
            ethernet.set_source(mac);
        }
    }
}

/// Tells whether the frame is a broadcast or multicast.
pub(crate) fn is_to_all(packet: &Packet) -> bool {
    packet.bytes().first().is_some_and(|byte| byte & 1 != 0)
}

/// Classifies an ARP broadcast: an announcement (RFC 5227), or a request for another address, which names its sender in passing.
fn manner_of(message: &Arp) -> Manner {
    if message.sender == message.target || message.operation == ArpOperation::Reply {
        Manner::Announced
    } else {
        Manner::Told
    }
}
