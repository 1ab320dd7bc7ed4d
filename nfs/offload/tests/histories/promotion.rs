//! Which flows get a rule: at load, the heaviest, and without taking turns.

use std::{collections::BTreeSet, time::Duration};

use nf_offload::{Capabilities, Driver, FlowKey, Ledger, Limits, Promoter, Refused};

use crate::{
    flow,
    memory::Memory,
    model::Model,
    table::{Handle, Table},
    target,
};

const LIMITS: Limits = Limits {
    begin: 0.8,
    stop: 0.5,
    samples: 5,
    sampling: 1,
    window: Duration::from_secs(1),
    idle: Duration::from_secs(4),
};

/// A function whose packets go through the table if it carries their flow, and are all sampled otherwise.
struct Function {
    table: Table,
    driver: Handle,
    ledger: Ledger<Memory>,
    promoter: Promoter,
    seconds: u64,
    removals: usize,
}

impl Function {
    fn new() -> Self {
        let table = Table::default();
        let mut driver = table.writer(1, 1);
        driver.list();
        let mut ledger = Ledger::open(Memory::new(Table::FLOWS + 2), 1);
        let (id, to) = target(0);
        ledger.put_target(id, to);
        let promoter = Promoter::new(LIMITS, &driver.capabilities().unwrap());
        Self {
            table,
            driver,
            ledger,
            promoter,
            seconds: 0,
            removals: 0,
        }
    }

    /// Lets a second pass at this load; `packets` of flows 0, 1, ... `refused`: the table's answer to installs.
    fn second(&mut self, packets: &[u64], util_plus: f64, refused: Option<Refused>) {
        for (number, count) in (0..).zip(packets) {
            for _ in 0..*count {
                if self.table.carry(flow(number), false).is_none() {
                    self.promoter.sample(flow(number));
                }
            }
        }
        self.table.count();
        self.exchange(refused);
        self.seconds += 1;
        let now = Duration::from_secs(self.seconds);
        let before = self.live();
        self.promoter
            .tick(now, util_plus, &mut self.ledger, |_| Some((0, target(0).0)));
        self.exchange(refused);
        self.removals += before.difference(&self.live()).count();
    }

    fn exchange(&mut self, refused: Option<Refused>) {
        for _ in 0..8 {
            let taken = self.driver.submit(self.ledger.requests());
            self.ledger.taken(taken);
            (0..8).for_each(|_| self.table.work(refused));
            self.table.settle();
            let mut events = Vec::new();
            self.driver.poll(&mut events).unwrap();
            for event in events {
                if let Some(outcome) = self.ledger.handle(event) {
                    self.promoter
                        .note(&outcome, Duration::from_secs(self.seconds));
                }
            }
        }
    }

    fn live(&self) -> BTreeSet<FlowKey> {
        self.ledger.live().map(|live| live.flow).collect()
    }
}

fn flows(numbers: impl IntoIterator<Item = u16>) -> BTreeSet<FlowKey> {
    numbers.into_iter().map(flow).collect()
}

#[test]
fn promotion_begins_at_load_and_goes_on_until_it_is_low() {
    let mut function = Function::new();
    function.second(&[50], 0.79, None);
    assert_eq!(function.live(), flows([]));
    function.second(&[50], 0.8, None);
    assert_eq!(function.live(), flows([0]));
    function.second(&[50, 50], 0.51, None);
    assert_eq!(function.live(), flows([0, 1]));
    function.second(&[50, 50, 50], 0.5, None);
    function.second(&[50, 50, 50], 0.79, None);
    assert_eq!(
        function.live(),
        flows([0, 1]),
        "the rules stay when the load has fallen"
    );
}

#[test]
fn no_more_rules_are_asked_for_than_the_table_installs_in_a_second() {
    let mut function = Function::new();
    let table = Capabilities {
        installs_per_s: 2,
        ..function.driver.capabilities().unwrap()
    };
    function.promoter = Promoter::new(LIMITS, &table);
    function.second(&[50, 60, 70, 80, 90], 1.0, None);
    assert_eq!(function.live(), flows([3, 4]), "the heaviest come first");
    function.second(&[50, 60, 70, 80, 90], 1.0, None);
    assert_eq!(function.live(), flows(1..5));
}

#[test]
fn light_flows_get_no_rule_and_idle_ones_lose_theirs() {
    let mut function = Function::new();
    function.second(&[50, 4], 1.0, None);
    assert_eq!(function.live(), flows([0]));
    for _ in 0..3 {
        function.second(&[], 1.0, None);
    }
    assert_eq!(function.live(), flows([0]));
    function.second(&[], 1.0, None);
    assert_eq!(function.live(), flows([]));
}

#[test]
fn in_a_full_table_a_flow_replaces_one_that_is_half_as_heavy() {
    let mut function = Function::new();
    function.second(&[10, 20, 30, 40, 50, 60], 1.0, None);
    assert_eq!(function.live(), flows(0..6));
    for _ in 0..3 {
        function.second(&[10, 20, 30, 40, 50, 60, 19], 1.0, None);
    }
    assert_eq!(function.live(), flows(0..6), "19 is not twice 10");
    for _ in 0..4 {
        function.second(&[10, 20, 30, 40, 50, 60, 45], 1.0, None);
    }
    assert_eq!(function.live(), flows(1..7));
    assert_eq!(function.removals, 1);
}

#[test]
fn flows_of_similar_weight_do_not_take_turns() {
    let mut function = Function::new();
    function.second(&[40; 6], 1.0, None);
    for second in 0..100u64 {
        let noisy = |flow: u64| 40 + (second * 7 + flow * 11) % 21;
        function.second(
            &std::array::from_fn::<u64, 8, _>(|flow| noisy(flow as u64)),
            1.0,
            None,
        );
    }
    assert_eq!(function.removals, 0);
}

#[test]
fn a_refused_flow_rests_and_a_full_table_is_tried_with_one_flow_more_per_window() {
    let mut function = Function::new();
    function.second(&[50], 1.0, Some(Refused::Collision));
    for _ in 0..29 {
        function.second(&[50], 1.0, None);
        assert_eq!(function.live(), flows([]));
    }
    function.second(&[50], 1.0, None);
    assert_eq!(function.live(), flows([0]));
    function.second(&[50, 50, 50], 1.0, Some(Refused::Full));
    assert_eq!(function.live(), flows([0]));
    function.second(&[50, 0, 0, 50, 50], 1.0, None);
    assert_eq!(function.live().len(), 2);
}
