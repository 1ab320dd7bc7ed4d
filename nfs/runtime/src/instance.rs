//! The instance that runs a network function on ports.

mod offload;
mod options;
mod ports;
mod status;

use std::{
    os::fd::OwnedFd,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nf_ports::Mac;
use serde_json::{Map, Value};

pub use self::options::Options;
use crate::{
    gate::{Gate, Intake, MemoryStore, Mode, Order},
    loaded::{Loaded, Prepared, Slot},
    refusal::Refused,
    worker::{Totals, Worker},
    Context, NetworkFunction, Refusal,
};
use ports::PortStatus;

/// The time in which workers must finish a batch and answer.
pub const ORDER_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum of bytes of frames that each worker holds for a new instance.
const HOLD_BYTES: usize = 256 << 20;

/// A running network function: its workers and its status.
///
/// Thread safety: every method may be called from any thread. Calls that change the function's state or its right to packets (`configure`, its own
/// verbs, migration) hold [`changes`](Self::changes), one at a time.
pub struct Instance<N: NetworkFunction> {
    gate: Arc<Gate>,
    slot: Arc<Slot<N>>,
    config: Mutex<N::Config>,
    changes: Mutex<()>,
    /// Whether another instance was started with this configuration, to take over.
    kept: AtomicBool,
    totals: Vec<Arc<Totals>>,
    began: Instant,
    ports: Vec<PortStatus>,
    macs: Arc<[Mac]>,
    notes: Mutex<Map<String, Value>>,
    refused: Arc<Refused>,
    ending: Mutex<Ending>,
    ended: Condvar,
}

#[derive(Default)]
struct Ending {
    asked: bool,
    workers: Vec<JoinHandle<()>>,
}

impl<N: NetworkFunction> Instance<N> {
    /// Starts the workers. With `hold` they store all frames, and the function is not [installed](Self::install).
    ///
    /// # Errors
    /// If there are not as many ports as were prepared for, a port does not have one queue per worker, the function needs one worker, or no
    /// threads are left.
    pub fn start(options: Options, prepared: Prepared<N>) -> Result<Arc<Self>, Refusal> {
        let workers = options.workers(prepared.ports)?;
        if N::ONE_WORKER && workers > 1 {
            let detail = format!(
                "{workers} workers, expected 1: {} needs the order of all packets, which several queues do not keep; run it with --workers 1",
                N::KIND
            );
            return Err(Refusal::new("configuration", detail));
        }
        let mode = if options.hold { Mode::Hold } else { Mode::Run };
        let gate = Gate::new(workers, mode)?;
        let loaded = Arc::new(prepared.loaded);
        let macs: Arc<[_]> = options.ports.iter().map(|port| port.mac).collect();
        let (ports, queues) = ports::split(options.ports, workers);
        let instance = Arc::new(Self {
            slot: Arc::new(Slot::empty()),
            config: Mutex::new(prepared.config),
            changes: Mutex::default(),
            kept: AtomicBool::new(false),
            totals: (0..workers).map(|_| Arc::default()).collect(),
            began: Instant::now(),
            ports,
            macs: Arc::clone(&macs),
            notes: Mutex::default(),
            refused: Arc::default(),
            ending: Mutex::default(),
            ended: Condvar::new(),
            gate,
        });
        if options.hold {
            instance.slot.set(loaded);
        } else {
            if prepared.is_adopted {
                loaded.repairs.run();
            }
            let _ = instance.install(loaded);
        }
        let mut backlog = options.backlog;
        for (index, queues) in queues.into_iter().enumerate() {
            let mut intake = Intake::new(queues);
            if let Some(source) = backlog.take() {
                intake.obey(Order::Inject(source));
            }
            if options.hold {
                intake.obey(Order::Hold(Box::new(MemoryStore::new(HOLD_BYTES))));
            }
            instance.spawn(Worker {
                index,
                intake,
                gate: Arc::clone(&instance.gate),
                slot: Arc::clone(&instance.slot),
                totals: Arc::clone(&instance.totals[index]),
                began: instance.began,
                macs: Arc::clone(&macs),
            })?;
        }
        Ok(instance)
    }

    fn spawn(self: &Arc<Self>, worker: Worker<N>) -> Result<(), Refusal> {
        let instance = Arc::clone(self);
        let name = format!("worker-{}", worker.index);
        let thread = thread::Builder::new().name(name).spawn(move || {
            worker.run();
            instance.ended.notify_all();
        });
        let thread = thread
            .map_err(|error| Refusal::new("system", format!("cannot start a worker: {error}")))?;
        self.ending().workers.push(thread);
        Ok(())
    }

    /// Returns the workers' handshake.
    #[must_use]
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Returns the indices and addresses of the ports that can send.
    pub(crate) fn live_ports(&self) -> Vec<(usize, Mac)> {
        let ports = self.ports.iter().enumerate();
        let live = ports.filter(|(_, port)| port.is_up());
        live.map(|(index, port)| (index, port.mac)).collect()
    }

    /// Returns the function installed last, or created at the start.
    #[must_use]
    pub fn loaded(&self) -> Option<Arc<Loaded<N>>> {
        self.slot.get()
    }

    /// Returns the configuration in force.
    #[must_use]
    pub fn config(&self) -> N::Config {
        self.config
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Locks changes; held by every caller that may change the function's state.
    pub fn changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Installs a function for all workers, with `resumed`; they use it from the next order on. Its state now belongs to this instance.
    /// The caller holds [`changes`](Self::changes), and no worker processes packets. Returns the function that it replaces, which the caller drops when no
    /// packet waits: to free its memory takes hundreds of microseconds.
    #[must_use]
    pub fn install(&self, loaded: Arc<Loaded<N>>) -> Option<Arc<Loaded<N>>> {
        loaded.function.resumed(&self.context(&loaded));
        self.slot.set(loaded)
    }

    /// Returns a context for calls outside the workers.
    #[must_use]
    pub fn context(&self, loaded: &Loaded<N>) -> Context<'_> {
        Context::new(loaded.clock.now(), 0, self.gate.workers(), &[])
    }

    /// Returns the counters of migration's refusals that have no requester to tell.
    pub(crate) fn refused(&self) -> Arc<Refused> {
        Arc::clone(&self.refused)
    }

    /// Adds a value to `status`; null removes it.
    pub fn note(&self, name: &str, value: Value) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if value.is_null() {
            notes.remove(name);
        } else {
            notes.insert(name.to_owned(), value);
        }
    }

    /// Applies a new configuration as a whole.
    ///
    /// # Errors
    /// If the function refuses it, or does not exist yet; the old one stays.
    pub fn configure(&self, config: N::Config) -> Result<(), Refusal> {
        let _changes = self.changes();
        self.refuse_while_moving("configure")?;
        let loaded = self
            .loaded()
            .ok_or_else(|| Refusal::new("not-yet", "the instance has no state yet"))?;
        N::fits(&config, self.ports.len())?;
        loaded.function.configure(config.clone())?;
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        self.gate.wake_all();
        Ok(())
    }

    /// Answers a verb of the function's own; None: unknown verb.
    pub fn control(&self, verb: &str, arguments: &Value) -> Option<Result<Value, Refusal>> {
        let _changes = self.changes();
        if let Err(refusal) = self.refuse_while_moving(verb) {
            return Some(Err(refusal));
        }
        let answer = self.loaded()?.function.control(verb, arguments);
        self.gate.wake_all();
        answer
    }

    /// Starts or stops refusing new configurations and the function's own verbs: their changes would not reach the instance that takes over.
    pub(crate) fn keep_configuration(&self, keep: bool) {
        let _changes = self.changes();
        self.kept.store(keep, Ordering::Relaxed);
    }

    fn refuse_while_moving(&self, what: &str) -> Result<(), Refusal> {
        let mode = self.gate.mode();
        if mode == Mode::Run && !self.kept.load(Ordering::Relaxed) {
            return Ok(());
        }
        let detail = format!(
            "{what}: this instance is being migrated (mode {}); ask the one that runs",
            mode.name()
        );
        Err(Refusal::new("moving", detail))
    }

    fn ending(&self) -> MutexGuard<'_, Ending> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the workers after their batches, when their sent frames have left. The caller must [finish](Self::finish) the instance.
    ///
    /// # Errors
    /// If a worker did not answer, or had panicked.
    pub fn stop_workers(&self) -> Result<(), Refusal> {
        let workers = std::mem::take(&mut self.ending().workers);
        let ordered = if workers.is_empty() {
            Ok(())
        } else {
            self.gate.order(ORDER_TIMEOUT, |_| vec![Order::Stop])
        };
        let panicked = if ordered.is_ok() {
            // Each worker has answered or ended.
            workers
                .into_iter()
                .filter_map(|worker| worker.join().err())
                .count()
        } else {
            0
        };
        ordered?;
        if panicked > 0 {
            return Err(Refusal::new(
                "worker",
                format!("{panicked} workers had panicked"),
            ));
        }
        Ok(())
    }

    /// Makes [`wait`](Self::wait) return.
    pub fn finish(&self) {
        self.ending().asked = true;
        self.ended.notify_all();
    }

    /// Waits until the instance is [finished](Self::finish).
    ///
    /// # Errors
    /// If a worker ended unexpectedly: the network function panicked.
    pub fn wait(&self) -> Result<(), Refusal> {
        let mut ending = self.ending();
        loop {
            if ending.asked {
                return Ok(());
            }
            if let Some(worker) = ending.workers.iter().find(|worker| worker.is_finished()) {
                let name = worker.thread().name().unwrap_or("a worker").to_owned();
                let detail = format!("{name} ended: the network function {} panicked", N::KIND);
                return Err(Refusal::new("worker", detail));
            }
            // A panicking thread signals nothing: hence the timeout.
            let waited = self.ended.wait_timeout(ending, Duration::from_millis(500));
            ending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Opens an arena that was handed over by its descriptor's number at the start of the process.
///
/// # Errors
/// If the descriptor does not exist.
pub fn inherited_arena(number: u32) -> Result<OwnedFd, Refusal> {
    // Opens a second descriptor for the same memory: taking over the number itself cannot be done safely.
    let path = format!("/proc/self/fd/{number}");
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path);
    opened.map(OwnedFd::from).map_err(|error| {
        Refusal::new(
            "configuration",
            format!("--arena-fd {number}: cannot be opened: {error}"),
        )
    })
}
