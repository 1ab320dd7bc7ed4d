//! The ledger's random histories over a T-NIC: real sessions, queues and engines; resets, kills, lost completions, a table of one entry.

#![allow(clippy::unwrap_used)]

#[path = "../../../offload/tests/histories/memory.rs"]
mod memory;
#[path = "../../../offload/tests/histories/model.rs"]
mod model;
mod nic;
#[path = "../../../offload/tests/histories/world.rs"]
#[allow(dead_code)]
mod world;

use nic::TestNic;
use proptest::prelude::*;
use world::{cases, play, step};

/// Each history opens about ten sessions, with sockets and memory of their own.
fn fewer() -> u32 {
    match std::env::var_os("OFFLOAD_HISTORIES") {
        Some(_) => cases(),
        None => cases() / 10,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: fewer(), ..ProptestConfig::default() })]

    #[test]
    fn an_entry_never_contradicts_a_record_and_every_packet_is_counted_once(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        play::<TestNic<4, 2>>(&steps);
    }

    #[test]
    fn a_table_with_one_entry_refuses_or_evicts_all_other_flows(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        play::<TestNic<1, 1>>(&steps);
    }
}
