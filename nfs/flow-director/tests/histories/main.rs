//! The ledger's random histories over a network card that matches: refusals, failures, lost answers, resets, one entry, one operation a second.

#![allow(clippy::unwrap_used)]

#[path = "../../../offload/tests/histories/memory.rs"]
mod memory;
#[path = "../../../offload/tests/histories/model.rs"]
mod model;
mod nic;
#[path = "../../../offload/tests/histories/world.rs"]
#[allow(dead_code)]
mod world;

use nic::Nic;
use world::{cases, play_all};

#[test]
fn a_mark_never_contradicts_a_record() {
    play_all::<Nic<6, 1>>(cases(1000));
}

#[test]
fn a_card_with_one_entry_refuses_all_other_flows() {
    play_all::<Nic<1, 1>>(cases(1000));
}

/// A turn of the histories stands for 100 ms.
#[test]
fn a_card_with_one_operation_a_second_leaves_packets_to_the_function() {
    play_all::<Nic<6, 10>>(cases(100));
}
