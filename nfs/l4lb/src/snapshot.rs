//! The snapshot that workers read: the configuration and the backends' condition, built once and shared until the next change.

use std::{
    collections::{HashMap, HashSet},
    hash::BuildHasherDefault,
    net::IpAddr,
    sync::Arc,
};

use nf_packet::{MacAddress, Tunnel, TunnelKind};
use nf_tables::Lifetimes;

use crate::{
    config::{self, Algorithm, Config, Mode, WhenDown},
    flow,
    maglev::Candidate,
    rows::Patience,
    service::{Service, ServiceHasher},
    spread::Spread,
    state::{health, BackendRecord, State},
    ways::{Interface, Way},
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
    pub interfaces: Vec<Interface>,
    services: Services<u32>,
    /// The spread of each VIP, prepared before this instance owns the state.
    spreads: Services<Arc<Spread>>,
    /// The endpoints of backends in mode nat, whose answers must be rewritten.
    endpoints: Services<End>,
    /// A bit per port from which a backend in mode nat answers. Most packets come from other ports and skip `endpoints`.
    answering_ports: Box<[u64]>,
    addresses: HashMap<IpAddr, Owner>,
    /// The next hops of all ways.
    pub(crate) nexts: HashSet<IpAddr>,
    /// The configured neighbours.
    pub(crate) fixed: HashMap<IpAddr, MacAddress>,
}

type Services<T> = HashMap<Service, T, BuildHasherDefault<ServiceHasher>>;

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

/// The owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Vip,
    /// The interface with this index.
    Own(usize),
    /// A backend in mode nat: the load balancer routes its packets.
    Backend,
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
    pub when_down: WhenDown,
    pub half_open_limit: u64,
    pub health: Option<config::Health>,
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
    pub way: Way,
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
    pub name: String,
}

impl Backend {
    /// Tells whether it takes new connections.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.weight > 0 && !self.drained && self.health != health::DOWN
    }
}

/// The rows of the state assigned to a configuration's VIPs and backends.
pub struct Rows {
    pub vips: Vec<usize>,
    /// The rows of each VIP's backends.
    pub backends: Vec<Vec<u16>>,
}

impl Snapshot {
    /// Builds a snapshot without VIPs, used until this instance owns the state. It prepares the slow parts, since packets will wait for the real one.
    #[must_use]
    pub fn waiting(wanted: Config, lifetimes: Lifetimes, state: &State) -> Self {
        let expected = state.assign(&wanted, 0, Patience::None);
        let spreads = expected.map_or_else(
            |_| HashMap::default(),
            |rows| Self::new(wanted.clone(), lifetimes, &rows, state, None).spreads,
        );
        let without = Config {
            vips: Vec::new(),
            ..wanted.clone()
        };
        let rows = Rows {
            vips: Vec::new(),
            backends: Vec::new(),
        };
        Self {
            wanted,
            spreads,
            ..Self::new(without, lifetimes, &rows, state, None)
        }
    }

    /// Returns the rows it was built with.
    #[must_use]
    pub fn rows(&self) -> Rows {
        Rows {
            vips: self.vips.iter().map(|vip| vip.row).collect(),
            backends: self.vips.iter().map(|vip| vip.backends.clone()).collect(),
        }
    }

    /// Builds a snapshot, reusing the unchanged parts of `old`.
    #[must_use]
    pub fn new(
        config: Config,
        lifetimes: Lifetimes,
        rows: &Rows,
        state: &State,
        old: Option<&Self>,
    ) -> Self {
        let interfaces: Vec<Interface> = config
            .interfaces
            .iter()
            .enumerate()
            .map(|(index, interface)| Interface {
                mtu: interface.mtu.into(),
                prefixes: interface.addresses.clone(),
                gateways: interface
                    .gateways
                    .iter()
                    .map(|gateway| Way::new(*gateway, index, interface.mtu.into()))
                    .collect(),
            })
            .collect();
        let mut snapshot = Self {
            lifetimes,
            vips: Vec::new(),
            backends: (0..state.backends.len()).map(|_| None).collect(),
            services: HashMap::default(),
            spreads: HashMap::default(),
            endpoints: HashMap::default(),
            answering_ports: vec![0; 1 << 10].into_boxed_slice(),
            addresses: HashMap::new(),
            nexts: HashSet::new(),
            fixed: config
                .neighbours
                .iter()
                .filter_map(|neighbour| Some((neighbour.address, neighbour.mac.parse().ok()?)))
                .collect(),
            interfaces,
            wanted: config.clone(),
            config,
        };
        for (index, interface) in snapshot.interfaces.iter().enumerate() {
            for prefix in &interface.prefixes {
                snapshot.addresses.insert(prefix.address, Owner::Own(index));
            }
        }
        let wanted = snapshot.config.vips.clone();
        for (index, vip) in wanted.iter().enumerate() {
            snapshot.add(vip, rows.vips[index], &rows.backends[index], state, old);
        }
        snapshot.nexts = snapshot.ways().map(|way| way.next).collect();
        snapshot
    }

    fn add(
        &mut self,
        vip: &config::Vip,
        row: usize,
        numbers: &[u16],
        state: &State,
        old: Option<&Self>,
    ) {
        let index = self.vips.len();
        let protocol = vip.protocol.number();
        for (backend, number) in vip.backends.iter().zip(numbers) {
            let record = state.backends.get(usize::from(*number));
            let backend = self.backend(vip, backend, index, &record);
            if vip.mode == Mode::Nat {
                let service = Service::new(backend.address, backend.port, protocol);
                let end = self.endpoints.entry(service).or_default();
                if vip.snat {
                    end.is_translated = true;
                } else {
                    end.plain = *number;
                }
                self.answering_ports[usize::from(backend.port >> 6)] |= 1 << (backend.port & 63);
                self.addresses
                    .entry(backend.address)
                    .or_insert(Owner::Backend);
            }
            self.backends[usize::from(*number)] = Some(backend);
        }
        let service = Service::new(vip.address, vip.port, protocol);
        self.services.insert(service, index as u32);
        self.addresses.insert(vip.address, Owner::Vip);
        let capacity = if vip.snat || vip.proxy_protocol {
            self.config.tables.sessions
        } else if vip.address.is_ipv4() {
            self.config.tables.connections_ipv4
        } else {
            self.config.tables.connections_ipv6
        };
        let mut view = Vip {
            name: vip.name.clone(),
            row,
            address: vip.address,
            port: vip.port,
            protocol,
            mode: vip.mode,
            algorithm: vip.algorithm,
            snat: vip.snat,
            proxy_protocol: vip.proxy_protocol,
            when_down: vip.when_down,
            half_open_limit: vip.half_open_limit.map_or(capacity as u64 / 8, u64::from),
            health: vip.health.clone(),
            backends: numbers.to_vec(),
            open: Vec::new(),
            spread: Arc::default(),
        };
        self.open(&mut view, old.and_then(|old| old.spreads.get(&service)));
        self.spreads.insert(service, Arc::clone(&view.spread));
        self.vips.push(view);
    }

    fn backend(
        &self,
        vip: &config::Vip,
        backend: &config::Backend,
        index: usize,
        record: &BackendRecord,
    ) -> Backend {
        let (interface, next) = self.route(backend.address).unwrap_or((0, backend.address));
        let source = self.interfaces[interface]
            .address(backend.address)
            .or_else(|| {
                self.interfaces
                    .iter()
                    .find_map(|interface| interface.address(backend.address))
            });
        let kind = match vip.mode {
            Mode::Nat => None,
            Mode::Ipip => Some(TunnelKind::Ipip),
            Mode::Gue => Some(TunnelKind::Gue { port: vip.gue_port }),
        };
        Backend {
            name: backend.name.clone(),
            vip: index,
            service: flow::service(vip.address, vip.port, vip.protocol.number()),
            address: backend.address,
            port: backend.port.unwrap_or(vip.port),
            weight: backend.weight,
            health: if vip.health.is_some() {
                record.health
            } else {
                health::UP
            },
            drained: backend.drain || record.drained != 0,
            tunnel: kind
                .zip(source)
                .and_then(|(kind, source)| Tunnel::new(source, backend.address, kind).ok()),
            way: Way::new(next, interface, self.interfaces[interface].mtu),
        }
    }

    /// Fills in the backends that take new connections.
    fn open(&self, vip: &mut Vip, before: Option<&Arc<Spread>>) {
        let backends = vip.backends.iter().filter_map(|number| {
            let backend = self.backends[usize::from(*number)].as_ref()?;
            backend.is_open().then_some((*number, backend))
        });
        let mut candidates = Vec::new();
        for (number, backend) in backends {
            vip.open.push((number, backend.weight));
            candidates.push(Candidate {
                identity: format!("{} {}", backend.address, backend.port),
                weight: backend.weight,
            });
        }
        vip.spread = match before {
            Some(before) if before.is_of(&candidates) => Arc::clone(before),
            _ => Arc::new(Spread::new(candidates)),
        };
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

    #[must_use]
    #[inline]
    pub fn owner(&self, address: IpAddr) -> Option<Owner> {
        self.addresses.get(&address).copied()
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
