//! The smart NIC of Tiara (section 4.2): looks up the connections of packets that its switch sends, and serves the load balancers that offload them.
//!
//! Packets: `stations` -> `forward` -> `nic` (the tables). Beside them, on a thread: `room` -> `mux` (a load balancer's session) -> `engines`, `relay`
//! (rows for the switch). The table is not state: a T-NIC that starts again or moves begins with an empty one, and all packets take the slow path.

pub mod config;
pub mod engines;
mod forward;
mod mux;
pub mod nic;
mod relay;
pub mod room;
mod stations;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;

use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, PoisonError, RwLock, Weak,
    },
    thread,
    time::{Duration, Instant},
};

use nf_balancing::{
    cells::{Stripes, Worker},
    link::{Link, Upkeep},
    network::Network,
    tables::Neighbours,
};
use nf_runtime::{state::StateBuilder, Batch, Context, CounterSink, NetworkFunction, Refusal};
use serde_json::{json, Value};

pub use config::Config;
use engines::Manner;
use forward::{Event, Pass};
use nic::Nic;
use room::Room;
use stations::{Living, Stations};

use crate::{metadata::Barrier, peers::ASKS};

/// The most neighbours on the link.
const NEIGHBOURS: usize = 1024;
const SECOND: u64 = 1_000_000_000;
/// The thread's sleep while there is nothing to do.
const IDLE: Duration = Duration::from_millis(1);
/// The time until a room that could not be opened is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// The state that the function shares with its thread.
struct Shared {
    config: Config,
    manner: Manner,
    nic: Arc<Nic>,
    /// The engine room, or why there is none.
    room: Mutex<Result<Room, String>>,
}

/// The network function `tnic`.
pub struct TnicFunction {
    shared: Arc<Shared>,
    network: Network,
    stations: Stations,
    neighbours: Neighbours,
    counts: Stripes,
    living: RwLock<Arc<Living>>,
    /// The time of the last questions to stations.
    asked: AtomicU64,
    upkeep: Upkeep,
}

impl TnicFunction {
    fn living(&self) -> Arc<Living> {
        Arc::clone(&self.living.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn watch(&self, link: &mut Link<'_>) {
        let now = link.context.now();
        let living = self.stations.living(&self.neighbours, now);
        if *self.living() != living {
            *self.living.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(living);
        }
        if now.saturating_sub(self.asked.load(Ordering::Relaxed)) >= ASKS {
            self.asked.store(now, Ordering::Relaxed);
            self.stations.ask(link);
        }
        self.upkeep.keep(link);
    }

    fn show(&self) -> Value {
        let room = self
            .shared
            .room
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let engines = match &*room {
            Ok(room) => {
                let report = room.report();
                let muxes = self.shared.config.muxes.iter().zip(report.sessions);
                let sessions: Vec<Value> = muxes
                    .map(|(mux, (open, ended))| json!({"mux": mux.name, "open": open, "ended": ended}))
                    .collect();
                json!({"sessions": sessions, "tswitch": report.switch})
            }
            Err(why) => json!({"why": why}),
        };
        json!({"stations": self.living().told(&self.stations), "engines": engines})
    }

    /// Loses the table, for tests of what follows.
    fn reset(&self) -> Result<Value, Refusal> {
        let mut room = self
            .shared
            .room
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &mut *room {
            Ok(room) => {
                room.reset(clock());
                Ok(json!({}))
            }
            Err(why) => Err(Refusal::new("engines", why.clone())),
        }
    }
}

/// Returns a time for the thread, in nanoseconds.
fn clock() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + SECOND
}

impl Shared {
    fn open(&self) -> Result<Room, String> {
        let sockets: Vec<_> = self
            .config
            .muxes
            .iter()
            .map(|mux| mux.socket.clone())
            .collect();
        let orphans = self.config.table.orphans.nanos();
        let tswitch = self.config.tswitch.control.clone();
        let room = Room::new(
            Arc::clone(&self.nic),
            &self.manner,
            &sockets,
            tswitch,
            (orphans, clock()),
        );
        room.map_err(|refusal| refusal.to_string())
    }

    /// Does what is due in the room; returns how long to sleep.
    fn turn(&self) -> Duration {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if room.is_err() {
            *room = self.open();
        }
        match &mut *room {
            Ok(room) => match room.turn(clock()) {
                true => Duration::ZERO,
                false => IDLE,
            },
            Err(_) => RETRY,
        }
    }
}

fn serve(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let sleep = shared.turn();
        drop(shared);
        if !sleep.is_zero() {
            thread::sleep(sleep);
        }
    }
}

impl NetworkFunction for TnicFunction {
    const KIND: &'static str = "tnic";
    const SUMMARY: &'static str =
        "Tiara's smart NIC: carries the connections that load balancers offload to it";
    const ONE_WORKER: bool = true;
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn fits(config: &Config, ports: usize) -> Result<(), Refusal> {
        nf_balancing::check::ports(&config.interfaces, ports)
    }

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        config::check(&config)?;
        let manner = config.table.manner()?;
        let mut network = Network::new(&config.interfaces, &config.neighbours);
        let stations = Stations::new(&config, &mut network);
        let nic = Nic::new(manner.shape, config.number, config.muxes.len())?;
        Ok(Self {
            shared: Arc::new(Shared {
                nic: Arc::new(nic),
                manner,
                room: Mutex::new(Err("it has not begun".to_owned())),
                config,
            }),
            neighbours: Neighbours::declare(state, NEIGHBOURS)?,
            counts: Stripes::declare(state, "counts", 1, Event::ALL.len())?,
            living: RwLock::new(Arc::new(stations.none_living())),
            network,
            stations,
            asked: AtomicU64::new(0),
            upkeep: Upkeep::default(),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let living = self.living();
        let (packets, out) = batch.parts();
        let mut pass = Pass {
            link: Link {
                network: &self.network,
                neighbours: &self.neighbours,
                context,
                out,
            },
            nic: &self.shared.nic,
            stations: &self.stations,
            living: &living,
            counts: &self.counts,
            worker: Worker::of(context),
        };
        packets.iter_mut().for_each(|packet| pass.decide(packet));
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        if config == self.shared.config {
            return Ok(());
        }
        let reason =
            "cannot change while the instance runs: its table would be lost; start a new one";
        Err(Refusal::configuration("tnic", reason))
    }

    fn resumed(&self, context: &Context<'_>) {
        self.network.resolve(&self.neighbours, context.now());
        let shared = Arc::downgrade(&self.shared);
        let spawned = thread::Builder::new()
            .name("engines".into())
            .spawn(move || serve(&shared));
        if let Err(error) = spawned {
            let why = format!("cannot start the engines' thread: {error}");
            *self
                .shared
                .room
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Err(why);
        }
    }

    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        let (_, out) = out.parts();
        let mut link = Link {
            network: &self.network,
            neighbours: &self.neighbours,
            context,
            out,
        };
        self.watch(&mut link);
        if let (Some(number), Some(mac)) =
            (self.shared.nic.barriers.due(), self.stations.switch_mac())
        {
            let frame = Barrier(number).frame((link.mac(0), mac));
            link.out.emit(0, &frame);
        }
    }

    fn counters(&self, _context: &Context<'_>, out: &mut CounterSink) {
        for event in Event::ALL {
            out.counter(
                "packets",
                &[("event", event.name())],
                self.counts.sum(0, event as usize),
            );
        }
        for (name, alive) in self.living().all(&self.stations) {
            out.gauge(
                "station_alive",
                &[("name", name)],
                f64::from(u8::from(alive)),
            );
        }
        let room = self
            .shared
            .room
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Ok(room) = &*room else {
            return;
        };
        let report = room.report();
        for (mux, (open, _)) in self.shared.config.muxes.iter().zip(&report.sessions) {
            out.gauge(
                "session_open",
                &[("mux", &mux.name)],
                f64::from(u8::from(*open)),
            );
        }
        let counts = report.counts;
        let each = [
            ("inserted", counts.inserted),
            ("full", counts.full),
            ("deleted", counts.deleted),
            ("not found", counts.not_found),
            ("refused", counts.refused),
            ("evicted", counts.evicted),
            ("moved", counts.moved),
        ];
        for (outcome, count) in each {
            out.counter("operations", &[("outcome", outcome)], count);
        }
        let [sent, withheld] = report.signals;
        for (outcome, count) in [("sent", sent), ("withheld", withheld)] {
            out.counter("signals", &[("outcome", outcome)], count);
        }
        let entries = (counts.inserted).saturating_sub(counts.deleted + counts.evicted);
        out.gauge("entries", &[], entries as f64);
    }

    fn control(&self, verb: &str, _arguments: &Value) -> Option<Result<Value, Refusal>> {
        match verb {
            "show" => Some(Ok(self.show())),
            "reset" => Some(self.reset()),
            _ => None,
        }
    }
}
