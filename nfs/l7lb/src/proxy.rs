//! The PROXY protocol: the header with which connections of clients begin, and that of connections to backends.

use nf_balancing::proxy_protocol::{header, header_length, parse, text_header};

use crate::{
    pass::Pass,
    record::{Connection, Exchange},
};

/// The longest header toward a backend: of version 1.
const LONGEST: usize = 107;
const _: () = assert!(header_length(false) as usize <= LONGEST);

impl Pass<'_> {
    /// Takes the header in front of a connection's first request. Returns false if it must wait, or the connection ends.
    pub(crate) fn take_proxy_header(&mut self, connection: &mut Connection) -> bool {
        let chunks = &self.tables.chunks;
        let mut held = std::mem::take(&mut self.scratch.input);
        held.resize(connection.requests.held.len(), 0);
        let _ = connection.requests.held.read_at(chunks, 0, &mut held);
        let parsed = parse(&held);
        self.scratch.input = held;
        let Ok(Some(parsed)) = parsed else {
            if parsed.is_ok() {
                self.acknowledge_client(connection);
            } else {
                self.abandon(connection);
            }
            return false;
        };
        if let Some((address, port)) = parsed.client {
            connection.peer = address.into();
            connection.peer_port = port;
        }
        connection.awaits_proxy = 0;
        connection.requests.discard(chunks, parsed.length);
        connection.exchange = Exchange::beginning(self.now());
        let timeouts = &self.snapshot.config.timeouts;
        let is_all = connection.requests.held.is_empty();
        let time = if is_all { timeouts.idle } else { timeouts.head };
        connection.limit_at = self.now() + time.nanos();
        if is_all {
            self.acknowledge_client(connection);
        }
        true
    }

    /// Returns the header that the leg in use still needs, with its length.
    pub(crate) fn header_for_leg(&self, connection: &mut Connection) -> ([u8; LONGEST], usize) {
        let mut bytes = [0; LONGEST];
        let index = usize::from(connection.leg);
        let (peer, vip) = (connection.peer(), connection.vip());
        let Some(leg) = connection.legs.get_mut(index) else {
            return (bytes, 0);
        };
        let pool = self.snapshot.pool_of(leg.row);
        let pool = pool.and_then(|pool| self.snapshot.pool(pool));
        let version = pool.and_then(|pool| pool.proxy_protocol);
        let Some(version) = version.filter(|_| leg.has_header == 0) else {
            return (bytes, 0);
        };
        leg.has_header = 1;
        if version == 1 {
            return text_header(peer, vip);
        }
        let (header, length) = header(peer, vip);
        bytes[..length].copy_from_slice(&header[..length]);
        (bytes, length)
    }
}
