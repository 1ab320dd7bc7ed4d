//! The parts that load balancers share.
//!
//! `config` has the shared parts of configurations, and `check` validates them.

pub mod check;
pub mod config;
