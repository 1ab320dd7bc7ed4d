//! One batch: parse all, look all up at once, then decide each.

use std::{
    cell::Cell,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use nf_packet::{dissect, protocol, tcp_flags, Fragment, Headers, MacAddress, Outcome, Version};
use nf_runtime::{Context, Emitted, Packet};
use nf_tables::{Class, ConnectionTable, Entry, Ipv4Flow, Ipv6Flow, Now};

use crate::{
    connections::is_opening,
    events::Event,
    flow::{AnyFlow, Flow},
    neighbours::is_to_all,
    sessions::FIRST_HEALTH_PORT,
    snapshot::{End, Owner, Snapshot, NONE},
    state::{State, Worker},
};

/// Packets of a batch.
const MOST: usize = nf_runtime::Batch::MAX;

/// What deciding needs: the same for a whole batch.
pub struct Pass<'a> {
    pub(crate) state: &'a State,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) context: &'a Context<'a>,
    pub(crate) health: &'a crate::health::Checks,
    /// Some VIP that needs no records has reached its half-open limit.
    pub(crate) flooded: &'a AtomicBool,
    pub(crate) now: Now,
    pub(crate) worker: Worker,
    /// Bits of the flows whose records this batch has changed; see [`Pass::current`].
    pub(crate) changed: Cell<u64>,
    /// Bits of the connections that have segments to send after the batch.
    pub(crate) behind: u64,
    pub(crate) out: &'a mut Emitted,
}

/// Packets of one IP version that wait for their records.
struct Group<F> {
    flows: Vec<F>,
    lanes: Vec<Lane>,
}

#[derive(Clone, Copy)]
struct Lane {
    /// In the batch.
    index: usize,
    /// The backend that answers with it; [`NONE`]: it comes from the client.
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
        F::table(pass.state).lookup_bulk(&self.flows, &pass.now, &mut found);
        for ((flow, lane), entry) in self.flows.iter().zip(&self.lanes).zip(found) {
            let packet = &mut packets[lane.index];
            pass.decide(packet, &lane.headers, flow, lane.answer, entry);
        }
    }
}

impl<'a> Pass<'a> {
    pub(crate) fn run(&mut self, packets: &mut [Packet]) {
        let mut ipv4 = Group::<Ipv4Flow>::new();
        let mut ipv6 = Group::<Ipv6Flow>::new();
        // They go the way of their first fragment, which may be in this batch.
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
            // A frame to all stations is for hosts only if its packet is (RFC 1122, 3.3.6).
            if is_to_all(packet) && !headers.destination(packet.bytes()).is_multicast() {
                self.pass_on(packet);
                continue;
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
                // A health check's.
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
                let may_pass_by =
                    flooded && headers.protocol == protocol::TCP && is_opening(headers.tcp_flags);
                if may_pass_by && self.pass_by(packet, &headers) {
                    continue;
                }
                let frame = packet.bytes();
                match headers.version {
                    Version::V4 => ipv4.push(Ipv4Flow::of(frame, &headers), lane),
                    Version::V6 => ipv6.push(Ipv6Flow::of(frame, &headers), lane),
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
    }

    /// A SYN in a flood, to a VIP whose records would say what its Maglev table says: it need not wait for the connection table. False: it must.
    fn pass_by(&mut self, packet: &mut Packet, headers: &Headers) -> bool {
        match headers.version {
            Version::V4 => {
                self.pass_flow_by(packet, headers, &Ipv4Flow::of(packet.bytes(), headers))
            }
            Version::V6 => {
                self.pass_flow_by(packet, headers, &Ipv6Flow::of(packet.bytes(), headers))
            }
        }
    }

    fn pass_flow_by<F: Flow>(&mut self, packet: &mut Packet, headers: &Headers, flow: &F) -> bool {
        let snapshot = self.snapshot;
        let (address, port) = flow.destination();
        let Some(index) = snapshot.service(address, port, flow.protocol()) else {
            return false;
        };
        let vip = &snapshot.vips[index];
        if !vip.needs_no_records() || self.state.half_open.get(vip.row) < vip.half_open_limit {
            return false;
        }
        let Some(number) = vip.agreed(flow.flow_hash()) else {
            return false;
        };
        self.count(Some(index), Event::Unrecorded);
        let entry = Entry {
            value: number,
            class: Class::Opening,
        };
        self.send_to_backend(packet, headers, flow, entry);
        true
    }

    fn is_for_health(&self, frame: &[u8], headers: &Headers) -> bool {
        headers.destination_port >= FIRST_HEALTH_PORT
            && headers.protocol == protocol::TCP
            && self.is_to_own(frame, headers)
    }

    fn is_to_own(&self, frame: &[u8], headers: &Headers) -> bool {
        matches!(
            self.snapshot.owner(headers.destination(frame)),
            Some(Owner::Own(_))
        )
    }

    /// The connection that a backend's packet to its client belongs to.
    pub(crate) fn answered_flow(
        &self,
        frame: &[u8],
        headers: &Headers,
        number: u16,
    ) -> Option<AnyFlow> {
        let vip = &self.snapshot.vips[self.snapshot.backend_at(number)?.vip];
        let client = (headers.destination(frame), headers.destination_port);
        AnyFlow::new(client, (vip.address, vip.port), headers.protocol)
    }

    /// Everything about one packet whose record, if any, is known.
    #[inline]
    fn decide<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        answer: u16,
        entry: Option<Entry>,
    ) {
        // Where a new connection has got a record meanwhile, making one says so.
        let is_new =
            entry.is_none() && (headers.protocol != protocol::TCP || is_opening(headers.tcp_flags));
        let entry = if is_new {
            None
        } else {
            self.current(flow, entry)
        };
        if answer != NONE {
            return self.answer(packet, headers, flow, answer, entry);
        }
        match entry {
            Some(entry) => self.known(packet, headers, flow, entry),
            None => self.first(packet, headers, flow),
        }
    }

    /// A packet of a connection that has a record.
    #[inline]
    pub(crate) fn known<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        entry: Entry,
    ) {
        let snapshot = self.snapshot;
        let Some(backend) = self.backend_of(flow, entry.value) else {
            return self.choose_again(packet, headers, flow, entry);
        };
        if backend.health == crate::state::health::DOWN {
            let vip = &snapshot.vips[backend.vip];
            let not_yet = entry.class == Class::Opening;
            if (not_yet || vip.when_down == crate::config::WhenDown::Move) && !vip.open.is_empty() {
                return self.choose_again(packet, headers, flow, entry);
            }
        }
        let ends = self.ends_by_client(packet, headers, flow, backend);
        let class = class_after(headers, entry.class, ends);
        // The client uses its port again.
        if class == Class::Opening && entry.class == Class::Closing && !backend.is_open() {
            return self.choose_again(packet, headers, flow, entry);
        }
        let after = Entry { class, ..entry };
        if after != entry {
            match self.replace(flow, entry, after) {
                Ok(()) => {}
                Err(Some(current)) => return self.known(packet, headers, flow, current),
                Err(None) => return self.first(packet, headers, flow),
            }
        }
        self.send_to(packet, headers, flow, after, backend);
    }

    /// The record of a flow of either version, if the configuration has the backend that it names.
    pub(crate) fn entry_of(&self, flow: &AnyFlow) -> Option<Entry> {
        match flow {
            AnyFlow::V4(flow) => self.named(flow),
            AnyFlow::V6(flow) => self.named(flow),
        }
    }

    pub(crate) fn hash_of(flow: &AnyFlow) -> u64 {
        match flow {
            AnyFlow::V4(flow) => flow.flow_hash(),
            AnyFlow::V6(flow) => flow.flow_hash(),
        }
    }

    /// A packet from a backend closes a connection as well as one from its client.
    pub(crate) fn note_answer<F: Flow>(
        &self,
        packet: &Packet,
        headers: &Headers,
        flow: &F,
        entry: Entry,
    ) {
        let Some(backend) = self.backend_of(flow, entry.value) else {
            return;
        };
        if entry.class != Class::Closing && self.ends_by_backend(packet, headers, flow, backend) {
            let class = Class::Closing;
            // Where another worker has changed the record, the connection has gone on since.
            let _ = self.replace(flow, entry, Entry { class, ..entry });
        }
    }

    /// What is for no VIP: our own, or for others.
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
                // A router for the backends of mode nat, and for nobody else.
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

    #[must_use]
    pub(crate) fn is_to_me(&self, packet: &Packet) -> bool {
        packet.bytes().first_chunk::<6>() == Some(&self.context.mac(packet.port()))
    }

    #[must_use]
    pub(crate) fn mac(&self, port: usize) -> MacAddress {
        MacAddress(self.context.mac(port))
    }

    pub(crate) fn state(&self) -> &'a State {
        self.state
    }

    /// To the other side of a bump in the wire; nowhere if there is only one port.
    pub(crate) fn pass_on(&mut self, packet: &mut Packet) {
        if self.context.ports() == 2 && packet.port() < 2 && !self.is_to_me(packet) {
            packet.send(1 - packet.port());
        } else {
            self.refuse(packet, None, Event::NotForUs);
        }
    }

    /// `vip`: its index in the configuration.
    pub(crate) fn count(&self, vip: Option<usize>, event: Event) {
        let row = vip.map_or(self.state.vips.len(), |index| self.snapshot.vips[index].row);
        self.state.events.add(self.worker, row, event as usize, 1);
    }

    #[cold]
    pub(crate) fn refuse(&mut self, packet: &mut Packet, vip: Option<usize>, event: Event) {
        self.count(vip, event);
        packet.drop_for(event.name());
    }

    /// Interface and station for an address.
    pub(crate) fn station(&mut self, address: IpAddr) -> Station {
        if let Some(interface) = self.snapshot.on_link(address) {
            return match self.neighbour(address) {
                Some(mac) => Station::Known(interface, mac),
                None => Station::Unknown(interface, address),
            };
        }
        match self.snapshot.gateway(address) {
            Some(way) => match way.mac() {
                Some(mac) => Station::Known(way.interface, mac),
                None => Station::Unknown(way.interface, way.next),
            },
            None => Station::Nowhere,
        }
    }
}

/// How far a connection of this class is after a packet from its client.
fn class_after(headers: &Headers, class: Class, ends: bool) -> Class {
    let flags = headers.tcp_flags;
    match class {
        _ if headers.protocol != protocol::TCP => class,
        _ if ends => Class::Closing,
        // Of another connection, or forged.
        _ if flags & (tcp_flags::FIN | tcp_flags::RST) != 0 => class,
        Class::Opening if flags & tcp_flags::SYN == 0 => Class::Established,
        Class::Closing if flags & tcp_flags::SYN != 0 => Class::Opening,
        class => class,
    }
}

/// Where a packet goes next.
pub(crate) enum Station {
    Known(usize, MacAddress),
    /// Its address is known, its MAC address is not.
    Unknown(usize, IpAddr),
    Nowhere,
}
