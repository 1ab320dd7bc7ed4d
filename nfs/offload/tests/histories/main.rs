//! The promises of the ledger over random histories: packets, installs, refusals, removals, losses, moves and kills.

#![allow(clippy::unwrap_used)]

mod memory;
mod promotion;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use bytemuck::Zeroable;
use memory::{Killed, Memory};
use nf_offload::{
    Direction, Driver, Event, FlowKey, Ledger, Outcome, Refused, Rewrite, RuleId, Target, TargetId,
};
use nf_packet::MacAddress;
use proptest::prelude::*;
use table::{Handle, Table};

const BACKENDS: u16 = 3;
const FLOWS: u16 = 8;

#[derive(Clone, Debug)]
enum Step {
    /// A packet of a flow; where a rule fades, it may take that.
    Packet {
        flow: u16,
        fades_too: bool,
    },
    /// The connection ends, and its record.
    End(u16),
    Promote(u16),
    Evict(u16),
    /// A backend is removed with its connections, if no rule leads to it any more.
    Replace(u16),
    /// The function exchanges requests and events with the driver.
    Pump,
    /// The table works on a request; on an install with this answer.
    Work(Option<Refused>),
    Settle,
    Count,
    Reset,
    /// The process dies after this number of writes of the next pump, and another one adopts its state, as in a move.
    Kill(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let refused = prop::sample::select(&Refused::ALL[..4]);
    prop_oneof![
        8 => (0..FLOWS, any::<bool>()).prop_map(|(flow, fades_too)| Step::Packet { flow, fades_too }),
        2 => (0..FLOWS).prop_map(Step::End),
        6 => (0..FLOWS).prop_map(Step::Promote),
        2 => (0..FLOWS).prop_map(Step::Evict),
        1 => (0..BACKENDS).prop_map(Step::Replace),
        8 => Just(Step::Pump),
        8 => prop::option::weighted(0.2, refused).prop_map(Step::Work),
        3 => Just(Step::Settle),
        3 => Just(Step::Count),
        1 => Just(Step::Reset),
        4 => (0u8..8).prop_map(Step::Kill),
    ]
}

fn flow(number: u16) -> FlowKey {
    FlowKey {
        source_port: number,
        ..FlowKey::zeroed()
    }
}

fn target(backend: u16) -> (TargetId, Target) {
    let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
    let rewrite = Rewrite {
        source_mac: mac(1),
        destination_mac: mac(2),
        source: None,
        destination: None,
        tunnel: None,
    };
    (
        TargetId(backend.into()),
        Target {
            rewrite,
            port: backend,
        },
    )
}

/// A function with a ledger, its records, and the table.
struct World {
    table: Table,
    memory: Memory,
    ledger: Ledger<Memory>,
    driver: Handle,
    epoch: u64,
    /// The function's records: the backend of each connection.
    records: BTreeMap<FlowKey, u16>,
    /// The life of each backend's number; packets of an earlier life must not reach it.
    lives: [u64; BACKENDS as usize],
    /// The life of the backend's number when the flow's rule was asked for.
    promised: BTreeMap<FlowKey, u64>,
    carried: BTreeMap<u16, u64>,
    lost: u64,
}

impl World {
    fn new() -> Self {
        let (table, memory) = (Table::default(), Memory::new(Table::FLOWS + 1));
        let mut world = Self {
            ledger: Ledger::open(memory.clone(), 1),
            driver: table.writer(1),
            epoch: 1,
            records: BTreeMap::new(),
            lives: [0; BACKENDS as usize],
            promised: BTreeMap::new(),
            carried: BTreeMap::new(),
            lost: 0,
            table,
            memory,
        };
        world.begin();
        world
    }

    /// Begins a life: takes over the table, and writes the targets.
    fn begin(&mut self) {
        let listed = self.driver.list().unwrap();
        self.ledger.reconcile(&listed);
        let acting: BTreeSet<FlowKey> = self
            .table
            .acting()
            .into_iter()
            .map(|(flow, _)| flow)
            .collect();
        assert!(
            self.ledger.live().all(|live| acting.contains(&live.flow)),
            "a lost rule counts as live"
        );
        for backend in 0..BACKENDS {
            let (id, target) = target(backend);
            self.ledger.put_target(id, target);
        }
    }

    fn die(&mut self) {
        self.epoch += 1;
        self.memory.revive();
        self.ledger = Ledger::open(self.memory.clone(), self.epoch);
        let old = std::mem::replace(&mut self.driver, self.table.writer(self.epoch));
        self.begin();
        self.check_stale(old);
    }

    /// An old writer learns that it was replaced, and changes nothing.
    fn check_stale(&self, mut old: Handle) {
        let mut events = Vec::new();
        old.poll(&mut events).unwrap();
        assert_eq!(events, [Event::Refused(RuleId(0), Refused::StaleWriter)]);
        let mut ledger = Ledger::open(Memory::new(1), 1);
        assert_eq!(ledger.handle(events[0]), Some(Outcome::Replaced));
    }

    fn pump(&mut self) -> Result<(), Killed> {
        memory::catch(|| {
            let taken = self.driver.submit(self.ledger.requests());
            self.ledger.taken(taken);
            let mut events = Vec::new();
            self.driver.poll(&mut events).unwrap();
            for event in events {
                let outcome = self.ledger.handle(event);
                if let Some(Outcome::Free(flow)) = outcome {
                    assert_eq!(self.ledger.backend_of(&flow), None);
                }
            }
        })
    }

    fn packet(&mut self, flow: FlowKey, fades_too: bool) {
        if let Some(TargetId(backend)) = self.table.carry(flow, fades_too) {
            let backend = backend as u16;
            *self.carried.entry(backend).or_default() += 1;
            let record = self.records.get(&flow);
            assert!(
                record.is_none_or(|record| *record == backend),
                "a rule contradicts the record"
            );
            assert_eq!(
                self.ledger.backend_of(&flow),
                Some(backend),
                "a rule that the ledger does not know"
            );
            assert_eq!(
                self.promised.get(&flow),
                Some(&self.lives[usize::from(backend)]),
                "another backend's life"
            );
            return;
        }
        let backend = self
            .ledger
            .backend_of(&flow)
            .unwrap_or(flow.source_port % BACKENDS);
        self.records.entry(flow).or_insert(backend);
    }

    fn promote(&mut self, flow: FlowKey) {
        let Some(&backend) = self.records.get(&flow) else {
            return;
        };
        let direction = match flow.source_port % 2 {
            0 => Direction::ToBackend,
            _ => Direction::ToClient,
        };
        let target = TargetId(backend.into());
        if self.ledger.install(flow, backend, target, direction) {
            self.promised.insert(flow, self.lives[usize::from(backend)]);
        }
    }

    fn replace(&mut self, backend: u16) {
        let ended: Vec<FlowKey> = self
            .records
            .iter()
            .filter(|(_, its)| **its == backend)
            .map(|(flow, _)| *flow)
            .collect();
        for flow in ended {
            self.records.remove(&flow);
        }
        let (id, target) = target(backend);
        self.ledger.drop_target(id);
        if !self.ledger.names(backend) {
            self.lives[usize::from(backend)] += 1;
        }
        self.ledger.put_target(id, target);
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Packet {
                flow: number,
                fades_too,
            } => self.packet(flow(number), fades_too),
            Step::End(number) => {
                self.records.remove(&flow(number));
                self.ledger.remove(&flow(number));
            }
            Step::Promote(number) => self.promote(flow(number)),
            Step::Evict(number) => self.ledger.remove(&flow(number)),
            Step::Replace(backend) => self.replace(backend),
            Step::Pump => self.pump().unwrap(),
            Step::Work(refuses) => self.table.work(refuses),
            Step::Settle => self.table.settle(),
            Step::Count => self.table.count(),
            Step::Reset => {
                self.lost += self.table.reset(&self.memory.counted());
            }
            Step::Kill(writes) => {
                self.table.count();
                self.memory.kill_after(writes.into());
                let _ = self.pump();
                self.die();
            }
        }
        self.check();
    }

    fn check(&self) {
        let mut seen = BTreeSet::new();
        for (flow, TargetId(backend)) in self.table.acting() {
            assert!(seen.insert(flow), "two rules of one flow may act");
            let its = self.ledger.backend_of(&flow);
            // After a reset that was not polled yet, the ledger knows more than the table has, never less.
            assert_eq!(its, Some(backend as u16));
        }
    }

    /// Ends all connections, and lets the table finish: nothing is left, and each packet is counted once.
    fn finish(&mut self) {
        for number in 0..FLOWS {
            self.play(&Step::End(number));
        }
        for _ in 0..200 {
            self.play(&Step::Pump);
            self.play(&Step::Work(None));
            self.play(&Step::Settle);
        }
        assert!(self.table.is_empty(), "orphans: {:?}", self.table);
        assert_eq!(self.ledger.live().count(), 0);
        let counted: u64 = (0..BACKENDS)
            .map(|backend| self.memory.carried_by(backend))
            .sum();
        assert_eq!(counted + self.lost, self.carried.values().sum::<u64>());
        assert!((0..FLOWS).all(|number| self.ledger.backend_of(&flow(number)).is_none()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_rule_never_contradicts_a_record_and_every_packet_is_counted_once(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.play(step);
        }
        world.finish();
    }
}

#[test]
fn a_flow_is_used_when_its_counts_grow_and_free_when_its_removal_is_effective() {
    let mut world = World::new();
    let (flow, rule) = (flow(1), RuleId(1 << 40));
    assert!(world
        .ledger
        .install(flow, 2, TargetId(2), Direction::ToBackend));
    assert!(
        !world
            .ledger
            .install(flow, 2, TargetId(2), Direction::ToBackend),
        "the flow has a rule"
    );
    assert!(
        !world
            .ledger
            .install(self::flow(2), 3, TargetId(3), Direction::ToBackend),
        "the target does not exist"
    );
    let mut handle = |event| world.ledger.handle(event);
    assert_eq!(handle(Event::Installed(rule)), None);
    assert_eq!(
        handle(Event::Counted(rule, 3, 300)),
        Some(Outcome::Used(flow))
    );
    assert_eq!(handle(Event::Counted(rule, 3, 300)), None);
    assert_eq!(handle(Event::Hit(rule)), Some(Outcome::Used(flow)));
    assert_eq!(handle(Event::Removed(rule, 4, 400)), None);
    assert_eq!(handle(Event::Effective(rule)), Some(Outcome::Free(flow)));
    assert_eq!(handle(Event::Effective(rule)), None);
    assert_eq!(world.memory.carried_by(2), 4);
}

/// `OFFLOAD_HISTORIES` changes the number.
fn cases() -> u32 {
    let asked = std::env::var("OFFLOAD_HISTORIES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1000)
}
