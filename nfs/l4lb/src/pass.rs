//! Processes one batch: parses all packets, looks up all flows at once, then decides each packet.

use std::{
    cell::Cell,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use nf_packet::{dissect, protocol, tcp_flags, Fragment, Headers, MacAddress, Outcome, Version};
use nf_runtime::{Context, Emitted, Packet};
use nf_tables::{Class, Entry, Ipv4Flow, Ipv6Flow, Now};

use crate::{
    connections::is_opening,
    events::Event,
    flow::{AnyFlow, Flow},
    neighbours::is_to_all,
    sessions::FIRST_HEALTH_PORT,
    snapshot::{End, Owner, Snapshot, NONE},
    state::{State, Worker},
};

/// The size of a batch.
const MOST: usize = nf_runtime::Batch::MAX;

/// The context of a batch.
pub struct Pass<'a> {
    pub(crate) state: &'a State,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) context: &'a Context<'a>,
    pub(crate) health: &'a crate::health::Checks,
    /// Whether a VIP that needs no records has reached its half-open limit.
    pub(crate) flooded: &'a AtomicBool,
    pub(crate) now: Now,
    pub(crate) worker: Worker,
    /// Marks of the flows whose records this batch has changed; see [`Pass::current`].
    pub(crate) changed: Cell<u64>,
    /// Marks of the connections with segments to send after the batch.
    pub(crate) behind: u64,
    pub(crate) out: &'a mut Emitted,
}

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

    /// Places a SYN during a flood without a lookup, if its VIP's records always agree with the Maglev table. False: it needs the lookup.
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

    /// Returns the connection that a backend's packet belongs to.
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

    /// Decides a packet after the lookup of its record.
    #[inline]
    fn decide<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        answer: u16,
        entry: Option<Entry>,
    ) {
        // If another packet has recorded the connection meanwhile, `first` finds its record.
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

    /// Handles a packet of a connection that has a record.
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
        // The client reuses its port.
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

    /// Returns a flow's record if it refers to a configured backend.
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

    /// Closes the record if a backend's packet closes the connection.
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
            // If another worker has changed the record, the connection has gone on.
            let _ = self.replace(flow, entry, Entry { class, ..entry });
        }
    }

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

    /// Passes a packet through to the other port; with one port, drops it.
    pub(crate) fn pass_on(&mut self, packet: &mut Packet) {
        if self.context.ports() == 2 && packet.port() < 2 && !self.is_to_me(packet) {
            packet.send(1 - packet.port());
        } else {
            self.refuse(packet, None, Event::NotForUs);
        }
    }

    /// Counts an event. `vip`: the VIP's index in the configuration.
    pub(crate) fn count(&self, vip: Option<usize>, event: Event) {
        let row = vip.map_or(self.state.vips.len(), |index| self.snapshot.vips[index].row);
        self.state.events.add(self.worker, row, event as usize, 1);
    }

    #[cold]
    pub(crate) fn refuse(&mut self, packet: &mut Packet, vip: Option<usize>, event: Event) {
        self.count(vip, event);
        packet.drop_for(event.name());
    }

    /// Returns the interface and next hop for an address.
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

/// Returns a connection's class after a packet from its client.
fn class_after(headers: &Headers, class: Class, ends: bool) -> Class {
    let flags = headers.tcp_flags;
    match class {
        _ if headers.protocol != protocol::TCP => class,
        _ if ends => Class::Closing,
        // The segment is forged or belongs to another connection.
        _ if flags & (tcp_flags::FIN | tcp_flags::RST) != 0 => class,
        Class::Opening if flags & tcp_flags::SYN == 0 => Class::Established,
        Class::Closing if flags & tcp_flags::SYN != 0 => Class::Opening,
        class => class,
    }
}

/// The next station of a packet.
pub(crate) enum Station {
    Known(usize, MacAddress),
    /// The address is known, the MAC address is not.
    Unknown(usize, IpAddr),
    Nowhere,
}
