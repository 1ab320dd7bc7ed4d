//! Segments of backends.

use nf_packet::tcp_flags;
use nf_runtime::state::SlabId;
use nf_splice::{
    segment::{is_after, length, Verdict},
    Map,
};

use crate::{
    answers::Fault,
    finish::End,
    pass::{Fate, Pass, Received},
    record::{framing, phase, Connection},
    segments::{Outgoing, Segment, ACK},
};

impl Pass<'_> {
    /// Handles a segment of a leg.
    pub(crate) fn backend_says(
        &mut self,
        connection: &mut Connection,
        index: usize,
        received: &mut Received<'_>,
    ) -> Fate {
        let segment = received.segment;
        if usize::from(connection.leg) != index {
            self.idle_leg_says(connection, index, &segment);
            return Fate::Stays;
        }
        if connection.legs[index].phase == phase::OPENING {
            self.opening_leg_says(connection, received.id, &segment);
            return self.proceed(connection, received.id);
        }
        match connection.answers.judge(&segment) {
            Verdict::Accept if connection.requests.is_plausible(&segment) => {}
            Verdict::Reset => {
                let fate = self.reset_by_backend(connection, received.id);
                return match fate {
                    Fate::Stays => self.proceed(connection, received.id),
                    Fate::Ends => Fate::Ends,
                };
            }
            Verdict::Drop => return Fate::Stays,
            Verdict::Challenge if connection.answers.is_probe(&segment) => {
                self.answer_probe_of_leg(connection);
                return Fate::Stays;
            }
            Verdict::Accept | Verdict::Challenge => {
                self.acknowledge_leg(connection);
                return Fate::Stays;
            }
        }
        if let Some(stamps) = segment.stamps {
            let _ = connection.to_client.show(stamps.value);
        }
        let leg = &connection.legs[index];
        let window = u32::from(segment.window) << leg.scale;
        let chunks = &self.tables.chunks;
        if connection
            .requests
            .acknowledged(chunks, segment.ack, window)
        {
            connection.retransmit_at = 0;
        }
        self.renew(connection);
        if segment.len > 0 || segment.has(tcp_flags::FIN) {
            let fate = self.take_answer_bytes(connection, received);
            if fate == Fate::Ends || self.release_answers(connection) == Fate::Ends {
                return Fate::Ends;
            }
        } else {
            let tells = connection.requests.acknowledgement() != connection.requests.told;
            if tells || !connection.is_idle() {
                self.relay_to_client(connection, received, false);
            }
        }
        self.pay_client(connection);
        self.proceed(connection, received.id)
    }

    /// Opens a leg by the backend's answer to the SYN.
    fn opening_leg_says(&mut self, connection: &mut Connection, id: SlabId, segment: &Segment) {
        let index = usize::from(connection.leg);
        let requests = &mut connection.requests;
        let is_ours = segment.has(ACK) && segment.ack == requests.top;
        if segment.has(tcp_flags::RST) {
            if is_ours {
                self.leg_failed(connection, id);
            }
            return;
        }
        if !segment.has(tcp_flags::SYN) || !is_ours {
            // The backend still has an old connection (RFC 9293, 3.5.1).
            if segment.has(ACK) {
                self.reset(connection.legs[index].tuple, segment.ack);
            }
            return;
        }
        requests.attempts = 0;
        // The window of a SYN is not scaled (RFC 7323, 2.2).
        requests.edge = segment.ack.wrapping_add(segment.window.into());
        let leg = &mut connection.legs[index];
        let offered = leg.options;
        leg.accept(segment);
        let lacking = offered & !leg.options;
        if lacking != 0 {
            let now = self.context.now();
            self.tables.backends.learn(leg.row, lacking, now);
        }
        let stamp = leg.stamp;
        connection.to_client.change(stamp);
        connection.retransmit_at = 0;
        if connection.busy != 0 {
            // The request was sent before, on another leg.
            connection.limit_at = self.now() + self.snapshot.config.timeouts.answer.nanos();
        }
        let first = segment.seq.wrapping_add(1);
        let answers = &mut connection.answers;
        answers.begin(first);
        // The SYN's window was not scaled, either.
        answers.tell(first, u16::MAX.into());
        answers.map = Map::between(first, answers.top);
    }

    /// Handles a segment of a leg that is not in use. Any segment of the backend there ends the leg.
    fn idle_leg_says(&mut self, connection: &mut Connection, index: usize, segment: &Segment) {
        let leg = connection.legs[index];
        let numbers = length(segment.flags, segment.len as u32);
        let is_reset = segment.has(tcp_flags::RST);
        let is_next = segment.seq == leg.next_from && (is_reset || segment.ack == leg.next_to);
        if leg.phase == phase::NONE || is_next && numbers == 0 && !is_reset {
            return;
        }
        if is_next {
            self.forget_leg(connection, index);
            if !is_reset {
                self.reset(leg.tuple, segment.ack);
            }
        } else if !is_reset {
            // A keep-alive probe, a repeated segment, or a forged one.
            let answers = &connection.answers;
            let room = answers.edge.wrapping_sub(answers.acked);
            self.acknowledge_idle_leg(&leg, connection.to_backend.own(), room);
        }
    }

    /// Answers a probe of the leg in use; only the client knows whether its window has opened again.
    fn answer_probe_of_leg(&mut self, connection: &mut Connection) {
        if connection.is_idle() {
            return self.acknowledge_leg(connection);
        }
        let segment = Outgoing {
            flags: ACK,
            seq: connection.answers.acked.wrapping_sub(1),
            ..Outgoing::default()
        };
        self.send_to_client(connection, segment);
    }

    fn reset_by_backend(&mut self, connection: &mut Connection, id: SlabId) -> Fate {
        let index = usize::from(connection.leg);
        if connection.is_idle() && connection.last == 0 {
            // Between two requests: the next one gets another leg.
            self.forget_leg(connection, index);
            return Fate::Stays;
        }
        if self.retry(connection, id) {
            return Fate::Stays;
        }
        if connection.awaits_answer() {
            self.forget_leg(connection, index);
            self.fail(connection, Fault::Reset);
            self.flush(connection);
            return Fate::Stays;
        }
        self.cut_short(connection, End::BackendReset);
        self.abandon(connection);
        Fate::Ends
    }

    /// Passes on the payload and the FIN of a backend's segment, and follows the answer.
    fn take_answer_bytes(
        &mut self,
        connection: &mut Connection,
        received: &mut Received<'_>,
    ) -> Fate {
        let segment = received.segment;
        let has_fin = segment.has(tcp_flags::FIN);
        if connection.answers.is_repeated(&segment, has_fin) {
            // The acknowledgement was lost.
            self.acknowledge_leg(connection);
            return Fate::Stays;
        }
        if connection.takes_of_answer(&segment) {
            return self.take_answer_parts(connection, received);
        }
        let payload = segment.payload(received.packet.bytes());
        let end = segment.end();
        let used = match self.follow_answer(connection, segment.seq, payload) {
            Ok(used) => used,
            Err(_) => {
                if connection.answered == 0 && connection.busy != 0 {
                    self.fail(connection, Fault::Malformed);
                    return Fate::Stays;
                }
                self.abandon(connection);
                return Fate::Ends;
            }
        };
        let answers = &mut connection.answers;
        if used < payload.len() {
            if answers.is_beyond_hole(segment.seq) {
                answers.keep(&self.tables.chunks, segment.seq, payload);
                self.report_answers(connection);
                return Fate::Stays;
            }
            // The backend continues after the end of its answer.
            self.abandon(connection);
            return Fate::Ends;
        }
        answers.saw(end);
        let in_order = !is_after(segment.seq, answers.told) || answers.seen == end;
        if has_fin && connection.is_idle() && connection.last == 0 {
            if in_order {
                let index = usize::from(connection.leg);
                let tuple = connection.legs[index].tuple;
                self.forget_leg(connection, index);
                self.reset(tuple, segment.ack);
            }
            return Fate::Stays;
        }
        let is_without_answer = connection.awaits_answer() && connection.answers.parse_at == end;
        if let Some(leg) = connection.leg().filter(|_| has_fin && is_without_answer) {
            let (index, tuple) = (usize::from(connection.leg), leg.tuple);
            if !self.retry(connection, received.id) {
                self.forget_leg(connection, index);
                self.fail(connection, Fault::Reset);
            }
            self.reset(tuple, segment.ack);
            return Fate::Stays;
        }
        if has_fin {
            connection.answers.saw(end.wrapping_add(1));
            connection.answers.has_fin = 1;
            connection.last = 1;
        }
        self.relay_to_client(connection, received, has_fin);
        Fate::Stays
    }

    /// Follows an answer over a segment's bytes. Returns how many of them may pass.
    pub(crate) fn follow_answer(
        &mut self,
        connection: &mut Connection,
        begin: u32,
        bytes: &[u8],
    ) -> Result<usize, Fault> {
        let mut used = 0;
        while used < bytes.len() {
            let answers = &mut connection.answers;
            let at = begin.wrapping_add(used as u32);
            if answers.framing != framing::HEAD {
                let passed = answers
                    .follow(at, &bytes[used..])
                    .map_err(|_| Fault::Malformed)?;
                used += passed;
                if passed == 0 || connection.answers.framing != framing::HEAD {
                    break;
                }
                continue;
            }
            let old = answers.parse_at.wrapping_sub(at) as i32;
            if old < 0 {
                break;
            }
            let old = (old as usize).min(bytes.len() - used);
            used += old;
            if used < bytes.len() {
                used += self.follow_answer_head(connection, &bytes[used..])?;
            }
        }
        Ok(used)
    }

    /// Handles the bytes of the backend that were kept, once their meaning is known.
    pub(crate) fn release_answers(&mut self, connection: &mut Connection) -> Fate {
        while let Some((begin, bytes)) = connection.answers.release(&self.tables.chunks) {
            let used = if connection.edits != 0 {
                self.answer_parts(connection, begin, &bytes).map(|_| ())
            } else {
                self.pass_kept_answer(connection, begin, &bytes)
            };
            if let Err(fault) = used {
                return self.end_wrong_answer(connection, fault);
            }
        }
        Fate::Stays
    }

    fn pass_kept_answer(
        &mut self,
        connection: &mut Connection,
        begin: u32,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let used = self.follow_answer(connection, begin, bytes)?;
        if used < bytes.len() {
            // The backend continues after the end of its answer.
            return Err(Fault::Malformed);
        }
        let end = begin.wrapping_add(used as u32);
        connection.answers.saw(end);
        self.pass_to_client(connection, begin, bytes, false);
        Ok(())
    }
}
