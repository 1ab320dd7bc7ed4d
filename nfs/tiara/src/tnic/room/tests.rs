//! The ledger's random histories over a T-NIC: real sessions, queues and engines; resets, kills, lost completions, one entry, one operation a second.

#[path = "../../../../offload/tests/histories/memory.rs"]
mod memory;
#[path = "../../../../offload/tests/histories/model.rs"]
mod model;
mod nic;
#[path = "../../../../offload/tests/histories/world.rs"]
#[allow(dead_code)]
mod world;

use nic::TestNic;
use world::{cases, play_all};

/// Each history opens about ten sessions, with sockets and memory of their own.
const EVERYDAY: u32 = 100;

#[test]
fn an_entry_never_contradicts_a_record_and_every_packet_is_counted_once() {
    play_all::<TestNic<4, 2, false>>(cases(EVERYDAY));
}

#[test]
fn a_table_with_one_entry_refuses_or_evicts_all_other_flows() {
    play_all::<TestNic<1, 1, false>>(cases(EVERYDAY));
}

#[test]
fn engines_with_one_operation_a_second_leave_packets_to_the_load_balancer() {
    play_all::<TestNic<4, 2, true>>(cases(EVERYDAY / 2));
}
