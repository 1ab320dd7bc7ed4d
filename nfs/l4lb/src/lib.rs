//! A stateful layer-4 load balancer with a VIP table and a connection table (HNLB, section II-A); see `docs/l4lb.md`.
//!
//! Data flows one way: [`Config`] -> `check` -> `rows` (assigns rows of the state) -> `snapshot` (what workers read) -> `pass` (one batch) ->
//! `deliver`. Everything that packets change is in `state`, in the arena.

mod check;
mod claims;
pub mod config;
mod connections;
mod control;
mod deliver;
mod events;
mod flow;
mod fragments;
mod frames;
mod health;
mod icmp;
pub mod load;
pub mod maglev;
mod neighbours;
mod pass;
mod proxy;
mod records;
mod rows;
mod service;
mod sessions;
mod snapshot;
mod source_nat;
mod spread;
mod state;
mod stations;
mod stream;
mod ways;

use std::{
    cell::Cell,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
    },
};

use nf_runtime::{state::StateBuilder, Batch, Context, CounterSink, NetworkFunction, Refusal};

pub use config::Config;
use pass::Pass;
use rows::Patience;
use snapshot::Snapshot;
use state::{State, Worker};

const SECOND: u64 = 1_000_000_000;

/// The duration of one aging pass over the tables: less than half of what they allow.
const AGING: u64 = 50 * SECOND;

pub struct L4lb {
    state: State,
    snapshot: RwLock<Arc<Snapshot>>,
    /// Held while the next snapshot is made.
    changing: Mutex<()>,
    checks: health::Checks,
    /// See [`Pass::flooded`]. Every tick evaluates it again.
    flooded: AtomicBool,
    /// The time of the latest batch or tick.
    now: AtomicU64,
    aged: AtomicU64,
    refreshed: AtomicU64,
    /// The VIPs must still be announced.
    unannounced: AtomicBool,
}

impl L4lb {
    fn snapshot(&self) -> Arc<Snapshot> {
        // The snapshot is replaced as a whole, so it is valid even after a panic.
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a configuration in force.
    fn install(&self, config: Config, now: u64, patience: Patience) -> Result<(), Refusal> {
        let _changing = self.change();
        let lifetimes = check::check(&config)?;
        let rows = self.state.assign(&config, now, patience)?;
        self.checks
            .with_records(|| self.state.occupy(&config, &rows, now));
        let old = self.snapshot();
        let new = Snapshot::new(config, lifetimes, &rows, &self.state, Some(&old));
        self.publish(new, now);
        self.unannounced.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn publish(&self, snapshot: Snapshot, now: u64) {
        snapshot.resolve(&self.state, now);
        *self
            .snapshot
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    /// Rebuilds the snapshot from the same configuration after a backend's condition changed.
    fn renew(&self) {
        let _changing = self.change();
        let old = self.snapshot();
        let rows = old.rows();
        let new = Snapshot::new(
            old.config.clone(),
            old.lifetimes,
            &rows,
            &self.state,
            Some(&old),
        );
        self.publish(new, self.now.load(Ordering::Relaxed));
    }

    fn set_drained(&self, number: u16, on: bool) {
        self.checks.with_records(|| {
            let mut record = self.state.backends.get(number.into());
            record.drained = on.into();
            self.state.backends.put(number.into(), &record);
        });
        self.renew();
    }

    /// Removes expired records, a piece of each table at a time.
    fn age(&self, pass: &Pass<'_>) {
        let now = pass.context.now();
        let last = self.aged.swap(now, Ordering::Relaxed);
        let elapsed = u128::from(now.saturating_sub(last).min(AGING));
        let budget = |capacity: usize| {
            // The tables have more places than records, and at least 4096.
            let places = (capacity * 5 / 4).max(4096) as u128;
            (places * elapsed / u128::from(AGING)) as usize + 8
        };
        let (four, six) = (&self.state.connections_ipv4, &self.state.connections_ipv6);
        four.age(budget(four.capacity()), &pass.now, &mut |_, entry| {
            pass.ended(entry);
        });
        six.age(budget(six.capacity()), &pass.now, &mut |_, entry| {
            pass.ended(entry);
        });
    }
}

impl NetworkFunction for L4lb {
    const KIND: &'static str = "l4lb";
    const SUMMARY: &'static str = "layer-4 load balancer: NAT, IPIP and GUE, with health checks";
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn fits(config: &Config, ports: usize) -> Result<(), Refusal> {
        check::ports(config, ports)
    }

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let lifetimes = check::check(&config)?;
        let state = State::declare(&config.tables, state)?;
        let empty = Snapshot::waiting(config, lifetimes, &state);
        Ok(Self {
            state,
            snapshot: RwLock::new(Arc::new(empty)),
            changing: Mutex::new(()),
            checks: health::Checks::default(),
            flooded: AtomicBool::new(false),
            now: AtomicU64::new(0),
            aged: AtomicU64::new(0),
            refreshed: AtomicU64::new(0),
            unannounced: AtomicBool::new(false),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let snapshot = self.snapshot();
        let worker = Worker::of(context);
        let (packets, out) = batch.parts();
        let count = packets.len();
        Pass {
            state: &self.state,
            snapshot: &snapshot,
            context,
            health: &self.checks,
            flooded: &self.flooded,
            now: snapshot.lifetimes.at(context.now()),
            worker,
            changed: Cell::default(),
            behind: 0,
            out,
        }
        .run(packets);
        self.now.store(context.now(), Ordering::Relaxed);
        if count > 0 {
            self.state.load.spent(worker, context.last_turn(), count);
        }
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        let current = self.snapshot();
        if config.tables != current.config.tables {
            return Err(Refusal::configuration(
                "tables",
                "their sizes cannot change while an instance lives; start a new one",
            ));
        }
        self.install(
            config,
            self.now.load(Ordering::Relaxed),
            Patience::Quarantine,
        )
    }

    fn resumed(&self, context: &Context<'_>) {
        self.now.store(context.now(), Ordering::Relaxed);
        self.aged.store(context.now(), Ordering::Relaxed);
        let config = self.snapshot().wanted.clone();
        // `create` has checked it; rows can run out only if the previous instance had another configuration.
        let now = context.now();
        if self
            .install(config.clone(), now, Patience::Quarantine)
            .is_err()
        {
            let _ = self.install(config, now, Patience::None);
        }
    }

    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        self.now.store(context.now(), Ordering::Relaxed);
        if self.checks.take_changed() {
            self.renew();
        }
        let snapshot = self.snapshot();
        let (_, out) = out.parts();
        let mut pass = Pass {
            state: &self.state,
            snapshot: &snapshot,
            context,
            health: &self.checks,
            flooded: &self.flooded,
            now: snapshot.lifetimes.at(context.now()),
            worker: Worker::of(context),
            changed: Cell::default(),
            behind: 0,
            out,
        };
        if self.unannounced.swap(false, Ordering::Relaxed) {
            pass.announce();
        }
        let last = self.refreshed.load(Ordering::Relaxed);
        if last == 0 || context.now().saturating_sub(last) >= SECOND {
            self.refreshed.store(context.now(), Ordering::Relaxed);
            pass.refresh_neighbours();
        }
        pass.check_health();
        self.age(&pass);
        let is_flooded = |vip: &snapshot::Vip| {
            vip.needs_no_records() && self.state.half_open.get(vip.row) >= vip.half_open_limit
        };
        self.flooded
            .store(snapshot.vips.iter().any(is_flooded), Ordering::Relaxed);
        self.state.load.tick(context.now(), context.workers());
    }

    fn counters(&self, _context: &Context<'_>, out: &mut CounterSink) {
        self.count(out);
    }

    fn control(
        &self,
        verb: &str,
        arguments: &serde_json::Value,
    ) -> Option<Result<serde_json::Value, Refusal>> {
        self.answer(verb, arguments)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nf_arena::{Arena, ArenaBuilder};
    use serde_json::json;

    use super::*;

    fn config() -> Config {
        let backends = [11, 12, 13].map(
            |number| json!({"name": format!("web{number}"), "address": format!("10.0.0.{number}")}),
        );
        let vip = json!({"name": "web", "address": "192.0.2.1", "port": 80, "protocol": "tcp",
                         "mode": "ipip", "backends": backends});
        let interface = json!({"addresses": ["10.0.0.2/24"], "gateways": ["10.0.0.1"]});
        serde_json::from_value(json!({"interfaces": [interface], "vips": [vip]})).unwrap()
    }

    fn create(arena: ArenaBuilder) -> (L4lb, Arena) {
        let mut state = StateBuilder::new(arena);
        let lb = L4lb::create(config(), &mut state).unwrap();
        (lb, state.finish().unwrap().0)
    }

    /// Tells whether the tables made before packets wait are still in use after the takeover.
    fn resumes_with_what_it_has(lb: &L4lb) -> bool {
        let before = lb.snapshot();
        lb.resumed(&Context::new(SECOND, 0, 1, &[]));
        lb.snapshot().has_spreads_of(&before)
    }

    #[test]
    fn taking_over_the_state_builds_no_table() {
        let (old, arena) = create(ArenaBuilder::fresh(L4lb::KIND, L4lb::SCHEMA).unwrap());
        assert!(resumes_with_what_it_has(&old));
        let number = old.snapshot().vips[0].backends[1];
        old.set_drained(number, true);
        let file = arena.as_fd().try_clone_to_owned().unwrap();
        let (new, _arena) = create(ArenaBuilder::adopt(file, L4lb::KIND, L4lb::SCHEMA).unwrap());
        assert!(resumes_with_what_it_has(&new));
        assert_eq!(new.snapshot().vips[0].open.len(), 2);
    }
}
