//! What workers read: the configuration and the backends' condition, made once and shared until the next change.

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
    maglev::{Candidate, Maglev},
    service::{Service, ServiceHasher},
    state::{health, BackendRecord, State},
    ways::{Interface, Way},
};

/// No backend.
pub const NONE: u16 = u16::MAX;

pub struct Snapshot {
    pub config: Config,
    /// What is to be in force once the state is this instance's.
    pub wanted: Config,
    pub lifetimes: Lifetimes,
    pub vips: Vec<Vip>,
    /// By the number that connections' records have. None: not in the configuration (any more).
    pub backends: Vec<Option<Backend>>,
    pub interfaces: Vec<Interface>,
    services: HashMap<Service, u32, BuildHasherDefault<ServiceHasher>>,
    /// Backends of mode nat: whose answers have to be rewritten.
    endpoints: HashMap<Service, End, BuildHasherDefault<ServiceHasher>>,
    /// A bit for each port that a backend of mode nat answers from: most packets come from others, and need no look at `endpoints`.
    answering_ports: Box<[u64]>,
    addresses: HashMap<IpAddr, Owner>,
    /// The next stations of all ways.
    pub(crate) nexts: HashSet<IpAddr>,
    /// The neighbours of the configuration.
    pub(crate) fixed: HashMap<IpAddr, MacAddress>,
}

/// Where backends of mode nat answer from.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The backend whose answers go to their clients; [`NONE`].
    pub plain: u16,
    /// A backend of VIPs with source NAT is there: its answers go to the load balancer's own address.
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

/// Whose an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Vip,
    /// Of the interface of this index.
    Own(usize),
    /// In mode nat: what it sends is routed.
    Backend,
}

pub struct Vip {
    pub name: String,
    /// Its row in the state.
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
    /// All of them, in the order of the configuration.
    pub backends: Vec<u16>,
    /// Those that take new connections, with their weights.
    pub open: Vec<(u16, u16)>,
    /// The open ones in turns, each as often as its weight says.
    pub turns: Vec<u16>,
    pub maglev: Arc<Maglev>,
}

impl Vip {
    /// Is the choice of a backend the same with and without a record, while the backends stay the same?
    #[must_use]
    #[inline]
    pub fn needs_no_records(&self) -> bool {
        self.algorithm == Algorithm::Maglev && !self.has_sessions()
    }

    /// Does a connection need more than its backend?
    #[must_use]
    #[inline]
    pub fn has_sessions(&self) -> bool {
        self.snat || self.proxy_protocol
    }
}

/// What each packet needs comes first, so that it is in one or two cache lines.
#[repr(C, align(64))]
pub struct Backend {
    pub way: Way,
    /// Index in [`Snapshot::vips`].
    pub vip: usize,
    /// The VIP's [`service`](fn@crate::flow::service).
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
    /// Does it take new connections?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.weight > 0 && !self.drained && self.health != health::DOWN
    }
}

/// Rows of the state that a configuration's VIPs and backends have.
pub struct Rows {
    pub vips: Vec<usize>,
    /// Per VIP.
    pub backends: Vec<Vec<u16>>,
}

impl Snapshot {
    /// Without VIPs: before the state is this instance's.
    #[must_use]
    pub fn waiting(wanted: Config, lifetimes: Lifetimes, state: &State) -> Self {
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
            ..Self::new(without, lifetimes, &rows, state, None)
        }
    }

    /// The rows that it was made with.
    #[must_use]
    pub fn rows(&self) -> Rows {
        Rows {
            vips: self.vips.iter().map(|vip| vip.row).collect(),
            backends: self.vips.iter().map(|vip| vip.backends.clone()).collect(),
        }
    }

    /// `old`: what did not change is taken from it.
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
            turns: Vec::new(),
            maglev: Arc::default(),
        };
        let before = old.and_then(|old| old.vips.iter().find(|vip| vip.row == row));
        self.open(&mut view, before);
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

    /// Fills in who takes new connections.
    fn open(&self, vip: &mut Vip, before: Option<&Vip>) {
        vip.open = vip
            .backends
            .iter()
            .filter_map(|number| {
                let backend = self.backends[usize::from(*number)].as_ref()?;
                backend.is_open().then_some((*number, backend.weight))
            })
            .collect();
        // Rows name the same backends as before: the same open ones make the same table.
        let same = before.filter(|before| before.open == vip.open);
        if let Some(before) = same {
            vip.turns.clone_from(&before.turns);
            vip.maglev = Arc::clone(&before.maglev);
            return;
        }
        vip.turns = turns(&vip.open);
        let identities: Vec<String> = vip
            .open
            .iter()
            .filter_map(|(number, _)| self.backends[usize::from(*number)].as_ref())
            .map(|backend| format!("{} {}", backend.address, backend.port))
            .collect();
        let candidates: Vec<Candidate<'_>> = vip
            .open
            .iter()
            .zip(&identities)
            .map(|((number, weight), identity)| Candidate {
                identity: identity.as_bytes(),
                weight: *weight,
                value: *number,
            })
            .collect();
        vip.maglev = Arc::new(Maglev::new(&candidates));
    }

    #[must_use]
    #[inline]
    pub fn service(&self, address: IpAddr, port: u16, protocol: u8) -> Option<usize> {
        self.services
            .get(&Service::new(address, port, protocol))
            .map(|index| *index as usize)
    }

    /// Whose backends answer from there.
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

    /// The backends of all VIPs, with their numbers.
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

/// Smooth weighted round robin (as in nginx), one turn written out.
fn turns(open: &[(u16, u16)]) -> Vec<u16> {
    const LONGEST: usize = 4096;
    let divisor = open
        .iter()
        .fold(0_u16, |divisor, (_, weight)| {
            greatest_common(divisor, *weight)
        })
        .max(1);
    let total: i64 = open
        .iter()
        .map(|(_, weight)| i64::from(weight / divisor))
        .sum();
    let mut credit = vec![0_i64; open.len()];
    let mut order = Vec::new();
    for _ in 0..(total as usize).min(LONGEST) {
        for (credit, (_, weight)) in credit.iter_mut().zip(open) {
            *credit += i64::from(weight / divisor);
        }
        let best = (0..open.len()).rev().max_by_key(|index| credit[*index]);
        if let Some(best) = best {
            credit[best] -= total;
            order.push(open[best].0);
        }
    }
    order
}

const fn greatest_common(a: u16, b: u16) -> u16 {
    if b == 0 {
        a
    } else {
        greatest_common(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_smooth_and_follow_weights() {
        assert_eq!(turns(&[(0, 5), (1, 1), (2, 1)]), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(turns(&[(7, 20), (9, 20)]), [7, 9]);
        assert!(turns(&[]).is_empty());
    }
}
