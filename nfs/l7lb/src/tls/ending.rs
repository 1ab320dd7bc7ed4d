//! The ways in which an endpoint ends its two sides.

use nf_packet::tcp_flags;
use nf_tls::Alert;

use super::endpoint::{stage, Endpoint};
use crate::{
    pass::{Pass, LINGER},
    record::reversed,
    segments::{Outgoing, ACK},
};

impl Pass<'_> {
    /// Ends the engine's connection at once.
    pub(super) fn drop_engine(&mut self, endpoint: &mut Endpoint) {
        let id = std::mem::take(&mut endpoint.connection);
        let tables = self.tables;
        tables.connections.update(id, |connection| {
            // Between requests, other clients can use the legs.
            self.release_legs(connection);
            self.reset_legs(connection);
        });
        tables.remove(id);
    }

    /// Resets the client, and ends everything.
    pub(super) fn reset_client(&mut self, endpoint: &mut Endpoint) {
        if endpoint.is_gone != 0 {
            return;
        }
        self.drop_engine(endpoint);
        endpoint.is_gone = 1;
        let segment = Outgoing {
            flags: tcp_flags::RST | ACK,
            seq: endpoint.to_client.top(),
            ack: endpoint.from_client.next(),
            ..Outgoing::default()
        };
        self.send(reversed(&endpoint.tuple), &segment);
    }

    /// Ends the engine's connection, and sends the client what is queued and a FIN.
    pub(super) fn close_client(&mut self, endpoint: &mut Endpoint) {
        self.drop_engine(endpoint);
        endpoint.to_client.finish();
        endpoint.stage = stage::CLOSING;
        endpoint.limit_at = self.now() + LINGER;
    }

    /// Queues an alert, and lets a FIN follow.
    pub(super) fn end_client(&mut self, endpoint: &mut Endpoint, alert: Alert) {
        let mut record = Vec::new();
        endpoint.session.alert(alert, &mut record);
        endpoint.to_client.push(&self.tables.chunks, &record);
        endpoint.to_client.finish();
    }
}
