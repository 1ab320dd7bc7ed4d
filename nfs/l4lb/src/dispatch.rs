//! Processes one batch: parses all packets, looks up all flows at once, then decides each packet.

use std::sync::atomic::Ordering;

use nf_balancing::{
    health,
    link::{is_to_all, Handled},
    network::Owner,
};
use nf_packet::{dissect, protocol, Fragment, Headers, Outcome, Version};
use nf_runtime::Packet;
use nf_tables::{Ipv4Flow, Ipv6Flow};

use crate::{
    connections::is_opening,
    events::Event,
    flow::{AnyFlow, Flow},
    pass::Pass,
    snapshot::{End, NONE},
};

/// The size of a batch.
const MOST: usize = nf_runtime::Batch::MAX;

/// Packets of one IP version that await the lookup of their records.
struct Group<F> {
    flows: Vec<F>,
    lanes: Vec<Lane>,
}

#[derive(Clone, Copy)]
struct Lane {
    /// The packet's position in the batch.
    index: usize,
    /// The backend that sent the packet as an answer; [`NONE`] for a client's packet.
    answer: u16,
    headers: Headers,
}

impl<F: Flow> Group<F> {
    const fn new() -> Self {
        Self {
            flows: Vec::new(),
            lanes: Vec::new(),
        }
    }

    #[inline]
    fn push(&mut self, flow: F, lane: Lane) {
        if self.flows.is_empty() {
            self.flows.reserve_exact(MOST);
            self.lanes.reserve_exact(MOST);
        }
        self.flows.push(flow);
        self.lanes.push(lane);
    }

    fn decide(&self, pass: &mut Pass<'_>, packets: &mut [Packet]) {
        if self.flows.is_empty() {
            return;
        }
        let mut found = [None; MOST];
        pass.records.lookup_bulk(&self.flows, &mut found);
        for ((flow, lane), entry) in self.flows.iter().zip(&self.lanes).zip(found) {
            let packet = &mut packets[lane.index];
            pass.decide(packet, &lane.headers, flow, lane.answer, entry);
        }
    }
}

impl Pass<'_> {
    pub(crate) fn run(&mut self, packets: &mut [Packet]) {
        let mut ipv4 = Group::<Ipv4Flow>::new();
        let mut ipv6 = Group::<Ipv6Flow>::new();
        // Later fragments follow their first one, which may be in this batch.
        let mut later = Vec::new();
        let flooded = self.flooded.load(Ordering::Relaxed);
        for (index, packet) in packets.iter_mut().enumerate() {
            let headers = match dissect(packet.bytes()) {
                Ok(Outcome::Ip(headers)) => headers,
                Ok(Outcome::Arp { offset }) => {
                    self.arp(packet, offset);
                    continue;
                }
                Ok(Outcome::Other { .. }) => {
                    self.pass_on(packet);
                    continue;
                }
                Err(_) => {
                    self.refuse(packet, None, Event::Malformed);
                    continue;
                }
            };
            // Hosts ignore a link-layer broadcast that carries a unicast packet (RFC 1122, 3.3.6).
            if is_to_all(packet) && !headers.destination(packet.bytes()).is_multicast() {
                self.pass_on(packet);
                continue;
            }
            if let Some(mark) = packet.mark() {
                if self.send_marked(packet, &headers, mark) {
                    continue;
                }
            }
            if headers.fragment == Fragment::Later {
                later.push((index, headers));
                continue;
            }
            if !matches!(headers.protocol, protocol::TCP | protocol::UDP) {
                self.without_ports(packet, &headers);
                continue;
            }
            let frame = packet.bytes();
            let source = headers.source(frame);
            let answer = match self
                .snapshot
                .endpoint(source, headers.source_port, headers.protocol)
            {
                None => NONE,
                // An answer to a health check.
                Some(_) if self.is_for_health(frame, &headers) => {
                    self.not_ours(packet, &headers);
                    continue;
                }
                Some(End {
                    is_translated: true,
                    ..
                }) if self.is_to_own(frame, &headers) => {
                    self.answer_translated(packet, &headers);
                    continue;
                }
                Some(End { plain: NONE, .. }) => {
                    self.not_ours(packet, &headers);
                    continue;
                }
                Some(End { plain, .. }) => plain,
            };
            let lane = Lane {
                index,
                answer,
                headers,
            };
            if answer == NONE {
                let may_be_unrecorded =
                    flooded && headers.protocol == protocol::TCP && is_opening(headers.tcp_flags);
                let frame = packet.bytes();
                match headers.version {
                    Version::V4 => {
                        let flow = Ipv4Flow::of(frame, &headers);
                        if !(may_be_unrecorded && self.send_unrecorded(packet, &headers, &flow)) {
                            ipv4.push(flow, lane);
                        }
                    }
                    Version::V6 => {
                        let flow = Ipv6Flow::of(frame, &headers);
                        if !(may_be_unrecorded && self.send_unrecorded(packet, &headers, &flow)) {
                            ipv6.push(flow, lane);
                        }
                    }
                }
                continue;
            }
            match self.answered_flow(frame, &headers, answer) {
                Some(AnyFlow::V4(flow)) => ipv4.push(flow, lane),
                Some(AnyFlow::V6(flow)) => ipv6.push(flow, lane),
                None => self.not_ours(packet, &headers),
            }
        }
        ipv4.decide(self, packets);
        ipv6.decide(self, packets);
        for (index, headers) in later {
            self.later_fragment(&mut packets[index], &headers);
        }
        if self.marked[0] > 0 {
            self.offload.count_marked(self.marked);
        }
    }

    fn arp(&mut self, packet: &mut Packet, offset: usize) {
        match self.link.arp(packet, offset) {
            Handled::Malformed => self.refuse(packet, None, Event::Malformed),
            Handled::ForOthers => self.pass_on(packet),
            _ => {}
        }
    }

    fn is_for_health(&self, frame: &[u8], headers: &Headers) -> bool {
        headers.destination_port >= health::FIRST_PORT
            && headers.protocol == protocol::TCP
            && self.is_to_own(frame, headers)
    }

    fn is_to_own(&self, frame: &[u8], headers: &Headers) -> bool {
        let owner = self.snapshot.network.owner(headers.destination(frame));
        matches!(owner, Some(Owner::Interface(_)))
    }
}
