//! Runs a network function: batches, workers, state, control, migration. See `nfs/README.md`.
//!
//! A network function implements [`NetworkFunction`]; [`testing::Harness`] runs it without ports.

mod batch;
mod context;
pub mod control;
mod counters;
mod emitted;
mod function;
pub mod gate;
mod instance;
mod loaded;
pub mod migration;
mod refusal;
pub mod state;
pub mod testing;
mod worker;

pub use batch::{Batch, Leaving, NoRoom};
pub use context::{Context, NOT_ADDRESSED};
pub use counters::CounterSink;
pub use emitted::{Emitted, MAX_EMITTED, MAX_EMITTED_BYTES};
pub use function::NetworkFunction;
pub use gate::Waker;
pub use instance::{inherited_arena, Instance, Options, ORDER_TIMEOUT};
pub use loaded::{Loaded, Prepared};
pub use nf_ports::{
    Frame, Mac, Network, Offloads, Packet, PartialChecksum, Segments, Verdict, HEADROOM, MAX_FRAME,
    MAX_LARGE_FRAME,
};
pub use refusal::Refusal;
