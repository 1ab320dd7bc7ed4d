//! The handshake with clients: SYN cookies, so that a connection exists only after its client has answered.

use std::net::SocketAddr;

use bytemuck::Zeroable;
use nf_balancing::tuple::Tuple;
use nf_packet::tcp_flags;
use nf_splice::{
    cookie::{Accepted, Ends},
    options::{Syn, Timestamps},
    TimestampMap,
};

use crate::{
    pass::{Fate, Pass, Received},
    record::{framing, options, reversed, Connection, NO_LEG, SCALE},
    segments::{Outgoing, Segment, ACK},
    tables::{Event, FOREVER},
};

/// The window that a SYN is answered with, which is not scaled.
pub const FIRST_WINDOW: u16 = 65_535;

fn ends(tuple: &Tuple) -> Ends {
    Ends {
        client: SocketAddr::new(tuple.source.ip(), tuple.source_port),
        server: SocketAddr::new(tuple.destination.ip(), tuple.destination_port),
    }
}

impl Pass<'_> {
    /// Answers a client's SYN; remembers nothing.
    pub(crate) fn answer_syn(&mut self, received: &mut Received<'_>, tuple: &Tuple) {
        let now = self.now();
        let mut offered = received.segment.syn.unwrap_or_default();
        let listener = (tuple.destination.ip(), tuple.destination_port);
        // An endpoint needs nothing of backends.
        let lacking = if self.snapshot.is_tls(tuple) {
            0
        } else {
            self.snapshot.lacking(listener, &self.tables.backends, now)
        };
        offered.sack_permitted &= lacking & options::SACK == 0;
        if lacking & options::TIMESTAMPS != 0 {
            offered.timestamps = None;
        }
        let secrets = self.tables.secrets(now);
        let issued = secrets.issue(&ends(tuple), received.segment.seq, &offered, false, now);
        let stamps = issued.timestamp.map(|value| Timestamps {
            value,
            echo: offered.timestamps.map_or(0, |stamps| stamps.value),
        });
        let syn = Syn {
            mss: Some(self.mss_toward(tuple.source.ip())),
            window_scale: issued.scales.then_some(SCALE),
            sack_permitted: offered.sack_permitted,
            timestamps: stamps,
        };
        self.tables.count(Event::Syn);
        let answer = Outgoing {
            flags: tcp_flags::SYN | ACK,
            seq: issued.sequence,
            ack: received.segment.seq.wrapping_add(1),
            window: FIRST_WINDOW,
            syn: Some(syn),
            ..Outgoing::default()
        };
        self.send(reversed(tuple), &answer);
    }

    /// Returns what the cookie says that a client's first segment after its SYN acknowledges.
    pub(crate) fn accept_cookie(&self, received: &Received<'_>, tuple: &Tuple) -> Option<Accepted> {
        let segment = received.segment;
        let echo = segment.stamps.map(|stamps| stamps.echo);
        let now = self.now();
        let secrets = self.tables.secrets(now);
        secrets.check(&ends(tuple), segment.seq, segment.ack, echo, now)
    }

    /// Tells whether a segment belongs to a connection that the client has opened, but whose first segments were lost. The client repeats them.
    pub(crate) fn is_early(&self, segment: &Segment, tuple: &Tuple) -> bool {
        let now = self.now();
        let secrets = self.tables.secrets(now);
        let (ends, echo) = (ends(tuple), segment.stamps.map(|stamps| stamps.echo));
        let opens = secrets.check(&ends, segment.seq, segment.ack, echo, now);
        opens.is_none() && secrets.is_ours(&ends, segment.ack, now)
    }

    /// Opens a connection by the client's first segment after its SYN. Returns false if no cookie belongs to it.
    pub(crate) fn open(&mut self, received: &mut Received<'_>, tuple: &Tuple) -> bool {
        let Some(accepted) = self.accept_cookie(received, tuple) else {
            return false;
        };
        let (segment, now) = (received.segment, self.now());
        let tables = self.tables;
        let connection = self.connection(tuple, &accepted, &segment);
        let Some(id) = tables.connections.insert(connection) else {
            tables.count(Event::Full);
            return false;
        };
        if tables.clients.insert(tuple, now, FOREVER, id).is_err() {
            tables.connections.remove(id);
            tables.count(Event::Full);
            return false;
        }
        tables.count(Event::Connection);
        received.id = id;
        let fate = tables.connections.update(id, |connection| {
            connection.own(id.slot());
            let fate = self.client_says(connection, received);
            tables.timers.set(id.slot(), connection.deadline());
            fate
        });
        if fate == Some(Fate::Ends) {
            self.tables.remove(id);
        }
        true
    }

    pub(crate) fn connection(
        &self,
        tuple: &Tuple,
        accepted: &Accepted,
        segment: &Segment,
    ) -> Connection {
        let mut connection = Connection::zeroed();
        connection.client = *tuple;
        connection.peer = tuple.source;
        connection.peer_port = tuple.source_port;
        let listener = self.snapshot.listener_of(&connection);
        connection.awaits_proxy = listener.is_some_and(|each| each.proxy_protocol).into();
        connection.passes = listener.is_some_and(|each| each.passes).into();
        connection.mss = accepted.mss;
        connection.leg = NO_LEG;
        if let Some(scale) = accepted.window_scale {
            connection.scale = scale;
            connection.options |= options::SCALE;
        }
        if accepted.sack_permitted {
            connection.options |= options::SACK;
        }
        if let (true, Some(stamps)) = (accepted.timestamps, segment.stamps) {
            connection.options |= options::TIMESTAMPS;
            connection.to_backend = TimestampMap::starting_at(stamps.value);
            connection.to_client = TimestampMap::starting_at(stamps.echo);
        }
        let first = accepted.client_isn.wrapping_add(1);
        let requests = &mut connection.requests;
        requests.begin(first);
        requests.restart(first);
        requests.tell(first, FIRST_WINDOW.into());
        requests.framing = framing::ENDED;
        let answer = accepted.server_isn.wrapping_add(1);
        let answers = &mut connection.answers;
        answers.begin(answer);
        answers.restart(answer);
        answers.framing = framing::ENDED;
        answers.edge = answer.wrapping_add(segment.window.into());
        connection.limit_at = self.now() + self.snapshot.config.timeouts.idle.nanos();
        connection
    }
}
