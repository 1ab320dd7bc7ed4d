//! A stateful layer-4 load balancer with a VIP table and a connection table (HNLB, section II-A); see `docs/l4lb.md`.
//!
//! Configuration: [`Config`] -> `check` -> `rows` (assigns rows of the state) -> `snapshot` (what workers read). `balancer` puts one in force.
//!
//! Packets: `dispatch` (parses a batch, and looks up its flows) -> `marks`, `connections` (chooses backends), `answers`, `icmp`, `fragments` ->
//! `sessions`, `routing` -> `deliver` -> `pass` (the context of the batch). Each is an `impl Pass` and calls only those after it.
//!
//! Everything that packets change is in the arena: connections and their sessions in `records`, the one door to their changes, and the rest in `state`.

mod answers;
mod balancer;
mod check;
pub mod config;
mod connections;
mod control;
mod deliver;
mod dispatch;
mod events;
mod flow;
mod fragments;
mod health;
mod icmp;
mod marks;
mod offload;
mod pass;
mod proxy;
mod records;
mod routing;
mod rows;
mod sessions;
mod snapshot;
mod source_nat;
mod state;
mod stream;

use std::sync::{atomic::Ordering, Arc};

use nf_balancing::{cells::Worker, link::Link};
use nf_offload::Table;
use nf_runtime::{
    state::StateBuilder, Batch, Context, CounterSink, Emitted, NetworkFunction, Refusal,
};

pub use balancer::L4lb;
pub use config::Config;
use offload::Surroundings;
use pass::Pass;
use records::Records;
use rows::Patience;
use snapshot::Snapshot;

const SECOND: u64 = 1_000_000_000;

/// The duration of one aging pass over the tables: less than half of what they allow.
const AGING: u64 = 50 * SECOND;

impl L4lb {
    fn pass<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        context: &'a Context<'a>,
        out: &'a mut Emitted,
    ) -> Pass<'a> {
        let worker = Worker::of(context);
        let (tables, state, now) = (&self.records, &self.state, context.now());
        Pass {
            state,
            snapshot,
            link: Link {
                network: &snapshot.network,
                neighbours: &state.neighbours,
                context,
                out,
            },
            checks: &self.checks,
            flooded: &self.flooded,
            worker,
            offload: &self.offload,
            records: Records::new(
                tables,
                state,
                snapshot,
                worker,
                now,
                self.offload.sampler(context.worker()),
            ),
            behind: 0,
            marked: [0; 2],
        }
    }
}

impl NetworkFunction for L4lb {
    const KIND: &'static str = "l4lb";
    const SUMMARY: &'static str =
        "layer-4 load balancer: NAT, IPIP, GUE and VXLAN, with health checks";
    const SCHEMA: u32 = 1;
    const OFFLOADED_PORTS: usize = 1;
    type Config = Config;

    fn fits(config: &Config, ports: usize) -> Result<(), Refusal> {
        nf_balancing::check::ports(&config.interfaces, ports)
    }

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        L4lb::new(config, state)
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let snapshot = self.snapshot();
        let (packets, out) = batch.parts();
        let count = packets.len();
        self.pass(&snapshot, context, out).run(packets);
        self.see(context.now());
        if count > 0 {
            let worker = Worker::of(context);
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
        self.offload.resume();
        let created = Arc::clone(&self.snapshot());
        // `create` has checked it, and packets wait; rows can run out only if the previous instance had another configuration.
        let install = |patience| {
            let (config, lifetimes) = (created.wanted.clone(), created.lifetimes);
            self.install_checked(config, lifetimes, context.now(), patience)
        };
        let _ = install(Patience::Quarantine).or_else(|_| install(Patience::None));
    }

    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        self.now.store(context.now(), Ordering::Relaxed);
        if self.checks.take_changed() {
            self.renew();
        }
        let snapshot = self.snapshot();
        let (_, out) = out.parts();
        let mut pass = self.pass(&snapshot, context, out);
        self.upkeep.keep(&mut pass.link);
        pass.check_health();
        let last = self.aged.swap(context.now(), Ordering::Relaxed);
        let elapsed = context.now().saturating_sub(last);
        pass.records.age(elapsed.min(AGING), AGING);
        let is_flooded = |vip: &snapshot::Vip| {
            vip.needs_no_records() && self.state.half_open.get(vip.row) >= vip.half_open_limit
        };
        self.flooded
            .store(snapshot.vips.iter().any(is_flooded), Ordering::Relaxed);
        self.state.load.tick(context.now(), context.workers());
    }

    fn offload(&self, context: &Context<'_>, table: &mut dyn Table) {
        let snapshot = self.snapshot();
        let around = Surroundings {
            tables: &self.records,
            state: &self.state,
            snapshot: &snapshot,
            context,
        };
        self.offload.turn(&around, table);
    }

    fn leave_table(&self) {
        self.offload.leave();
    }

    fn offloaded(&self) -> serde_json::Value {
        self.offload.status()
    }

    fn counters(&self, _context: &Context<'_>, out: &mut CounterSink) {
        self.report(out);
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
