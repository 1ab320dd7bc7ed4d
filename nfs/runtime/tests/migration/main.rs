//! Instances that move under traffic, without any switch: whole moves cut at random points, moves that are given up, and instances that die
//! at each step.
//!
//! `NF_MOVES=10000` sets how many random moves are made.

#![allow(clippy::unwrap_used, clippy::panic)]

mod crashes;
mod hangs;
mod moves;
mod strangers;
mod verbs;
#[path = "../shared/watchdog.rs"]
mod watchdog;
mod world;
