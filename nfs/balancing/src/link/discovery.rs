//! ARP, neighbour discovery and echo requests: answers in the name of the function's addresses, and announcements.

use std::net::IpAddr;

use nf_packet::{
    icmp4, icmp6, rewrite_address, Arp, ArpOperation, Ethernet, Fragment, Headers, Icmp,
    MacAddress, NeighbourAdvertisement, NeighbourMessage, NeighbourSolicitation, Side, Version,
};
use nf_runtime::Packet;

use super::{is_to_all, Link, TAKEN};
use crate::{claims::Manner, frames::Frame, network::Owner};

/// The treatment of a packet. The caller gives it a verdict in all cases but the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// The packet has a verdict.
    Done,
    /// The packet was an echo request, and is now the answer on its way back.
    EchoAnswered,
    /// The packet is for other stations: see [`Link::pass_on`].
    ForOthers,
    Malformed,
    /// The packet is an ICMP error, whose checksum holds.
    Error,
    /// The packet is another message, or a fragment of one.
    Unsupported,
}

impl Link<'_> {
    /// Handles an ARP message: learns from it, and answers requests for the function's addresses.
    pub fn arp(&mut self, packet: &mut Packet, offset: usize) -> Handled {
        let Ok(message) = Arp::parse(packet.bytes().get(offset..).unwrap_or_default()) else {
            return Handled::Malformed;
        };
        let (target, port) = (IpAddr::V4(message.target), packet.port());
        let sender = (message.sender.into(), message.sender_mac);
        if !self.is_mine(target, port) {
            if is_to_all(packet) {
                self.learn(sender, port, manner_of(&message), false);
            }
            return Handled::ForOthers;
        }
        self.learn(sender, port, Manner::Told, true);
        if message.operation == ArpOperation::Reply {
            packet.drop_for(TAKEN);
            return Handled::Done;
        }
        let answer = Arp {
            operation: ArpOperation::Reply,
            sender_mac: self.mac(port),
            sender: message.target,
            target_mac: message.sender_mac,
            target: message.sender,
        };
        let mut bytes = [0; Arp::BYTES];
        answer.write(&mut bytes);
        packet.bytes_mut()[offset..offset + Arp::BYTES].copy_from_slice(&bytes);
        self.turn_back(packet);
        Handled::Done
    }

    /// Handles an ICMP message: neighbour discovery, and echo requests to the function's addresses.
    pub fn icmp(&mut self, packet: &mut Packet, headers: &Headers) -> Handled {
        if headers.fragment != Fragment::Whole {
            return Handled::Unsupported;
        }
        let frame = packet.bytes();
        let (source, destination) = (headers.source(frame), headers.destination(frame));
        let Ok(message) = Icmp::new_checked(headers.segment(frame)) else {
            return Handled::Malformed;
        };
        if !message.checksum_holds(source, destination) {
            return Handled::Malformed;
        }
        let (kind, is_error) = (message.kind(), message.is_error(headers.version));
        let (echo, reply) = match headers.version {
            Version::V4 => (icmp4::ECHO, icmp4::ECHO_REPLY),
            Version::V6 => (icmp6::ECHO, icmp6::ECHO_REPLY),
        };
        if headers.version == Version::V6 {
            match NeighbourMessage::parse(headers.segment(frame)) {
                Ok(None) => {}
                Ok(Some(message)) => return self.discovery(packet, headers, message),
                Err(_) => return Handled::Malformed,
            }
        }
        if kind == echo && self.network.owner(destination).is_some() && self.is_to_me(packet) {
            self.answer_echo(packet, headers, reply);
            return Handled::EchoAnswered;
        }
        if is_error {
            Handled::Error
        } else {
            Handled::Unsupported
        }
    }

    /// Handles a neighbour discovery message.
    fn discovery(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        message: NeighbourMessage,
    ) -> Handled {
        let frame = packet.bytes();
        let hop_limit = frame[usize::from(headers.network) + 7];
        if hop_limit != 255 {
            return Handled::Malformed;
        }
        let (source, port) = (headers.source(frame), packet.port());
        match message {
            NeighbourMessage::Solicitation(NeighbourSolicitation { target, source_mac })
                if self.is_mine(target.into(), port) =>
            {
                if let Some(mac) = source_mac {
                    self.learn((source, mac), port, Manner::Told, true);
                }
                self.advertise(packet, target.into(), source);
                packet.drop_for(TAKEN);
                Handled::Done
            }
            NeighbourMessage::Advertisement(message) if self.is_to_me(packet) => {
                if let Some(mac) = message.target_mac {
                    self.learn((message.target.into(), mac), port, Manner::Told, true);
                }
                packet.drop_for(TAKEN);
                Handled::Done
            }
            NeighbourMessage::Advertisement(message) if is_to_all(packet) => {
                if let Some(mac) = message.target_mac {
                    let sender = (message.target.into(), mac);
                    self.learn(sender, port, Manner::Announced, false);
                }
                Handled::ForOthers
            }
            _ => Handled::ForOthers,
        }
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

    /// Tells whether the function answers for this address on this port.
    fn is_mine(&self, address: IpAddr, port: usize) -> bool {
        match self.network.owner(address) {
            Some(Owner::Vip) => true,
            Some(Owner::Interface(interface)) => interface == port,
            None => false,
        }
    }

    /// Announces the VIPs on all links: after a start, a move, or a new configuration.
    pub fn announce(&mut self) {
        for vip in self.network.vips() {
            for port in 0..self.context.ports().min(self.network.interfaces().len()) {
                if let Some(frame) = Frame::announcement(self.mac(port), *vip) {
                    self.out.emit(port, frame.bytes());
                }
            }
        }
    }

    /// Turns an echo request into its answer and sends it back.
    fn answer_echo(&mut self, packet: &mut Packet, headers: &Headers, reply: u8) {
        let frame = packet.bytes_mut();
        let (source, destination) = (headers.source(frame), headers.destination(frame));
        rewrite_address(frame, headers, Side::Source, destination, 0);
        rewrite_address(frame, headers, Side::Destination, source, 0);
        if let Ok(mut message) = Icmp::new_checked(headers.segment_mut(frame)) {
            let argument = message.argument();
            message.set(reply, 0, argument);
            message.fill_checksum(destination, source);
        }
        self.turn_back(packet);
    }
}

/// Classifies an ARP broadcast: an announcement (RFC 5227), or a request for another address, which names its sender in passing.
fn manner_of(message: &Arp) -> Manner {
    if message.sender == message.target || message.operation == ArpOperation::Reply {
        Manner::Announced
    } else {
        Manner::Told
    }
}
