//! Exchanges: a request's head decides where the request goes, and the end of its answer admits the next request.

use nf_http::{check_partial, find_end, parse_request, Body, Head, Request};
use nf_runtime::state::SlabId;
use nf_splice::{segment::is_after, Map};

use crate::{
    answers::Fault,
    finish::End,
    heads::edits,
    pass::{Fate, Pass},
    record::{framing, phase, stage, Connection, Size, NO_LEG, NO_ROW},
    routes::{Action, Route},
    tables::Event,
    texts::Text,
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
            // What follows are FINs and acknowledgements.
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
        let (wanted, sets_cookie) = self.sticky_row(connection, pool, &request.head);
        if !self.ready_leg(connection, id, pool, wanted) {
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
    }

    /// Notes what the log and the metrics say of a request.
    fn note_request(
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

    /// Returns the backend that a request's cookie or header names, and whether the answer sets the cookie.
    fn sticky_row(
        &self,
        connection: &Connection,
        pool: usize,
        head: &Head<'_>,
    ) -> (Option<u16>, bool) {
        let pool = self.snapshot.pool(pool);
        let Some(sticky) = pool.and_then(|pool| pool.sticky.as_ref()) else {
            return (None, false);
        };
        // A backend that did not take this request counts as down for it.
        let is_known = connection.attempts == 0;
        let backends = &self.tables.backends;
        let row = sticky.row(head, |row| backends.is_down(row));
        let row = row.filter(|_| is_known);
        (row, row.is_none() && sticky.cookie().is_some())
    }

    /// Makes the leg in use one to this backend, or to any of this pool. Returns false if the request must wait.
    pub(crate) fn ready_leg(
        &mut self,
        connection: &mut Connection,
        id: SlabId,
        pool: usize,
        wanted: Option<u16>,
    ) -> bool {
        if !connection.answers.outgoing.is_empty() {
            // Bytes that the function sends must follow each other.
            return false;
        }
        let head_at = connection
            .requests
            .owned
            .wrapping_sub(connection.requests.held.len() as u32);
        if let Some(leg) = connection.leg() {
            if leg.phase == phase::OPENING {
                return false;
            }
            let is_same = leg.phase == phase::OPEN
                && self.snapshot.serves(leg.row, pool, wanted)
                && !self.tables.backends.is_down(leg.row);
            let (requests, answers) = (&connection.requests, &connection.answers);
            let follows = requests.map.forward(head_at) == requests.top
                && answers.map.forward(answers.parse_at) == answers.top;
            if is_same && follows {
                // A third unacknowledged head waits.
                return requests.map.regions().count() < 2;
            }
            if !connection.is_idle() {
                return false;
            }
            if is_same {
                let (requests, answers) = (&mut connection.requests, &mut connection.answers);
                requests.map = Map::between(head_at, requests.top);
                answers.map = Map::between(answers.parse_at, answers.top);
                return true;
            }
            self.rest_leg(connection);
        }
        if is_after(connection.answers.top, connection.answers.acked) {
            return false;
        }
        let taken = self.take_leg(connection, id, (pool, wanted), head_at);
        if taken.is_none() {
            self.fail(connection, Fault::Unavailable);
        }
        taken == Some(true)
    }

    /// Handles a leg that could not be opened: tries another backend, or gives up.
    pub(crate) fn leg_failed(&mut self, connection: &mut Connection, id: SlabId) {
        let index = usize::from(connection.leg);
        let row = connection.legs[index].row;
        self.forget_leg(connection, index);
        self.tables.backends.failed(row);
        if connection.busy != 0 {
            // The request is no longer held.
            return self.fail(connection, Fault::Unavailable);
        }
        let head_at = connection
            .requests
            .owned
            .wrapping_sub(connection.requests.held.len() as u32);
        let pool = self.snapshot.pool_of(row);
        let other =
            pool.and_then(|pool| self.snapshot.choose(pool, &self.tables.backends, Some(row)));
        match other.filter(|other| *other != row && connection.attempts < 3) {
            Some(other) if self.open_leg(connection, id, other, head_at) => {
                connection.attempts += 1;
            }
            _ => self.fail(connection, Fault::Unavailable),
        }
    }

    /// Puts the leg in use aside.
    pub(crate) fn rest_leg(&mut self, connection: &mut Connection) {
        let (top, edge) = (connection.requests.top, connection.requests.edge);
        let seen = connection.answers.seen;
        connection.answers.drop_kept(&self.tables.chunks);
        let received = connection.to_client.received();
        if let Some(leg) = connection.legs.get_mut(usize::from(connection.leg)) {
            leg.next_to = top;
            leg.edge = edge;
            leg.next_from = seen;
            leg.stamp = received;
        }
        connection.leg = NO_LEG;
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
