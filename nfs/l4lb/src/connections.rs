//! Connections that begin, change their backend, and end.

use std::sync::atomic::Ordering;

use nf_packet::{protocol, tcp_flags, Ethernet, Headers};
use nf_runtime::Packet;
use nf_tables::{Class, ConnectionTable, Entry, Insertion};

use crate::{events::Event, flow::Flow, frames::Frame, pass::Pass, snapshot::Vip, state::traffic};

impl Pass<'_> {
    /// The first packet of a connection, or one whose record is gone.
    pub(crate) fn first<F: Flow>(&mut self, packet: &mut Packet, headers: &Headers, flow: &F) {
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
        let flooded = opening && self.state.half_open.get(vip.row) >= vip.half_open_limit;
        if flooded && vip.has_sessions() {
            return self.refuse(packet, Some(index), Event::HalfOpenLimit);
        }
        // In the middle of a connection, and without a record to come: whoever chooses must choose the same.
        let must_agree = flooded || (is_tcp && !opening);
        let chosen = if must_agree {
            vip.maglev.choose(hash)
        } else {
            self.choose(vip, hash)
        };
        let Some(number) = chosen else {
            return self.refuse(packet, Some(index), Event::NoBackend);
        };
        if flooded {
            if vip.needs_no_records() {
                self.flooded.store(true, Ordering::Relaxed);
            }
            self.count(Some(index), Event::Unrecorded);
            return self.send_to_backend(packet, headers, flow, number);
        }
        // A reset of a connection that nobody knows needs no record.
        if is_tcp && headers.tcp_flags & tcp_flags::RST != 0 {
            return self.send_to_backend(packet, headers, flow, number);
        }
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
        match F::table(self.state).insert(flow, entry, &self.now) {
            Ok(Insertion::Existing(entry)) => return self.known(packet, headers, flow, entry),
            Ok(Insertion::Inserted { expired }) => {
                if let Some(expired) = expired {
                    self.ended(expired);
                }
                self.began(vip, number, class);
            }
            Err(_) if vip.has_sessions() => {
                return self.refuse(packet, Some(index), Event::TableFull)
            }
            Err(_) => {
                self.count(Some(index), Event::TableFull);
                // Without a record the choice must be one that can be made again.
                let number = vip.maglev.choose(hash).unwrap_or(number);
                return self.send_to_backend(packet, headers, flow, number);
            }
        }
        if vip.has_sessions() && !self.open_session(packet, headers, flow, vip, number) {
            self.forget(flow);
            return self.refuse(packet, Some(index), Event::SessionsFull);
        }
        if vip.mode == crate::config::Mode::Nat {
            self.learn_client(packet, headers);
        }
        self.send_to_backend(packet, headers, flow, number);
    }

    /// The connection's backend is gone or down, or takes no new connections and this is one.
    pub(crate) fn choose_again<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        seen: Entry,
    ) {
        let snapshot = self.snapshot;
        let (address, port) = flow.destination();
        let Some(index) = snapshot.service(address, port, flow.protocol()) else {
            self.forget(flow);
            return self.not_ours(packet, headers);
        };
        let vip = &snapshot.vips[index];
        // Somebody else may have chosen since it was looked up: a packet before this one in the batch.
        let current = F::table(self.state).lookup(flow, &self.now);
        if let Some(entry) = current.filter(|entry| entry.value != seen.value) {
            return self.send_to_backend(packet, headers, flow, entry.value);
        }
        let opening = flow.protocol() != protocol::TCP || is_opening(headers.tcp_flags);
        if vip.has_sessions() && !opening {
            self.forget(flow);
            return self.end_without_session(packet, headers, index);
        }
        let hash = flow.flow_hash();
        let chosen = if opening {
            self.choose(vip, hash)
        } else {
            vip.maglev.choose(hash)
        };
        let Some(number) = chosen else {
            return self.refuse(packet, Some(index), Event::NoBackend);
        };
        self.count(Some(index), Event::Moved);
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
        if let Some(old) = F::table(self.state).update(flow, entry, &self.now) {
            self.ended(old);
            self.began(vip, number, class);
        }
        if vip.has_sessions() && !self.open_session(packet, headers, flow, vip, number) {
            self.forget(flow);
            return self.refuse(packet, Some(index), Event::SessionsFull);
        }
        self.send_to_backend(packet, headers, flow, number);
    }

    /// By the VIP's own rule. The choice is recorded, so it need not be the same again.
    fn choose(&self, vip: &Vip, hash: u64) -> Option<u16> {
        use crate::config::Algorithm;
        match vip.algorithm {
            Algorithm::Maglev => vip.maglev.choose(hash),
            Algorithm::RoundRobin => {
                let length = vip.turns.len().max(1) as u64;
                let turn = self.state.turns.add(self.worker, vip.row, 1) % length;
                vip.turns.get(turn as usize).copied()
            }
            Algorithm::LeastLoaded => {
                // Connections per weight, compared by cross multiplication; of equal ones the first from a place that the flow says.
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

    fn began(&self, vip: &Vip, number: u16, class: Class) {
        self.state.active.add(self.worker, number.into(), 1);
        if class == Class::Opening {
            self.state.half_open.add(self.worker, vip.row, 1);
        }
        self.state
            .traffic
            .add(self.worker, number.into(), traffic::CONNECTIONS, 1);
    }

    /// A record is gone, or names another backend now.
    pub(crate) fn ended(&self, entry: Entry) {
        self.state
            .active
            .subtract(self.worker, entry.value.into(), 1);
        if entry.class == Class::Opening {
            if let Some(row) = self.row_of(entry.value) {
                self.state.half_open.subtract(self.worker, row, 1);
            }
        }
    }

    /// The row of a backend's VIP, also of a backend that is not in the configuration any more.
    fn row_of(&self, number: u16) -> Option<usize> {
        if let Some(backend) = self.snapshot.backend_at(number) {
            return Some(self.snapshot.vips[backend.vip].row);
        }
        let record = self.state.backends.get(number.into());
        self.state.vips.iter().position(|vip| {
            (vip.address, vip.port, vip.protocol)
                == (record.vip_address, record.vip_port, record.vip_protocol)
        })
    }

    fn forget<F: Flow>(&self, flow: &F) {
        if let Some(entry) = F::table(self.state).remove(flow, &self.now) {
            self.ended(entry);
        }
    }

    /// A segment in the middle of a connection that cannot go on: the client is told.
    pub(crate) fn end_without_session(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        vip: usize,
    ) {
        if let Some(frame) = Frame::reset(packet.bytes(), headers) {
            self.out.emit(packet.port(), frame.bytes());
        }
        self.refuse(packet, Some(vip), Event::NoSession);
    }

    /// A client on a link of ours will be answered there.
    fn learn_client(&self, packet: &Packet, headers: &Headers) {
        let source = headers.source(packet.bytes());
        if let Ok(ethernet) = Ethernet::new_checked(packet.bytes()) {
            self.learn(source, ethernet.source(), packet.port());
        }
    }
}

/// A SYN that opens a connection, and nothing else.
#[inline]
pub(crate) fn is_opening(flags: u8) -> bool {
    flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST | tcp_flags::FIN) == tcp_flags::SYN
}
