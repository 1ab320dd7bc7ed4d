//! Source NAT: assigns local ports to connections and translates answers back.

use std::net::IpAddr;

use nf_packet::{rewrite_address, Fragment, Headers, Side};
use nf_runtime::Packet;
use nf_tables::{Class, Entry};

use crate::{
    events::Event,
    flow::{AnyFlow, Flow},
    pass::Pass,
    sessions::FIRST_HEALTH_PORT,
    snapshot::Backend,
    state::{traffic, Address, Tuple},
};

const FIRST_LOCAL_PORT: u16 = 1024;
/// The number of local ports toward one backend from one address.
pub const LOCAL_PORTS: u16 = FIRST_HEALTH_PORT - FIRST_LOCAL_PORT;
/// Attempts to find a free port for a connection.
const TRIES: u16 = 64;

/// A connection found by its local port.
pub struct Translated {
    pub entry: Entry,
    pub flow: AnyFlow,
}

impl Pass<'_> {
    /// Takes a port that no other connection to this backend uses.
    pub(crate) fn take_port(
        &self,
        tuple: &Tuple,
        backend: &Backend,
        hash: u64,
        class: Class,
    ) -> Option<u16> {
        let local = self.local_address(backend)?;
        let first = (hash % u64::from(LOCAL_PORTS)) as u16;
        (0..TRIES)
            // The stride is coprime to the number of ports.
            .map(|attempt| {
                let offset = u32::from(first) + u32::from(attempt) * 7919;
                FIRST_LOCAL_PORT + (offset % u32::from(LOCAL_PORTS)) as u16
            })
            .find(|port| self.hold_port(tuple, backend, (local, *port), class))
    }

    /// Takes a local port for a connection, or renews it. False: another connection has it and keeps it.
    pub(crate) fn hold_port(
        &self,
        tuple: &Tuple,
        backend: &Backend,
        local: (IpAddr, u16),
        class: Class,
    ) -> bool {
        let end = (backend.address, backend.port);
        let key = answer_tuple(end, local, tuple.protocol);
        let (now, lifetime) = (self.context.now(), self.port_lifetime(class));
        match self.state.clients.insert(&key, now, lifetime, *tuple) {
            Ok(()) => true,
            Err(Some(owner)) if owner == *tuple => {
                let _ = self.state.clients.get(&key, now, lifetime);
                true
            }
            Err(_) => false,
        }
    }

    /// Releases a port whose connection was not opened.
    pub(crate) fn release_port(&self, tuple: &Tuple, backend: &Backend, port: u16) {
        if let Some(local) = self.local_address(backend) {
            let end = (backend.address, backend.port);
            let key = answer_tuple(end, (local, port), tuple.protocol);
            let _ = self.state.clients.remove(&key, self.context.now());
        }
    }

    /// Returns a port's lifetime in nanoseconds: a quarter longer than a session's, since packets renew it only after a quarter of that.
    fn port_lifetime(&self, class: Class) -> u64 {
        let lifetime = self.session_lifetime(class);
        lifetime + lifetime / 4
    }

    pub(crate) fn local_address(&self, backend: &Backend) -> Option<IpAddr> {
        self.snapshot
            .interfaces
            .get(backend.way.interface)?
            .address(backend.address)
    }

    /// Returns the connection of a backend's packet to a local port.
    pub(crate) fn session_at(
        &self,
        end: (IpAddr, u16),
        local: (IpAddr, u16),
        protocol: u8,
    ) -> Option<Translated> {
        let now = self.context.now();
        let key = answer_tuple(end, local, protocol.into());
        let tuple = self.state.clients.look(&key, now)?;
        let flow = tuple.flow()?;
        // The client's previous port may still be held.
        self.session_of(&flow)
            .filter(|session| session.local_port == local.1)?;
        let entry = self.entry_of(&flow)?;
        let backend = self.snapshot.backend_at(entry.value)?;
        if (backend.address, backend.port) != end {
            return None;
        }
        let lifetime = self.port_lifetime(entry.class);
        let _ = self.state.clients.get(&key, now, lifetime);
        Some(Translated { entry, flow })
    }

    /// Handles a backend's packet to one of the load balancer's own addresses.
    pub(crate) fn answer_translated(&mut self, packet: &mut Packet, headers: &Headers) {
        let frame = packet.bytes();
        let end = (headers.source(frame), headers.source_port);
        let local = (headers.destination(frame), headers.destination_port);
        let Some(Translated { entry, flow }) = self.session_at(end, local, headers.protocol) else {
            return self.refuse(packet, None, Event::NoSession);
        };
        match flow {
            AnyFlow::V4(flow) => self.translate_answer(packet, headers, &flow, entry),
            AnyFlow::V6(flow) => self.translate_answer(packet, headers, &flow, entry),
        }
    }

    fn translate_answer<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        entry: Entry,
    ) {
        let number = entry.value;
        let Some(backend) = self.snapshot.backend_at(number) else {
            return self.not_ours(packet, headers);
        };
        let vip = &self.snapshot.vips[backend.vip];
        self.note_answer(packet, headers, flow, entry);
        let (client, client_port) = flow.source();
        if headers.fragment == Fragment::First {
            self.note_answered_fragment(packet, headers, number, Some(client));
        }
        self.session_to_client(packet, headers, &flow.tuple(), entry.class);
        let bytes = u64::from(headers.end) - u64::from(headers.network);
        let frame = packet.bytes_mut();
        rewrite_address(frame, headers, Side::Source, vip.address, vip.port);
        rewrite_address(frame, headers, Side::Destination, client, client_port);
        if self.send_to_client(packet, headers, client, backend.vip) {
            self.count_traffic(number, traffic::ANSWERS, bytes);
        }
    }
}

/// Returns the tuple of a backend's packet to a local port.
fn answer_tuple(end: (IpAddr, u16), local: (IpAddr, u16), protocol: u32) -> Tuple {
    Tuple {
        source: Address::from(end.0),
        destination: local.0.into(),
        source_port: end.1,
        destination_port: local.1,
        protocol,
    }
}
