//! Builds snapshots from a configuration and the backends' condition.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use nf_balancing::{health, maglev::Candidate, network::Network, service::Service, spread::Spread};
use nf_packet::{Tunnel, TunnelKind};
use nf_tables::Lifetimes;

use super::{Backend, Snapshot, Vip};
use crate::{
    config::{self, Config, Mode},
    flow,
    rows::{Patience, Rows},
    state::{BackendRecord, State},
};

impl Snapshot {
    /// Builds a snapshot without VIPs, used until this instance owns the state. It prepares the slow parts, since packets will wait for the real one.
    #[must_use]
    pub fn waiting(wanted: Config, lifetimes: Lifetimes, state: &State) -> Self {
        let expected = state.assign(&wanted, 0, Patience::None, |_| false);
        let spreads = expected.map_or_else(
            |_| HashMap::default(),
            |rows| Self::new(wanted.clone(), lifetimes, &rows, state, None, 0).spreads,
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
            ..Self::new(without, lifetimes, &rows, state, None, 0)
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
        now: u64,
    ) -> Self {
        let mut snapshot = Self {
            lifetimes,
            vips: Vec::new(),
            backends: (0..state.backends.len()).map(|_| None).collect(),
            services: HashMap::default(),
            spreads: HashMap::default(),
            endpoints: HashMap::default(),
            answering_ports: vec![0; 1 << 10].into_boxed_slice(),
            routed: HashSet::new(),
            network: Network::new(&config.interfaces, &config.neighbours),
            vtep: config.vtep.as_ref().and_then(|vtep| vtep.mac.parse().ok()),
            wanted: config.clone(),
            config,
        };
        let wanted = snapshot.config.vips.clone();
        for (index, vip) in wanted.iter().enumerate() {
            snapshot.add(vip, rows.vips[index], &rows.backends[index], state, old);
            if let Some(view) = snapshot.vips.last_mut() {
                if let Some(old) = old.filter(|_| !view.has_sessions()) {
                    view.had_sessions_until = old.has_sessions_until(view, now);
                }
            }
        }
        snapshot
    }

    /// Returns the time until which connections to this VIP may have sessions. A waiting snapshot does not know it: the state may be that of
    /// another process, whose configuration was another one.
    fn has_sessions_until(&self, vip: &Vip, now: u64) -> u64 {
        let mut wanted = self.wanted.vips.iter();
        let mut needs_sessions = || wanted.any(|vip| vip.snat || vip.proxy_protocol);
        let last = now.saturating_add(self.config.timeouts.longest_session());
        let index = self.service(vip.address, vip.port, vip.protocol);
        match index.and_then(|index| self.vips.get(index)) {
            Some(same) if same.has_sessions() => last,
            Some(same) if same.had_sessions_until > now => same.had_sessions_until,
            None if self.vips.is_empty() && needs_sessions() => last,
            _ => 0,
        }
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
                self.routed.insert(backend.address);
            }
            self.backends[usize::from(*number)] = Some(backend);
        }
        let service = Service::new(vip.address, vip.port, protocol);
        self.services.insert(service, index as u32);
        self.network.add_vip(vip.address);
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
            had_sessions_until: 0,
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
        &mut self,
        vip: &config::Vip,
        backend: &config::Backend,
        index: usize,
        record: &BackendRecord,
    ) -> Backend {
        let way = self.network.add_destination(backend.address);
        let mut interfaces = self.network.interfaces().iter();
        let vtep = self
            .config
            .vtep
            .as_ref()
            .filter(|_| vip.mode == Mode::Vxlan);
        let source = vtep
            .and_then(|vtep| vtep.address(backend.address))
            .or_else(|| self.network.own_address(way.interface, backend.address))
            .or_else(|| interfaces.find_map(|each| each.address(backend.address)));
        let kind = match vip.mode {
            Mode::Nat => None,
            Mode::Ipip => Some(TunnelKind::Ipip),
            Mode::Gue => Some(TunnelKind::Gue { port: vip.gue_port }),
            Mode::Vxlan => {
                let station = backend.inner_mac.as_ref().and_then(|mac| mac.parse().ok());
                vip.vni
                    .zip(station)
                    .map(|(network, station)| TunnelKind::Vxlan { network, station })
            }
        };
        Backend {
            name: backend.name.clone(),
            vip: index,
            service: flow::service(vip.address, vip.port, vip.protocol.number()),
            address: backend.address,
            inside: vtep.map(|_| backend.inner_address.unwrap_or(vip.address)),
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
            way,
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
}
