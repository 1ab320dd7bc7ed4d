//! The ledger's random histories over a network card that matches: refusals, failures, resets, one entry, calls that take long.

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
use proptest::prelude::*;
use world::{cases, play, step};

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_mark_never_contradicts_a_record(steps in prop::collection::vec(step(), 1..300)) {
        play::<Nic<6>>(&steps);
    }

    #[test]
    fn a_card_with_one_entry_refuses_all_other_flows(steps in prop::collection::vec(step(), 1..300)) {
        play::<Nic<1>>(&steps);
    }
}
