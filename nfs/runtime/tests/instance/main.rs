//! Instances on ports in memory: workers, the gate, the control socket.

#![allow(clippy::unwrap_used, clippy::panic)]

mod control;
mod gate;
mod support;
mod ticks;
#[path = "../shared/watchdog.rs"]
mod watchdog;
mod workers;
