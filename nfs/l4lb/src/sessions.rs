//! Sessions: the state that source NAT (`source_nat`) and the PROXY protocol (`proxy`) add to a connection.

use nf_packet::{protocol, rewrite_address, tcp_flags, Fragment, Headers, Side};
use nf_runtime::Packet;
use nf_tables::{Class, Entry};

use crate::{
    config::Timeouts,
    events::Event,
    flow::{AnyFlow, Flow},
    frames,
    pass::Pass,
    snapshot::{Backend, Vip},
    state::{Session, Tuple},
    stream::{Progress, Segment},
};

/// The first port reserved for health checks; source NAT uses the ports below.
pub const FIRST_HEALTH_PORT: u16 = 61_000;

impl Pass<'_> {
    /// Returns a session's lifetime after its last packet, in nanoseconds: it outlasts the connection's record.
    pub(crate) fn session_lifetime(&self, class: Class) -> u64 {
        let Timeouts {
            opening,
            established,
            closing,
            udp,
        } = self.snapshot.config.timeouts;
        let time = match class {
            Class::Opening => opening,
            Class::Established => established,
            Class::Closing => closing,
            Class::Datagram => udp,
        };
        time.nanos() + time.nanos() / 16 + 8_000_000_000
    }

    /// Creates the session of a new connection. False: the table is full, or no local port is free.
    pub(crate) fn open_session<F: Flow>(&mut self, flow: &F, vip: &Vip, entry: Entry) -> bool {
        let Some(backend) = self.snapshot.backend_at(entry.value) else {
            return false;
        };
        let tuple = flow.tuple();
        let local_port = if vip.snat {
            match self.take_port(&tuple, backend, flow.flow_hash(), entry.class) {
                Some(port) => port,
                None => return false,
            }
        } else {
            0
        };
        let session = Session {
            local_port,
            inserted: if vip.proxy_protocol {
                frames::proxy_header_length(vip.address.is_ipv4())
            } else {
                0
            },
            acknowledged: 0,
            answered: 0,
            // The client's SYN sets it when it is forwarded.
            start: 0,
            reserved: 0,
            renewed: 0,
            client: Progress::default(),
            backend: Progress::default(),
        };
        let lifetime = self.session_lifetime(entry.class);
        let now = self.context.now();
        let sessions = &self.state.sessions;
        let put = |old: &mut Session| *old = session;
        let has_room = sessions
            .update_or_insert(&tuple, now, lifetime, || session, put)
            .is_some();
        if !has_room && local_port != 0 {
            self.release_port(&tuple, backend, local_port);
        }
        has_room
    }

    /// Rewrites a client's packet for its backend; `class` is the record's after the packet. False: the packet was handled otherwise.
    pub(crate) fn session_to_backend<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        class: Class,
        backend: &Backend,
    ) -> bool {
        let tuple = flow.tuple();
        let now = self.context.now();
        let lifetime = self.session_lifetime(class);
        let segment = segment_of(packet, headers);
        let sessions = &self.state.sessions;
        let noted = sessions.update(&tuple, now, lifetime, |session| {
            if let Some(segment) = &segment {
                session.note_client(segment, class);
            }
            let renew = session.renewed == 0 || now.saturating_sub(session.renewed) > lifetime / 4;
            if renew {
                // Zero makes the packet after the SYN renew it, with a longer lifetime.
                session.renewed = if class == Class::Opening { 0 } else { now };
            }
            (*session, renew)
        });
        let vip = &self.snapshot.vips[backend.vip];
        let Some((session, renew)) = noted.filter(|(session, _)| session.fits(vip)) else {
            // The connection began with other options of its VIP.
            self.forget(flow);
            self.first(packet, headers, flow);
            return false;
        };
        if session.inserted > 0 && headers.fragment != Fragment::Whole {
            self.refuse(packet, Some(backend.vip), Event::ProtocolUnsupported);
            return false;
        }
        if !self.live_on(packet, headers, backend.vip) {
            return false;
        }
        if session.local_port != 0 {
            let Some(local) = self.local_address(backend) else {
                self.refuse(packet, Some(backend.vip), Event::NoRoute);
                return false;
            };
            if renew && !self.hold_port(&tuple, backend, (local, session.local_port), class) {
                self.forget(flow);
                self.refuse(packet, Some(backend.vip), Event::NoSession);
                return false;
            }
            let side = Side::Source;
            rewrite_address(packet.bytes_mut(), headers, side, local, session.local_port);
        }
        let side = Side::Destination;
        rewrite_address(
            packet.bytes_mut(),
            headers,
            side,
            backend.address,
            backend.port,
        );
        if session.inserted > 0 {
            self.insert_header(packet, headers, &session, flow, backend);
        }
        true
    }

    /// Notes a backend's packet and translates its numbers for the client.
    pub(crate) fn session_to_client(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        tuple: &Tuple,
        class: Class,
    ) {
        let now = self.context.now();
        let lifetime = self.session_lifetime(class);
        let segment = segment_of(packet, headers);
        let sessions = &self.state.sessions;
        let session = sessions.update(tuple, now, lifetime, |session| {
            if let Some(segment) = &segment {
                session.note_backend(segment);
            }
            *session
        });
        if let (Some(session), Some(_)) = (session, segment) {
            session.shift_back(packet, headers);
        }
    }

    /// Tells whether a client's packet ends its connection. Without a session, the flags alone decide.
    pub(crate) fn ends_by_client<F: Flow>(
        &self,
        packet: &Packet,
        headers: &Headers,
        flow: &F,
        backend: &Backend,
    ) -> bool {
        self.ends(packet, headers, flow, backend, Session::is_ended_by_client)
    }

    /// Tells whether a backend's packet ends its connection.
    pub(crate) fn ends_by_backend<F: Flow>(
        &self,
        packet: &Packet,
        headers: &Headers,
        flow: &F,
        backend: &Backend,
    ) -> bool {
        self.ends(packet, headers, flow, backend, Session::is_ended_by_backend)
    }

    #[inline]
    fn ends<F: Flow>(
        &self,
        packet: &Packet,
        headers: &Headers,
        flow: &F,
        backend: &Backend,
        is_ended: impl Fn(&Session, &Segment) -> bool,
    ) -> bool {
        let flags = tcp_flags::FIN | tcp_flags::RST;
        if headers.protocol != protocol::TCP || headers.tcp_flags & flags == 0 {
            return false;
        }
        if !self.snapshot.vips[backend.vip].has_sessions() {
            return true;
        }
        let session = self.state.sessions.look(&flow.tuple(), self.context.now());
        session
            .zip(segment_of(packet, headers))
            .is_some_and(|(session, segment)| is_ended(&session, &segment))
    }

    /// Returns the session of a connection.
    pub(crate) fn session_of(&self, flow: &AnyFlow) -> Option<Session> {
        self.state.sessions.look(&flow.tuple(), self.context.now())
    }
}

impl Session {
    /// Tells whether the session matches its VIP's options.
    fn fits(&self, vip: &Vip) -> bool {
        (self.local_port != 0, self.inserted != 0) == (vip.snat, vip.proxy_protocol)
    }
}

/// Returns the sequence numbers of a packet if it is a whole TCP segment.
fn segment_of(packet: &Packet, headers: &Headers) -> Option<Segment> {
    let is_whole = headers.protocol == protocol::TCP && headers.fragment == Fragment::Whole;
    is_whole
        .then(|| Segment::of(packet.bytes(), headers))
        .flatten()
}
