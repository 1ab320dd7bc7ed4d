//! The snapshot that workers read: the configuration and the backends' condition, built once and shared until the next change.

mod build;

use std::{collections::HashSet, net::IpAddr, sync::Arc};

use nf_balancing::{
    config::Health,
    health,
    network::Network,
    service::{Service, Services},
    spread::Spread,
    ways::Way,
};
use nf_packet::{MacAddress, Tunnel};
use nf_tables::Lifetimes;

use crate::{
    config::{Algorithm, Config, Mode, WhenDown},
    rows::Rows,
};

/// No backend.
pub const NONE: u16 = u16::MAX;

pub struct Snapshot {
    pub config: Config,
    /// The configuration that takes effect once this instance owns the state.
    pub wanted: Config,
    pub lifetimes: Lifetimes,
    pub vips: Vec<Vip>,
    /// Indexed by the backend number in records. None: not in the configuration, or no longer.
    pub backends: Vec<Option<Backend>>,
    pub network: Network,
    /// The source of inner frames, if a switch encapsulates alike.
    pub vtep: Option<MacAddress>,
    services: Services<u32>,
    /// The spread of each VIP, prepared before this instance owns the state.
    spreads: Services<Arc<Spread>>,
    /// The endpoints of backends in mode nat, whose answers must be rewritten.
    endpoints: Services<End>,
    /// A bit per port from which a backend in mode nat answers. Most packets come from other ports and skip `endpoints`.
    answering_ports: Box<[u64]>,
    /// The backends in mode nat, whose packets are routed.
    routed: HashSet<IpAddr>,
}

/// The backends in mode nat that share an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The backend without source NAT, whose answers go to the client; [`NONE`] if there is none.
    pub plain: u16,
    /// Whether a backend with source NAT has this endpoint: its answers go to the load balancer's own address.
    pub is_translated: bool,
}

impl Default for End {
    fn default() -> Self {
        Self {
            plain: NONE,
            is_translated: false,
        }
    }
}

pub struct Vip {
    pub name: String,
    /// The VIP's row in the state.
    pub row: usize,
    pub address: IpAddr,
    pub port: u16,
    pub protocol: u8,
    pub mode: Mode,
    pub algorithm: Algorithm,
    pub snat: bool,
    pub proxy_protocol: bool,
    /// The time until which older connections may have sessions, which these options do not allow; zero: none has.
    pub had_sessions_until: u64,
    pub when_down: WhenDown,
    pub half_open_limit: u64,
    pub health: Option<Health>,
    /// All backends, in the order of the configuration.
    pub backends: Vec<u16>,
    /// The backends that take new connections, with their weights.
    pub open: Vec<(u16, u16)>,
    spread: Arc<Spread>,
}

impl Vip {
    /// Returns the choice for a flow's hash that every load balancer makes.
    #[must_use]
    #[inline]
    pub fn agreed(&self, hash: u64) -> Option<u16> {
        self.number_of(self.spread.agreed(hash)?)
    }

    /// Returns the choice for a turn of round robin.
    #[must_use]
    pub fn in_turn(&self, turn: u64) -> Option<u16> {
        self.number_of(self.spread.in_turn(turn)?)
    }

    #[inline]
    fn number_of(&self, position: u16) -> Option<u16> {
        let (number, _) = self.open.get(usize::from(position))?;
        Some(*number)
    }

    /// Tells whether the choice is the same with and without a record while the backends stay the same.
    #[must_use]
    #[inline]
    pub fn needs_no_records(&self) -> bool {
        self.algorithm == Algorithm::Maglev && !self.has_sessions()
    }

    /// Tells whether its connections need sessions.
    #[must_use]
    #[inline]
    pub fn has_sessions(&self) -> bool {
        self.snat || self.proxy_protocol
    }
}

/// A backend of one VIP. The fields that each packet needs come first, so that they share one or two cache lines.
#[repr(C, align(64))]
pub struct Backend {
    pub way: Arc<Way>,
    /// Index in [`Snapshot::vips`].
    pub vip: usize,
    /// The VIP's identifier: see [`service`](fn@crate::flow::service).
    pub service: u64,
    pub tunnel: Option<Tunnel>,
    pub health: u8,
    pub drained: bool,
    pub port: u16,
    pub weight: u16,
    pub address: IpAddr,
    /// Its address behind the tunnel, to which packets are rewritten; None: they stay as they are.
    pub inside: Option<IpAddr>,
    pub name: String,
}

impl Backend {
    /// Tells whether it takes new connections.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.weight > 0 && !self.drained && self.health != health::DOWN
    }

    /// Returns the endpoint that connections go to.
    #[must_use]
    pub fn end(&self) -> (IpAddr, u16) {
        (self.address, self.port)
    }
}

impl Snapshot {
    /// Returns the rows it was built with.
    #[must_use]
    pub fn rows(&self) -> Rows {
        Rows {
            vips: self.vips.iter().map(|vip| vip.row).collect(),
            backends: self.vips.iter().map(|vip| vip.backends.clone()).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn has_spreads_of(&self, other: &Self) -> bool {
        let mut own = self.spreads.iter();
        self.spreads.len() == other.spreads.len()
            && own.all(|(service, own)| {
                let found = other.spreads.get(service);
                found.is_some_and(|found| Arc::ptr_eq(found, own))
            })
    }

    #[must_use]
    #[inline]
    pub fn service(&self, address: IpAddr, port: u16, protocol: u8) -> Option<usize> {
        self.services
            .get(&Service::new(address, port, protocol))
            .map(|index| *index as usize)
    }

    /// Returns the backends that answer from an endpoint.
    #[must_use]
    #[inline]
    pub fn endpoint(&self, address: IpAddr, port: u16, protocol: u8) -> Option<End> {
        if self.answering_ports[usize::from(port >> 6)] & 1 << (port & 63) == 0 {
            return None;
        }
        self.endpoints
            .get(&Service::new(address, port, protocol))
            .copied()
    }

    /// Tells whether the load balancer routes the packets of this address: a backend in mode nat.
    #[must_use]
    pub fn is_routed(&self, address: IpAddr) -> bool {
        self.routed.contains(&address)
    }

    /// Returns the load balancer's own address toward a backend.
    #[must_use]
    pub fn local_address(&self, backend: &Backend) -> Option<IpAddr> {
        self.network
            .own_address(backend.way.interface, backend.address)
    }

    /// Iterates over the backends of all VIPs, with their numbers.
    pub fn in_use(&self) -> impl Iterator<Item = (u16, &Backend)> {
        let numbers = self.vips.iter().flat_map(|vip| &vip.backends);
        numbers.filter_map(|number| Some((*number, self.backend_at(*number)?)))
    }

    #[must_use]
    #[inline]
    pub fn backend_at(&self, number: u16) -> Option<&Backend> {
        self.backends.get(usize::from(number))?.as_ref()
    }
}
