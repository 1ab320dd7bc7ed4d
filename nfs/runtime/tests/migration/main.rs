//! Instances that move under traffic, without a switch: whole moves of random timing, abandoned moves, and instances that die
//! at each step.
//!
//! `NF_MOVES=10000` sets the number of random moves.

#![allow(clippy::unwrap_used, clippy::panic)]

mod crashes;
mod hangs;
mod large;
mod markers;
mod moves;
mod secrets;
mod strangers;
mod verbs;
#[path = "../shared/watchdog.rs"]
mod watchdog;
mod world;
