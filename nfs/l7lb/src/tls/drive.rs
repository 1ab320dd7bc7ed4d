//! Drives endpoints: after each event, everything that it allows is done.

use bytemuck::Zeroable;
use nf_balancing::tuple::Tuple;
use nf_packet::tcp_flags;
use nf_runtime::state::SlabId;

use super::endpoint::{stage, Endpoint};
use crate::{
    pass::{Pass, Received, LINGER},
    segments::ACK,
    tables::{Event, FOREVER},
};

/// The timers handled in one tick.
const MOST: usize = 4096;

impl Pass<'_> {
    /// Lets an event change an endpoint, and does everything that follows from it.
    pub(super) fn with_endpoint(
        &mut self,
        id: SlabId,
        event: impl FnOnce(&mut Self, &mut Endpoint),
    ) {
        let tables = self.tables;
        let is_over = tables.tls.endpoints.update(id, |endpoint| {
            event(self, endpoint);
            loop {
                self.hear_engine(id, endpoint);
                if !self.tell_engine(endpoint) {
                    break;
                }
            }
            self.follow_end(endpoint);
            if endpoint.is_gone == 0 {
                self.transmit(endpoint);
            }
            let is_over = endpoint.is_over();
            if !is_over {
                tables
                    .tls
                    .timers
                    .set(id.slot(), endpoint.deadline(self.now()));
            }
            is_over
        });
        if is_over == Some(true) {
            tables.tls.remove(id, &tables.chunks);
        }
    }

    /// Ends an endpoint whose engine has ended.
    fn follow_end(&mut self, endpoint: &mut Endpoint) {
        if endpoint.stage != stage::OPEN || !endpoint.connection.is_none() {
            return;
        }
        if !endpoint.to_client.has_fin() {
            return self.reset_client(endpoint);
        }
        endpoint.stage = stage::CLOSING;
        endpoint.limit_at = self.now() + LINGER;
    }

    /// Hands endpoints what the engine has sent.
    pub(crate) fn settle_endpoints(&mut self) {
        if let Some(id) = self.scratch.tls.heard.endpoint() {
            self.with_endpoint(id, |_, _| {});
            self.scratch.tls.heard.clear();
        }
    }

    /// Handles the timers of endpoints that have expired.
    pub(crate) fn expire_endpoints(&mut self) {
        let (mut due, tables) = (Vec::new(), self.tables);
        tables
            .tls
            .timers
            .expire(self.now(), MOST, |slot| due.push(slot));
        for slot in due {
            if let Some(id) = tables.tls.endpoints.id(slot) {
                self.with_endpoint(id, |pass, endpoint| pass.endpoint_expired(id, endpoint));
            }
        }
    }

    fn endpoint_expired(&mut self, id: SlabId, endpoint: &mut Endpoint) {
        let now = self.now();
        let is_late = endpoint.limit_at != 0 && endpoint.limit_at <= now;
        if is_late && endpoint.stage == stage::HANDSHAKE {
            self.tables.count(Event::TlsFailed);
            self.forget_handshake(id, endpoint);
        }
        if is_late || !endpoint.to_client.expired(now) || !endpoint.to_engine.expired(now) {
            self.drop_engine(endpoint);
            return self.reset_client(endpoint);
        }
        if endpoint.offer_at != 0 && endpoint.offer_at <= now {
            self.offer(id, endpoint);
        }
    }

    /// Handles a segment of a client that speaks TLS. Returns false if it belongs to no connection.
    pub(crate) fn tls_client_says(&mut self, received: &Received<'_>, tuple: &Tuple) -> bool {
        let tables = &self.tables.tls;
        let Some(id) = tables.clients.look(tuple, self.now()) else {
            return false;
        };
        let segment = received.segment;
        let is_new = segment.has(tcp_flags::SYN) && !segment.has(ACK);
        let is_closing = |endpoint: Endpoint| endpoint.stage == stage::CLOSING;
        if is_new && tables.endpoints.look(id).is_some_and(is_closing) {
            tables.remove(id, &self.tables.chunks);
            return false;
        }
        let payload = segment.payload(received.packet.bytes());
        let mut is_known = false;
        self.with_endpoint(id, |pass, endpoint| {
            is_known = true;
            pass.hear_client(id, endpoint, &segment, payload);
        });
        is_known
    }

    /// Opens an endpoint by the client's first segment after its SYN. Returns false if no cookie belongs to it, or a table is full.
    pub(crate) fn open_endpoint(&mut self, received: &Received<'_>, tuple: &Tuple) -> bool {
        let Some(accepted) = self.accept_cookie(received, tuple) else {
            return false;
        };
        let segment = received.segment;
        let tables = &self.tables.tls;
        let Some(id) = tables.endpoints.insert(Endpoint::zeroed()) else {
            self.tables.count(Event::Full);
            return false;
        };
        let inserted = tables.clients.insert(tuple, self.now(), FOREVER, id);
        if inserted.is_err() {
            tables.endpoints.remove(id);
            self.tables.count(Event::Full);
            return false;
        }
        self.tables.count(Event::Connection);
        let payload = segment.payload(received.packet.bytes());
        self.with_endpoint(id, |pass, endpoint| {
            *endpoint = pass.new_endpoint(id, tuple, &accepted, &segment);
            pass.hear_client(id, endpoint, &segment, payload);
        });
        true
    }

    /// Takes the results of the threads.
    pub(crate) fn take_handshakes(&mut self) {
        let threads = self.threads;
        while let Some(outcome) = threads.take() {
            let id = bytemuck::cast(outcome.number);
            self.with_endpoint(id, |pass, endpoint| {
                let is_due = endpoint.stage == stage::HANDSHAKE && endpoint.is_waiting != 0;
                if is_due && endpoint.process == threads.process {
                    pass.follow_handshake(id, endpoint, outcome);
                }
            });
        }
    }
}
