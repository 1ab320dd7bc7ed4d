//! The core over fake switches, as controllers and operators see it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod build;
mod fake;
mod lab;
mod removals;
mod verdicts;
