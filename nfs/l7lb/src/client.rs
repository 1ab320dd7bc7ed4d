//! Segments of clients.

use std::ops::ControlFlow;

use nf_packet::tcp_flags;
use nf_splice::segment::{is_after, Verdict};

use crate::{
    finish::End,
    pass::{Fate, Pass, Received},
    record::{framing, stage, Connection, Exchange},
    segments::{Outgoing, Segment, ACK},
    stream::Malformed,
};

impl Pass<'_> {
    /// Handles a segment of a known client.
    pub(crate) fn client_says(
        &mut self,
        connection: &mut Connection,
        received: &mut Received<'_>,
    ) -> Fate {
        let segment = received.segment;
        if let ControlFlow::Break(fate) = self.check_client(connection, &segment) {
            return fate;
        }
        if let Some(stamps) = segment.stamps {
            let _ = connection.to_backend.show(stamps.value);
        }
        let window = u32::from(segment.window) << connection.scale;
        let chunks = &self.tables.chunks;
        let answers = &mut connection.answers;
        if answers.acknowledged(chunks, segment.ack, window) && connection.has_open_leg() {
            connection.retransmit_at = 0;
        }
        self.renew(connection);
        if connection.stage == stage::CLOSING {
            return self.closing_client_says(connection, &segment);
        }
        if segment.len > 0 || segment.has(tcp_flags::FIN) {
            self.take_request_bytes(connection, received);
        } else {
            self.pass_acknowledgement(connection, received);
        }
        self.pay_leg(connection);
        let fate = self.proceed(connection, received.id);
        if segment.len > 0 {
            self.pass_on_acknowledgement(connection);
        }
        fate
    }

    /// Tells the leg what a segment has acknowledged whose bytes wait here.
    fn pass_on_acknowledgement(&mut self, connection: &mut Connection) {
        let answers = &connection.answers;
        if connection.has_open_leg() && answers.acknowledgement() != answers.told {
            self.acknowledge_leg(connection);
        }
    }

    /// Checks a segment's numbers (RFC 9293, 3.10.7.4; RFC 5961, 3 to 5).
    fn check_client(
        &mut self,
        connection: &mut Connection,
        segment: &Segment,
    ) -> ControlFlow<Fate> {
        match connection.requests.judge(segment) {
            Verdict::Accept if connection.answers.is_plausible(segment) => {
                return ControlFlow::Continue(());
            }
            Verdict::Reset => {
                self.cut_short(connection, End::ClientLeft);
                self.reset_legs(connection);
                return ControlFlow::Break(Fate::Ends);
            }
            Verdict::Drop => {}
            Verdict::Challenge if connection.requests.is_probe(segment) => {
                self.answer_probe(connection);
            }
            Verdict::Accept | Verdict::Challenge => self.acknowledge_client(connection),
        }
        ControlFlow::Break(Fate::Stays)
    }

    /// Answers a client's probe; only the backend knows whether its window has opened again.
    fn answer_probe(&mut self, connection: &mut Connection) {
        match connection.leg().copied() {
            Some(leg) if connection.has_open_leg() && !connection.is_idle() => {
                let segment = Outgoing {
                    flags: ACK,
                    seq: connection.requests.acked.wrapping_sub(1),
                    ..Outgoing::default()
                };
                self.send_on_leg(connection, &leg, segment);
            }
            _ => self.acknowledge_client(connection),
        }
    }

    /// Follows the end of a connection that the function closes.
    fn closing_client_says(&mut self, connection: &mut Connection, segment: &Segment) -> Fate {
        let is_quiet = connection.answers.is_quiet();
        let requests = &mut connection.requests;
        let has_fin = segment.has(tcp_flags::FIN);
        let news = segment.len > 0 || has_fin;
        if news && !is_after(segment.seq, requests.told) {
            // Further requests get no answer.
            let end = segment.end().wrapping_add(u32::from(has_fin));
            if is_after(end, requests.owned) {
                requests.owned = end;
            }
            requests.discard_all(&self.tables.chunks);
            requests.has_fin |= u8::from(has_fin);
        }
        let both = connection.requests.has_fin != 0 && is_quiet;
        if news {
            self.acknowledge_client(connection);
        }
        self.flush(connection);
        if both {
            Fate::Ends
        } else {
            Fate::Stays
        }
    }

    /// Takes or passes on the payload and the FIN of a client's segment.
    fn take_request_bytes(&mut self, connection: &mut Connection, received: &mut Received<'_>) {
        let segment = received.segment;
        let has_fin = segment.has(tcp_flags::FIN);
        if connection.requests.is_repeated(&segment, has_fin) {
            // The acknowledgement was lost.
            return self.acknowledge_client(connection);
        }
        let room = connection.requests.room(segment.seq);
        let is_whole = segment.len <= room && !connection.requests.owns(segment.seq, segment.len);
        if self.may_pass(connection) && is_whole {
            let payload = segment.payload(received.packet.bytes());
            match connection.requests.follow(segment.seq, payload) {
                Ok(used)
                    if used == payload.len()
                        && (used > 0 || self.is_next_fin(connection, &segment)) =>
                {
                    let end = segment.end().wrapping_add(u32::from(has_fin));
                    connection.requests.saw(end);
                    connection.requests.has_fin |= u8::from(has_fin);
                    self.relay_to_leg(connection, received, has_fin);
                    return self.release_requests(connection);
                }
                Ok(_) => {}
                Err(_) => return self.abandon(connection),
            }
        }
        self.take_parts(connection, received);
    }

    /// Tells whether a segment without bytes carries the FIN of all that the client has sent.
    fn is_next_fin(&self, connection: &Connection, segment: &Segment) -> bool {
        segment.has(tcp_flags::FIN) && !is_after(segment.seq, connection.requests.seen)
    }

    /// Handles a segment of which the function has taken a part, or takes one.
    fn take_parts(&mut self, connection: &mut Connection, received: &mut Received<'_>) {
        let segment = received.segment;
        let payload = segment.payload(received.packet.bytes());
        let before = (connection.requests.owned, connection.requests.top);
        if !self.take_run(connection, segment.seq, payload) {
            return;
        }
        self.release_requests(connection);
        let requests = &connection.requests;
        let end = segment.end();
        let is_last = segment.has(tcp_flags::FIN)
            && requests.framing == framing::ENDED
            && requests.held.is_empty()
            && requests.parse_at == end;
        if is_last && connection.busy == 0 {
            return self.client_leaves(connection, end);
        }
        if before == (requests.owned, requests.top) {
            if requests.kept.is_empty() {
                self.acknowledge_client(connection);
            } else {
                self.report_requests(connection);
            }
        }
    }

    /// Takes or passes on bytes from a source number on. Returns false if the connection ends.
    pub(crate) fn take_run(
        &mut self,
        connection: &mut Connection,
        first: u32,
        payload: &[u8],
    ) -> bool {
        let mut at = 0;
        while at < payload.len() {
            let begin = first.wrapping_add(at as u32);
            // A retransmission cannot change what the function has taken.
            let (owned, passing) = connection.requests.owner(begin, payload.len() - at);
            if owned > 0 {
                at += owned;
                continue;
            }
            let part = &payload[at..at + passing];
            let taken = match self.pass_part(connection, begin, part) {
                Ok(0) => self.hold(connection, begin, part),
                Ok(passed) => passed,
                Err(_) => {
                    self.abandon(connection);
                    return false;
                }
            };
            at += taken;
            let requests = &mut connection.requests;
            if taken == 0 && (requests.is_beyond_hole(begin) || requests.is_beyond_head(begin)) {
                requests.keep(&self.tables.chunks, begin, &payload[at..]);
            }
            if taken == 0 || connection.requests.edge == connection.requests.top {
                break;
            }
        }
        true
    }

    /// Passes on bytes that belong to the present body, as far as the backend's window allows. Returns their number.
    fn pass_part(
        &mut self,
        connection: &mut Connection,
        begin: u32,
        bytes: &[u8],
    ) -> Result<usize, Malformed> {
        if !self.may_pass(connection) {
            return Ok(0);
        }
        // The client's scale cannot express a window of a few bytes, and the backend refuses a segment that ends beyond it.
        let requests = &mut connection.requests;
        let room = requests.room(begin).min(bytes.len());
        let used = requests.follow(begin, &bytes[..room])?;
        if used > 0 {
            requests.saw(begin.wrapping_add(used as u32));
            self.send_to_leg(connection, begin, &bytes[..used]);
        }
        Ok(used)
    }

    /// Tells whether bytes of the present body go to the leg at once.
    fn may_pass(&self, connection: &Connection) -> bool {
        let is_open = connection.has_open_leg();
        let requests = &connection.requests;
        is_open && connection.busy != 0 && !requests.is_behind()
            || requests.framing == framing::OPAQUE
    }

    /// Holds bytes that follow directly those held before. Returns their number.
    fn hold(&mut self, connection: &mut Connection, at: u32, bytes: &[u8]) -> usize {
        let most = self.snapshot.config.limits.head;
        let requests = &mut connection.requests;
        let expected = if requests.held.is_empty() {
            requests.parse_at
        } else {
            requests.owned
        };
        let may_end = requests.framing == framing::ENDED || !requests.held.is_empty();
        if at != expected || bytes.is_empty() || !may_end {
            return 0;
        }
        if requests.held.is_empty() {
            connection.limit_at = self.now() + self.snapshot.config.timeouts.head.nanos();
            requests.searched = 0;
            if connection.busy == 0 {
                connection.exchange = Exchange::beginning(self.now());
            }
        }
        let room = most.saturating_sub(requests.held.len());
        let part = &bytes[..bytes.len().min(room)];
        let taken = requests.held.append(&self.tables.chunks, part);
        requests.owned = at.wrapping_add(taken as u32);
        requests.saw(requests.owned);
        taken
    }

    /// Passes a pure acknowledgement to the leg if it tells something.
    fn pass_acknowledgement(&mut self, connection: &mut Connection, received: &mut Received<'_>) {
        if connection.has_open_leg() {
            let answers = &connection.answers;
            let acknowledges = answers.acknowledgement() != answers.told;
            if acknowledges || !connection.is_idle() {
                self.relay_to_leg(connection, received, false);
            }
        }
    }

    /// Ends an idle connection whose client has sent its FIN.
    fn client_leaves(&mut self, connection: &mut Connection, fin: u32) {
        let requests = &mut connection.requests;
        requests.owned = fin.wrapping_add(1);
        requests.has_fin = 1;
        self.release_legs(connection);
        self.reset_legs(connection);
        connection.requests.discard_all(&self.tables.chunks);
        self.close(connection);
    }

    /// Handles the bytes of the client that were kept, once their meaning is known.
    pub(crate) fn release_requests(&mut self, connection: &mut Connection) {
        while let Some((begin, bytes)) = connection.requests.release(&self.tables.chunks) {
            if !self.take_run(connection, begin, &bytes) {
                return;
            }
        }
    }
}
