//! Exchanges: a request's head decides where the request goes, and the end of its answer admits the next request.

use nf_http::{check_partial, find_end, parse_request, Body};
use nf_runtime::state::SlabId;

use crate::{
    answers::Fault,
    finish::End,
    heads::edits,
    legs::Wanted,
    pass::{Fate, Pass},
    record::{framing, stage, Connection, Size},
    routes::Action,
    tables::Event,
};

/// Values of `Connection::method`.
pub mod method {
    pub const OTHER: u8 = 0;
    pub const HEAD: u8 = 1;
    pub const CONNECT: u8 = 2;
}

impl Pass<'_> {
    /// Continues after a segment: ends the exchange if it is over, begins the next one, and sends what there is.
    pub(crate) fn proceed(&mut self, connection: &mut Connection, id: SlabId) -> Fate {
        if connection.stage == stage::OPEN {
            self.end_exchange(connection);
            self.leave(connection);
            self.begin_exchange(connection, id);
        }
        self.flush(connection);
        let both = connection.requests.has_fin != 0 && connection.answers.has_fin != 0;
        if both && connection.answers.is_quiet() && connection.requests.is_quiet() {
            self.cut_short(connection, End::ClientLeft);
            return Fate::Ends;
        }
        Fate::Stays
    }

    /// Ends an exchange whose request and answer are over.
    fn end_exchange(&mut self, connection: &mut Connection) {
        let is_over = connection.busy != 0
            && connection.answered != 0
            && connection.answers.is_over()
            && connection.requests.is_delivered();
        if !is_over {
            return;
        }
        if let Some(leg) = connection.legs.get_mut(usize::from(connection.leg)) {
            leg.is_old = 1;
        }
        self.finish(connection, End::Done, None);
        if connection.last != 0 || connection.requests.has_fin != 0 {
            // Only FINs and acknowledgements follow.
            connection.last = 1;
            connection.requests.framing = framing::OPAQUE;
            connection.answers.framing = framing::OPAQUE;
        }
        connection.limit_at = self.now() + self.snapshot.config.timeouts.idle.nanos();
    }

    /// Ends the connection of a client that leaves after its answer, while the leg stays open.
    fn leave(&mut self, connection: &mut Connection) {
        let is_over = connection.leaves != 0 && connection.last == 0 && connection.is_idle();
        if !is_over || connection.stage != stage::OPEN {
            return;
        }
        self.release_legs(connection);
        self.reset_legs(connection);
        connection.requests.discard_all(&self.tables.chunks);
        self.close(connection);
    }

    /// Begins the next exchange if a whole head is held.
    fn begin_exchange(&mut self, connection: &mut Connection, id: SlabId) {
        while connection.busy == 0
            && connection.last == 0
            && connection.leaves == 0
            && connection.stage == stage::OPEN
            && !connection.requests.held.is_empty()
        {
            if !self.begin_one(connection, id) {
                return;
            }
        }
    }

    /// Handles the first head held. Returns false if it must wait.
    fn begin_one(&mut self, connection: &mut Connection, id: SlabId) -> bool {
        if connection.awaits_proxy != 0 {
            return self.take_proxy_header(connection);
        }
        if connection.passes != 0 {
            return self.take_hello(connection, id);
        }
        let chunks = &self.tables.chunks;
        let held = &connection.requests.held;
        let mut input = std::mem::take(&mut self.scratch.input);
        // A head may come byte by byte: search only what is new.
        let searched = connection.requests.searched as usize;
        let from = searched.saturating_sub(3);
        input.resize(held.len().saturating_sub(from), 0);
        let _ = held.read_at(chunks, from, &mut input);
        let went = if searched > 0 && !may_end(&input) {
            self.await_head(connection);
            false
        } else {
            input.resize(held.len(), 0);
            let _ = held.read_at(chunks, 0, &mut input);
            self.begin_with(connection, id, &input)
        };
        self.scratch.input = input;
        went
    }

    /// Waits for the rest of a head, unless it has reached the limit.
    fn await_head(&mut self, connection: &mut Connection) {
        let length = connection.requests.held.len();
        connection.requests.searched = length as u32;
        if length >= self.snapshot.head_limits.head_bytes {
            self.fail(connection, Fault::Request(431));
        } else {
            self.acknowledge_client(connection);
        }
    }

    fn begin_with(&mut self, connection: &mut Connection, id: SlabId, held: &[u8]) -> bool {
        let limits = &self.snapshot.head_limits;
        let Some(end) = find_end(held, 0) else {
            match check_partial(held, limits) {
                Err(rejection) => self.fail(connection, Fault::Request(rejection.status)),
                Ok(()) => self.await_head(connection),
            }
            return false;
        };
        let head = &held[..end];
        let request = match parse_request(head, limits) {
            Ok(request) => request,
            Err(rejection) => {
                self.fail(connection, Fault::Request(rejection.status));
                return false;
            }
        };
        let snapshot = self.snapshot;
        let Some(listener) = snapshot.listener_of(connection) else {
            self.fail(connection, Fault::Unavailable);
            return false;
        };
        let route = listener.routes.iter().find(|route| route.matches(&request));
        self.note_request(connection, id, &request, route);
        let pool = match route.map(|route| &route.action) {
            Some(Action::Pool(pool)) => *pool,
            Some(Action::Answer {
                status,
                headers,
                body,
            }) => {
                let last = !request.keep_alive || request.body != Body::None;
                return self.answer(connection, end, (*status, headers, body), last);
            }
            None => {
                let last = !request.keep_alive || request.body != Body::None;
                return self.answer(connection, end, (404, "", "no route\n"), last);
            }
        };
        let (row, sets_cookie) = self.sticky_row(connection, pool, &request.head);
        let wanted = Wanted {
            pool,
            row,
            may_be_used: is_whole(request.body, held.len() - end),
        };
        if !self.ready_leg(connection, id, wanted) {
            return false;
        }
        let most = snapshot.config.limits.requests;
        let is_last = most > 0 && connection.count + 1 >= most;
        let leaves = !is_last && snapshot.pool_reuses(pool) && is_leaving(&request);
        connection.leaves = u8::from(leaves);
        let edited = self.edit_request(connection, listener, &request, is_last);
        let Some(given) = edited else {
            self.fail(connection, Fault::Request(431));
            return false;
        };
        let keep_alive = request.keep_alive;
        let tunnel = request.method == "CONNECT";
        connection.method = match request.method {
            "HEAD" => method::HEAD,
            "CONNECT" => method::CONNECT,
            _ => method::OTHER,
        };
        connection.offers = u8::from(request.upgrade.is_some());
        connection.edits = if sets_cookie { edits::COOKIE } else { 0 };
        if !listener.add_to_answers.is_empty() {
            connection.edits |= edits::LINES;
        }
        if leaves {
            connection.edits |= edits::CLOSE;
        }
        let body = request.body;
        self.send_request(connection, held, end, given, body);
        self.count_request(connection, Event::Request);
        connection.count += 1;
        connection.last = u8::from(!keep_alive && !leaves || is_last || tunnel);
        false
    }

    /// Hands a request to the open leg: the rewritten head, and the part of its body that is held. `head`, `given`: lengths of the old and the new head.
    fn send_request(
        &mut self,
        connection: &mut Connection,
        held: &[u8],
        head: usize,
        given: usize,
        body: Body,
    ) {
        let chunks = &self.tables.chunks;
        let (header, header_length) = self.header_for_leg(connection);
        let header = &header[..header_length];
        let requests = &mut connection.requests;
        let from = requests.owned.wrapping_sub(held.len() as u32);
        let after = from.wrapping_add(head as u32);
        requests.begin_body(after, body);
        connection.exchange.request = Size::new(head, body, after);
        let rest = &held[head..];
        let Ok(more) = requests.follow(after, rest) else {
            return self.fail(connection, Fault::Request(400));
        };
        let (taken, given_all) = (head + more, header.len() + given + more);
        let (taken, given_all) = (taken as u32, given_all as u32);
        if requests.map.insert(from, taken, given_all).is_err() {
            // Two older heads are unacknowledged: `ready_leg` waits for them.
            return;
        }
        let head_bytes = self.scratch.output.get(..given).unwrap_or_default();
        let parts = [header, head_bytes, &rest[..more]];
        let has_room = parts.iter().all(|part| requests.say(chunks, part));
        if !has_room {
            return self.fail(connection, Fault::Unavailable);
        }
        let requests = &mut connection.requests;
        requests.held.consume(chunks, head + more);
        requests.searched = 0;
        connection.busy = 1;
        connection.attempts = 0;
        connection.answered = 0;
        connection.answers.framing = framing::HEAD;
        let timeouts = &self.snapshot.config.timeouts;
        connection.uploads = u8::from(!connection.requests.is_over());
        let time = if connection.uploads != 0 {
            timeouts.body
        } else {
            timeouts.answer
        };
        connection.limit_at = self.now() + time.nanos();
        self.open_window(connection);
    }
}

/// Tells whether the bytes held behind a head are the whole body.
fn is_whole(body: Body, held: usize) -> bool {
    match body {
        Body::None => true,
        Body::Length(length) => length <= held as u64,
        // The end of the chunks is known only once they have been followed.
        Body::Chunked => false,
    }
}

/// Tells whether a client closes its connection after the answer to this request, and asks for nothing else about connections.
fn is_leaving(request: &nf_http::Request<'_>) -> bool {
    let is_plain = |header: nf_http::Header<'_>| {
        !header.is("Connection") || header.value.eq_ignore_ascii_case(b"close")
    };
    let is_modern = request.version == nf_http::Version::Http11;
    !request.keep_alive
        && is_modern
        && request.upgrade.is_none()
        && request.head.headers().all(is_plain)
}

/// Tells whether these bytes may contain the end of a head: an empty line.
fn may_end(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\n\n") || bytes.windows(3).any(|line| line == b"\n\r\n")
}
