//! Health checks: a small TCP client inside the load balancer, since its ports have no sockets.
//!
//! A check is a connection from one of the load balancer's own addresses to the backend's, not through the tunnel. It always ends with a reset. The
//! backend's record holds its progress, so checks survive a move.

use std::net::IpAddr;

use nf_balancing::{
    config::{Health, HealthKind},
    frames::Frame,
    link::TAKEN,
};
use nf_packet::{tcp_flags, Headers, Tcp};
use nf_runtime::Packet;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    events::Event,
    pass::Pass,
    snapshot::Backend,
    source_nat::FIRST_HEALTH_PORT,
    state::{health, phase, BackendRecord, Probe},
};

/// The number of port pairs. A backend alternates between the two ports of its pair; backends whose numbers differ by a multiple of `PAIRS` share one.
const PAIRS: u16 = (u16::MAX - FIRST_HEALTH_PORT) / 2;

/// The next segment of a check: sequence number, acknowledgement, flags, payload.
struct Segment {
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    payload: Vec<u8>,
}

impl Pass<'_> {
    /// Starts checks, retransmits, and times checks out.
    pub(crate) fn check_health(&mut self) {
        let now = self.link.context.now();
        let snapshot = self.snapshot;
        let checks = self.checks;
        for vip in &snapshot.vips {
            let Some(health) = &vip.health else {
                continue;
            };
            for number in &vip.backends {
                let Some(backend) = snapshot.backend_at(*number) else {
                    continue;
                };
                let _lock = checks.lock();
                let mut record = self.state.backends.get(usize::from(*number));
                let before = record;
                self.step(*number, backend, health, &mut record, now);
                if record != before {
                    self.state.backends.put(usize::from(*number), &record);
                }
            }
        }
    }

    fn step(
        &mut self,
        number: u16,
        backend: &Backend,
        health: &Health,
        record: &mut BackendRecord,
        now: u64,
    ) {
        let probe = &mut record.probe;
        if probe.phase == phase::IDLE {
            if now < probe.next {
                return;
            }
            let pair = (number % PAIRS) * 2;
            let second = u16::from(probe.local_port == FIRST_HEALTH_PORT + pair);
            let seed = [now.to_le_bytes(), u64::from(number).to_le_bytes()].concat();
            probe.phase = phase::SYN_SENT;
            probe.local_port = FIRST_HEALTH_PORT + pair + second;
            probe.sequence = xxh3_64(&seed) as u32;
            probe.deadline = now + health.timeout.nanos();
            probe.next = now + health.interval.nanos();
            probe.resend = now;
        }
        if now >= probe.deadline {
            // The backend may or may not have received the request, and accepts a reset only at exactly the next sequence number (RFC 5961, 3.2).
            let name = &self.snapshot.vips[backend.vip].name;
            let first = probe.sequence.wrapping_add(1);
            let request = probe.request(health, name).payload.len() as u32;
            for sequence in [first, first.wrapping_add(request)] {
                let segment = probe.reset(sequence);
                self.send_segment(backend, health, probe.local_port, &segment);
            }
            return self.judge(health, record, false);
        }
        if now >= probe.resend {
            probe.resend = now + (health.timeout.nanos() / 3).max(1);
            let segment = match probe.phase {
                phase::SYN_SENT => probe.syn(),
                _ => probe.request(health, &self.snapshot.vips[backend.vip].name),
            };
            self.send_segment(backend, health, probe.local_port, &segment);
        }
    }

    /// Counts a result; enough of them in a row change the backend's health.
    fn judge(&self, health: &Health, record: &mut BackendRecord, is_good: bool) {
        record.probe.phase = phase::IDLE;
        let result = if is_good { health::UP } else { health::DOWN };
        if record.health == result {
            record.probe.streak = 0;
            return;
        }
        record.probe.streak = record.probe.streak.saturating_add(1);
        let needed = match (record.health, is_good) {
            // The first check decides alone.
            (health::UNKNOWN, _) => 1,
            (_, true) => health.rise,
            (_, false) => health.fall,
        };
        if record.probe.streak >= needed {
            record.health = result;
            record.probe.streak = 0;
            self.checks.note_change();
        }
    }

    fn send_segment(
        &mut self,
        backend: &Backend,
        health: &Health,
        local_port: u16,
        segment: &Segment,
    ) {
        let interface = backend.way.interface;
        let local: Option<IpAddr> = self.snapshot.local_address(backend);
        let (Some(local), Some(mac)) = (local, backend.way.mac()) else {
            return self.link.solicit(backend.way.next, interface);
        };
        let frame = Frame::tcp(
            (self.link.mac(interface), mac),
            (local, local_port),
            (backend.address, health.port.unwrap_or(backend.port)),
            (segment.sequence, segment.acknowledgement),
            segment.flags,
            &segment.payload,
        );
        if let Some(frame) = frame {
            self.link.out.emit(interface, frame.bytes());
        }
    }

    /// Handles a TCP packet to one of the load balancer's own addresses.
    pub(crate) fn health_answer(&mut self, packet: &mut Packet, headers: &Headers) {
        let port = headers.destination_port;
        let source = headers.source(packet.bytes());
        let snapshot = self.snapshot;
        let first = port.wrapping_sub(FIRST_HEALTH_PORT) / 2;
        let numbers = (0..u16::MAX / PAIRS + 1)
            .map(|turn| u32::from(first) + u32::from(turn) * u32::from(PAIRS));
        let mut found = None;
        for number in numbers.filter_map(|number| u16::try_from(number).ok()) {
            let Some(backend) = snapshot.backend_at(number) else {
                continue;
            };
            let Some(health) = &snapshot.vips[backend.vip].health else {
                continue;
            };
            let from = (backend.address, health.port.unwrap_or(backend.port));
            if port >= FIRST_HEALTH_PORT && from == (source, headers.source_port) {
                found = Some((number, backend, health));
                break;
            }
        }
        let Some((number, backend, health)) = found else {
            return self.refuse(packet, None, Event::NotForUs);
        };
        let checks = self.checks;
        let _lock = checks.lock();
        let mut record = self.state.backends.get(usize::from(number));
        if record.probe.local_port == port && record.probe.phase != phase::IDLE {
            if let Ok(tcp) = Tcp::new_checked(headers.segment(packet.bytes())) {
                self.advance(backend, health, &mut record, &tcp);
                self.state.backends.put(usize::from(number), &record);
            }
        }
        packet.drop_for(TAKEN);
    }

    /// Advances a check by a segment from the backend.
    fn advance(
        &mut self,
        backend: &Backend,
        health: &Health,
        record: &mut BackendRecord,
        tcp: &Tcp<&[u8]>,
    ) {
        let flags = tcp.flags();
        let probe = &mut record.probe;
        let acknowledges_syn = tcp.acknowledgement() == probe.sequence.wrapping_add(1);
        let has = |flag: u8| flags & flag != 0;
        if has(tcp_flags::RST) {
            let is_ours = has(tcp_flags::ACK) && acknowledges_syn
                || probe.phase == phase::REQUEST_SENT && tcp.sequence() == probe.expected;
            if is_ours {
                self.judge(health, record, false);
            }
            return;
        }
        let segment = if has(tcp_flags::SYN) {
            if !has(tcp_flags::ACK) || !acknowledges_syn {
                return;
            }
            probe.expected = tcp.sequence().wrapping_add(1);
            match health.kind {
                HealthKind::Tcp => probe.reset(tcp.acknowledgement()),
                HealthKind::Http => {
                    probe.phase = phase::REQUEST_SENT;
                    probe.request(health, &self.snapshot.vips[backend.vip].name)
                }
            }
        } else if probe.phase == phase::REQUEST_SENT && tcp.sequence() == probe.expected {
            // Too short for the status: left unacknowledged, so that the backend sends it again with more.
            if tcp.payload().len() < STATUS_LINE && !has(tcp_flags::FIN) {
                return;
            }
            probe.status = status(tcp.payload()).unwrap_or(0);
            probe.reset(tcp.acknowledgement())
        } else if probe.phase == phase::SYN_SENT {
            // The backend still has an old connection: reset it. The SYN is retransmitted later (RFC 9293, 3.5.1).
            let segment = probe.reset(tcp.acknowledgement());
            probe.resend = 0;
            let local_port = probe.local_port;
            return self.send_segment(backend, health, local_port, &segment);
        } else {
            return;
        };
        let local_port = probe.local_port;
        let goes_on = probe.phase == phase::REQUEST_SENT && has(tcp_flags::SYN);
        let is_good = health.kind == HealthKind::Tcp || health.status.contains(&probe.status);
        self.send_segment(backend, health, local_port, &segment);
        if !goes_on {
            self.judge(health, record, is_good);
        }
    }
}

impl Probe {
    fn syn(&self) -> Segment {
        Segment {
            sequence: self.sequence,
            acknowledgement: 0,
            flags: tcp_flags::SYN,
            payload: Vec::new(),
        }
    }

    /// Builds a reset at the sequence number that the backend expects next.
    fn reset(&self, sequence: u32) -> Segment {
        Segment {
            sequence,
            acknowledgement: self.expected,
            flags: tcp_flags::RST | tcp_flags::ACK,
            payload: Vec::new(),
        }
    }

    fn request(&self, health: &Health, name: &str) -> Segment {
        let host = health.host.as_deref().unwrap_or(name);
        let text = format!(
            "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: nf-l4lb\r\nConnection: close\r\n\r\n",
            health.path
        );
        Segment {
            sequence: self.sequence.wrapping_add(1),
            acknowledgement: self.expected,
            flags: tcp_flags::ACK | tcp_flags::PSH,
            payload: text.into_bytes(),
        }
    }
}

/// The length of "HTTP/1.1 200".
const STATUS_LINE: usize = 12;

fn status(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn status_lines_are_parsed() {
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\n"), Some(204));
        assert_eq!(status(b"HTTP/1.0 503"), Some(503));
        for wrong in [
            "HTTP/2 200",
            "HTTP/1.1 2",
            "SSH-2.0-OpenSSH",
            "HTTP/1.1 abc",
            "",
        ] {
            assert_eq!(status(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
