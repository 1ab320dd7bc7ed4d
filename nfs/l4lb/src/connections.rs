//! Connections that begin, change their backend, and end.

use std::sync::atomic::Ordering;

use nf_packet::{protocol, tcp_flags, Headers};
use nf_runtime::Packet;
use nf_tables::{Class, Entry, Full};

use crate::{events::Event, flow::Flow, frames::Frame, pass::Pass, snapshot::Vip};

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
            vip.agreed(hash)
        } else {
            self.choose(vip, hash)
        };
        let Some(number) = chosen else {
            return self.refuse(packet, Some(index), Event::NoBackend);
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
        // A reset of a connection without a record needs none.
        if is_tcp && headers.tcp_flags & tcp_flags::RST != 0 {
            return self.send_to_backend(packet, headers, flow, entry);
        }
        match self.record(flow, entry) {
            Ok(None) => {}
            Ok(Some(entry)) => return self.known(packet, headers, flow, entry),
            Err(Full) if vip.has_sessions() => {
                return self.refuse(packet, Some(index), Event::TableFull)
            }
            Err(Full) => {
                self.count(Some(index), Event::TableFull);
                // Without a record the choice must be one that can be made again.
                let value = vip.agreed(hash).unwrap_or(number);
                return self.send_to_backend(packet, headers, flow, Entry { value, class });
            }
        }
        if vip.has_sessions() && !self.open_session(flow, vip, entry) {
            self.forget(flow);
            return self.refuse(packet, Some(index), Event::SessionsFull);
        }
        if vip.mode == crate::config::Mode::Nat {
            self.seek_client(packet.bytes(), headers);
        }
        self.send_to_backend(packet, headers, flow, entry);
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
        let opening = flow.protocol() != protocol::TCP || is_opening(headers.tcp_flags);
        if vip.has_sessions() && !opening {
            self.forget(flow);
            return self.end_without_session(packet, headers, index);
        }
        let hash = flow.flow_hash();
        let chosen = if opening {
            self.choose(vip, hash)
        } else {
            vip.agreed(hash)
        };
        let Some(number) = chosen else {
            // Packets must not keep a record that names a removed backend alive: its number will be another one's.
            if self.backend_of(flow, seen.value).is_none() {
                self.forget(flow);
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
        match self.replace(flow, seen, entry) {
            Ok(()) => self.count(Some(index), Event::Moved),
            Err(Some(current)) => return self.known(packet, headers, flow, current),
            Err(None) => return self.first(packet, headers, flow),
        }
        if vip.has_sessions() && !self.open_session(flow, vip, entry) {
            self.forget(flow);
            return self.refuse(packet, Some(index), Event::SessionsFull);
        }
        self.send_to_backend(packet, headers, flow, entry);
    }

    /// By the VIP's own rule. The choice is recorded, so it need not be the same again.
    fn choose(&self, vip: &Vip, hash: u64) -> Option<u16> {
        use crate::config::Algorithm;
        match vip.algorithm {
            Algorithm::Maglev => vip.agreed(hash),
            Algorithm::RoundRobin => vip.in_turn(self.state.turns.add(self.worker, vip.row, 1)),
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
}

/// A SYN that opens a connection, and nothing else.
#[inline]
pub(crate) fn is_opening(flags: u8) -> bool {
    flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST | tcp_flags::FIN) == tcp_flags::SYN
}
