//! Runs a network function: batches, workers, state, control, migration. See `nfs/README.md`.
//!
//! A network function implements [`NetworkFunction`]; [`testing::Harness`] runs it without ports.

mod batch;
mod context;
mod counters;
mod function;
pub mod migration;
mod refusal;
pub mod state;
pub mod testing;
mod upgrade;

pub use batch::{Batch, Emitted, NoRoom, MAX_EMITTED};
pub use context::Context;
pub use counters::CounterSink;
pub use function::NetworkFunction;
pub use nf_ports::{Mac, Packet, Verdict, HEADROOM, MAX_FRAME};
pub use refusal::Refusal;
pub use upgrade::OldState;
