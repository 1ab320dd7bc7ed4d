//! The core over fake switches, as controllers and operators see it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod budget;
mod build;
mod bundles;
mod check;
mod confirmed;
mod executors;
mod fake;
mod flow_ids;
mod folds;
mod gathering;
mod idle;
mod lab;
mod liveness;
mod logs;
mod markers;
mod moves;
mod offload;
mod offload_random;
mod offload_writers;
mod openflow14;
mod ports;
mod questions;
mod random;
mod recovery;
mod refused;
mod removals;
mod restarts;
mod resumed;
mod roles;
mod statistics;
mod steps;
mod traffic;
mod vendors;
mod verdicts;
