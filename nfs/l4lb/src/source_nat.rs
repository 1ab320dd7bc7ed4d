//! Source NAT: assigns local ports to connections, and finds the connection of an answer.

use std::net::IpAddr;

use nf_balancing::{
    health,
    tuple::{Address, Tuple},
};
use nf_tables::{Class, Entry};

use crate::{flow::AnyFlow, pass::Pass, snapshot::Backend};

const FIRST_LOCAL_PORT: u16 = 1024;
/// The number of local ports toward one backend from one address. The ports above are for health checks.
pub const LOCAL_PORTS: u16 = health::FIRST_PORT - FIRST_LOCAL_PORT;
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
        let local = self.snapshot.local_address(backend)?;
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
        let answer = answer_tuple(backend.end(), local, tuple.protocol);
        self.records
            .hold_port(&answer, tuple, self.port_lifetime(class))
    }

    /// Releases a port whose connection was not opened.
    pub(crate) fn release_port(&self, tuple: &Tuple, backend: &Backend, port: u16) {
        if let Some(local) = self.snapshot.local_address(backend) {
            let answer = answer_tuple(backend.end(), (local, port), tuple.protocol);
            self.records.release_port(&answer);
        }
    }

    /// Returns a port's lifetime in nanoseconds: a quarter longer than a session's, since packets renew it only after a quarter of that.
    fn port_lifetime(&self, class: Class) -> u64 {
        let lifetime = self.snapshot.config.timeouts.of_session(class);
        lifetime + lifetime / 4
    }

    /// Returns the connection of a backend's packet to a local port.
    pub(crate) fn session_at(
        &self,
        end: (IpAddr, u16),
        local: (IpAddr, u16),
        protocol: u8,
    ) -> Option<Translated> {
        let answer = answer_tuple(end, local, protocol.into());
        let client = self.records.port(&answer)?;
        // The client's previous port may still be held.
        self.records
            .session(&client)
            .filter(|session| session.local_port == local.1)?;
        let flow = AnyFlow::of_tuple(&client)?;
        let entry = self.records.named(&flow)?;
        let backend = self.snapshot.backend_at(entry.value)?;
        if backend.end() != end {
            return None;
        }
        self.records
            .renew_port(&answer, &client, self.port_lifetime(entry.class));
        Some(Translated { entry, flow })
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
