//! Packets that the port's network card has marked with the number of their backend.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;
#[path = "../../offload/tests/histories/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../../flow-director/tests/histories/nic.rs"]
#[allow(dead_code)]
mod nic;

use common::*;
use model::Model;
use nf_l4lb::L4lb;
use nf_runtime::{
    testing::{Harness, Output},
    NetworkFunction,
};
use nic::Nic;
use serde_json::json;

/// Returns the address that a packet with this mark is sent to.
fn sent_to(lb: &mut Harness<L4lb>, sent: &Sent, mark: Option<u32>) -> Result<u8, &'static str> {
    match lb.process_marked(0, &sent.frame(), mark) {
        Output::Sent(_, frame) => Ok(read(&frame).to[5]),
        Output::Dropped(reason) => Err(reason),
    }
}

/// Returns the packets that were counted for each backend.
fn packets(lb: &Harness<L4lb>) -> [u64; 2] {
    let counters = lb.counters();
    ["web11", "web12"].map(|name| {
        let counter = format!("backend_packets{{vip=\"web\",backend=\"{name}\"}}");
        counters[counter].as_u64().unwrap()
    })
}

/// Opens a connection; returns its backend.
fn open(lb: &mut Harness<L4lb>, client: u16) -> u8 {
    sent_to(lb, &Sent::client(client, SYN), None).unwrap();
    sent_to(lb, &Sent::client(client, ACK), None).unwrap()
}

#[test]
fn a_marked_packet_goes_to_the_backend_of_its_number_and_counts_there() {
    let mut lb = lb(json!([vip("nat", &[11, 12])]));
    for (mark, backend) in [(0, 11), (1, 12), (1, 12)] {
        let reached = sent_to(&mut lb, &Sent::client(1000, ACK), Some(mark));
        assert_eq!(reached, Ok(backend));
    }
    assert_eq!(packets(&lb), [1, 2]);
    let active = lb.counters()["vip_active{vip=\"web\"}"].clone();
    assert_eq!(active, json!(0), "a record, and so a lookup");
}

#[test]
fn packets_that_change_records_take_the_way_of_all_others() {
    let mut lb = lb(json!([vip("nat", &[11, 12])]));
    let own = open(&mut lb, 1000);
    let other = u32::from(own == 11);
    for flags in [SYN, FIN | ACK, RST] {
        let sent = Sent::client(1000, flags);
        assert_eq!(sent_to(&mut lb, &sent, Some(other)), Ok(own), "{flags}");
    }
}

#[test]
fn a_mark_without_a_backend_of_the_packets_vip_changes_nothing() {
    let mut second = with(vip("nat", &[13]), "name", "second");
    second["port"] = json!(81);
    let mut lb = lb(json!([vip("nat", &[11, 12]), second]));
    let own = open(&mut lb, 1000);
    for mark in [2, 3, 63, 64, 0xffff, 0x1_0000, u32::MAX] {
        let sent = Sent::client(1000, ACK);
        assert_eq!(sent_to(&mut lb, &sent, Some(mark)), Ok(own), "{mark}");
    }
}

#[test]
fn connections_with_sessions_are_never_sent_by_mark() {
    let vip = with(vip("nat", &[11, 12]), "proxy_protocol", true);
    let mut lb = lb(json!([vip]));
    let answer = sent_to(&mut lb, &Sent::client(1000, ACK), Some(0));
    assert_eq!(answer, Err("no session"));
}

/// The function, and a card that it gives its heavy connections to.
struct World {
    lb: Harness<L4lb>,
    card: Nic<1, 1>,
}

impl World {
    fn new() -> Self {
        let mut config = config(json!([vip("nat", &[11, 12])]));
        config["offload"] = json!({"begin": 0.0, "stop": 0.0, "heavy_packets_per_s": 1.0, "idle": "2s", "sampling": 1});
        Self {
            lb: start(config),
            card: Nic::default(),
        }
    }

    fn send(&mut self, client: u16) -> u8 {
        let sent = Sent::client(client, ACK);
        let mark = self.card.carry(key(&sent), false);
        sent_to(&mut self.lb, &sent, mark.map(|target| target.0)).unwrap()
    }

    /// Lets half a second pass.
    fn turn(&mut self) {
        for _ in 0..3 {
            self.lb.offload(&mut self.card);
            (0..4).for_each(|_| self.card.work(None));
            self.card.settle();
        }
        self.lb.advance(SECOND / 2);
    }

    fn status(&self) -> serde_json::Value {
        self.lb.function().offloaded()
    }
}

#[test]
fn a_heavy_connection_is_marked_with_its_backend_and_others_find_the_card_full() {
    let mut world = World::new();
    let own = [1000, 1001].map(|client| open(&mut world.lb, client));
    for _ in 0..6 {
        for (client, own) in [1000, 1001].into_iter().zip(own) {
            (0..20).for_each(|_| assert_eq!(world.send(client), own));
        }
        world.turn();
    }
    let status = world.status();
    assert_eq!(status["flows"], 1);
    assert!(status["packets"].as_u64().unwrap() > 0, "{status}");
    // Idle connections lose their match.
    for _ in 0..8 {
        world.turn();
    }
    assert_eq!(world.status()["flows"], 0);
    assert!(world.card.is_empty());
}
