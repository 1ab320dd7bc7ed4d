//! The workers' snapshot: the configuration, prepared for packets.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
};

use nf_balancing::{network::Network, tuple::Tuple, ways::Way};
use nf_http::Lines;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    backends::{key, Backends},
    config::{Algorithm, Config, Mode},
    log::Log,
    names::Names,
    record::Connection,
    routes::{Action, Route},
    sticky::Sticky,
    tls::Handshakers,
};

/// The rows of a configuration's routes, listener by listener, and of its backends, pool by pool.
#[derive(Default)]
pub struct Rows {
    pub routes: Vec<Vec<u16>>,
    pub backends: Vec<Vec<u16>>,
}

/// A configuration in force.
pub struct Snapshot {
    pub config: Config,
    pub names: Arc<Names>,
    pub log: Option<Arc<Log>>,
    pub network: Network,
    pub head_limits: nf_http::Limits,
    pub handshakers: Handshakers,
    listeners: HashMap<(IpAddr, u16), Listener>,
    pools: Vec<Pool>,
    /// By row.
    backends: Vec<Option<Backend>>,
}

pub struct Listener {
    pub routes: Vec<Route>,
    pub forwarded_for: bool,
    pub request_id: bool,
    /// The backends of all its routes.
    rows: Vec<u16>,
    pub proxy_protocol: bool,
    /// Its connections are TLS, which passes.
    pub passes: bool,
    /// The lines added to requests, and to answers of backends.
    pub add: Lines,
    pub add_to_answers: Lines,
}

/// A backend of a pool.
pub struct Backend {
    pub pool: usize,
    /// The hash of its pool's and its own name.
    pub key: u64,
    pub address: IpAddr,
    pub port: u16,
    pub way: Arc<Way>,
    /// The endpoint that health checks connect to.
    pub target: Option<Target>,
    weight: u16,
    drains: bool,
}

/// The endpoint of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub end: (IpAddr, u16),
    /// The hash by which the record of the check names the endpoint.
    pub key: u64,
}

impl Target {
    fn new(address: IpAddr, port: u16) -> Self {
        Self {
            end: (address, port),
            key: xxh3_64(format!("{address} {port}").as_bytes()).max(1),
        }
    }
}

pub struct Pool {
    pub sticky: Option<Sticky>,
    /// The version of the header of the PROXY protocol that backends get.
    pub proxy_protocol: Option<u8>,
    reuse: bool,
    algorithm: Algorithm,
    /// Rows, each as often as its weight says.
    turns: Vec<u16>,
    turn: AtomicUsize,
}

impl Snapshot {
    /// Builds the snapshot of a checked configuration. `count`: the rows of backends that there are.
    pub fn new(config: Config, rows: &Rows, count: usize, log: Option<Arc<Log>>) -> Self {
        let names = Arc::new(Names::new(&config, &rows.routes, &rows.backends));
        let route_rows = &rows.routes;
        let rows = &rows.backends;
        let mut network = Network::new(&config.interfaces, &config.neighbours);
        let mut backends: Vec<Option<Backend>> = (0..count).map(|_| None).collect();
        let mut pools = Vec::new();
        for (index, pool) in config.pools.iter().enumerate() {
            for (backend, row) in pool.backends.iter().zip(&rows[index]) {
                let way = network.add_destination(backend.address);
                let target = pool.health.as_ref().map(|health| {
                    Target::new(backend.address, health.port.unwrap_or(backend.port))
                });
                backends[usize::from(*row)] = Some(Backend {
                    pool: index,
                    key: key(&pool.name, &backend.name),
                    address: backend.address,
                    port: backend.port,
                    way,
                    target,
                    weight: backend.weight,
                    drains: backend.drain,
                });
            }
            let weights: Vec<usize> = pool
                .backends
                .iter()
                .map(|each| each.weight.into())
                .collect();
            let turns = turns(&weights)
                .into_iter()
                .map(|at| rows[index][at])
                .collect();
            pools.push(Pool {
                sticky: Sticky::new(pool, &rows[index]),
                proxy_protocol: pool.proxy_protocol,
                // Such a connection belongs to one client.
                reuse: pool.reuse && pool.proxy_protocol.is_none(),
                algorithm: pool.algorithm,
                turns,
                turn: AtomicUsize::new(0),
            });
        }
        let number = |name: &str| {
            let found = config.pools.iter().position(|pool| pool.name == name);
            found.unwrap_or_default()
        };
        let mut listeners = HashMap::new();
        for (listener, route_rows) in config.listeners.iter().zip(route_rows) {
            network.add_vip(listener.address);
            let routes: Vec<Route> = listener
                .routes
                .iter()
                .zip(route_rows)
                .map(|(route, row)| Route::new(route, *row, number))
                .collect();
            let pools = routes.iter().filter_map(|route| match route.action {
                Action::Pool(pool) => rows.get(pool),
                _ => None,
            });
            let prepared = Listener {
                rows: pools.flatten().copied().collect(),
                routes,
                forwarded_for: listener.forwarded_for,
                request_id: listener.request_id,
                proxy_protocol: listener.proxy_protocol,
                passes: listener.mode == Mode::TlsPassthrough,
                add: lines(&listener.add),
                add_to_answers: lines(&listener.add_to_answers),
            };
            listeners.insert((listener.address, listener.port), prepared);
        }
        let head_limits = nf_http::Limits {
            head_bytes: config.limits.head,
            ..nf_http::Limits::default()
        };
        Self {
            config,
            names,
            log,
            network,
            head_limits,
            handshakers: Handshakers::new(),
            listeners,
            pools,
            backends,
        }
    }

    /// Tells whether a client's packets are for a listener that terminates TLS.
    pub fn is_tls(&self, tuple: &Tuple) -> bool {
        let end = (tuple.destination.ip(), tuple.destination_port);
        self.handshakers.contains_key(&end)
    }

    pub fn listener(&self, end: (IpAddr, u16)) -> Option<&Listener> {
        self.listeners.get(&end)
    }

    /// Returns the listener of a connection. None: the configuration has it no more.
    pub fn listener_of(&self, connection: &Connection) -> Option<&Listener> {
        self.listener(connection.vip())
    }

    /// Returns the name of the cookie by which a pool's clients find their backends.
    pub fn cookie(&self, pool: usize) -> Option<&str> {
        self.pool(pool)?.sticky.as_ref()?.cookie()
    }

    pub fn pool(&self, index: usize) -> Option<&Pool> {
        self.pools.get(index)
    }

    /// Returns the options of TCP that some backend of a listener does not support. Its clients must not use them, either: a sender with SACK does
    /// not count duplicate ACKs without SACK blocks, and a receiver with timestamps may drop segments without them.
    pub fn lacking(&self, end: (IpAddr, u16), backends: &Backends, now: u64) -> u8 {
        let rows = self.listener(end).map(|listener| &listener.rows[..]);
        let each = rows.unwrap_or_default().iter();
        each.fold(0, |lacking, row| lacking | backends.lacks(*row, now))
    }

    pub fn backend(&self, row: u16) -> Option<&Backend> {
        self.backends.get(usize::from(row))?.as_ref()
    }

    /// Tells whether a backend belongs to a pool, and is the wanted one.
    pub fn serves(&self, row: u16, pool: usize, wanted: Option<u16>) -> bool {
        self.pool_of(row) == Some(pool) && wanted.is_none_or(|wanted| wanted == row)
    }

    /// Tells whether other clients use a pool's connections after the one that opened them.
    pub fn pool_reuses(&self, pool: usize) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.reuse)
    }

    /// Tells the same of a backend's pool.
    pub fn reuses(&self, row: u16) -> bool {
        self.pool_of(row).is_some_and(|pool| self.pool_reuses(pool))
    }

    pub fn pool_of(&self, row: u16) -> Option<usize> {
        self.backend(row).map(|backend| backend.pool)
    }

    /// Chooses a backend of a pool for a new leg, neither a down one nor `except`. None: all others are down, or drain.
    pub fn choose(&self, pool: usize, numbers: &Backends, except: Option<u16>) -> Option<u16> {
        let pool = self.pools.get(pool)?;
        let count = pool.turns.len();
        let start = pool.turn.fetch_add(1, Ordering::Relaxed);
        let takes = |row: &u16| {
            self.backend(*row).is_some_and(|backend| !backend.drains)
                && Some(*row) != except
                && !numbers.is_down(*row)
        };
        let mut rows = (0..count)
            .map(|step| pool.turns[(start + step) % count])
            .filter(takes);
        match pool.algorithm {
            Algorithm::RoundRobin => rows.next(),
            Algorithm::LeastLoaded => rows.min_by_key(|row| {
                let weight = self
                    .backend(*row)
                    .map_or(1, |backend| backend.weight.max(1));
                // Legs per weight, with three decimal places.
                numbers.active(*row) * 1000 / u64::from(weight)
            }),
        }
    }

    /// Iterates over the routes: listener, name and row.
    pub fn routes(&self) -> impl Iterator<Item = (&str, &str, u16)> + '_ {
        self.config.listeners.iter().flat_map(|listener| {
            let end = (listener.address, listener.port);
            let prepared = self.listener(end).map_or(&[][..], |each| &each.routes);
            let named = listener.routes.iter().zip(prepared);
            named.map(|(route, prepared)| (&*listener.name, &*route.name, prepared.row))
        })
    }

    /// Iterates over the backends with their rows.
    pub fn rows(&self) -> impl Iterator<Item = (u16, &Backend)> + '_ {
        let all = self.backends.iter().enumerate();
        all.filter_map(|(row, backend)| Some((row as u16, backend.as_ref()?)))
    }
}

/// Prepares checked header lines.
fn lines(written: &[String]) -> Lines {
    let pairs = written.iter().filter_map(|line| line.split_once(':'));
    let pairs = pairs.map(|(name, value)| (name, value.trim().as_bytes()));
    Lines::new(pairs).unwrap_or_default()
}

/// Returns the order of turns by weights, spread out evenly: each index as often as its weight, divided by the greatest common divisor.
fn turns(weights: &[usize]) -> Vec<usize> {
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let total: usize = weights.iter().map(|weight| weight / divisor).sum();
    let mut credits = vec![0_i64; weights.len()];
    (0..total)
        .map(|_| {
            for (credit, weight) in credits.iter_mut().zip(weights) {
                *credit += (weight / divisor) as i64;
            }
            let best = (0..weights.len()).max_by_key(|at| (credits[*at], std::cmp::Reverse(*at)));
            let best = best.unwrap_or_default();
            credits[best] -= total as i64;
            best
        })
        .collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn turns_follow_weights_and_are_spread_out() {
        assert_eq!(turns(&[2, 4, 2]), [1, 0, 2, 1]);
        assert_eq!(turns(&[1, 0, 1]), [0, 2]);
        assert_eq!(turns(&[0]), [0_usize; 0]);
        assert_eq!(turns(&[]), [0_usize; 0]);
    }
}
