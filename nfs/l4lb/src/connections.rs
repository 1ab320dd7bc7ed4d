//! Opens connections, moves them to other backends, and ends them.

use std::sync::atomic::Ordering;

use nf_packet::{protocol, tcp_flags, Headers};
use nf_runtime::Packet;
use nf_tables::{Class, Entry, Full};

use crate::{events::Event, flow::Flow, frames::Frame, pass::Pass, snapshot::Vip};

impl Pass<'_> {
    /// Handles a packet without a record: the first of a connection, or one whose record is gone.
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
        // Mid-connection without a record, or a SYN that gets none: every load balancer must choose the same.
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
        // A reset needs no record.
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
                // Without a record, later packets must lead to the same choice.
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

    /// Replaces a connection's backend that is gone or down, or that does not take this new connection.
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
            // Packets must not keep a record of a removed backend alive, since its number will be reused.
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

    /// Chooses by the VIP's algorithm. The choice is recorded, so it need not be repeatable.
    fn choose(&self, vip: &Vip, hash: u64) -> Option<u16> {
        use crate::config::Algorithm;
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

    /// Resets a connection that cannot continue without its session.
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

/// Tells whether the flags are those of a SYN that opens a connection.
#[inline]
pub(crate) fn is_opening(flags: u8) -> bool {
    flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST | tcp_flags::FIN) == tcp_flags::SYN
}
