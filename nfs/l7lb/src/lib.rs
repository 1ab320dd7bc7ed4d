//! A layer-7 load balancer without a TCP stack (LB-NIC, section 3.1); see `docs/l7lb.md`.
//!
//! It splices connections: it answers SYNs by cookies, reads the head of each request, chooses a backend for it, and from then on translates
//! numbers. It owns bytes only while a head is on its way; bodies pass.
//!
//! Configuration: [`Config`] -> `check` -> `snapshot` (what workers read), `routes`, `sticky`.
//!
//! Packets: `dispatch` (finds the connection) -> `handshake`, `client`, `backend` (segments by their sender) -> `exchange`, `answer_heads`, `heads` (messages), `passthrough` -> `ready` (the leg that a
//! request gets) -> `answers`, `reuse`, `legs` -> `output` -> `pass` (the context of the batch). `timers` does what happens without packets, and `health` checks the backends.
//!
//! Ends of exchanges: `finish` -> `metrics`, `log` (with `names`, `texts`).
//!
//! State, as plain data in the arena (`tables`): `record` is a connection, `stream` one direction of it. `backends` are their numbers and their health.

mod answer_heads;
mod answers;
mod backend;
mod backends;
mod balancer;
mod check;
mod client;
pub mod config;
mod dispatch;
mod exchange;
mod finish;
mod handshake;
mod heads;
mod health;
mod idle_legs;
mod kept;
mod legs;
mod log;
mod metrics;
mod names;
mod output;
mod pass;
mod passthrough;
mod pieces;
mod proxy;
mod ready;
mod record;
mod reuse;
mod routes;
mod segments;
mod snapshot;
mod sticky;
mod stream;
mod tables;
mod texts;
mod timers;
mod tls;

use std::net::IpAddr;

use nf_runtime::{state::StateBuilder, Batch, Context, CounterSink, NetworkFunction, Refusal};

pub use balancer::L7lb;
pub use config::Config;

impl NetworkFunction for L7lb {
    const KIND: &'static str = "l7lb";
    const SUMMARY: &'static str = "layer-7 load balancer: routes each HTTP/1.1 request";
    const SCHEMA: u32 = 3;
    const LARGE_FRAMES: bool = true;
    type Config = Config;

    fn fits(config: &Config, ports: usize) -> Result<(), Refusal> {
        nf_balancing::check::ports(&config.interfaces, ports)
    }

    fn own_addresses(config: &Config) -> Vec<IpAddr> {
        let interfaces = config.interfaces.iter();
        interfaces
            .flat_map(|interface| interface.addresses.iter().map(|own| own.address))
            .collect()
    }

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        Self::new(config, state)
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let (packets, out) = batch.parts();
        self.with_pass(context, out, |pass| pass.run(packets));
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        self.install(config)
    }

    fn resumed(&self, context: &Context<'_>) {
        self.resume(context);
    }

    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        let (_, out) = out.parts();
        self.tick_once(context, out);
    }

    fn counters(&self, _context: &Context<'_>, out: &mut CounterSink) {
        self.report(out);
    }
}
