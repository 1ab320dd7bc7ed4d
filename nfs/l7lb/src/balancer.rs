//! The load balancer: its state, and the snapshot in force.

use std::{
    path::Path,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, PoisonError, RwLock,
    },
};

use nf_balancing::link::Upkeep;
use nf_runtime::{state::StateBuilder, Context, CounterSink, Emitted, Refusal};

use crate::{
    backends::key,
    check::check,
    config::{self, Config, Limits},
    log::Log,
    pass::{Pass, Scratch},
    snapshot::{Rows, Snapshot},
    tables::Tables,
    tls,
};

/// The network function `l7lb`.
pub struct L7lb {
    tables: Arc<Tables>,
    threads: tls::Threads,
    snapshot: RwLock<Arc<Snapshot>>,
    /// Held while the next snapshot is made.
    changing: Mutex<()>,
    log: Mutex<Option<Arc<Log>>>,
    /// Buffers that no worker uses at the moment.
    scratches: Mutex<Vec<Scratch>>,
    /// The time of the latest batch or tick.
    now: AtomicU64,
    upkeep: Upkeep,
}

impl L7lb {
    pub(crate) fn new(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        check(&config)?;
        tls::prepare(&config.listeners)?;
        let tables = Arc::new(Tables::declare(&config.limits, state)?);
        let torn = Arc::clone(&tables);
        state.on_repair(move || torn.repair());
        // Rows are assigned when the state is taken over.
        let waiting = Config {
            listeners: Vec::new(),
            pools: Vec::new(),
            ..config.clone()
        };
        let log = config.log.as_ref().map(Log::open).transpose()?;
        let mut snapshot = Snapshot::new(waiting, &Rows::default(), tables.backends.len(), None);
        snapshot.config = config;
        Ok(Self {
            tables,
            threads: tls::Threads::default(),
            snapshot: RwLock::new(Arc::new(snapshot)),
            changing: Mutex::new(()),
            log: Mutex::new(log.map(Arc::new)),
            scratches: Mutex::new(Vec::new()),
            now: AtomicU64::new(0),
            upkeep: Upkeep::default(),
        })
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        // The snapshot is replaced as a whole, so it is valid even after a panic.
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a configuration in force.
    pub(crate) fn install(&self, config: Config) -> Result<(), Refusal> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        check(&config)?;
        let (old, new) = (&self.snapshot().config.limits, &config.limits);
        let sizes = |limits: &Limits| {
            [
                limits.connections,
                limits.backends,
                limits.routes,
                limits.chunks,
                limits.neighbours,
            ]
        };
        if sizes(old) != sizes(new) {
            return Err(Refusal::configuration(
                "limits",
                "sizes of tables cannot change while an instance lives; start a new one",
            ));
        }
        let handshakers = tls::prepare(&config.listeners)?;
        let log = self.log(config.log.as_ref())?;
        let rows = Rows {
            routes: self.assign_routes(&config)?,
            backends: self.assign(&config)?,
        };
        let mut snapshot = Snapshot::new(config, &rows, self.tables.backends.len(), log);
        snapshot.handshakers = handshakers;
        for (row, backend) in snapshot.rows() {
            let target = backend.target.map_or(0, |target| target.key);
            self.tables.backends.aim(row, target);
        }
        let now = self.now.load(Ordering::Relaxed);
        snapshot.network.resolve(&self.tables.neighbours, now);
        let mut published = self
            .snapshot
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *published = Arc::new(snapshot);
        self.upkeep.renew();
        Ok(())
    }

    /// Returns the access log in use if it has the wanted path, or opens another one.
    fn log(&self, settings: Option<&config::Log>) -> Result<Option<Arc<Log>>, Refusal> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |log: &Arc<Log>| settings.is_some_and(|new| log.path() == Path::new(&new.path));
        if !log.as_ref().is_some_and(is_same) {
            *log = settings.map(Log::open).transpose()?.map(Arc::new);
        }
        Ok(log.clone())
    }

    /// Assigns a row to each route, listener by listener.
    fn assign_routes(&self, config: &Config) -> Result<Vec<Vec<u16>>, Refusal> {
        let listeners = config.listeners.iter();
        let keys: Vec<u64> = listeners
            .clone()
            .flat_map(|each| each.routes.iter().map(|route| key(&each.name, &route.name)))
            .collect();
        let rows = self.tables.routes.assign(&keys);
        let mut rows = rows
            .ok_or_else(|| Refusal::configuration("limits.routes", "too few for the routes"))?
            .into_iter();
        Ok(listeners
            .map(|each| rows.by_ref().take(each.routes.len()).collect())
            .collect())
    }

    /// Assigns a row to each backend, pool by pool: its own, or a free one.
    fn assign(&self, config: &Config) -> Result<Vec<Vec<u16>>, Refusal> {
        let backends = &self.tables.backends;
        let wanted: Vec<Vec<u64>> = config
            .pools
            .iter()
            .map(|pool| {
                pool.backends
                    .iter()
                    .map(|each| key(&pool.name, &each.name))
                    .collect()
            })
            .collect();
        let all = || (0..backends.len()).map(|row| row as u16);
        let is_wanted = |row: u16| wanted.iter().flatten().any(|key| *key == backends.key(row));
        let mut free = all().filter(|row| !is_wanted(*row) && backends.active(*row) == 0);
        let mut row_of = |key: u64| {
            if let Some(row) = all().find(|row| backends.key(*row) == key) {
                return Ok(row);
            }
            let row = free.next().ok_or_else(|| {
                let reason = "connections to removed backends still need theirs; try again later";
                Refusal::configuration("limits.backends", reason)
            })?;
            backends.occupy(row, key);
            Ok(row)
        };
        wanted
            .iter()
            .map(|pool| pool.iter().map(|key| row_of(*key)).collect())
            .collect()
    }

    pub(crate) fn resume(&self, context: &Context<'_>) {
        self.now.store(context.now(), Ordering::Relaxed);
        let config = self.snapshot().config.clone();
        // `create` has checked it; a refusal for want of rows leaves the function without listeners, and `configure` can be repeated.
        let _ = self.install(config);
    }

    /// Lends a pass with a worker's buffers.
    pub(crate) fn with_pass<R>(
        &self,
        context: &Context<'_>,
        out: &mut Emitted,
        run: impl FnOnce(&mut Pass<'_>) -> R,
    ) -> R {
        self.now.store(context.now(), Ordering::Relaxed);
        let snapshot = self.snapshot();
        let lent = self
            .scratches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut scratch = lent.unwrap_or_default();
        let mut pass = Pass {
            tables: &self.tables,
            snapshot: &snapshot,
            threads: &self.threads,
            context,
            scratch: &mut scratch,
            out,
        };
        let result = run(&mut pass);
        let mut scratches = self
            .scratches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        scratches.push(scratch);
        result
    }

    pub(crate) fn tick_once(&self, context: &Context<'_>, out: &mut Emitted) {
        self.with_pass(context, out, |pass| {
            if self.upkeep.keep(&mut pass.link()) {
                pass.close_idle_legs();
            }
            pass.check_health();
            pass.take_handshakes();
            pass.expire();
            pass.expire_endpoints();
        });
    }

    pub(crate) fn report(&self, out: &mut CounterSink) {
        self.tables.report(out);
        let snapshot = self.snapshot();
        let config = &snapshot.config;
        if let Some(log) = &snapshot.log {
            out.counter("log_dropped", &[], log.dropped());
        }
        for (listener, route, row) in snapshot.routes() {
            let labels = [("listener", listener), ("route", route)];
            if let Some(numbers) = self.tables.routes.row(row) {
                numbers.report("route", &labels, out);
            }
        }
        for pool in &config.pools {
            for backend in &pool.backends {
                let key = key(&pool.name, &backend.name);
                let row = snapshot
                    .rows()
                    .find(|(row, _)| self.tables.backends.key(*row) == key);
                if let Some((row, _)) = row {
                    let labels = [("pool", pool.name.as_str()), ("backend", &backend.name)];
                    self.tables.backends.report(row, &labels, out);
                }
            }
        }
    }
}
