//! Packets that belong to a flow without having its ports: ICMP errors and later fragments. And the answers to rejected packets.

use nf_packet::{dissect_quoted, Fragment, Headers, Icmp, Version};
use nf_runtime::Packet;

use crate::{
    config::Action,
    flows::{stage, Hot},
    inspection::Inspection,
    key::{message, vlan, Message, Sighting},
    pass::{action, reason, Pass, Seen},
    refusing,
    state::{word, FragmentKey},
};

/// The lifetime of the entry of a fragmented packet. Senders send all fragments at once.
const FRAGMENTS: u64 = 3_000_000_000;
/// The most ICMP errors per second.
const ERRORS: u64 = 1000;
const SECOND: u64 = 1_000_000_000;

impl<I: Inspection> Pass<'_, I> {
    /// Lets an ICMP error pass if it quotes a packet of a flow that may pass.
    pub fn related(&mut self, packet: &mut Packet, seen: &Seen) {
        let Some((slot, hot)) = self.quoted(packet.bytes(), seen) else {
            return packet.drop_for(reason::NO_CONNECTION);
        };
        if hot.stage == stage::DECIDED && action(hot.action) != Action::Allow {
            return packet.drop_for(reason::DENIED);
        }
        if hot.stage == stage::DECIDED {
            self.count(hot.row, 1, seen.bytes());
        }
        self.let_go(packet, slot);
    }

    /// Returns the flow that an ICMP error is about.
    fn quoted(&self, frame: &[u8], seen: &Seen) -> Option<(u32, Hot)> {
        let quoted = seen.headers.segment(frame).get(Icmp::HEADER..)?;
        let headers = dissect_quoted(quoted).ok()?;
        // The error goes to the sender of the quoted packet.
        if headers.version != seen.headers.version
            || headers.fragment == Fragment::Later
            || headers.source(quoted) != seen.headers.destination(frame)
        {
            return None;
        }
        let identifier = match message(quoted, &headers) {
            None => 0,
            Some(Message::Request(identifier) | Message::Reply(identifier)) => identifier,
            Some(Message::Error | Message::Neighbour) => return None,
        };
        let sighting = Sighting::of(quoted, &headers, vlan(frame), identifier);
        let flows = &self.state.flows;
        let slot = flows.find(&sighting.key, flows.hash(&sighting.key))?;
        let hot = flows.hot(slot);
        (!self.is_over(&hot)).then_some((slot, hot))
    }

    fn fragment_key(frame: &[u8], headers: &Headers) -> FragmentKey {
        let octets = |address: std::net::IpAddr| match address {
            std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(address) => address.octets(),
        };
        // The protocol is part of the identity for IPv4 only (RFC 791; RFC 8200, 4.5).
        let protocol = match headers.version {
            Version::V4 => headers.protocol.into(),
            Version::V6 => 0,
        };
        FragmentKey {
            source: octets(headers.source(frame)),
            destination: octets(headers.destination(frame)),
            id: headers.fragment_id,
            protocol,
            vlan: vlan(frame),
        }
    }

    /// Notes the flow of a fragmented packet.
    pub fn note_first(&self, frame: &[u8], seen: &Seen, slot: u32) {
        let key = Self::fragment_key(frame, &seen.headers);
        let id = self.state.flows.cold(slot).id;
        self.state
            .fragments
            .replace(&key, self.now(), FRAGMENTS, id);
    }

    /// Treats a later fragment like the first one.
    pub fn later(&mut self, packet: &mut Packet, seen: &Seen) {
        let key = Self::fragment_key(packet.bytes(), &seen.headers);
        let id = self.state.fragments.get(&key, self.now(), FRAGMENTS);
        let Some(slot) = id.and_then(|id| self.state.flows.slot_of(id)) else {
            return packet.drop_for(reason::NO_FIRST);
        };
        let mut hot = self.state.flows.hot(slot);
        hot.packets += 1;
        hot.bytes += seen.bytes();
        self.state.flows.put_hot(slot, &hot);
        self.count(hot.row, 1, seen.bytes());
        if hot.stage != stage::DECIDED || action(hot.action) != Action::Allow {
            return packet.drop_for(reason::DENIED);
        }
        if !self.admits_packet_of(&hot) {
            return packet.drop_for(reason::RATE);
        }
        self.let_go(packet, slot);
    }

    fn admits_packet_of(&self, hot: &Hot) -> bool {
        hot.flags & crate::flows::flag::RATED == 0 || self.admits_packet(hot)
    }

    /// Tells the sender of a rejected packet.
    pub fn refuse(&mut self, frame: &[u8], headers: &Headers, port: usize) {
        let Some(answer) = refusing::answer(frame, headers) else {
            return;
        };
        let now = self.now();
        let next = self.state.word(word::ERRORS).clamp(now, now + SECOND) + SECOND / ERRORS;
        if next <= now + SECOND {
            self.state.put_word(word::ERRORS, next);
            self.emitted.emit(port, &answer);
        }
    }
}
