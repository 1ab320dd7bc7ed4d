//! Runs a network function. See `nfs/README.md`.

mod refusal;
pub mod state;

pub use refusal::Refusal;
