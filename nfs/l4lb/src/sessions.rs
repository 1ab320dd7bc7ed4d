//! Sessions: the state that source NAT (`source_nat`) and the PROXY protocol (`proxy`) add to a connection.

use bytemuck::Zeroable;
use nf_balancing::{proxy_protocol, tuple::Tuple};
use nf_packet::{protocol, rewrite_address, tcp_flags, Fragment, Headers, Side};
use nf_runtime::Packet;
use nf_tables::{Class, Entry};

use crate::{
    events::Event,
    flow::Flow,
    pass::Pass,
    snapshot::{Backend, Vip},
    stream::{Segment, Session},
};

/// The result of rewriting a packet by its session.
pub(crate) enum Rewritten {
    Done,
    /// The packet was dropped, and its record removed if it cannot continue.
    Dropped,
    /// The connection has no session that fits its VIP: it began with other options.
    Unfit,
}

impl Pass<'_> {
    /// Creates the session of a new connection. False: the table is full, or no local port is free.
    pub(crate) fn open_session<F: Flow>(&self, flow: &F, vip: &Vip, entry: Entry) -> bool {
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
        // The client's SYN sets the rest when it is forwarded.
        let session = Session {
            local_port,
            inserted: if vip.proxy_protocol {
                proxy_protocol::header_length(vip.address.is_ipv4())
            } else {
                0
            },
            ..Session::zeroed()
        };
        let lifetime = self.snapshot.config.timeouts.of_session(entry.class);
        let has_room = self.records.open_session(&tuple, lifetime, session);
        if !has_room && local_port != 0 {
            self.release_port(&tuple, backend, local_port);
        }
        has_room
    }

    /// Rewrites a client's packet for its backend; `class` is the record's after the packet.
    pub(crate) fn session_to_backend<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        class: Class,
        backend: &Backend,
    ) -> Rewritten {
        let tuple = flow.tuple();
        let now = self.link.context.now();
        let lifetime = self.snapshot.config.timeouts.of_session(class);
        let segment = segment_of(packet, headers);
        let noted = self.records.update_session(&tuple, lifetime, |session| {
            if let Some(segment) = &segment {
                session.note_client(segment, class);
            }
            let renew = session.renewed == 0 || now.saturating_sub(session.renewed) > lifetime / 4;
            if renew {
                // Zero makes the packet after the SYN renew it, with a longer lifetime.
                session.renewed = if class == Class::Opening { 0 } else { now };
            }
            renew
        });
        let vip = &self.snapshot.vips[backend.vip];
        let Some((session, renew)) = noted.filter(|(session, _)| session.fits(vip)) else {
            return Rewritten::Unfit;
        };
        if session.inserted > 0 && headers.fragment != Fragment::Whole {
            self.refuse(packet, Some(backend.vip), Event::ProtocolUnsupported);
            return Rewritten::Dropped;
        }
        if !self.live_on(packet, headers, backend.vip) {
            return Rewritten::Dropped;
        }
        if session.local_port != 0 {
            let Some(local) = self.snapshot.local_address(backend) else {
                self.refuse(packet, Some(backend.vip), Event::NoRoute);
                return Rewritten::Dropped;
            };
            if renew && !self.hold_port(&tuple, backend, (local, session.local_port), class) {
                self.records.remove(flow);
                self.refuse(packet, Some(backend.vip), Event::NoSession);
                return Rewritten::Dropped;
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
        Rewritten::Done
    }

    /// Notes a backend's packet and translates its numbers for the client.
    pub(crate) fn session_to_client(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        tuple: &Tuple,
        class: Class,
    ) {
        let lifetime = self.snapshot.config.timeouts.of_session(class);
        let segment = segment_of(packet, headers);
        let noted = self.records.update_session(tuple, lifetime, |session| {
            if let Some(segment) = &segment {
                session.note_backend(segment);
            }
        });
        if let (Some((session, ())), Some(_)) = (noted, segment) {
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
        let session = self.records.session(&flow.tuple());
        session
            .zip(segment_of(packet, headers))
            .is_some_and(|(session, segment)| is_ended(&session, &segment))
    }
}

impl Pass<'_> {
    /// Tells whether a TCP connection has a session that does not match its VIP's options.
    pub(crate) fn has_unfit_session(&self, headers: &Headers, tuple: &Tuple, vip: &Vip) -> bool {
        let may =
            headers.protocol == protocol::TCP && vip.had_sessions_until > self.link.context.now();
        let session = || self.records.session(tuple);
        may && session().is_some_and(|session| !session.fits(vip))
    }

    /// Makes a connection's session one that changes nothing.
    pub(crate) fn clear_session(&self, tuple: &Tuple, class: Class) {
        let lifetime = self.snapshot.config.timeouts.of_session(class);
        let clear = |session: &mut Session| *session = Session::zeroed();
        // It may have expired meanwhile.
        let _ = self.records.update_session(tuple, lifetime, clear);
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
