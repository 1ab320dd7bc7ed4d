//! Two gateways with a tunnel.

#![allow(clippy::unwrap_used, clippy::panic)]

mod associations;
#[path = "../common/mod.rs"]
mod common;
mod configurations;
mod ike;
mod nat;
mod packets;
mod path;
mod runs;

use common::{frame, sent, Gateway, INSIDE, OUTSIDE, WEST};
use nf_runtime::testing::Output;

const SECOND: u64 = 1_000_000_000;

fn dropped(reason: &'static str) -> Output {
    Output::Dropped(reason)
}

/// Protects a packet with `payload` at the west gateway.
#[track_caller]
fn protected(west: &mut Gateway, payload: &[u8]) -> Vec<u8> {
    sent(west.process(INSIDE, &frame(WEST, false, payload)), OUTSIDE)
}
