//! Legs: connections to backends.

use nf_balancing::{health, tuple::Tuple};
use nf_packet::{protocol, tcp_flags};
use nf_runtime::state::SlabId;
use nf_splice::{
    options::{Syn, Timestamps},
    window::field,
    Map,
};

use crate::{
    pass::Pass,
    record::{options, phase, reversed, Connection, Leg, NO_LEG},
    segments::{Outgoing, Segment, ACK},
    tables::FOREVER,
};

/// The first local port, and the number of them, toward one backend. The ports above are for health checks.
const FIRST_PORT: u16 = 1024;
const PORTS: u32 = (health::FIRST_PORT - FIRST_PORT) as u32;
/// Attempts to find a free port: connections that stay open occupy ports in a row.
const TRIES: u32 = 4096;
/// The distance between the first ports of two rows, which can be of the same backend in two pools. A prime.
const APART: u32 = 6133;
/// The time until a SYN is sent again, doubled each time.
const SYN_AGAIN: u64 = 300_000_000;

impl Leg {
    /// Takes over the options of the backend's SYN.
    pub(crate) fn accept(&mut self, segment: &Segment) {
        let syn = segment.syn.unwrap_or_default();
        self.mss = syn.mss.unwrap_or(536).max(88);
        self.scale = 0;
        if self.options & options::SCALE != 0 {
            match syn.window_scale {
                Some(scale) => self.scale = scale,
                None => self.options &= !options::SCALE,
            }
        }
        if !syn.sack_permitted {
            self.options &= !options::SACK;
        }
        match segment.stamps {
            Some(stamps) => self.stamp = stamps.value,
            None => self.options &= !options::TIMESTAMPS,
        }
        self.phase = phase::OPEN;
    }

    pub(crate) fn has(&self, option: u8) -> bool {
        self.options & option != 0
    }

    /// Returns the shift of the windows that the backend is told.
    pub(crate) fn told_scale(&self) -> u8 {
        if self.has(options::SCALE) {
            self.own_scale
        } else {
            0
        }
    }
}

/// The leg that a request needs.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub pool: usize,
    /// The only backend that may get the request; None: any of the pool.
    pub row: Option<u16>,
    /// Whether it may be a leg that another client has left. If its backend is just closing it, only a request that is held as a whole can be sent again.
    pub may_be_used: bool,
}

impl Pass<'_> {
    /// Makes a leg of this kind the one in use: an idle one, or a new one. Returns whether it is open; None: no backend takes it.
    pub(crate) fn take_leg(
        &mut self,
        connection: &mut Connection,
        id: SlabId,
        wanted: Wanted,
        head_at: u32,
    ) -> Option<bool> {
        let snapshot = self.snapshot;
        self.reset_legs_to_down(connection);
        let idle = connection.legs.iter().position(|leg| {
            leg.phase == phase::OPEN && snapshot.serves(leg.row, wanted.pool, wanted.row)
        });
        if let Some(index) = idle {
            self.resume_leg(connection, index, head_at);
            return Some(true);
        }
        let any = || snapshot.choose(wanted.pool, &self.tables.backends, None);
        let row = wanted.row.or_else(any)?;
        if wanted.may_be_used {
            if let Some(index) = self.take_idle_leg(connection, id, row) {
                self.resume_leg(connection, index, head_at);
                return Some(true);
            }
        }
        self.open_leg(connection, id, row, head_at).then_some(false)
    }

    fn resume_leg(&mut self, connection: &mut Connection, index: usize, head_at: u32) {
        connection.legs[index].is_old = 1;
        let leg = connection.legs[index];
        connection.leg = index as u8;
        let requests = &mut connection.requests;
        requests.restart(leg.next_to);
        requests.map = Map::between(head_at, leg.next_to);
        requests.edge = leg.edge;
        let answers = &mut connection.answers;
        answers.begin(leg.next_from);
        answers.map = Map::between(leg.next_from, answers.top);
        connection.to_client.change(leg.stamp);
    }

    /// Opens a leg: sends the SYN. Returns false if no local port is free.
    pub(crate) fn open_leg(
        &mut self,
        connection: &mut Connection,
        id: SlabId,
        row: u16,
        head_at: u32,
    ) -> bool {
        let free = connection
            .legs
            .iter()
            .position(|leg| leg.phase == phase::NONE);
        let index = free.unwrap_or(connection.count as usize % connection.legs.len());
        if free.is_none() {
            let (tuple, seq) = (connection.legs[index].tuple, connection.legs[index].next_to);
            self.forget_leg(connection, index);
            self.reset(tuple, seq);
        }
        let Some(tuple) = self.take_port(row, id) else {
            return false;
        };
        connection.leg = index as u8;
        connection.legs[index] = Leg {
            tuple,
            row,
            mss: 536,
            phase: phase::OPENING,
            scale: 0,
            options: connection.options,
            has_header: 0,
            own_scale: connection.scale,
            told_mss: connection.mss.min(self.mss_toward(tuple.source.ip())),
            is_old: 0,
            reserved: [0; 4],
            next_to: 0,
            next_from: 0,
            stamp: 0,
            edge: 0,
        };
        self.tables.backends.opened(row);
        let requests = &mut connection.requests;
        requests.restart(head_at);
        requests.attempts = 0;
        let now = self.now();
        connection.retransmit_at = now + SYN_AGAIN;
        connection.limit_at = now + self.snapshot.config.timeouts.connect.nanos();
        self.send_syn(connection);
        true
    }

    /// Sends or repeats the SYN of the leg in use.
    pub(crate) fn send_syn(&mut self, connection: &mut Connection) {
        let Some(leg) = connection.leg().copied() else {
            return;
        };
        let attempts = connection.requests.attempts.min(6);
        connection.requests.attempts += 1;
        connection.retransmit_at = self.now() + (SYN_AGAIN << attempts);
        let window = connection
            .answers
            .edge
            .wrapping_sub(connection.answers.acked);
        let stamps = leg.has(options::TIMESTAMPS).then(|| Timestamps {
            value: connection.to_backend.own(),
            echo: 0,
        });
        let syn = Syn {
            mss: Some(leg.told_mss),
            window_scale: leg.has(options::SCALE).then_some(leg.own_scale),
            sack_permitted: leg.has(options::SACK),
            timestamps: stamps,
        };
        let segment = Outgoing {
            flags: tcp_flags::SYN,
            seq: connection.requests.top.wrapping_sub(1),
            window: window.min(u16::MAX.into()) as u16,
            syn: Some(syn),
            ..Outgoing::default()
        };
        self.send(reversed(&leg.tuple), &segment);
    }

    /// Takes a local port toward a backend; returns the tuple of the backend's packets.
    fn take_port(&self, row: u16, id: SlabId) -> Option<Tuple> {
        let backend = self.snapshot.backend(row)?;
        let local = self
            .snapshot
            .network
            .own_address(backend.way.interface, backend.address)?;
        let first = self.tables.backends.next_port(row);
        let first = first.wrapping_add(u32::from(row).wrapping_mul(APART));
        // Ports that lead the backend's packets to this worker.
        let (worker, workers) = (self.context.worker() as u32, self.context.workers() as u32);
        let ports = PORTS / workers - 1;
        let begin = u32::from(FIRST_PORT).next_multiple_of(workers) + worker;
        (0..TRIES).find_map(|attempt| {
            let step = first.wrapping_add(attempt) % ports;
            let port = (begin + step * workers) as u16;
            let tuple = Tuple {
                source: backend.address.into(),
                destination: local.into(),
                source_port: backend.port,
                destination_port: port,
                protocol: protocol::TCP.into(),
            };
            let inserted = self.tables.answers.insert(&tuple, self.now(), FOREVER, id);
            inserted.is_ok().then_some(tuple)
        })
    }

    /// Forgets a leg, whose local port becomes free.
    pub(crate) fn forget_leg(&mut self, connection: &mut Connection, index: usize) {
        let Some(leg) = connection.legs.get_mut(index) else {
            return;
        };
        if leg.phase == phase::NONE {
            return;
        }
        leg.phase = phase::NONE;
        self.tables.answers.remove(&leg.tuple, self.now());
        self.tables.backends.closed(leg.row);
        if usize::from(connection.leg) == index {
            connection.leg = NO_LEG;
            let requests = &mut connection.requests;
            requests.outgoing.clear(&self.tables.chunks);
            connection.answers.drop_kept(&self.tables.chunks);
            let requests = &mut connection.requests;
            requests.map = Map::between(requests.seen, requests.top);
            requests.acked = requests.top;
            requests.out_at = requests.top;
            requests.out_sent = requests.top;
            connection.retransmit_at = 0;
        }
    }

    /// Resets all legs, at the numbers that the backends expect.
    pub(crate) fn reset_legs(&mut self, connection: &mut Connection) {
        for index in 0..connection.legs.len() {
            let leg = connection.legs[index];
            if leg.phase == phase::NONE {
                continue;
            }
            let is_used = usize::from(connection.leg) == index;
            let seq = if is_used {
                connection.requests.top
            } else {
                leg.next_to
            };
            self.forget_leg(connection, index);
            self.reset(leg.tuple, seq);
        }
    }

    /// Resets the idle legs to backends that are down: such a backend may have lost its end of the connection.
    fn reset_legs_to_down(&mut self, connection: &mut Connection) {
        for index in 0..connection.legs.len() {
            let leg = connection.legs[index];
            if leg.phase == phase::OPEN && self.tables.backends.is_down(leg.row) {
                self.forget_leg(connection, index);
                self.reset(leg.tuple, leg.next_to);
            }
        }
    }

    /// Resets the sender of packets with this tuple.
    pub(crate) fn reset(&mut self, tuple: Tuple, seq: u32) {
        let segment = Outgoing {
            flags: tcp_flags::RST,
            seq,
            ..Outgoing::default()
        };
        self.send(reversed(&tuple), &segment);
    }

    /// Acknowledges what the backend has sent.
    pub(crate) fn acknowledge_leg(&mut self, connection: &mut Connection) {
        let Some(leg) = connection.leg().copied() else {
            return;
        };
        let segment = Outgoing {
            flags: ACK,
            seq: connection.requests.top,
            ..Outgoing::default()
        };
        self.send_on_leg(connection, &leg, segment);
    }

    /// Puts the leg in use aside. The backend learns first that its last answer has arrived: the client may have said so with its next request.
    pub(crate) fn rest_leg(&mut self, connection: &mut Connection) {
        if connection.answers.told != connection.answers.seen {
            self.acknowledge_leg(connection);
        }
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

    /// Takes an idle leg to a backend that another client has left. Returns its index.
    pub(crate) fn take_idle_leg(
        &mut self,
        connection: &mut Connection,
        id: SlabId,
        row: u16,
    ) -> Option<usize> {
        let backend = self.snapshot.backend(row)?;
        if !self.snapshot.reuses(row) {
            return None;
        }
        // All legs of a connection see one clock, and the clocks that two legs have seen can be so far apart that none follows both.
        if connection.legs.iter().any(|leg| leg.phase != phase::NONE) {
            return None;
        }
        let now = self.now();
        let taken = self.tables.idle_legs.take(row, |idle| {
            let leg = &idle.leg;
            let end = (leg.tuple.source.ip(), leg.tuple.source_port);
            // The client must know the options that the backend uses, and take its segments.
            let is_usable = leg.options & !options::SCALE & !connection.options == 0
                && leg.told_mss <= connection.mss;
            end == (backend.address, backend.port) && is_usable && idle.until > now
        })?;
        if taken.leg.options & options::TIMESTAMPS != 0 {
            connection.to_backend.advance(taken.shown);
        }
        let leg = Leg {
            is_old: 1,
            ..taken.leg
        };
        connection.legs[0] = leg;
        self.tables.backends.resumed(row);
        let answers = &self.tables.answers;
        answers.update(&leg.tuple, now, FOREVER, |owner| *owner = id);
        Some(0)
    }

    /// Acknowledges what a backend has sent on a leg that is not in use. `shown`: the latest timestamp that it was sent.
    pub(crate) fn acknowledge_idle_leg(&mut self, leg: &Leg, shown: u32, room: u32) {
        let stamps = leg.has(options::TIMESTAMPS).then_some(Timestamps {
            value: shown,
            echo: leg.stamp,
        });
        let answer = Outgoing {
            flags: ACK,
            seq: leg.next_to,
            ack: leg.next_from,
            window: field(0, room, leg.told_scale()),
            stamps,
            ..Outgoing::default()
        };
        self.send(reversed(&leg.tuple), &answer);
    }
}
