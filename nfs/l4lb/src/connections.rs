//! Decides the packets of VIPs: continues connections, opens them, moves them to other backends, and ends them.

use std::sync::atomic::Ordering;

use nf_balancing::{frames::Frame, health};
use nf_packet::{protocol, rewrite_address, tcp_flags, Fragment, Headers, Side};
use nf_runtime::Packet;
use nf_tables::{Class, Entry, Full};

use crate::{
    config::{Algorithm, Mode, WhenDown},
    events::Event,
    flow::Flow,
    pass::Pass,
    sessions::Rewritten,
    snapshot::{Backend, Vip, NONE},
    state::traffic,
};

impl Pass<'_> {
    /// Decides a packet after the lookup of its record.
    #[inline]
    pub(crate) fn decide<F: Flow>(
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
            self.records.current(flow, entry)
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
    fn known<F: Flow>(&mut self, packet: &mut Packet, headers: &Headers, flow: &F, entry: Entry) {
        let snapshot = self.snapshot;
        let Some(backend) = self.records.backend_of(flow, entry.value) else {
            return self.choose_again(packet, headers, flow, entry);
        };
        if backend.health == health::DOWN {
            let vip = &snapshot.vips[backend.vip];
            let not_yet = entry.class == Class::Opening;
            if (not_yet || vip.when_down == WhenDown::Move) && !vip.open.is_empty() {
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
            match self.records.replace(flow, entry, after) {
                Ok(()) => {}
                Err(Some(current)) => return self.known(packet, headers, flow, current),
                Err(None) => return self.first(packet, headers, flow),
            }
        }
        self.send_to(packet, headers, flow, after, backend);
    }

    /// Sends a flood's SYN on without a lookup or a record, if its VIP's records always agree with the Maglev table. False: it needs the lookup.
    pub(crate) fn send_unrecorded<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
    ) -> bool {
        let snapshot = self.snapshot;
        let (address, port) = flow.destination();
        let Some(index) = snapshot.service(address, port, flow.protocol()) else {
            return false;
        };
        let vip = &snapshot.vips[index];
        let is_placed = vip.needs_no_records() && self.is_flooded(vip);
        let Some(number) = vip.agreed(flow.flow_hash()).filter(|_| is_placed) else {
            return false;
        };
        if self.offload.pins.backend_of(flow).is_some() {
            return false;
        }
        self.count(Some(index), Event::Unrecorded);
        let entry = Entry {
            value: number,
            class: Class::Opening,
        };
        self.send_to_backend(packet, headers, flow, entry);
        true
    }

    fn is_flooded(&self, vip: &Vip) -> bool {
        self.state.half_open.get(vip.row) >= vip.half_open_limit
    }

    /// Handles a packet without a record: the first of a connection, or one whose record is gone.
    fn first<F: Flow>(&mut self, packet: &mut Packet, headers: &Headers, flow: &F) {
        let snapshot = self.snapshot;
        let (address, port) = flow.destination();
        let Some(index) = snapshot.service(address, port, flow.protocol()) else {
            return self.not_ours(packet, headers);
        };
        let vip = &snapshot.vips[index];
        let is_tcp = flow.protocol() == protocol::TCP;
        let opening = is_tcp && is_opening(headers.tcp_flags);
        if is_tcp && !opening && vip.has_sessions() {
            return self.end_without_session(packet, headers, index);
        }
        let hash = flow.flow_hash();
        let flooded = opening && self.is_flooded(vip);
        if flooded && vip.has_sessions() {
            return self.refuse(packet, Some(index), Event::HalfOpenLimit);
        }
        // Mid-connection without a record, or a SYN that gets none: every load balancer must choose the same.
        let must_agree = flooded || (is_tcp && !opening);
        let pinned = self.offload.pins.backend_of(flow);
        let chosen = match pinned {
            Some(number) => self.records.backend_of(flow, number).map(|_| number),
            None if must_agree => vip.agreed(hash),
            None => self.choose(vip, hash),
        };
        let Some(number) = chosen else {
            let why = match pinned {
                Some(_) => Event::RuleActs,
                None => Event::NoBackend,
            };
            return self.refuse(packet, Some(index), why);
        };
        let class = match (is_tcp, opening) {
            (false, _) => Class::Datagram,
            (true, true) => Class::Opening,
            (true, false) if headers.tcp_flags & tcp_flags::FIN != 0 => Class::Closing,
            (true, false) => Class::Established,
        };
        let entry = Entry {
            value: number,
            class,
        };
        if flooded {
            if vip.needs_no_records() {
                self.flooded.store(true, Ordering::Relaxed);
            }
            self.count(Some(index), Event::Unrecorded);
            return self.send_to_backend(packet, headers, flow, entry);
        }
        // A reset needs no record.
        if is_tcp && headers.tcp_flags & tcp_flags::RST != 0 {
            return self.send_to_backend(packet, headers, flow, entry);
        }
        match self.records.create(flow, entry) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                // Another packet of this batch has recorded the connection, which takes one turn only.
                if vip.algorithm == Algorithm::RoundRobin && pinned.is_none() && !must_agree {
                    self.state.turns.subtract(self.worker, vip.row, 1);
                }
                return self.known(packet, headers, flow, entry);
            }
            Err(Full) if vip.has_sessions() => {
                return self.refuse(packet, Some(index), Event::TableFull)
            }
            Err(Full) => {
                self.count(Some(index), Event::TableFull);
                // Without a record, later packets must lead to the same choice.
                let value = vip.agreed(hash).unwrap_or(number);
                return self.send_to_backend(packet, headers, flow, Entry { value, class });
            }
        }
        if vip.has_sessions() && !self.open_session(flow, vip, entry) {
            self.records.remove(flow);
            return self.refuse(packet, Some(index), Event::SessionsFull);
        }
        if vip.mode == Mode::Nat {
            self.link.seek_client(packet.bytes(), headers);
        }
        self.send_to_backend(packet, headers, flow, entry);
    }

    /// Replaces a connection's backend that is gone or down, or that does not take this new connection.
    fn choose_again<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        seen: Entry,
    ) {
        let snapshot = self.snapshot;
        let (address, port) = flow.destination();
        let Some(index) = snapshot.service(address, port, flow.protocol()) else {
            self.records.remove(flow);
            return self.not_ours(packet, headers);
        };
        let vip = &snapshot.vips[index];
        let opening = flow.protocol() != protocol::TCP || is_opening(headers.tcp_flags);
        if self.offload.pins.backend_of(flow) == Some(seen.value) {
            return self.keep_for_now(packet, headers, flow, seen, index);
        }
        if vip.has_sessions() && !opening {
            self.records.remove(flow);
            return self.end_without_session(packet, headers, index);
        }
        let hash = flow.flow_hash();
        let chosen = if opening {
            self.choose(vip, hash)
        } else {
            vip.agreed(hash)
        };
        let Some(number) = chosen else {
            // Packets must not keep a record of a removed backend alive, since its number will be reused.
            if self.records.backend_of(flow, seen.value).is_none() {
                self.records.remove(flow);
            }
            return self.refuse(packet, Some(index), Event::NoBackend);
        };
        let class = match flow.protocol() {
            protocol::TCP if opening => Class::Opening,
            protocol::TCP
                if seen.class == Class::Closing
                    || headers.tcp_flags & (tcp_flags::FIN | tcp_flags::RST) != 0 =>
            {
                Class::Closing
            }
            protocol::TCP => Class::Established,
            _ => Class::Datagram,
        };
        let entry = Entry {
            value: number,
            class,
        };
        match self.records.replace(flow, seen, entry) {
            Ok(()) => self.count(Some(index), Event::Moved),
            Err(Some(current)) => return self.known(packet, headers, flow, current),
            Err(None) => return self.first(packet, headers, flow),
        }
        if vip.has_sessions() && !self.open_session(flow, vip, entry) {
            self.records.remove(flow);
            return self.refuse(packet, Some(index), Event::SessionsFull);
        }
        self.send_to_backend(packet, headers, flow, entry);
    }

    /// Handles a packet of a connection that must have another backend, while a rule may still lead its other packets to the old one.
    fn keep_for_now<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        seen: Entry,
        vip: usize,
    ) {
        if self.records.backend_of(flow, seen.value).is_none() {
            return self.refuse(packet, Some(vip), Event::RuleActs);
        }
        let class = class_after(headers, seen.class, false);
        let entry = Entry { class, ..seen };
        if entry != seen {
            // Otherwise another worker has changed the record, and the connection has gone on.
            let _ = self.records.replace(flow, seen, entry);
        }
        self.send_to_backend(packet, headers, flow, entry);
    }

    /// Chooses by the VIP's algorithm. The choice is recorded, so it need not be repeatable.
    fn choose(&self, vip: &Vip, hash: u64) -> Option<u16> {
        match vip.algorithm {
            Algorithm::Maglev => vip.agreed(hash),
            Algorithm::RoundRobin => vip.in_turn(self.state.turns.add(self.worker, vip.row, 1)),
            Algorithm::LeastLoaded => {
                // Compares connections per weight by cross multiplication; the flow's hash breaks ties.
                let start = hash as usize % vip.open.len().max(1);
                let (before, after) = vip.open.split_at(start.min(vip.open.len()));
                let load = |number: u16| u128::from(self.state.active.get(number.into()));
                after
                    .iter()
                    .chain(before)
                    .map(|(number, weight)| (load(*number), *number, u128::from(*weight)))
                    .reduce(|best, each| {
                        if each.0 * best.2 < best.0 * each.2 {
                            each
                        } else {
                            best
                        }
                    })
                    .map(|(_, number, _)| number)
            }
        }
    }

    /// Sends a client's packet to the chosen backend.
    #[inline]
    fn send_to_backend<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        entry: Entry,
    ) {
        let Some(backend) = self.snapshot.backend_at(entry.value) else {
            return self.refuse(packet, None, Event::NoBackend);
        };
        self.send_to(packet, headers, flow, entry, backend);
    }

    #[inline]
    pub(crate) fn send_to<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        entry: Entry,
        backend: &Backend,
    ) {
        let number = entry.value;
        let snapshot = self.snapshot;
        let Some(mac) = backend.way.mac() else {
            return self.unresolved(packet, backend);
        };
        let vip = &snapshot.vips[backend.vip];
        if vip.had_sessions_until > 0
            && self.is_ended_by_change(packet, headers, flow, vip, entry.class)
        {
            return;
        }
        // With the PROXY protocol, the session refuses the first fragment, so the others must not pass.
        if headers.fragment == Fragment::First && !vip.proxy_protocol {
            self.note_fragment(packet, headers, number);
        }
        let bytes = u64::from(headers.end) - u64::from(headers.network);
        if let Some(tunnel) = &backend.tunnel {
            // The source port carries the flow's hash, by which the receiver spreads flows over its queues.
            let entropy = if tunnel.has_entropy() {
                flow.flow_hash() as u16
            } else {
                0
            };
            if !self.encapsulate(packet, headers, backend, entropy) {
                return;
            }
        } else if vip.has_sessions() {
            let behind = self.is_behind(flow);
            match self.session_to_backend(packet, headers, flow, entry.class, backend) {
                Rewritten::Done => {}
                Rewritten::Dropped => return,
                Rewritten::Unfit => {
                    self.records.remove(flow);
                    return self.first(packet, headers, flow);
                }
            }
            if behind {
                self.link.send(packet, backend.way.interface, mac);
                self.send_behind(packet, backend.way.interface);
                return self.count_traffic(number, traffic::PACKETS, bytes);
            }
        } else {
            if !self.live_on(packet, headers, backend.vip) {
                return;
            }
            let side = Side::Destination;
            rewrite_address(
                packet.bytes_mut(),
                headers,
                side,
                backend.address,
                backend.port,
            );
        }
        self.link.send(packet, backend.way.interface, mac);
        self.count_traffic(number, traffic::PACKETS, bytes);
    }

    /// Resets a connection that began with a session, of which its VIP's options allow none any more: the backend expects other addresses or
    /// sequence numbers.
    #[cold]
    fn is_ended_by_change<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        vip: &Vip,
        class: Class,
    ) -> bool {
        if !self.has_unfit_session(headers, &flow.tuple(), vip) {
            return false;
        }
        if is_opening(headers.tcp_flags) {
            self.clear_session(&flow.tuple(), class);
            return false;
        }
        self.records.remove(flow);
        let index = self.snapshot.service(vip.address, vip.port, vip.protocol);
        self.end_without_session(packet, headers, index.unwrap_or_default());
        true
    }

    /// Resets a connection that cannot continue without its session.
    fn end_without_session(&mut self, packet: &mut Packet, headers: &Headers, vip: usize) {
        if let Some(frame) = Frame::reset(packet.bytes(), headers) {
            self.link.out.emit(packet.port(), frame.bytes());
        }
        self.refuse(packet, Some(vip), Event::NoSession);
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

/// Tells whether the flags are those of a SYN that opens a connection.
#[inline]
pub(crate) fn is_opening(flags: u8) -> bool {
    flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST | tcp_flags::FIN) == tcp_flags::SYN
}
