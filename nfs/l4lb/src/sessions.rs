//! Connections that need more than their backend: source NAT, and the PROXY protocol's header in the stream.
//!
//! The header is the first thing that the backend reads, before the client's first byte, so that every later byte of the client's has a sequence number
//! that is higher by the header's length for the backend than for the client. The load balancer keeps no bytes: whenever
//! the client sends a segment that starts where the stream does, and the backend has not acknowledged the header, the header
//! goes in front as a segment of its own. The segment that ends the handshake is such a one, so that a server which speaks first does not wait. A
//! header that is lost is sent again with the client's own retransmission: the backend's acknowledgements show
//! the client, translated, that nothing has arrived yet.

use std::net::IpAddr;

use nf_packet::{protocol, rewrite_address, tcp_flags, Fragment, Headers, Side, Tcp, TcpOption};
use nf_runtime::Packet;
use nf_tables::{Class, ConnectionTable};

use crate::{
    config::Timeouts,
    events::Event,
    flow::{AnyFlow, Flow},
    frames,
    pass::Pass,
    snapshot::{Backend, Owner, Vip},
    state::{traffic, Address, Endpoint, Session, Tuple},
};

/// Ports of the load balancer's own addresses: source NAT has those below, health checks the rest.
pub const FIRST_HEALTH_PORT: u16 = 61_000;
const FIRST_LOCAL_PORT: u16 = 1024;
/// Ports that are tried for a connection.
const TRIES: u16 = 64;

impl Pass<'_> {
    /// Nanoseconds that a session outlives its last packet: longer than the connection's record may.
    fn session_lifetime(&self, class: Class) -> u64 {
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

    /// Makes the session of a new connection. False: there is no room, or no port.
    pub(crate) fn open_session<F: Flow>(
        &mut self,
        packet: &Packet,
        headers: &Headers,
        flow: &F,
        vip: &Vip,
        number: u16,
    ) -> bool {
        let Some(backend) = self.snapshot.backend_at(number) else {
            return false;
        };
        let tuple = flow.tuple();
        let class = if headers.protocol == protocol::TCP {
            Class::Opening
        } else {
            Class::Datagram
        };
        let lifetime = self.session_lifetime(class);
        let local_port = if vip.snat {
            match self.take_port(&tuple, backend, flow.flow_hash(), lifetime) {
                Some(port) => port,
                None => return false,
            }
        } else {
            0
        };
        let start = Tcp::new_checked(headers.segment(packet.bytes()))
            .map_or(0, |tcp| tcp.sequence().wrapping_add(1));
        let session = Session {
            local_port,
            backend: number,
            inserted: if vip.proxy_protocol {
                frames::proxy_header_length(vip.address.is_ipv4())
            } else {
                0
            },
            acknowledged: 0,
            start,
            reserved: 0,
            renewed: 0,
        };
        self.state
            .sessions
            .update_or_insert(
                &tuple,
                self.context.now(),
                lifetime,
                || session,
                |old| *old = session,
            )
            .is_some()
    }

    /// A port from which no other connection goes to this backend.
    fn take_port(&self, tuple: &Tuple, backend: &Backend, hash: u64, lifetime: u64) -> Option<u16> {
        let local = self.local_address(backend)?;
        let client = Endpoint {
            address: tuple.source,
            port: tuple.source_port,
            reserved: [tuple.destination_port, 0, 0],
        };
        let ports = FIRST_HEALTH_PORT - FIRST_LOCAL_PORT;
        let first = (hash % u64::from(ports)) as u16;
        (0..TRIES)
            // A stride that has no factor in common with the number of ports.
            .map(|attempt| {
                let offset = u32::from(first) + u32::from(attempt) * 7919;
                FIRST_LOCAL_PORT + (offset % u32::from(ports)) as u16
            })
            .find(|port| {
                let key = answer_tuple(backend, tuple.protocol, local, *port);
                let mut is_new = false;
                let owner = self.state.clients.update_or_insert(
                    &key,
                    self.context.now(),
                    lifetime,
                    || {
                        is_new = true;
                        client
                    },
                    |owner| *owner,
                );
                is_new || owner == Some(client)
            })
    }

    fn local_address(&self, backend: &Backend) -> Option<IpAddr> {
        self.snapshot
            .interfaces
            .get(backend.way.interface)?
            .address(backend.address)
    }

    /// Rewrites a client's packet for its backend. False: it was dropped.
    pub(crate) fn session_to_backend<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        backend: &Backend,
    ) -> bool {
        let tuple = flow.tuple();
        let now = self.context.now();
        let lifetime = self.session_lifetime(class_of(headers));
        let syn = headers.protocol == protocol::TCP && headers.tcp_flags & tcp_flags::SYN != 0;
        let sequence =
            Tcp::new_checked(headers.segment(packet.bytes())).map_or(0, |tcp| tcp.sequence());
        let mut renew = false;
        let session = self
            .state
            .sessions
            .update(&tuple, now, lifetime, |session| {
                if syn {
                    session.start = sequence.wrapping_add(1);
                    session.acknowledged = 0;
                }
                renew = session.renewed == 0 || now.saturating_sub(session.renewed) > lifetime / 4;
                if renew {
                    // What follows the SYN renews again: it gives a longer life.
                    session.renewed = if syn { 0 } else { now };
                }
                *session
            });
        let Some(session) = session else {
            self.end_without_session(packet, headers, backend.vip);
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
            if renew {
                let key = answer_tuple(backend, tuple.protocol, local, session.local_port);
                let _ = self.state.clients.get(&key, now, lifetime);
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
            self.insert_header(packet, headers, &session, &tuple, backend);
        }
        true
    }

    /// Shifts a client's segment behind the header; sends the header where it may be missing.
    fn insert_header(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        session: &Session,
        tuple: &Tuple,
        backend: &Backend,
    ) {
        let flags = headers.tcp_flags;
        if flags & tcp_flags::SYN != 0 {
            return without_fast_open(packet, headers);
        }
        let Ok(mut tcp) = Tcp::new_checked(headers.segment_mut(packet.bytes_mut())) else {
            return;
        };
        let sequence = tcp.sequence();
        let place = sequence.wrapping_sub(session.start) as i32;
        let missing = session.acknowledged == 0;
        if missing && (place < 0 || (place == 0 && flags & tcp_flags::RST != 0)) {
            return;
        }
        let has_more = !tcp.payload().is_empty() || flags & tcp_flags::FIN != 0;
        if !(missing && place == 0) {
            return tcp.set_sequence(sequence.wrapping_add(session.inserted.into()));
        }
        // The segment gets a new checksum below; a wrong one must not become right by that.
        let frame = packet.bytes();
        let ends = (headers.source(frame), headers.destination(frame));
        if !Tcp::new_checked(headers.segment(frame))
            .is_ok_and(|tcp| tcp.checksum_holds(ends.0, ends.1))
        {
            return;
        }
        let client = (tuple.source.ip(), tuple.source_port);
        let vip = (tuple.destination.ip(), tuple.destination_port);
        let (header, length) = frames::proxy_header(client, vip);
        let Some(first) = frames::with_payload(packet.bytes(), headers, &header[..length]) else {
            return;
        };
        if has_more {
            if let Ok(mut tcp) = Tcp::new_checked(headers.segment_mut(packet.bytes_mut())) {
                tcp.set_sequence(sequence.wrapping_add(session.inserted.into()));
            }
            packet.truncate(headers.end as usize);
            if let Some(mac) = backend.way.mac() {
                self.send(packet, backend.way.interface, mac);
            }
            self.out.emit(backend.way.interface, packet.bytes());
        }
        let port = packet.port();
        if !packet.fill(port, &first) {
            packet.drop_for(Event::TooBig.name());
        }
    }

    /// Shifts a backend's acknowledgements back to the client's numbers.
    pub(crate) fn session_to_client(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        tuple: &Tuple,
    ) {
        if headers.protocol != protocol::TCP || headers.fragment != Fragment::Whole {
            return;
        }
        let Ok(mut tcp) = Tcp::new_checked(headers.segment_mut(packet.bytes_mut())) else {
            return;
        };
        let (has_ack, acknowledgement) = (tcp.flags() & tcp_flags::ACK != 0, tcp.acknowledgement());
        let now = self.context.now();
        let lifetime = self.session_lifetime(class_of(headers));
        let session = self.state.sessions.update(tuple, now, lifetime, |session| {
            let arrived = acknowledgement.wrapping_sub(session.start) as i32;
            if has_ack && session.inserted > 0 && arrived >= i32::from(session.inserted) {
                session.acknowledged = 1;
            }
            *session
        });
        let Some(session) = session.filter(|session| session.inserted > 0) else {
            return;
        };
        if has_ack {
            tcp.set_acknowledgement(session.for_client(acknowledgement));
        }
        let selective: Option<(usize, usize)> = tcp
            .options()
            .find(|option| option.kind == TcpOption::SACK)
            .map(|option| (option.at, option.data.len()));
        if let Some((at, length)) = selective {
            for edge in (at..at + length / 4 * 4).step_by(4) {
                tcp.replace32(edge, session.for_client(tcp.word(edge)));
            }
        }
    }

    /// A backend's packet where more than one VIP may be meant, or the client is behind source NAT.
    pub(crate) fn answer_of_many(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        numbers: &[u16],
    ) {
        let frame = packet.bytes();
        let destination = headers.destination(frame);
        if matches!(self.snapshot.owner(destination), Some(Owner::Own(_))) {
            return self.answer_translated(packet, headers, numbers);
        }
        let untranslated = numbers.iter().filter(|number| {
            self.snapshot
                .backend_at(**number)
                .is_some_and(|backend| !self.snapshot.vips[backend.vip].snat)
        });
        // The VIP of which there is a record; without one the first.
        let mut first = None;
        for number in untranslated {
            let Some(flow) = self.answered_flow(packet.bytes(), headers, *number) else {
                continue;
            };
            first = first.or(Some((*number, flow)));
            if self
                .entry_of(&flow)
                .is_some_and(|entry| entry.value == *number)
            {
                return self.decide_any(packet, headers, &flow, *number);
            }
        }
        match first {
            Some((number, flow)) => self.decide_any(packet, headers, &flow, number),
            None => self.not_ours(packet, headers),
        }
    }

    /// What a connection needs beyond its backend.
    pub(crate) fn session_of(&self, flow: &AnyFlow) -> Option<Session> {
        let tuple = match flow {
            AnyFlow::V4(flow) => flow.tuple(),
            AnyFlow::V6(flow) => flow.tuple(),
        };
        let lifetime = self.session_lifetime(Class::Established);
        self.state
            .sessions
            .get(&tuple, self.context.now(), lifetime)
    }

    /// The session behind a local port: its backend, and what its client sends.
    pub(crate) fn session_at(
        &self,
        local: IpAddr,
        local_port: u16,
        protocol: u8,
        numbers: &[u16],
    ) -> Option<(u16, AnyFlow)> {
        let now = self.context.now();
        numbers.iter().find_map(|number| {
            let backend = self.snapshot.backend_at(*number)?;
            let vip = &self.snapshot.vips[backend.vip];
            let key = answer_tuple(backend, protocol.into(), local, local_port);
            let short = self.session_lifetime(Class::Opening);
            let client = self.state.clients.get(&key, now, short)?;
            let flow = AnyFlow::new(
                (client.address.ip(), client.port),
                (vip.address, vip.port),
                protocol,
            )?;
            let entry = self.entry_of(&flow)?;
            if entry.class != Class::Opening {
                let lifetime = self.session_lifetime(entry.class);
                let established = self.session_lifetime(Class::Established);
                let _ = self.state.clients.get(&key, now, lifetime.max(established));
            }
            (entry.value == *number && client.reserved[0] == vip.port).then_some((*number, flow))
        })
    }

    fn answer_translated(&mut self, packet: &mut Packet, headers: &Headers, numbers: &[u16]) {
        let local = headers.destination(packet.bytes());
        let port = headers.destination_port;
        let Some((number, flow)) = self.session_at(local, port, headers.protocol, numbers) else {
            return self.refuse(packet, None, Event::NoSession);
        };
        match flow {
            AnyFlow::V4(flow) => self.translate_answer(packet, headers, &flow, number),
            AnyFlow::V6(flow) => self.translate_answer(packet, headers, &flow, number),
        }
    }

    fn translate_answer<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        number: u16,
    ) {
        let Some(backend) = self.snapshot.backend_at(number) else {
            return self.not_ours(packet, headers);
        };
        let vip = &self.snapshot.vips[backend.vip];
        if let Some(entry) = F::table(self.state).lookup(flow, &self.now) {
            self.note_answer(headers, flow, entry);
        }
        let (client, client_port) = flow.source();
        if headers.fragment == Fragment::First {
            self.note_answered_fragment(packet, headers, number, Some(client));
        }
        self.session_to_client(packet, headers, &flow.tuple());
        let bytes = u64::from(headers.end) - u64::from(headers.network);
        let frame = packet.bytes_mut();
        rewrite_address(frame, headers, Side::Source, vip.address, vip.port);
        rewrite_address(frame, headers, Side::Destination, client, client_port);
        if self.send_to_client(packet, headers, client, backend.vip) {
            self.count_traffic(number, traffic::ANSWERS, bytes);
        }
    }
}

impl Session {
    /// A position in the stream as the backend sees it, for the client: inside the header nothing of the client's has arrived.
    #[must_use]
    pub fn for_client(&self, number: u32) -> u32 {
        let place = number.wrapping_sub(self.start) as i32;
        if place <= 0 {
            number
        } else {
            let own = (place - i32::from(self.inserted)).max(0);
            self.start.wrapping_add(own as u32)
        }
    }
}

/// What a backend's packet to a local port says.
fn answer_tuple(backend: &Backend, protocol: u32, local: IpAddr, port: u16) -> Tuple {
    Tuple {
        source: Address::from(backend.address),
        destination: local.into(),
        source_port: backend.port,
        destination_port: port,
        protocol,
    }
}

fn class_of(headers: &Headers) -> Class {
    match headers.protocol {
        protocol::UDP => Class::Datagram,
        _ if headers.tcp_flags & tcp_flags::SYN != 0 => Class::Opening,
        _ if headers.tcp_flags & tcp_flags::RST != 0 => Class::Closing,
        // A connection that is closing may have data under way for as long as one that is not.
        _ => Class::Established,
    }
}

/// Data in a SYN would come before the header: the client sends it again when only its SYN is acknowledged (RFC 7413, 4.2). The option goes too.
fn without_fast_open(packet: &mut Packet, headers: &Headers) {
    let frame = packet.bytes();
    let (source, destination) = (headers.source(frame), headers.destination(frame));
    let Ok(tcp) = Tcp::new_checked(headers.segment(frame)) else {
        return;
    };
    if !tcp.checksum_holds(source, destination) {
        return;
    }
    let option = tcp
        .options()
        .find(|option| option.kind == TcpOption::FAST_OPEN)
        .map(|option| (option.at - 2, option.data.len() + 2));
    let has_data = !tcp.payload().is_empty();
    if option.is_none() && !has_data {
        return;
    }
    let Some(mut frame) = frames::with_payload(frame, headers, &[]) else {
        return;
    };
    if let Some((at, length)) = option {
        let start = usize::from(headers.transport) + at;
        frame[start..start + length].fill(1);
        if let Ok(mut tcp) = Tcp::new_checked(&mut frame[usize::from(headers.transport)..]) {
            tcp.fill_checksum(source, destination);
        }
    }
    let port = packet.port();
    if !packet.fill(port, &frame) {
        packet.drop_for(Event::TooBig.name());
    }
}
