//! TLS connections that pass: the name in the first message decides which pool gets them.

use nf_balancing::client_hello::{parse, Malformed, LONGEST_RECORDS};
use nf_http::Body;
use nf_runtime::state::SlabId;

use crate::{
    finish::End,
    legs::Wanted,
    pass::Pass,
    record::{framing, Connection, Size, NO_ROW},
    routes::Action,
    snapshot::Snapshot,
    tables::Event,
    texts::Text,
};

/// The fatal alert `unrecognized_name` (RFC 6066, 3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The bytes that `limits.head` must allow.
pub const HEAD: usize = LONGEST_RECORDS;

impl Pass<'_> {
    /// Sends a connection whose first message is held to a backend. Returns false: whatever follows passes.
    pub(crate) fn take_hello(&mut self, connection: &mut Connection, id: SlabId) -> bool {
        let mut held = std::mem::take(&mut self.scratch.input);
        let mut message = std::mem::take(&mut self.scratch.output);
        let requests = &connection.requests;
        held.resize(requests.held.len(), 0);
        let _ = requests.held.read_at(&self.tables.chunks, 0, &mut held);
        match parse(&held, &mut message) {
            Err(Malformed) => self.abandon(connection),
            Ok(None) if held.len() >= HEAD => self.abandon(connection),
            Ok(None) => self.acknowledge_client(connection),
            Ok(Some(hello)) => self.route_hello(connection, id, hello.server, &held),
        }
        (self.scratch.input, self.scratch.output) = (held, message);
        false
    }

    fn route_hello(
        &mut self,
        connection: &mut Connection,
        id: SlabId,
        server: Option<&str>,
        held: &[u8],
    ) {
        let snapshot: &Snapshot = self.snapshot;
        let routes = snapshot.listener_of(connection).map(|each| &each.routes);
        let mut routes = routes.into_iter().flatten();
        let route = routes.find(|route| route.matches_server(server));
        connection.exchange.route = route.map_or(NO_ROW, |route| route.row);
        self.note_text(connection, id, || Text::of_server(server));
        let Some(Action::Pool(pool)) = route.map(|route| &route.action) else {
            return self.refuse_name(connection);
        };
        let wanted = Wanted {
            pool: *pool,
            row: None,
            may_be_used: false,
        };
        if self.ready_leg(connection, id, wanted) {
            self.splice(connection, held);
        }
    }

    /// Sends the first bytes of a connection, and lets all others pass in both directions.
    fn splice(&mut self, connection: &mut Connection, held: &[u8]) {
        let (header, length) = self.header_for_leg(connection);
        let chunks = &self.tables.chunks;
        let requests = &mut connection.requests;
        let from = requests.owned.wrapping_sub(held.len() as u32);
        let taken = (held.len() as u32, (length + held.len()) as u32);
        let is_new = requests.map.insert(from, taken.0, taken.1).is_ok();
        if !is_new || !requests.say(chunks, &header[..length]) || !requests.say(chunks, held) {
            return self.abandon(connection);
        }
        let requests = &mut connection.requests;
        requests.held.clear(chunks);
        requests.parse_at = requests.owned;
        requests.framing = framing::OPAQUE;
        connection.answers.framing = framing::OPAQUE;
        connection.exchange.request = Size::new(0, Body::Chunked, from);
        connection.exchange.answer = Size::new(0, Body::Chunked, connection.answers.parse_at);
        connection.busy = 1;
        connection.answered = 1;
        connection.last = 1;
        connection.attempts = 0;
        connection.edits = 0;
        connection.limit_at = self.now() + self.snapshot.config.timeouts.idle.nanos();
        self.count_request(connection, Event::Passed);
    }

    /// Ends a connection to a server that no route has.
    fn refuse_name(&mut self, connection: &mut Connection) {
        let own = (0, UNRECOGNIZED_NAME.len());
        self.finish(connection, End::Answered, Some(own));
        let chunks = &self.tables.chunks;
        connection.requests.discard_all(chunks);
        connection.answers.say(chunks, &UNRECOGNIZED_NAME);
        self.close(connection);
    }
}
