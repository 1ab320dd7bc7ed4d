//! Decides each packet of the T-NIC (Tiara, section 3.2.2).

use nf_balancing::{
    cells::{Stripes, Worker},
    link::{is_to_all, Handled, Link, TAKEN},
};
use nf_packet::{dissect, protocol, tcp_flags, Ethernet, Fragment, Headers, MacAddress, Outcome};
use nf_runtime::Packet;

use super::{
    nic::Nic,
    stations::{Living, Stations},
};
use crate::{
    flow::AnyFlow,
    metadata::{Barrier, Metadata},
    share::mux_share,
    table::Found,
};

const PORT: usize = 0;
const ETHERNET: u16 = 14;
/// Flags of segments that open or end a connection: its load balancer must see them.
const ENDS: u8 = tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST;

/// An event that is counted. The drop reasons are counted as well, by the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Event {
    /// An entry carries the packet.
    Hit,
    /// The flow has no entry.
    Miss,
    /// The packet opens or ends a connection, is a fragment, or has no ports.
    Slow,
    FromMux,
}

impl Event {
    pub const ALL: [Self; 4] = [Self::Hit, Self::Miss, Self::Slow, Self::FromMux];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Slow => "slow path only",
            Self::FromMux => "from mux",
        }
    }
}

/// The context of a batch.
pub struct Pass<'a> {
    pub link: Link<'a>,
    pub nic: &'a Nic,
    pub stations: &'a Stations,
    pub living: &'a Living,
    pub counts: &'a Stripes,
    pub worker: Worker,
}

impl Pass<'_> {
    fn count(&self, event: Event) {
        self.counts.add(self.worker, 0, event as usize, 1);
    }

    pub fn decide(&mut self, packet: &mut Packet) {
        let from = Ethernet::new_checked(packet.bytes()).map(|ethernet| ethernet.source());
        let is_from_switch =
            from.is_ok_and(|from| self.stations.is_switch(from)) && self.link.is_to_me(packet);
        if let (true, Some(Barrier(number))) = (is_from_switch, Barrier::read(packet.bytes())) {
            self.nic.barriers.pass(number);
            return packet.drop_for(TAKEN);
        }
        match dissect(packet.bytes()) {
            Ok(Outcome::Ip(headers)) => {
                self.ip(packet, &headers, is_from_switch, from.unwrap_or_default())
            }
            Ok(Outcome::Arp { offset }) => {
                let handled = self.link.arp(packet, offset);
                finish(packet, handled);
            }
            Ok(Outcome::Other { .. }) => packet.drop_for("not for us"),
            Err(fault) => packet.drop_for(fault.name()),
        }
    }

    fn ip(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        is_from_switch: bool,
        from: MacAddress,
    ) {
        let destination = headers.destination(packet.bytes());
        if is_to_all(packet) && !destination.is_multicast() {
            return packet.drop_for("not for us");
        }
        if matches!(headers.protocol, protocol::ICMP | protocol::ICMPV6) {
            let handled = self.link.icmp(packet, headers);
            if !matches!(handled, Handled::Error | Handled::Unsupported) {
                return finish(packet, handled);
            }
        }
        let is_own = self.link.network.owner(destination).is_some();
        if is_own || !self.link.is_to_me(packet) {
            packet.drop_for("not for us");
        } else if is_from_switch {
            self.balance(packet, headers);
        } else if self.stations.is_mux(from) {
            self.count(Event::FromMux);
            self.send_to_switch(packet);
        } else {
            packet.drop_for("not from the switch");
        }
    }

    /// Looks up a client's packet: a hit goes back to the switch with the decision, everything else to a load balancer.
    fn balance(&mut self, packet: &mut Packet, headers: &Headers) {
        let rss = headers.rss(packet.bytes());
        let has_ports = matches!(headers.protocol, protocol::TCP | protocol::UDP);
        if !has_ports || headers.fragment != Fragment::Whole || headers.network != ETHERNET {
            self.count(Event::Slow);
            return self.send_to_mux(packet, rss, None);
        }
        let flow = AnyFlow::of_packet(packet.bytes(), headers);
        let Some(found) = self.nic.look(&flow) else {
            self.count(Event::Miss);
            return self.send_to_mux(packet, rss, None);
        };
        if headers.protocol == protocol::TCP && headers.tcp_flags & ENDS != 0 {
            self.count(Event::Slow);
            let owner = self.nic.owner(found.decision.rs_index);
            let opens = headers.tcp_flags & tcp_flags::SYN != 0;
            if opens && !self.living.has(owner) {
                // Another load balancer could choose another server, and the entry would lead the rest to the old one. The client tries again, and the
                // entries of a dead load balancer are removed soon.
                return packet.drop_for("its load balancer is dead");
            }
            return self.send_to_mux(packet, rss, Some(owner));
        }
        self.carry(packet, headers, &flow, &found, rss);
    }

    fn carry(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &AnyFlow,
        found: &Found,
        rss: u32,
    ) {
        packet.truncate(headers.end as usize);
        let bytes = packet.len() as u64;
        let metadata = Metadata {
            rs_index: found.decision.rs_index,
            rs_port: found.decision.rs_port,
            rss: rss as u16,
        };
        if !metadata.insert(packet, headers.version) {
            return packet.drop_for("no room for the metadata");
        }
        self.nic.carried(flow, found, bytes);
        self.count(Event::Hit);
        self.send_to_switch(packet);
    }

    fn send_to_switch(&mut self, packet: &mut Packet) {
        match self.stations.switch_mac() {
            Some(mac) => self.link.send(packet, PORT, mac),
            None => packet.drop_for("neighbour unresolved"),
        }
    }

    /// Sends a packet to a load balancer: that of its share, unless the connection's own one is alive.
    fn send_to_mux(&mut self, packet: &mut Packet, rss: u32, own: Option<usize>) {
        let own = own.filter(|mux| self.living.has(*mux));
        let mux = own.or_else(|| self.living.share(mux_share(rss)));
        match mux.and_then(|mux| self.stations.mux_mac(mux)) {
            Some(mac) => self.link.send(packet, PORT, mac),
            None => packet.drop_for("no load balancer is alive"),
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
