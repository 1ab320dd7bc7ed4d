//! Answers of the function itself.

use nf_http::Body;
use nf_packet::tcp_flags;

use crate::{
    finish::End,
    pass::{Fate, Pass, LINGER},
    record::{framing, reversed, stage, Connection, Size},
    segments::{Outgoing, ACK},
    tables::Event,
};

/// The reason for which the function answers instead of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is refused with this status.
    Request(u16),
    /// No backend of the pool takes the request.
    Unavailable,
    /// The backend has reset the connection before its answer.
    Reset,
    /// The backend's answer is not HTTP/1.1.
    Malformed,
    /// The backend's answer did not come in time.
    TimedOut,
}

impl Fault {
    const fn end(self) -> End {
        match self {
            Self::Request(408) | Self::TimedOut => End::TimedOut,
            Self::Request(_) => End::Refused,
            Self::Unavailable => End::Unavailable,
            Self::Reset => End::BackendReset,
            Self::Malformed => End::Malformed,
        }
    }

    const fn status(self) -> u16 {
        match self {
            Self::Request(status) => status,
            Self::Unavailable => 503,
            Self::Reset | Self::Malformed => 502,
            Self::TimedOut => 504,
        }
    }
}

/// Returns the reason phrase of a status (RFC 9110, 15).
const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Status",
    }
}

impl Pass<'_> {
    /// Answers in place of a malformed answer, or ends the connection if its head has passed.
    pub(crate) fn end_wrong_answer(&mut self, connection: &mut Connection, fault: Fault) -> Fate {
        if connection.answered == 0 {
            self.fail(connection, fault);
            return Fate::Stays;
        }
        self.abandon(connection);
        Fate::Ends
    }

    /// Answers the first request held, whose head has this length, and discards it. `answer`: status, header lines, body. Returns whether the next one may follow.
    pub(crate) fn answer(
        &mut self,
        connection: &mut Connection,
        head: usize,
        answer: (u16, &str, &str),
        last: bool,
    ) -> bool {
        if !connection.is_idle() {
            return false;
        }
        connection.requests.discard(&self.tables.chunks, head);
        connection.count += 1;
        if let Some(route) = self.tables.routes.row(connection.exchange.route) {
            route.requested();
        }
        connection.exchange.request = Size::new(head, Body::None, 0);
        self.say_answer(connection, answer, (End::Answered, last));
        false
    }

    /// Ends the connection with an answer of the function; with a reset if another answer has begun.
    pub(crate) fn fail(&mut self, connection: &mut Connection, fault: Fault) {
        if connection.awaits_proxy != 0 || connection.passes != 0 {
            // The peer does not expect HTTP.
            return self.abandon(connection);
        }
        let status = fault.status();
        let passes = connection.edits == 0 && !connection.answers.held.is_empty();
        let has_begun = connection.busy != 0 && (connection.answered != 0 || passes);
        self.reset_legs(connection);
        if has_begun {
            self.cut_short(connection, fault.end());
            return self.abandon(connection);
        }
        connection.answers.held.clear(&self.tables.chunks);
        connection.requests.discard_all(&self.tables.chunks);
        let body = format!("{status} {}\n", reason(status));
        self.say_answer(
            connection,
            (status, "Content-Type: text/plain\r\n", &body),
            (fault.end(), true),
        );
    }

    fn say_answer(
        &mut self,
        connection: &mut Connection,
        (status, headers, body): (u16, &str, &str),
        (end, last): (End, bool),
    ) {
        self.tables.count(match status {
            500.. => Event::ServerFault,
            400..500 => Event::ClientFault,
            _ => Event::Redirected,
        });
        let closing = if last { "Connection: close\r\n" } else { "" };
        let text = format!(
            "HTTP/1.1 {status} {}\r\n{headers}Content-Length: {}\r\n{closing}\r\n{body}",
            reason(status),
            body.len()
        );
        self.finish(connection, end, Some((status, text.len())));
        let chunks = &self.tables.chunks;
        // Acknowledgements of the backend's stream must not count for these bytes.
        if !connection.answers.say(chunks, text.as_bytes()) || last {
            self.close(connection);
        }
    }

    /// Sends what is left, then a FIN.
    pub(crate) fn close(&mut self, connection: &mut Connection) {
        let answers = &mut connection.answers;
        if answers.outgoing.is_empty() {
            answers.out_at = answers.top;
            answers.out_sent = answers.top;
        }
        answers.fin = answers.out_at.wrapping_add(answers.outgoing.len() as u32);
        answers.has_fin = 1;
        answers.framing = framing::ENDED;
        connection.stage = stage::CLOSING;
        connection.busy = 0;
        connection.limit_at = self.now() + LINGER;
    }

    /// Resets both sides of a connection. The caller ends it.
    pub(crate) fn abandon(&mut self, connection: &mut Connection) {
        self.cut_short(connection, End::Aborted);
        self.reset_legs(connection);
        let seq = connection.answers.top;
        let client = connection.client;
        let segment = Outgoing {
            flags: tcp_flags::RST | ACK,
            seq,
            ack: connection.requests.told,
            ..Outgoing::default()
        };
        if connection.endpoint.is_none() {
            self.send(reversed(&client), &segment);
        } else {
            self.scratch.tls.heard.push(connection.endpoint, &segment);
        }
        connection.stage = stage::CLOSING;
        connection.limit_at = self.now();
    }
}
