//! What a network function is.

use serde::{de::DeserializeOwned, Serialize};
use serde_json::Value;

use crate::{state::StateBuilder, Batch, Context, CounterSink, OldState, Refusal};

/// A packet function, its configuration, and the state that it declares.
///
/// Thread safety: `process` runs on several workers at once; state that changes is in the arena's structures, which are made for that.
/// Everything else comes from one thread at a time, beside the workers.
pub trait NetworkFunction: Send + Sync + Sized + 'static {
    /// Its name for `nf run`.
    const KIND: &'static str;
    /// One line for `nf list`.
    const SUMMARY: &'static str;
    /// Raised when the meaning of its state changes.
    const SCHEMA: u32;
    /// An unknown key is an error if the type says so: `#[serde(deny_unknown_fields)]`.
    type Config: DeserializeOwned + Serialize + Clone + Send + Sync + 'static;

    /// Checks the configuration against the ports that the instance has.
    ///
    /// # Errors
    /// It needs other ones.
    fn fits(config: &Self::Config, ports: usize) -> Result<(), Refusal> {
        let _ = (config, ports);
        Ok(())
    }

    /// Checks the configuration and declares the state. State that is adopted (`state.is_adopted()`) may still belong to the instance before: it must
    /// not be changed here.
    ///
    /// # Errors
    /// The configuration cannot be, in whole or in part.
    fn create(config: Self::Config, state: &mut StateBuilder) -> Result<Self, Refusal>;

    /// Decides each packet of a batch: changes it in place and sets its verdict. A packet without one is dropped and counted.
    fn process(&self, batch: &mut Batch, context: &Context<'_>);

    /// A new configuration while packets flow.
    ///
    /// # Errors
    /// The configuration cannot be; the old one stays, whole.
    fn configure(&self, config: Self::Config) -> Result<(), Refusal>;

    /// The state is this instance's now, and may have changed since `create`: once after the start, and when a migration commits. Here anything that
    /// is kept outside the arena is read from it, and what is in it may be changed.
    fn resumed(&self, context: &Context<'_>) {
        let _ = context;
    }

    /// Is there something for [`tick`](Self::tick) to do? Asked now and then; a function that says no lets an idle worker sleep on.
    fn wants_tick(&self) -> bool {
        true
    }

    /// About every 10 ms, on worker 0, between batches: aging, health, load. In small steps: packets wait meanwhile.
    /// `out` has no packets; what is emitted into it is sent.
    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        let _ = (context, out);
    }

    /// What it counts, in the order in which it is to be shown. Asked beside the workers: `context` tells the time; its worker means nothing.
    fn counters(&self, context: &Context<'_>, out: &mut CounterSink) {
        let _ = (context, out);
    }

    /// Requests of its own on the control socket: `{"do": "l4lb.drain", ...}` comes here as `drain`, with the whole request. None: no such verb.
    fn control(&self, verb: &str, arguments: &Value) -> Option<Result<Value, Refusal>> {
        let _ = (verb, arguments);
        None
    }

    /// Moves state of an older schema into the new arena, that of `to`.
    ///
    /// # Errors
    /// It cannot; the default never can.
    fn upgrade(from: &OldState, to: &Self) -> Result<(), Refusal> {
        let _ = (from, to);
        Err(Refusal::schema())
    }
}
