//! Looks at packets: finds their headers, and hands each to the look at its protocol.

use crate::{
    checks::Check,
    inspector::Inspector,
    links,
    look::Look,
    register::Address,
    view::{content, protocol, Captured, Content, Ip},
};

/// How many packets in packets are looked into.
const DEPTH: usize = 8;

impl Inspector<'_> {
    /// Looks at a frame; appends a line for each thing that it tells for the first time.
    pub fn inspect(&self, frame: &Captured<'_>, now: u64, lines: &mut Vec<u8>) {
        match content(frame) {
            Content::Ip(ip) => self.inspect_ip(frame, ip, now, lines),
            Content::Arp(at, vlan) if self.checks.has(Check::Arp) => {
                links::arp(self, frame, at, vlan, lines);
            }
            Content::Arp(..) | Content::Other => {}
        }
    }

    fn inspect_ip(&self, frame: &Captured<'_>, outer: Ip, now: u64, lines: &mut Vec<u8>) {
        let mut ip = outer;
        for _ in 0..DEPTH {
            let inner_is_v6 = match ip.protocol(frame.octets) {
                protocol::IP_IN_IP => false,
                protocol::IPV6 => true,
                _ => break,
            };
            ip = ip.inner(frame.octets, inner_is_v6);
        }
        let [octets, _] = ip.addresses(frame.octets);
        let version = if ip.is_v6 { 6 } else { 4 };
        let look = Look {
            inspector: *self,
            frame,
            ip,
            source: Address { octets, version },
            now,
            lines,
        };
        dispatch(look);
    }
}

/// Looks at the transport header.
fn dispatch(mut look: Look<'_>) {
    match (look.ip.protocol(look.frame.octets), look.ip.is_v6) {
        (protocol::TCP, _) => look.tcp(),
        (protocol::UDP, _) => look.udp(),
        (protocol::ICMP, false) => look.icmp(protocol::ICMP),
        (protocol::ICMP6, true) => look.icmp(protocol::ICMP6),
        (protocol::GRE, false) => drop(look.see()),
        (_, false) => drop(look.sender(0, [0, 0])),
        (_, true) => drop(look.connection(0, [0, 0])),
    }
}
