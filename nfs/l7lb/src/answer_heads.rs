//! Heads of answers: the function follows them while they pass, or takes them if it adds lines.

use nf_http::{find_end, parse_response, Body, Response, ResponseBody};
use nf_packet::tcp_flags;
use nf_splice::segment::{is_after, is_before};

use crate::{
    answers::Fault,
    exchange::method,
    pass::{Fate, Pass, Received},
    record::{framing, Connection, Size},
    segments::Segment,
};

/// The regions of a map.
const REGIONS: usize = 2;

impl Connection {
    /// Tells whether a segment of the backend has bytes that the function takes, has taken, or cannot pass yet.
    pub(crate) fn takes_of_answer(&self, segment: &Segment) -> bool {
        let answers = &self.answers;
        self.edits != 0
            && (answers.framing == framing::HEAD
                || answers.is_behind()
                || answers.map.constant().is_none() && answers.owns(segment.seq, segment.len))
    }
}

impl Pass<'_> {
    /// Handles a segment of a backend of which the function takes a part: heads of answers that get lines.
    pub(crate) fn take_answer_parts(
        &mut self,
        connection: &mut Connection,
        received: &Received<'_>,
    ) -> Fate {
        let segment = received.segment;
        let payload = segment.payload(received.packet.bytes());
        let before = (connection.answers.owned, connection.answers.top);
        let used = match self.answer_parts(connection, segment.seq, payload) {
            Ok(used) => used,
            Err(fault) => return self.end_wrong_answer(connection, fault),
        };
        if used == payload.len() && segment.has(tcp_flags::FIN) {
            return self.take_answer_fin(connection, segment.end());
        }
        let answers = &mut connection.answers;
        let rest = segment.seq.wrapping_add(used as u32);
        if answers.is_beyond_hole(rest) {
            answers.keep(&self.tables.chunks, rest, &payload[used..]);
            self.report_answers(connection);
            return Fate::Stays;
        }
        let is_partial = answers.framing == framing::HEAD;
        if is_partial || before == (answers.owned, answers.top) {
            self.acknowledge_leg(connection);
        }
        Fate::Stays
    }

    /// Takes or passes bytes of a backend. Returns how many of them are done with; the others come again.
    pub(crate) fn answer_parts(
        &mut self,
        connection: &mut Connection,
        first: u32,
        payload: &[u8],
    ) -> Result<usize, Fault> {
        let mut at = 0;
        while at < payload.len() {
            let begin = first.wrapping_add(at as u32);
            let (owned, free) = connection.answers.owner(begin, payload.len() - at);
            if owned > 0 {
                at += owned;
                continue;
            }
            let part = &payload[at..at + free];
            let answers = &connection.answers;
            // Before the head, lost bytes of the answer before it may come again.
            let is_head = answers.framing == framing::HEAD && !is_before(begin, answers.parse_at);
            let taken = if is_head {
                self.take_answer_head(connection, begin, part)?
            } else {
                self.pass_answer_part(connection, begin, part)?
            };
            if taken == 0 {
                break;
            }
            at += taken;
        }
        Ok(at)
    }

    /// Takes bytes of a head, and sends it with its lines once it is whole. Returns how many of the bytes are done with.
    fn take_answer_head(
        &mut self,
        connection: &mut Connection,
        begin: u32,
        bytes: &[u8],
    ) -> Result<usize, Fault> {
        let chunks = &self.tables.chunks;
        let answers = &mut connection.answers;
        let before = answers.held.len();
        let expected = if before == 0 {
            answers.parse_at
        } else {
            answers.owned
        };
        if begin != expected || answers.map.regions().count() == REGIONS {
            return Ok(0);
        }
        let mut head = std::mem::take(&mut self.scratch.input);
        head.resize(before, 0);
        let _ = answers.held.read_at(chunks, 0, &mut head);
        head.extend_from_slice(bytes);
        let result = match find_end(&head, before) {
            None if head.len() > self.snapshot.head_limits.head_bytes => Err(Fault::Malformed),
            None if answers.held.append(chunks, bytes) < bytes.len() => Err(Fault::Unavailable),
            None => {
                answers.owned = begin.wrapping_add(bytes.len() as u32);
                answers.saw(answers.owned);
                Ok(bytes.len())
            }
            Some(end) => {
                answers.held.clear(chunks);
                let from = begin.wrapping_sub(before as u32);
                self.send_answer(connection, from, &head, end)
                    .map(|taken| taken - before)
            }
        };
        self.scratch.input = head;
        result
    }

    /// Sends a whole head, which begins at a source number, with its lines, and the bytes behind it that fit into the same segment.
    /// Returns how many of the bytes are taken.
    fn send_answer(
        &mut self,
        connection: &mut Connection,
        from: u32,
        bytes: &[u8],
        end: usize,
    ) -> Result<usize, Fault> {
        let (head, rest) = bytes.split_at(end);
        let response = parse_answer(connection, head)?;
        let given = if response.body == ResponseBody::Interim {
            self.scratch.output.clear();
            self.scratch.output.extend_from_slice(head);
            Some(head.len())
        } else {
            self.edit_answer(connection, &response.head)
        };
        let given = given.ok_or(Fault::Malformed)?;
        let after = from.wrapping_add(end as u32);
        self.begin_answer(connection, &response, after)?;
        let room = self.payload_to_client(connection).saturating_sub(given);
        let chunks = &self.tables.chunks;
        let answers = &mut connection.answers;
        let rest = &rest[..rest.len().min(room)];
        let more = answers.follow(after, rest).map_err(|_| Fault::Malformed)?;
        let taken = end + more;
        let region = (taken as u32, (given + more) as u32);
        let is_new = answers.map.insert(from, region.0, region.1).is_ok();
        let head = self.scratch.output.get(..given).unwrap_or_default();
        if !is_new || !answers.say(chunks, head) || !answers.say(chunks, &rest[..more]) {
            return Err(Fault::Unavailable);
        }
        answers.owned = from.wrapping_add(taken as u32);
        answers.saw(answers.owned);
        self.flush(connection);
        Ok(taken)
    }

    /// Passes bytes of a body on to the client. Returns their number.
    fn pass_answer_part(
        &mut self,
        connection: &mut Connection,
        begin: u32,
        bytes: &[u8],
    ) -> Result<usize, Fault> {
        let answers = &mut connection.answers;
        // Lost bytes of the answer before this one pass: the window opens no wider without them.
        let is_first = is_before(answers.map.forward(begin), answers.out_at);
        if answers.is_behind() && !is_first {
            return Ok(0);
        }
        let used = answers.follow(begin, bytes).map_err(|_| Fault::Malformed)?;
        if used == 0 && !is_after(begin, answers.parse_at) {
            // The backend continues after the end of its answer.
            return Err(Fault::Malformed);
        }
        answers.saw(begin.wrapping_add(used as u32));
        self.pass_to_client(connection, begin, &bytes[..used], false);
        Ok(used)
    }

    /// Passes on the FIN behind bytes of which the function has taken some.
    fn take_answer_fin(&mut self, connection: &mut Connection, at: u32) -> Fate {
        if connection.answered == 0 {
            self.fail(connection, Fault::Malformed);
            return Fate::Stays;
        }
        if connection.answers.is_behind() {
            // The backend sends it again.
            self.acknowledge_leg(connection);
            return Fate::Stays;
        }
        connection.answers.saw(at.wrapping_add(1));
        connection.answers.has_fin = 1;
        connection.last = 1;
        self.pass_to_client(connection, at, &[], true);
        Fate::Stays
    }

    /// Follows the head of an answer that passes. Returns how many of the bytes belong to it.
    pub(crate) fn follow_answer_head(
        &mut self,
        connection: &mut Connection,
        bytes: &[u8],
    ) -> Result<usize, Fault> {
        let chunks = &self.tables.chunks;
        let answers = &mut connection.answers;
        let before = answers.held.len();
        let mut head = std::mem::take(&mut self.scratch.input);
        head.resize(before, 0);
        let _ = answers.held.read_at(chunks, 0, &mut head);
        head.extend_from_slice(bytes);
        let result = match find_end(&head, before) {
            None if head.len() > self.snapshot.head_limits.head_bytes => Err(Fault::Malformed),
            None => {
                let is_kept = answers.held.append(chunks, bytes) == bytes.len();
                answers.parse_at = answers.parse_at.wrapping_add(bytes.len() as u32);
                if is_kept {
                    Ok(bytes.len())
                } else {
                    Err(Fault::Unavailable)
                }
            }
            Some(end) => {
                answers.held.clear(chunks);
                let used = end - before;
                let at = answers.parse_at.wrapping_add(used as u32);
                let parsed = parse_answer(connection, &head[..end]);
                let begun =
                    parsed.and_then(|response| self.begin_answer(connection, &response, at));
                begun.map(|()| used)
            }
        };
        self.scratch.input = head;
        result
    }

    /// Begins the body of an answer at a number of the backend.
    fn begin_answer(
        &mut self,
        connection: &mut Connection,
        response: &Response<'_>,
        at: u32,
    ) -> Result<(), Fault> {
        let head = response.head.bytes().len();
        if response.body != ResponseBody::Interim {
            connection.exchange.status = response.status;
            connection.exchange.answered_at = self.now();
            connection.exchange.answer = Size::new(head, Body::Chunked, at);
        }
        let answers = &mut connection.answers;
        let body = match response.body {
            ResponseBody::Interim => {
                answers.parse_at = at;
                answers.framing = framing::HEAD;
                return Ok(());
            }
            ResponseBody::None => Body::None,
            ResponseBody::Length(length) => Body::Length(length),
            ResponseBody::Chunked => Body::Chunked,
            // A protocol that the client did not offer (RFC 9110, 7.8).
            ResponseBody::Tunnel if response.status == 101 && connection.offers == 0 => {
                return Err(Fault::Malformed)
            }
            ResponseBody::UntilClose | ResponseBody::Tunnel => {
                answers.framing = framing::OPAQUE;
                connection.requests.framing = framing::OPAQUE;
                connection.answered = 1;
                connection.last = 1;
                return Ok(());
            }
        };
        answers.begin_body(at, body);
        connection.exchange.answer = Size::new(head, body, at);
        connection.answered = 1;
        if !response.keep_alive {
            connection.last = 1;
        }
        connection.limit_at = self.now() + self.snapshot.config.timeouts.body.nanos();
        Ok(())
    }
}

fn parse_answer<'a>(connection: &Connection, head: &'a [u8]) -> Result<Response<'a>, Fault> {
    let method = match connection.method {
        method::HEAD => "HEAD",
        method::CONNECT => "CONNECT",
        _ => "GET",
    };
    parse_response(head, method).map_err(|_| Fault::Malformed)
}
