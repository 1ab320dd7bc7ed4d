//! Health checks: a small TCP client inside the function, since its ports have no sockets.
//!
//! A check is a connection from one of the function's own addresses to the backend's, not through a tunnel. It always ends with a reset. Its
//! progress is a [`Probe`] in the backend's record, so checks survive a move. A [`Check`] changes only the probe and the backend's health: it
//! returns the segments to send ([`Link::send_segment`](crate::link::Link::send_segment)), and whether the health changed.

use bytemuck::{Pod, Zeroable};
use nf_packet::{tcp_flags, Tcp};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    config::{Health, HealthKind},
    frames::Segment,
};

/// The first local port of health checks; the ports below are free for other uses.
pub const FIRST_PORT: u16 = 61_000;

/// The number of port pairs. A backend alternates between the two ports of its pair; backends whose numbers differ by a multiple of `PAIRS` share one.
const PAIRS: u16 = (u16::MAX - FIRST_PORT) / 2;

/// The time in which the first check of a backend does not time out unless the backend has answered: three requests for its MAC address, a second apart
/// (RFC 4861, 10). A function starts before its ports are connected, and would take its backends for dead otherwise.
const FIRST_CONTACT: u64 = 3_000_000_000;

/// The health of a backend that is not checked yet; it takes connections.
pub const UNKNOWN: u8 = 0;
pub const UP: u8 = 1;
pub const DOWN: u8 = 2;

/// The phase of a health check.
mod phase {
    pub const IDLE: u8 = 0;
    pub const SYN_SENT: u8 = 1;
    pub const REQUEST_SENT: u8 = 2;
}

/// The progress of a health check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Probe {
    /// [`phase`]
    phase: u8,
    /// 1 if the check has had its second time.
    is_extended: u8,
    /// Consecutive checks whose result contradicts the backend's health.
    streak: u16,
    local_port: u16,
    status: u16,
    /// The sequence number of the check's SYN.
    sequence: u32,
    /// The next sequence number expected from the backend.
    expected: u32,
    /// Three deadlines: the check fails; it retransmits; the next one starts.
    deadline: u64,
    resend: u64,
    next: u64,
}

/// A backend's health, as its record in the arena has it.
pub struct Record<'a> {
    /// [`UNKNOWN`], [`UP`] or [`DOWN`].
    pub health: &'a mut u8,
    pub probe: &'a mut Probe,
}

/// The check of one backend.
#[derive(Clone, Copy)]
pub struct Check<'a> {
    /// The backend's number, which chooses the local ports.
    pub number: u16,
    pub settings: &'a Health,
    /// The Host header where the settings name none.
    pub host: &'a str,
    /// The User-Agent header.
    pub agent: &'a str,
}

/// The result of a step.
#[derive(Default)]
pub struct Step {
    /// The segments to send to the backend, in order, from the probe's [local port](Probe::local_port).
    pub segments: Vec<Segment>,
    /// Whether the backend has come up or gone down.
    pub has_changed: bool,
}

/// Returns the numbers of the backends whose checks use a local port.
pub fn numbers_at(port: u16) -> impl Iterator<Item = u16> {
    let pair = port.checked_sub(FIRST_PORT).map(|offset| offset / 2);
    let first = pair.filter(|pair| *pair < PAIRS);
    first
        .into_iter()
        .flat_map(|first| (first..=u16::MAX).step_by(PAIRS.into()))
}

impl Check<'_> {
    /// Starts a check that is due, retransmits, and times out.
    pub fn step(&self, record: &mut Record<'_>, now: u64) -> Step {
        let probe = &mut *record.probe;
        if probe.phase == phase::IDLE {
            if now < probe.next {
                return Step::default();
            }
            self.start(probe, now);
        }
        if *record.health == UNKNOWN && self.seeks(probe, now) {
            probe.deadline = probe.deadline.max(now + self.settings.timeout.nanos());
        }
        if now >= probe.deadline && self.was_held_up(probe, now) {
            probe.is_extended = 1;
            probe.deadline = now + self.settings.timeout.nanos();
        }
        if now >= probe.deadline {
            // The backend may or may not have received the request, and accepts a reset only at exactly the next sequence number (RFC 5961, 3.2).
            let first = probe.sequence.wrapping_add(1);
            let request = self.request(probe).payload.len() as u32;
            let segments = vec![probe.reset(first), probe.reset(first.wrapping_add(request))];
            let has_changed = self.judge(record, false);
            return Step {
                segments,
                has_changed,
            };
        }
        if now < probe.resend {
            return Step::default();
        }
        probe.resend = now + self.pause();
        Step::sends(match probe.phase {
            phase::SYN_SENT => probe.syn(),
            _ => self.request(probe),
        })
    }

    /// Tells whether a check has had no answer, and is young enough for a first contact.
    fn seeks(&self, probe: &Probe, now: u64) -> bool {
        let begun = probe.next.saturating_sub(self.settings.interval.nanos());
        probe.phase == phase::SYN_SENT && now < begun + FIRST_CONTACT
    }

    /// Tells whether the function itself did not run when a retransmission was due (its process was stopped, or had no CPU, or moved), so that the answer may
    /// still wait at its port. True once in a check: a function that seldom runs must find a dead backend, too.
    fn was_held_up(&self, probe: &Probe, now: u64) -> bool {
        probe.is_extended == 0 && now > probe.resend + self.pause()
    }

    /// Returns the time between two transmissions.
    fn pause(&self) -> u64 {
        (self.settings.timeout.nanos() / 3).max(1)
    }

    fn start(&self, probe: &mut Probe, now: u64) {
        let pair = FIRST_PORT + (self.number % PAIRS) * 2;
        let second = u16::from(probe.local_port == pair);
        let seed = [now.to_le_bytes(), u64::from(self.number).to_le_bytes()].concat();
        probe.phase = phase::SYN_SENT;
        probe.is_extended = 0;
        probe.local_port = pair + second;
        probe.sequence = xxh3_64(&seed) as u32;
        probe.deadline = now + self.settings.timeout.nanos();
        probe.next = now + self.settings.interval.nanos();
        probe.resend = now;
    }

    /// Advances the check by a segment from the backend to a local port.
    pub fn answer(&self, record: &mut Record<'_>, port: u16, tcp: &Tcp<&[u8]>) -> Step {
        let probe = &mut *record.probe;
        if probe.phase == phase::IDLE || probe.local_port != port {
            return Step::default();
        }
        let flags = tcp.flags();
        let acknowledges_syn = tcp.acknowledgement() == probe.sequence.wrapping_add(1);
        let has = |flag: u8| flags & flag != 0;
        if has(tcp_flags::RST) {
            let is_ours = has(tcp_flags::ACK) && acknowledges_syn
                || probe.phase == phase::REQUEST_SENT && tcp.sequence() == probe.expected;
            return Step {
                segments: Vec::new(),
                has_changed: is_ours && self.judge(record, false),
            };
        }
        if has(tcp_flags::SYN) {
            if !has(tcp_flags::ACK) || !acknowledges_syn {
                return Step::default();
            }
            probe.expected = tcp.sequence().wrapping_add(1);
            if self.settings.kind == HealthKind::Http {
                probe.phase = phase::REQUEST_SENT;
                return Step::sends(self.request(probe));
            }
        } else if probe.phase == phase::REQUEST_SENT {
            // Too short for the status: left unacknowledged, so that the backend sends it again with more.
            let is_short = tcp.payload().len() < STATUS_LINE && !has(tcp_flags::FIN);
            if tcp.sequence() != probe.expected || is_short {
                return Step::default();
            }
            probe.status = status(tcp.payload()).unwrap_or(0);
        } else {
            // The backend still has an old connection: reset it. The SYN is retransmitted later (RFC 9293, 3.5.1).
            probe.resend = 0;
            return Step::sends(probe.reset(tcp.acknowledgement()));
        }
        let is_good =
            self.settings.kind == HealthKind::Tcp || self.settings.status.contains(&probe.status);
        let segment = probe.reset(tcp.acknowledgement());
        Step {
            has_changed: self.judge(record, is_good),
            ..Step::sends(segment)
        }
    }

    /// Counts a result; enough of them in a row change the backend's health. Returns whether it changed.
    fn judge(&self, record: &mut Record<'_>, is_good: bool) -> bool {
        record.probe.phase = phase::IDLE;
        let result = if is_good { UP } else { DOWN };
        if *record.health == result {
            record.probe.streak = 0;
            return false;
        }
        record.probe.streak = record.probe.streak.saturating_add(1);
        let needed = match (*record.health, is_good) {
            // The first check decides alone.
            (UNKNOWN, _) => 1,
            (_, true) => self.settings.rise,
            (_, false) => self.settings.fall,
        };
        let has_changed = record.probe.streak >= needed;
        if has_changed {
            *record.health = result;
            record.probe.streak = 0;
        }
        has_changed
    }

    fn request(&self, probe: &Probe) -> Segment {
        let text = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {}\r\nConnection: close\r\n\r\n",
            self.settings.path,
            self.settings.host.as_deref().unwrap_or(self.host),
            self.agent,
        );
        Segment {
            sequence: probe.sequence.wrapping_add(1),
            acknowledgement: probe.expected,
            flags: tcp_flags::ACK | tcp_flags::PSH,
            payload: text.into_bytes(),
        }
    }
}

impl Step {
    fn sends(segment: Segment) -> Self {
        Self {
            segments: vec![segment],
            has_changed: false,
        }
    }
}

impl Probe {
    /// Returns the port from which the check's segments come.
    #[must_use]
    pub fn local_port(&self) -> u16 {
        self.local_port
    }

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
    use super::*;

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

    #[test]
    fn a_port_leads_back_to_the_numbers_that_use_it() {
        let settings: Health = serde_json::from_str(r#"{"kind": "tcp"}"#).unwrap();
        for number in [0, 1, PAIRS - 1, PAIRS, 40_000, u16::MAX] {
            let check = Check {
                number,
                settings: &settings,
                host: "web",
                agent: "test",
            };
            let (mut health, mut probe) = (UNKNOWN, Probe::default());
            let mut ports = Vec::new();
            for round in 1..3 {
                let mut record = Record {
                    health: &mut health,
                    probe: &mut probe,
                };
                let step = check.step(&mut record, round * 60_000_000_000);
                assert_eq!(step.segments[0].flags, tcp_flags::SYN);
                ports.push(probe.local_port());
                assert!(numbers_at(probe.local_port()).any(|each| each == number));
                assert!(numbers_at(probe.local_port()).all(|each| each % PAIRS == number % PAIRS));
                // Ends the check.
                check.judge(
                    &mut Record {
                        health: &mut health,
                        probe: &mut probe,
                    },
                    true,
                );
            }
            assert_eq!((ports[0] ^ ports[1], ports[0] & 1), (1, 0), "{ports:?}");
        }
        assert_eq!(numbers_at(FIRST_PORT - 1).count(), 0);
        assert_eq!(numbers_at(u16::MAX).count(), 0);
    }
}
