//! Tracks a TCP connection's position by the packets that pass, to tell its resets and FINs from forged ones (RFC 5961, 3 and 5).
//!
//! Every byte passes the load balancer, so a segment that its receiver can accept starts no later than what has passed, and ends no earlier than
//! what was acknowledged. After losses upstream a segment may lie beyond what has passed. Such a segment is not trusted, which is harmless: its
//! receiver also waits for what is missing. The backend's acknowledgements are trusted, so that both sides catch up.

use bytemuck::{Pod, Zeroable};
use nf_packet::{tcp_flags, Headers, Tcp};
use nf_splice::{segment::is_after, Map};
use nf_tables::Class;

/// The bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Progress {
    /// The first byte that the other side has not acknowledged.
    pub acknowledged: u32,
    /// The byte after the last one that has passed.
    pub passed: u32,
}

/// The session of a connection, keyed by the tuple of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Session {
    /// The load balancer's port toward the backend; 0: the client's own.
    pub local_port: u16,
    /// The length of the inserted header; 0: none.
    pub inserted: u16,
    /// The backend has acknowledged the header.
    pub acknowledged: u16,
    /// The backend has answered the SYN.
    pub answered: u16,
    /// The sequence number of the client's first byte.
    pub start: u32,
    pub reserved: u32,
    /// The last renewal of its entry in `clients`.
    pub renewed: u64,
    /// The progress of both sides, in the client's numbers.
    pub client: Progress,
    pub backend: Progress,
}

/// The sequence numbers of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    flags: u8,
    /// The first byte's; for a SYN, that of the byte after it.
    start: u32,
    /// The number after the last byte; a FIN counts as one.
    end: u32,
    acknowledgement: u32,
}

impl Segment {
    #[must_use]
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Self> {
        let tcp = Tcp::new_checked(headers.segment(frame)).ok()?;
        let has = |flag: u8| u32::from(tcp.flags() & flag != 0);
        let start = tcp.sequence().wrapping_add(has(tcp_flags::SYN));
        let length = tcp.payload().len() as u32 + has(tcp_flags::FIN);
        Some(Self {
            flags: tcp.flags(),
            start,
            end: start.wrapping_add(length),
            acknowledgement: tcp.acknowledgement(),
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Progress {
    const fn from(start: u32) -> Self {
        Self {
            acknowledged: start,
            passed: start,
        }
    }

    /// Tells whether a segment can belong to the connection.
    fn covers(&self, segment: &Segment) -> bool {
        !is_after(segment.start, self.passed) && !is_after(self.acknowledged, segment.end)
    }

    /// Tells whether a segment ends the connection, or this side of it.
    fn is_ended_by(&self, segment: &Segment) -> bool {
        if segment.has(tcp_flags::RST) {
            return self.covers(segment) && !is_after(self.acknowledged, segment.start);
        }
        segment.has(tcp_flags::FIN)
            && self.covers(segment)
            && is_after(segment.end, self.acknowledged)
    }

    fn pass(&mut self, segment: &Segment) {
        if self.covers(segment) && is_after(segment.end, self.passed) {
            self.passed = segment.end;
        }
    }

    fn acknowledge(&mut self, number: u32) {
        if is_after(number, self.acknowledged) {
            self.acknowledged = number;
        }
        if is_after(number, self.passed) {
            self.passed = number;
        }
    }
}

impl Session {
    /// Notes a client's segment; `class` is the record's after it.
    pub fn note_client(&mut self, segment: &Segment, class: Class) {
        if segment.has(tcp_flags::SYN) {
            // In an established connection a SYN may be forged: only the backend's answer can confirm it.
            if class == Class::Opening {
                self.begin(segment.start);
            }
            return;
        }
        if !self.client.covers(segment) {
            return;
        }
        self.client.pass(segment);
        if segment.has(tcp_flags::ACK) && self.is_answered() {
            self.backend.acknowledge(segment.acknowledgement);
        }
    }

    /// Notes a backend's segment, as the backend sent it.
    pub fn note_backend(&mut self, segment: &Segment) {
        let has_ack = segment.has(tcp_flags::ACK);
        if segment.has(tcp_flags::SYN) {
            let starts = has_ack && segment.acknowledgement != self.start;
            if starts {
                self.begin(segment.acknowledgement);
            }
            if starts || !self.is_answered() {
                self.backend = Progress::from(segment.start);
                self.answered = 1;
            }
            return;
        }
        if has_ack && self.is_answered() {
            let mut map = self.map();
            if map.settle(segment.acknowledgement) > 0 {
                self.acknowledged = 1;
            }
            self.client.acknowledge(map.back(segment.acknowledgement));
        }
        self.backend.pass(segment);
    }

    /// Tells whether a client's segment ends the connection.
    #[must_use]
    pub fn is_ended_by_client(&self, segment: &Segment) -> bool {
        self.client.is_ended_by(segment)
    }

    #[must_use]
    pub fn is_ended_by_backend(&self, segment: &Segment) -> bool {
        if self.is_answered() {
            return self.backend.is_ended_by(segment);
        }
        // The backend refuses the SYN.
        segment.has(tcp_flags::RST)
            && segment.has(tcp_flags::ACK)
            && segment.acknowledgement == self.start
    }

    /// Tells whether the backend has answered the SYN.
    const fn is_answered(&self) -> bool {
        self.answered != 0
    }

    /// Starts a connection whose client's first byte has this number.
    fn begin(&mut self, start: u32) {
        self.start = start;
        self.acknowledged = 0;
        self.answered = 0;
        self.client = Progress::from(start);
        self.backend = Progress::default();
    }

    /// Returns the map of the client's bytes: until the backend has acknowledged the header, it is an insertion before them.
    #[must_use]
    pub fn map(&self) -> Map {
        if self.acknowledged != 0 {
            return Map::with_delta(self.inserted.into());
        }
        let mut map = Map::default();
        // A new map has room for the only region.
        let _ = map.insert(self.start, 0, self.inserted.into());
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: u8, start: u32, length: u32, acknowledgement: u32) -> Segment {
        let fin = u32::from(flags & tcp_flags::FIN != 0);
        Segment {
            flags,
            start,
            end: start.wrapping_add(length + fin),
            acknowledgement,
        }
    }

    const ACK: u8 = tcp_flags::ACK;

    /// An established session: the client's first byte is `start`, the backend's 500.
    fn session(start: u32, inserted: u16) -> Session {
        let mut session = Session {
            inserted,
            ..Session::zeroed()
        };
        session.note_client(&segment(tcp_flags::SYN, start, 0, 0), Class::Opening);
        session.note_backend(&segment(tcp_flags::SYN | ACK, 500, 0, start));
        session.note_client(&segment(ACK, start, 0, 500), Class::Established);
        session
    }

    #[test]
    fn sequence_numbers_wrap() {
        let start = u32::MAX - 5;
        let mut session = session(start, 0);
        session.note_client(&segment(ACK, start, 10, 500), Class::Established);
        let at = |offset: u32| segment(tcp_flags::RST, start.wrapping_add(offset), 0, 0);
        for offset in [0, 3, 10] {
            assert!(session.is_ended_by_client(&at(offset)), "{offset}");
        }
        for offset in [11, 1 << 20, 1 << 31, u32::MAX] {
            assert!(!session.is_ended_by_client(&at(offset)), "{offset}");
        }
        session.note_backend(&segment(ACK, 500, 0, start.wrapping_add(10)));
        assert!(!session.is_ended_by_client(&at(9)));
        assert!(session.is_ended_by_client(&at(10)));
    }

    #[test]
    fn a_forged_segment_moves_nothing() {
        let mut session = session(1000, 0);
        let before = session;
        session.note_client(&segment(ACK, 50_000, 100, 90_000), Class::Established);
        session.note_client(&segment(tcp_flags::SYN, 7, 0, 0), Class::Established);
        session.note_client(&segment(ACK, 900, 50, 90_000), Class::Established);
        session.note_backend(&segment(0, 9_000, 100, 0));
        assert_eq!(session, before);
    }

    #[test]
    fn both_sides_catch_up_after_losses() {
        let mut session = session(1000, 0);
        // The first 100 bytes were lost upstream.
        session.note_client(&segment(ACK, 1100, 100, 500), Class::Established);
        let fin = segment(tcp_flags::FIN | ACK, 1200, 0, 500);
        assert!(!session.is_ended_by_client(&fin));
        session.note_client(&segment(ACK, 1000, 100, 500), Class::Established);
        session.note_backend(&segment(ACK, 500, 0, 1200));
        assert!(session.is_ended_by_client(&fin));
        // The same in the other direction.
        session.note_backend(&segment(ACK, 600, 100, 1200));
        let fin = segment(tcp_flags::FIN | ACK, 700, 0, 1200);
        assert!(!session.is_ended_by_backend(&fin));
        session.note_client(&segment(ACK, 1200, 0, 700), Class::Established);
        assert!(session.is_ended_by_backend(&fin));
    }

    #[test]
    fn a_fin_ends_the_connection_until_its_last_byte_is_acknowledged() {
        let mut session = session(1000, 0);
        let fin = segment(tcp_flags::FIN | ACK, 1000, 100, 500);
        session.note_client(&fin, Class::Established);
        session.note_backend(&segment(ACK, 500, 0, 1100));
        assert!(session.is_ended_by_client(&fin));
        session.note_backend(&segment(ACK, 500, 0, 1101));
        assert!(
            !session.is_ended_by_client(&fin),
            "the FIN was accepted already"
        );
    }

    #[test]
    fn acknowledgements_are_translated_to_the_clients_numbers() {
        let mut session = session(1000, 28);
        session.note_backend(&segment(ACK, 500, 0, 1020));
        assert_eq!(
            (session.acknowledged, session.client.acknowledged),
            (0, 1000)
        );
        session.note_client(&segment(ACK, 1000, 5, 500), Class::Established);
        session.note_backend(&segment(ACK, 500, 0, 1033));
        assert_eq!(
            (session.acknowledged, session.client.acknowledged),
            (1, 1005)
        );
    }

    #[test]
    fn acknowledgements_are_translated_beyond_two_gibibytes() {
        let mut session = session(1000, 28);
        for step in 1..=5_u32 {
            let sent = step.wrapping_mul(1 << 30).wrapping_sub(7);
            session.note_client(
                &segment(ACK, 1000_u32.wrapping_add(sent), 5, 500),
                Class::Established,
            );
            session.note_backend(&segment(ACK, 500, 0, 1028_u32.wrapping_add(sent)));
            assert_eq!(session.client.acknowledged, 1000_u32.wrapping_add(sent));
        }
    }

    #[test]
    fn a_repeated_answer_to_the_syn_moves_nothing() {
        let mut session = session(1000, 0);
        session.note_backend(&segment(ACK, 500, 300, 1000));
        let before = session;
        session.note_backend(&segment(tcp_flags::SYN | ACK, 500, 0, 1000));
        assert_eq!(session, before);
        // An answer to a new connection's SYN does.
        session.note_backend(&segment(tcp_flags::SYN | ACK, 9_000, 0, 70_000));
        assert_eq!((session.start, session.backend.passed), (70_000, 9_000));
    }

    #[test]
    fn only_a_reset_that_acknowledges_the_syn_refuses_it() {
        let mut session = Session::zeroed();
        session.note_client(&segment(tcp_flags::SYN, 1000, 0, 0), Class::Opening);
        let reset = |flags, acknowledgement| segment(flags, 0, 0, acknowledgement);
        assert!(session.is_ended_by_backend(&reset(tcp_flags::RST | ACK, 1000)));
        for (flags, acknowledgement) in [
            (tcp_flags::RST | ACK, 1001),
            (tcp_flags::RST, 1000),
            (tcp_flags::FIN | ACK, 1000),
        ] {
            assert!(!session.is_ended_by_backend(&reset(flags, acknowledgement)));
        }
    }
}
