//! Runs a network function. See `nfs/README.md`.

pub mod migration;
mod refusal;
pub mod state;

pub use refusal::Refusal;
