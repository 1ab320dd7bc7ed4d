//! The end of an exchange: its counts in the metrics, and its line in the access log.

use std::time::SystemTime;

use nf_http::Request;
use nf_runtime::state::SlabId;

use crate::{
    log::Entry,
    pass::Pass,
    record::{framing, Connection, Exchange, NO_ROW},
    routes::Route,
    tables::Event,
    texts::Text,
};

/// How an exchange ended; the access log has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The answer of the backend ended as it should.
    Done,
    /// The route has an answer or a redirect, or no route matched.
    Answered,
    /// The request was malformed or too long, or did not come in time.
    Refused,
    /// No backend took the request.
    Unavailable,
    /// The backend's answer is not HTTP/1.1.
    Malformed,
    BackendReset,
    TimedOut,
    ClientLeft,
    /// The connection was reset for another reason.
    Aborted,
}

impl End {
    const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Unavailable => "no backend",
            Self::Malformed => "malformed answer",
            Self::BackendReset => "backend reset",
            Self::TimedOut => "timed out",
            Self::ClientLeft => "client left",
            Self::Aborted => "aborted",
        }
    }
}

fn row(row: u16) -> Option<u16> {
    (row != NO_ROW).then_some(row)
}

impl Pass<'_> {
    /// Notes the end of the present exchange. `own`: the status and the bytes of an answer of the function itself.
    pub(crate) fn finish(
        &mut self,
        connection: &mut Connection,
        end: End,
        own: Option<(u16, usize)>,
    ) {
        let now = self.now();
        let exchange = connection.exchange;
        let duration = now.saturating_sub(exchange.began);
        let route = self.tables.routes.row(exchange.route);
        let backend = row(exchange.backend).map(|row| self.tables.backends.numbers(row));
        for numbers in route.into_iter().chain(backend) {
            match own {
                Some(_) => numbers.answered_itself(),
                None if exchange.status != 0 => numbers.answered(exchange.status, duration),
                None => {}
            }
        }
        self.log_end(connection, end, own, duration);
        connection.busy = 0;
        connection.exchange = Exchange::beginning(now);
    }

    fn log_end(&self, connection: &Connection, end: End, own: Option<(u16, usize)>, duration: u64) {
        let snapshot = self.snapshot;
        let (Some(log), Some(settings)) = (&snapshot.log, &snapshot.config.log) else {
            return;
        };
        let exchange = &connection.exchange;
        let is_plain = end == End::Done && own.is_none();
        if is_plain && !log.samples(settings.sample) {
            return;
        }
        let bytes_out = match own {
            Some((_, bytes)) => bytes as u64,
            None => exchange.answer.bytes(&connection.answers),
        };
        let answered = exchange.answered_at.checked_sub(exchange.began);
        log.write(Entry {
            names: snapshot.names.clone(),
            time: SystemTime::now(),
            client: connection.peer(),
            vip: connection.vip(),
            route: row(exchange.route),
            backend: row(exchange.backend),
            text: (exchange.has_text != 0).then(|| self.tables.texts.get(exchange.slot as usize)),
            status: own.map_or(exchange.status, |(status, _)| status),
            bytes_in: exchange.request.bytes(&connection.requests),
            bytes_out,
            first: answered.filter(|_| exchange.answered_at != 0),
            duration,
            end: end.name(),
        });
    }

    /// Notes that a connection ends before its answer did.
    pub(crate) fn cut_short(&mut self, connection: &mut Connection, end: End) {
        if connection.busy == 0 {
            return;
        }
        let passes = connection.answers.framing == framing::OPAQUE && connection.answered != 0;
        // The end of the connection is the end of such an answer.
        let is_whole = passes && connection.answers.has_fin != 0;
        self.finish(connection, if is_whole { End::Done } else { end }, None);
    }

    /// Notes what the log and the metrics say of a request.
    pub(crate) fn note_request(
        &self,
        connection: &mut Connection,
        id: SlabId,
        request: &Request<'_>,
        route: Option<&Route>,
    ) {
        connection.exchange.route = route.map_or(NO_ROW, |route| route.row);
        self.note_text(connection, id, || Text::of(request));
    }

    /// Keeps the description of a request if there is a log.
    pub(crate) fn note_text(
        &self,
        connection: &mut Connection,
        id: SlabId,
        text: impl FnOnce() -> Text,
    ) {
        let exchange = &mut connection.exchange;
        if exchange.has_text == 0 && self.snapshot.log.is_some() {
            exchange.slot = id.slot();
            exchange.has_text = 1;
            self.tables.texts.put(exchange.slot as usize, &text());
        }
    }

    /// Counts a request that the leg in use gets.
    pub(crate) fn count_request(&self, connection: &mut Connection, event: Event) {
        self.tables.count(event);
        if let Some(route) = self.tables.routes.row(connection.exchange.route) {
            route.requested();
        }
        if let Some(leg) = connection.leg().copied() {
            connection.exchange.backend = leg.row;
            self.tables.backends.numbers(leg.row).requested();
        }
    }
}
