//! The interface of a network function.

use std::net::IpAddr;

use nf_offload::Table;
use serde::{de::DeserializeOwned, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{state::StateBuilder, Batch, Context, CounterSink, Refusal};

/// A packet function, its configuration, and the state that it declares.
///
/// Thread safety: several workers run `process` at once; changing state belongs in the arena's structures, which allow it.
/// All other methods are called by one thread at a time, concurrently with the workers; `tick` by each worker if the function says so.
pub trait NetworkFunction: Send + Sync + Sized + 'static {
    /// Its name for `nf run`.
    const KIND: &'static str;
    /// One line for `nf list`.
    const SUMMARY: &'static str;
    /// The most ports with which it asks a faster table to carry flows by `offload`; 0: it never does.
    const OFFLOADED_PORTS: usize = 0;
    /// Whether it takes frames of several segments (GSO, GRO) and partial checksums: see [`Packet::offloads`](crate::Packet::offloads). A function that
    /// does not gets complete frames only.
    const LARGE_FRAMES: bool = false;
    /// Whether each worker calls `tick`, and not only worker 0.
    const EACH_WORKER_TICKS: bool = false;
    /// Whether it runs with one worker only: the order of all its packets matters, not just that of each flow.
    const ONE_WORKER: bool = false;
    /// The version of its state's meaning; raise it when the meaning changes.
    const SCHEMA: u32;
    /// The configuration. Unknown keys are errors if the type says so: `#[serde(deny_unknown_fields)]`.
    type Config: DeserializeOwned + Serialize + Clone + Send + Sync + 'static;

    /// Checks the configuration against the instance's number of ports.
    ///
    /// # Errors
    /// If it needs another number.
    fn fits(config: &Self::Config, ports: usize) -> Result<(), Refusal> {
        let _ = (config, ports);
        Ok(())
    }

    /// Returns the addresses from which the function opens connections of its own. AF_PACKET gives frames to them to the worker with the index destination
    /// port modulo [`Context::workers`](crate::Context::workers): a worker that opens connections from such ports gets both directions of them.
    fn own_addresses(config: &Self::Config) -> Vec<IpAddr> {
        let _ = config;
        Vec::new()
    }

    /// Checks the configuration and declares the state. Adopted state (`state.is_adopted()`) may still belong to the previous instance and must not
    /// be changed here.
    ///
    /// # Errors
    /// If any part of the configuration is wrong.
    fn create(config: Self::Config, state: &mut StateBuilder) -> Result<Self, Refusal>;

    /// Decides each packet of a batch: changes it in place and sets its verdict. A packet without a verdict is dropped and counted.
    fn process(&self, batch: &mut Batch, context: &Context<'_>);

    /// Applies a new configuration while packets flow.
    ///
    /// # Errors
    /// If the configuration is wrong; the old one stays in force as a whole.
    fn configure(&self, config: Self::Config) -> Result<(), Refusal>;

    /// Takes over the state, which may have changed since `create`: called once after the start, and when a migration commits. It loads everything
    /// that is kept outside the arena, and may change the state.
    fn resumed(&self, context: &Context<'_>) {
        let _ = context;
    }

    /// Returns what the function keeps outside the arena and a next instance needs, such as negotiated keys. A migration passes it, encrypted, to the
    /// new instance's [`inherit`](Self::inherit); neither `configure` nor `control` is called meanwhile.
    fn secrets(&self) -> Option<Zeroizing<Vec<u8>>> {
        None
    }

    /// Takes what [`secrets`](Self::secrets) of the previous instance returned, before the state is its own: [`resumed`](Self::resumed) follows.
    ///
    /// # Errors
    /// If it cannot be read; the migration is rolled back.
    fn inherit(&self, secrets: &[u8]) -> Result<(), Refusal> {
        let _ = secrets;
        Ok(())
    }

    /// Tells whether [`tick`](Self::tick) has something to do. Returning false lets an idle worker sleep on.
    fn wants_tick(&self) -> bool {
        true
    }

    /// Does periodic work, about every 10 ms, on worker 0 between batches: aging, health, load. Work in small steps, since packets wait meanwhile.
    /// With [`EACH_WORKER_TICKS`](Self::EACH_WORKER_TICKS), each worker calls it, all at once.
    /// `out` has no packets; frames emitted into it are sent.
    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        let _ = (context, out);
    }

    /// Does work that packets must not wait for, about every 20 ms, on a thread of its own beside the workers: it decides which flows a faster table carries.
    /// Called only where the instance has such a table, and only while its state is its own: not during a migration, a new configuration or a verb.
    fn offload(&self, context: &Context<'_>, table: &mut dyn Table) {
        let _ = (context, table);
    }

    /// Leaves the table, because the state may belong to another instance soon. Its rules stay.
    fn leave_table(&self) {}

    /// Reports what a table carries, for `status`; null: nothing.
    fn offloaded(&self) -> Value {
        Value::Null
    }

    /// Reports its counters in display order. Called concurrently with the workers: `context` gives the time; its worker is meaningless.
    fn counters(&self, context: &Context<'_>, out: &mut CounterSink) {
        let _ = (context, out);
    }

    /// Answers a verb of its own on the control socket: `{"do": "l4lb.drain", ...}` arrives here as `drain`, with the whole request. None: unknown verb.
    fn control(&self, verb: &str, arguments: &Value) -> Option<Result<Value, Refusal>> {
        let _ = (verb, arguments);
        None
    }
}
