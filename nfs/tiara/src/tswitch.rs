//! The switch of Tiara (section 4.1): shares packets to VIPs among T-NICs, encapsulates what they send back, and decapsulates the servers' answers.
//!
//! `config` -> `servers` (the RS table), `stations` (T-NICs and load balancers, and which of them are alive) -> `setup` -> `forward` (each packet).

mod config;
mod forward;
mod servers;
mod setup;
mod sides;
mod stations;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;

use std::sync::{
    atomic::{AtomicU64, Ordering},
    Arc, PoisonError, RwLock,
};

use nf_balancing::{
    cells::{Stripes, Worker},
    link::{Link, Upkeep},
    tables::Neighbours,
};
use nf_runtime::{state::StateBuilder, Batch, Context, CounterSink, NetworkFunction, Refusal};
use serde_json::{json, Value};

pub use config::Config;
pub use servers::Server;

use crate::peers::ASKS;
use forward::{Event, Pass};
use servers::Servers;
use setup::Setup;
use stations::Living;

/// The most neighbours on the links.
const NEIGHBOURS: usize = 4096;

/// The network function `tswitch`.
pub struct Tswitch {
    neighbours: Neighbours,
    servers: Servers,
    counts: Stripes,
    setup: RwLock<Arc<Setup>>,
    living: RwLock<Arc<Living>>,
    /// The times of the last questions to stations, and to next hops.
    asked: AtomicU64,
    upkeep: Upkeep,
}

impl Tswitch {
    fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.setup.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn living(&self) -> Arc<Living> {
        Arc::clone(&self.living.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the stations, and shares packets among those that answer.
    fn watch(&self, setup: &Setup, link: &mut Link<'_>) {
        let now = link.context.now();
        let living = setup.stations.living(&self.neighbours, now);
        if *self.living() != living {
            *self.living.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(living);
        }
        if now.saturating_sub(self.asked.load(Ordering::Relaxed)) >= ASKS {
            self.asked.store(now, Ordering::Relaxed);
            setup.stations.ask(link);
        }
    }

    fn put_servers(&self, arguments: &Value) -> Result<Value, Refusal> {
        let servers: Vec<Server> = argument(arguments, "servers")?;
        self.servers.put(&self.setup().network, &servers)?;
        Ok(json!({"servers": servers.len()}))
    }

    fn drop_servers(&self, arguments: &Value) -> Result<Value, Refusal> {
        let indices: Vec<u32> = argument(arguments, "indices")?;
        self.servers.drop(&indices);
        Ok(json!({"indices": indices.len()}))
    }

    fn show(&self) -> Value {
        let living = self.living();
        json!({
            "nics": living.nics(&self.setup().stations),
            "muxes": living.muxes(&self.setup().stations),
            "servers": self.servers.read().len(),
        })
    }
}

impl NetworkFunction for Tswitch {
    const KIND: &'static str = "tswitch";
    const SUMMARY: &'static str =
        "Tiara's switch: shares VIPs among T-NICs, and ends the VXLAN tunnels to real servers";
    const ONE_WORKER: bool = true;
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn fits(config: &Config, ports: usize) -> Result<(), Refusal> {
        nf_balancing::check::ports(&config.interfaces, ports)
    }

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let setup = Setup::new(config)?;
        let servers = Servers::default();
        servers.put(&setup.network, &setup.config.servers)?;
        Ok(Self {
            neighbours: Neighbours::declare(state, NEIGHBOURS)?,
            servers,
            counts: Stripes::declare(state, "counts", 1, Event::ALL.len())?,
            living: RwLock::new(Arc::new(setup.stations.none_living())),
            setup: RwLock::new(Arc::new(setup)),
            asked: AtomicU64::new(0),
            upkeep: Upkeep::default(),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let (setup, living, servers) = (self.setup(), self.living(), self.servers.read());
        let (packets, out) = batch.parts();
        let mut pass = Pass {
            link: Link {
                network: &setup.network,
                neighbours: &self.neighbours,
                context,
                out,
            },
            setup: &setup,
            living: &living,
            servers: &servers,
            counts: &self.counts,
            worker: Worker::of(context),
        };
        packets.iter_mut().for_each(|packet| pass.decide(packet));
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        if config.interfaces != self.setup().config.interfaces {
            let reason = "cannot change while an instance lives, since tunnels begin at their addresses; start a new one";
            return Err(Refusal::configuration("interfaces", reason));
        }
        let setup = Setup::new(config)?;
        self.servers.put(&setup.network, &setup.config.servers)?;
        let none = setup.stations.none_living();
        *self.living.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(none);
        *self.setup.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(setup);
        self.upkeep.renew();
        Ok(())
    }

    fn resumed(&self, context: &Context<'_>) {
        self.setup()
            .network
            .resolve(&self.neighbours, context.now());
        self.upkeep.renew();
    }

    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        let setup = self.setup();
        let (_, out) = out.parts();
        let mut link = Link {
            network: &setup.network,
            neighbours: &self.neighbours,
            context,
            out,
        };
        if self.upkeep.keep(&mut link) {
            setup.network.resolve(&self.neighbours, context.now());
        }
        self.watch(&setup, &mut link);
    }

    fn counters(&self, _context: &Context<'_>, out: &mut CounterSink) {
        for event in Event::ALL {
            out.counter(
                "packets",
                &[("event", event.name())],
                self.counts.sum(0, event as usize),
            );
        }
        out.gauge("servers", &[], self.servers.read().len() as f64);
        let (setup, living) = (self.setup(), self.living());
        for (name, alive) in living.all(&setup.stations) {
            out.gauge(
                "station_alive",
                &[("name", name)],
                f64::from(u8::from(alive)),
            );
        }
    }

    fn control(&self, verb: &str, arguments: &Value) -> Option<Result<Value, Refusal>> {
        match verb {
            "put_servers" => Some(self.put_servers(arguments)),
            "drop_servers" => Some(self.drop_servers(arguments)),
            "servers" => Some(Ok(json!({"servers": self.servers.list()}))),
            "show" => Some(Ok(self.show())),
            _ => None,
        }
    }
}

fn argument<T: serde::de::DeserializeOwned>(arguments: &Value, name: &str) -> Result<T, Refusal> {
    let value = arguments.get(name).cloned().unwrap_or_default();
    serde_json::from_value(value)
        .map_err(|error| Refusal::new("arguments", format!("{name}: {error}")))
}
