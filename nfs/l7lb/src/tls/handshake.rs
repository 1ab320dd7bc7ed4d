//! The beginning of connections: the record, and the handshake in its thread.

use bytemuck::Zeroable;
use nf_balancing::tuple::Tuple;
use nf_runtime::state::{ByteQueue, SlabId};
use nf_splice::cookie::Accepted;
use nf_tls::{Established, Outcome};

use super::{
    endpoint::{stage, Endpoint},
    receiver::Receiver,
    sender::{Sender, ROOM},
};
use crate::{
    handshake::FIRST_WINDOW,
    pass::Pass,
    record::{options, Connection},
    segments::{Segment, ACK},
    tables::Event,
};

/// The time until a thread is offered bytes again for which it had no room.
const AGAIN: u64 = 10_000_000;
/// The bit that tells owners of chunks apart from connections.
const OWNER: u32 = 1 << 31;
/// The segments that the engine may make: what backends are offered is smaller.
const WIDE: u16 = 9000;

impl Pass<'_> {
    pub(super) fn new_endpoint(
        &self,
        id: SlabId,
        tuple: &Tuple,
        accepted: &Accepted,
        segment: &Segment,
    ) -> Endpoint {
        let (now, owner) = (self.now(), OWNER | id.slot());
        let mut used = 0;
        let mut endpoint = Endpoint::zeroed();
        let mut mss = accepted.mss.min(self.mss_toward(tuple.source.ip()));
        if let (true, Some(stamps)) = (accepted.timestamps, segment.stamps) {
            used |= options::TIMESTAMPS;
            mss = mss.saturating_sub(12);
            endpoint.stamp = stamps.echo;
            endpoint.recent = stamps.value;
        }
        if accepted.sack_permitted {
            used |= options::SACK;
        }
        if accepted.window_scale.is_some() {
            used |= options::SCALE;
        }
        let mss = mss.max(1);
        let (from, to) = (
            accepted.client_isn.wrapping_add(1),
            accepted.server_isn.wrapping_add(1),
        );
        let first = u32::from(FIRST_WINDOW).min(ROOM as u32);
        endpoint.tuple = *tuple;
        endpoint.to_client = Sender::new(owner, to, mss.into(), segment.window.into());
        endpoint.from_client = Receiver::new(owner, from, u32::from(FIRST_WINDOW), mss.into());
        endpoint.to_engine = Sender::new(owner, from, WIDE.into(), first);
        endpoint.from_engine = Receiver::new(owner, to, first, WIDE.into());
        endpoint.input = ByteQueue::new(owner);
        endpoint.limit_at = now + self.snapshot.config.timeouts.head.nanos();
        endpoint.began_at = now;
        endpoint.mss = mss;
        endpoint.scale = accepted.window_scale.unwrap_or(0);
        endpoint.options = used;
        endpoint
    }

    /// Hands a thread the bytes that have arrived, unless it has some already.
    pub(super) fn offer(&mut self, id: SlabId, endpoint: &mut Endpoint) {
        endpoint.offer_at = 0;
        if endpoint.is_waiting != 0 || endpoint.input.is_empty() {
            return;
        }
        let threads = self.threads;
        let is_first = endpoint.process == 0;
        if !is_first && endpoint.process != threads.process {
            // The handshake was lost in a move.
            return self.reset_client(endpoint);
        }
        let tuple = &endpoint.tuple;
        let end = (tuple.destination.ip(), tuple.destination_port);
        let Some(config) = self.snapshot.handshakers.get(&end) else {
            return self.reset_client(endpoint);
        };
        let chunks = &self.tables.chunks;
        let mut bytes = vec![0; endpoint.input.len()];
        let _ = endpoint.input.read_at(chunks, 0, &mut bytes);
        let number = bytemuck::cast(id);
        let is_taken = if is_first {
            threads.get(self.context).begin(number, config, bytes)
        } else {
            threads.get(self.context).proceed(number, bytes)
        };
        if !is_taken {
            endpoint.offer_at = self.now() + AGAIN;
            return;
        }
        endpoint.input.clear(chunks);
        endpoint.process = threads.process;
        endpoint.is_waiting = 1;
    }

    /// Forgets a handshake that has not ended.
    pub(super) fn forget_handshake(&mut self, id: SlabId, endpoint: &Endpoint) {
        if endpoint.process == self.threads.process {
            self.threads.get(self.context).forget(bytemuck::cast(id));
        }
    }

    pub(super) fn follow_handshake(
        &mut self,
        id: SlabId,
        endpoint: &mut Endpoint,
        outcome: Outcome,
    ) {
        endpoint.is_waiting = 0;
        if !endpoint.to_client.push(&self.tables.chunks, &outcome.bytes) {
            return self.reset_client(endpoint);
        }
        match outcome.result {
            None => self.offer(id, endpoint),
            Some(Ok(established)) => self.establish(id, endpoint, *established),
            Some(Err(_)) => {
                self.tables.count(Event::TlsFailed);
                self.close_client(endpoint);
            }
        }
    }

    /// Begins the connection of the engine.
    fn establish(&mut self, id: SlabId, endpoint: &mut Endpoint, established: Established) {
        self.tables.count(Event::TlsHandshake);
        endpoint.session = established.session;
        endpoint.stage = stage::OPEN;
        endpoint.limit_at = 0;
        let accepted = Accepted {
            client_isn: endpoint.to_engine.top().wrapping_sub(1),
            server_isn: endpoint.from_engine.next().wrapping_sub(1),
            mss: WIDE,
            window_scale: None,
            sack_permitted: false,
            ecn: false,
            timestamps: false,
        };
        let first = Segment {
            flags: ACK,
            seq: endpoint.to_engine.top(),
            ack: endpoint.from_engine.next(),
            window: endpoint.from_engine.window(ROOM) as u16,
            at: 0,
            len: 0,
            stamps: None,
            syn: None,
        };
        let mut connection = self.connection(&endpoint.tuple, &accepted, &first);
        connection.endpoint = id;
        let Some(connection) = self.insert_connection(connection) else {
            return self.reset_client(endpoint);
        };
        endpoint.connection = connection;
        let mut bytes = established.rest;
        self.open_records_after(endpoint, &mut bytes);
    }

    /// Gives a connection of the engine a record.
    fn insert_connection(&mut self, connection: Connection) -> Option<SlabId> {
        let tables = self.tables;
        let Some(id) = tables.connections.insert(connection) else {
            tables.count(Event::Full);
            return None;
        };
        tables.connections.update(id, |connection| {
            connection.own(id.slot());
            tables.timers.set(id.slot(), connection.deadline());
        });
        Some(id)
    }

    /// Opens records that precede those in `input`.
    fn open_records_after(&mut self, endpoint: &mut Endpoint, bytes: &mut Vec<u8>) {
        let chunks = &self.tables.chunks;
        let mut waiting = vec![0; endpoint.input.len()];
        let _ = endpoint.input.read_at(chunks, 0, &mut waiting);
        endpoint.input.clear(chunks);
        bytes.extend(waiting);
        self.open_records(endpoint, bytes);
    }
}
