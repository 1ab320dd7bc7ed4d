//! The network function.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
    time::SystemTime,
};

use arc_swap::{ArcSwap, Guard};
use nf_balancing::{
    link::{Link, Upkeep},
    tables::Neighbours,
};
use nf_runtime::{state::StateBuilder, Batch, Context, CounterSink, NetworkFunction, Refusal};
use serde_json::{json, Value};
use zeroize::Zeroizing;

use crate::{
    checks,
    config::{Config, Tunnel, INSIDE},
    dumps,
    keys::{inbound, outbound, Rows},
    living::{follow_configuration, Living},
    negotiated,
    pass::Pass,
    report,
    runs::Runs,
    setup::Setup,
    station::Station,
};

/// The most neighbours on the links.
const NEIGHBOURS: usize = 1024;

/// The network function `ipsec`.
pub struct Ipsec {
    outbound: Rows,
    inbound: Rows,
    neighbours: Neighbours,
    setup: ArcSwap<Setup>,
    living: Mutex<Living>,
    /// The time of the state's clock at the latest tick or batch, for answers between them.
    now: AtomicU64,
    upkeep: Upkeep,
}

impl Ipsec {
    /// Returns the setup in force. Workers call it for each batch, so it writes to no memory that they share.
    fn setup(&self) -> Guard<Arc<Setup>> {
        self.setup.load()
    }

    fn living(&self) -> MutexGuard<'_, Living> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows(&self) -> (&Rows, &Rows) {
        (&self.outbound, &self.inbound)
    }

    fn bind(&self, living: &mut Living, setup: &Setup) -> bool {
        let now = self.now.load(Ordering::Relaxed);
        living.bind(setup, self.rows(), now, unix_ns())
    }

    /// Puts a configuration and the tunnels of a key exchange into force.
    fn apply(
        &self,
        living: &mut Living,
        mut config: Config,
        negotiated: Vec<Tunnel>,
    ) -> Result<(), Refusal> {
        config.tunnels.extend(negotiated.iter().cloned());
        let present = self.setup();
        let next = Setup::new(config)?;
        follow_configuration(&present, &next, &self.inbound);
        living.forget(self.rows(), &present, &next);
        let before = std::mem::replace(&mut living.negotiated, negotiated);
        if !self.bind(living, &next) {
            living.negotiated = before;
            let reason = format!(
                "{}, but this instance and its predecessors had as many keys already; start a new one, with new keys",
                next.config.keys
            );
            return Err(Refusal::configuration("keys", reason));
        }
        // The swap turns the hold of each worker on the old setup into a count of it.
        living.retire(&self.setup.swap(Arc::new(next)));
        self.upkeep.renew();
        Ok(())
    }

    /// Returns the configuration in force without the tunnels of the key exchange.
    fn own_config(&self, living: &Living) -> Config {
        let mut config = self.setup().config.clone();
        let own = config.tunnels.len() - living.negotiated.len();
        config.tunnels.truncate(own);
        config
    }

    /// Replaces the tunnels of the key exchange. Those of the configuration stay.
    fn negotiate(&self, arguments: &Value) -> Result<Value, Refusal> {
        let negotiated = negotiated::tunnels(arguments)?;
        let mut living = self.living();
        let config = self.own_config(&living);
        self.apply(&mut living, config, negotiated)?;
        Ok(json!({}))
    }

    /// Distrusts the windows of all inbound keys. An operator who starts an instance on an old copy of the state calls this.
    fn distrust(&self) -> Value {
        let setup = self.setup();
        let inbound = setup.tunnels.iter().flat_map(|tunnel| &tunnel.inbound);
        let rows: Vec<usize> = inbound
            .filter_map(|each| each.window.get().map(|window| window.row()))
            .collect();
        for row in &rows {
            self.inbound.set(*row, inbound::DISTRUSTED, 1);
        }
        json!({"associations": rows.len()})
    }

    fn pass<'a>(&'a self, setup: &'a Setup, link: Link<'a>) -> Pass<'a> {
        let inside = link.network.interfaces().get(INSIDE);
        Pass {
            mtu: inside.map_or(0, |each| each.mtu),
            stations: [INSIDE, setup.outside].map(|port| Station::own(link.mac(port))),
            link,
            setup,
            outbound: &self.outbound,
            inbound: &self.inbound,
            sealing: Runs::new(),
            opening: Runs::new(),
            to_seal: Vec::new(),
            to_open: Vec::new(),
            is_due: false,
        }
    }
}

impl NetworkFunction for Ipsec {
    const KIND: &'static str = "ipsec";
    const SUMMARY: &'static str =
        "an IPsec gateway: ESP tunnels with AES-GCM, keyed by hand or by IKE";
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn fits(config: &Config, ports: usize) -> Result<(), Refusal> {
        nf_balancing::check::ports(&config.interfaces, ports)
    }

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let setup = Setup::new(config)?;
        dumps::forbid()?;
        let keys = setup.config.keys;
        Ok(Self {
            outbound: Rows::declare(state, "outbound keys", keys, outbound::WORDS)?,
            inbound: Rows::declare(state, "inbound keys", keys, inbound::WORDS)?,
            neighbours: Neighbours::declare(state, NEIGHBOURS)?,
            setup: ArcSwap::from_pointee(setup),
            living: Mutex::default(),
            now: AtomicU64::new(0),
            upkeep: Upkeep::default(),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let setup = self.setup();
        let (packets, out) = batch.parts();
        let link = Link {
            network: &setup.network,
            neighbours: &self.neighbours,
            context,
            out,
        };
        self.pass(&setup, link).process(packets);
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        checks::allows(&self.setup().config, &config)?;
        let mut living = self.living();
        let negotiated = living.negotiated.clone();
        self.apply(&mut living, config, negotiated)
    }

    fn secrets(&self) -> Option<Zeroizing<Vec<u8>>> {
        negotiated::to_bytes(&self.living().negotiated)
    }

    fn inherit(&self, secrets: &[u8]) -> Result<(), Refusal> {
        let negotiated = negotiated::of_bytes(secrets)?;
        let mut living = self.living();
        let mut config = self.own_config(&living);
        config.tunnels.extend(negotiated.iter().cloned());
        let next = Setup::new(config)?;
        living.negotiated = negotiated;
        self.setup.store(Arc::new(next));
        Ok(())
    }

    fn resumed(&self, context: &Context<'_>) {
        self.now.store(context.now(), Ordering::Relaxed);
        let setup = self.setup();
        let mut living = self.living();
        living.take_over(&self.outbound, unix_ns());
        // Keys without room stay unusable, and the counters say so: a start with this state cannot be refused here.
        self.bind(&mut living, &setup);
        setup.network.resolve(&self.neighbours, context.now());
        self.upkeep.renew();
    }

    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        let now = context.now();
        self.now.store(now, Ordering::Relaxed);
        let setup = self.setup();
        let (_, out) = out.parts();
        let mut link = Link {
            network: &setup.network,
            neighbours: &self.neighbours,
            context,
            out,
        };
        if self.upkeep.keep(&mut link) {
            setup.network.resolve(&self.neighbours, now);
        }
        self.pass(&setup, link).keep_alive();
    }

    fn counters(&self, context: &Context<'_>, out: &mut CounterSink) {
        report::counters(&self.setup(), self.rows(), context.now(), out);
    }

    fn control(&self, verb: &str, arguments: &Value) -> Option<Result<Value, Refusal>> {
        match verb {
            "show" => {
                let now = self.now.load(Ordering::Relaxed);
                Some(Ok(report::show(&self.setup(), self.rows(), now)))
            }
            "negotiate" => Some(self.negotiate(arguments)),
            "distrust" => Some(Ok(self.distrust())),
            _ => None,
        }
    }
}

/// Returns nanoseconds since 1970.
fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX >> 1)
}
