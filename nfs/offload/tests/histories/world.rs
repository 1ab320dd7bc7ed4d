//! A function with a ledger, its records, and a table, which random steps change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytemuck::Zeroable;
use nf_offload::{
    CounterId, Direction, Driver, Event, FlowKey, Ledger, Outcome, Refused, Rewrite, Rows, RuleId,
    Target, TargetId,
};
use nf_packet::MacAddress;
use proptest::{prelude::*, test_runner::TestRunner};

use super::{
    memory::{self, Killed, Memory},
    model::{Model, BACKENDS},
};

const FLOWS: u16 = 7;
/// A history has ended when nothing is asked for, and no rule acts, for this number of rounds.
const QUIET: u32 = 20;

#[derive(Clone, Debug)]
pub enum Step {
    /// Packets of a flow; where a rule fades, they may take that.
    Packets {
        flow: u16,
        count: u8,
        fades_too: bool,
    },
    /// The connection ends, and its record.
    End(u16),
    /// The function processes a packet of a flow and asks for a rule.
    Promote(u16),
    Evict(u16),
    /// A backend is removed with its connections; its number becomes another one's, if no rule leads to it any more.
    Replace(u16),
    /// The function exchanges requests and events with the driver.
    Pump,
    /// The table handles this number of requests; an install gets this answer.
    Work(u8, Option<Refused>),
    Settle,
    Count,
    /// The device does its next operation, and the answer is lost.
    LoseAnswer,
    /// The table loses its totals, and tells that.
    LoseTotals,
    Reset,
    /// The process dies after writing this number of words in the next pump, and another one adopts its state, as in a move. That one may die at its start.
    Kill(u8, Option<u8>),
    /// Another instance gets the table. It may die at its start, too.
    Renew(Option<u8>),
}

pub fn step() -> impl Strategy<Value = Step> {
    let refused = prop::sample::select(&Refused::ALL[..4]);
    prop_oneof![
        24 => (0..FLOWS, 1u8..5, any::<bool>())
            .prop_map(|(flow, count, fades_too)| Step::Packets { flow, count, fades_too }),
        2 => (0..FLOWS).prop_map(Step::End),
        12 => (0..FLOWS).prop_map(Step::Promote),
        2 => (0..FLOWS).prop_map(Step::Evict),
        1 => (0..BACKENDS).prop_map(Step::Replace),
        20 => Just(Step::Pump),
        20 => (1u8..8, prop::option::weighted(0.1, refused)).prop_map(|(count, refused)| Step::Work(count, refused)),
        3 => Just(Step::Settle),
        3 => Just(Step::Count),
        2 => Just(Step::LoseAnswer),
        1 => Just(Step::LoseTotals),
        1 => Just(Step::Reset),
        2 => (0u8..100, prop::option::of(0u8..100)).prop_map(|(pump, start)| Step::Kill(pump, start)),
        1 => prop::option::of(0u8..100).prop_map(Step::Renew),
    ]
}

pub fn flow(number: u16) -> FlowKey {
    FlowKey {
        source_port: number,
        protocol: 6,
        ..FlowKey::zeroed()
    }
}

pub fn target(backend: u16) -> (TargetId, Target) {
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
        Target::Rewrite {
            rewrite,
            port: backend,
        },
    )
}

fn direction(flow: &FlowKey) -> Direction {
    match flow.source_port % 2 {
        0 => Direction::ToBackend,
        _ => Direction::ToClient,
    }
}

pub fn counters_of(backend: u16) -> [CounterId; 2] {
    let directions = [Direction::ToBackend, Direction::ToClient];
    directions.map(|direction| CounterId::of(backend, direction).unwrap())
}

/// The counts of the histories of this process.
#[derive(Debug)]
struct Sums {
    histories: AtomicU64,
    packets: AtomicU64,
    /// Packets that rules have carried.
    carried: AtomicU64,
    /// Answers of devices that were lost.
    answers: AtomicU64,
    resets: AtomicU64,
}

static SUMS: Sums = Sums {
    histories: AtomicU64::new(0),
    packets: AtomicU64::new(0),
    carried: AtomicU64::new(0),
    answers: AtomicU64::new(0),
    resets: AtomicU64::new(0),
};

/// A function with a ledger, its records, and the table.
pub struct World<T: Model> {
    table: T,
    pub memory: Memory,
    pub ledger: Ledger<Memory>,
    driver: T::Handle,
    instance: u128,
    epoch: u64,
    /// The function's records: the backend of each connection.
    records: BTreeMap<FlowKey, u16>,
    /// The life of each backend's number; packets of an earlier life must not reach it.
    lives: [u64; BACKENDS as usize],
    /// The life of the backend's number when the flow's rule was asked for.
    promised: BTreeMap<FlowKey, u64>,
    /// Packets that rules have carried for the present life of each backend's number, and those whose counts the table has lost.
    carried: BTreeMap<CounterId, u64>,
    lost: BTreeMap<CounterId, u64>,
}

impl<T: Model> World<T> {
    pub fn new() -> Self {
        let (table, memory) = (T::default(), Memory::new(T::FLOWS + 1));
        let mut world = Self {
            ledger: Ledger::open(memory.clone(), 1),
            driver: table.writer(1, 1),
            instance: 1,
            epoch: 1,
            records: BTreeMap::new(),
            lives: [0; BACKENDS as usize],
            promised: BTreeMap::new(),
            carried: BTreeMap::new(),
            lost: BTreeMap::new(),
            table,
            memory,
        };
        world.begin();
        world
    }

    /// Begins a life: takes over the table, and writes the targets.
    fn begin(&mut self) {
        let listing = loop {
            match self.driver.list() {
                Some(listing) => break listing,
                None => self.table.settle(),
            }
        };
        self.ledger.reconcile(&listing);
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

    /// Ends this life and begins another one, which may be killed after this number of writes; then a third one begins.
    fn die(&mut self, killed: Option<u8>) {
        self.memory.revive();
        if let Some(writes) = killed {
            self.memory.kill_after(writes.into());
            let _ = self.begin_life();
            self.memory.revive();
        }
        self.begin_life().unwrap();
    }

    fn begin_life(&mut self) -> Result<(), Killed> {
        self.epoch += 1;
        memory::catch(|| {
            self.ledger = Ledger::open(self.memory.clone(), self.epoch);
            let driver = self.table.writer(self.instance, self.epoch);
            let old = std::mem::replace(&mut self.driver, driver);
            self.begin();
            Self::check_stale(old);
        })
    }

    /// Replaces the instance by another one without state; it counts what rules carry from now on.
    fn renew(&mut self, killed: Option<u8>) {
        self.note_lost();
        (0..BACKENDS).for_each(|backend| self.close(backend));
        self.memory = Memory::new(T::FLOWS + 1);
        self.records.clear();
        (self.instance, self.epoch) = (self.instance + 1, 0);
        self.die(killed);
    }

    /// Notes the packets that the table has not told yet, before it loses them.
    fn note_lost(&mut self) {
        for (counter, packets) in self.table.totals() {
            let [told, _] = self.memory.tally(counter).told;
            *self.lost.entry(counter).or_default() += packets.saturating_sub(told);
        }
    }

    /// Compares a backend's counts with the packets that rules have carried for it; then its number becomes another backend's.
    fn close(&mut self, backend: u16) {
        for counter in counters_of(backend) {
            let lost = self.lost.remove(&counter).unwrap_or_default();
            let packets = self.carried.remove(&counter).unwrap_or_default() - lost;
            let mut tally = self.memory.tally(counter);
            assert_eq!(tally.carried, [packets, packets * 100]);
            tally.carried = [0, 0];
            self.memory.put_tally(counter, &tally);
        }
        self.lives[usize::from(backend)] += 1;
    }

    /// An old writer learns that it was replaced, and changes nothing.
    fn check_stale(mut old: T::Handle) {
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
        SUMS.packets.fetch_add(1, Relaxed);
        if let Some(TargetId(backend)) = self.table.carry(flow, fades_too) {
            SUMS.carried.fetch_add(1, Relaxed);
            let backend = backend as u16;
            if T::COUNTS {
                let counter = CounterId::of(backend, direction(&flow)).unwrap();
                *self.carried.entry(counter).or_default() += 1;
            }
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
        self.packet(flow, false);
        let Some(&backend) = self.records.get(&flow) else {
            return;
        };
        let target = TargetId(backend.into());
        if self.ledger.install(flow, backend, target, direction(&flow)) {
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
            self.close(backend);
        }
        self.ledger.put_target(id, target);
    }

    pub fn play(&mut self, step: &Step) {
        match *step {
            Step::Packets {
                flow: number,
                count,
                fades_too,
            } => (0..count).for_each(|_| self.packet(flow(number), fades_too)),
            Step::End(number) => {
                self.records.remove(&flow(number));
                self.ledger.remove(&flow(number));
            }
            Step::Promote(number) => self.promote(flow(number)),
            Step::Evict(number) => self.ledger.remove(&flow(number)),
            Step::Replace(backend) => self.replace(backend),
            Step::Pump => self.pump().unwrap(),
            Step::Work(count, refuses) => (0..count).for_each(|_| self.table.work(refuses)),
            Step::Settle => self.table.settle(),
            Step::Count => self.table.count(),
            Step::LoseAnswer => {
                SUMS.answers.fetch_add(1, Relaxed);
                self.table.lose_answer();
            }
            Step::LoseTotals => {
                self.note_lost();
                self.table.lose_totals();
                // If they grew before the function knew, it could not tell.
                self.pump().unwrap();
            }
            Step::Reset => {
                SUMS.resets.fetch_add(1, Relaxed);
                self.note_lost();
                self.table.reset();
            }
            Step::Renew(start) => self.renew(start),
            Step::Kill(writes, start) => {
                self.table.count();
                self.memory.kill_after(writes.into());
                let _ = self.pump();
                self.die(start);
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
    pub fn finish(&mut self) {
        for number in 0..FLOWS {
            self.play(&Step::End(number));
        }
        let mut quiet = 0;
        for _ in 0..T::ROUNDS {
            self.play(&Step::Pump);
            self.play(&Step::Work(1, None));
            self.play(&Step::Settle);
            let has_rule = |number| self.ledger.backend_of(&flow(number)).is_some();
            let is_busy = (0..FLOWS).any(has_rule) || !self.ledger.requests().is_empty();
            quiet = if is_busy { 0 } else { quiet + 1 };
            if quiet == QUIET {
                break;
            }
        }
        assert!(self.table.is_empty(), "orphans: {:?}", self.table);
        assert_eq!(self.ledger.live().count(), 0);
        (0..BACKENDS).for_each(|backend| self.close(backend));
        assert!((0..FLOWS).all(|number| self.ledger.backend_of(&flow(number)).is_none()));
    }
}

/// Plays a history to its end.
fn play<T: Model>(steps: &[Step]) {
    SUMS.histories.fetch_add(1, Relaxed);
    let mut world = World::<T>::new();
    for step in steps {
        world.play(step);
    }
    world.finish();
}

/// Plays this number of random histories. `cargo test -- --nocapture` shows what they did.
pub fn play_all<T: Model>(cases: u32) {
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let played = runner.run(&prop::collection::vec(step(), 1..300), |steps| {
        play::<T>(&steps);
        Ok(())
    });
    assert!(played.is_ok(), "{played:?}");
    println!("all histories of this process until now: {SUMS:?}");
}

/// Returns the number of histories: that of every day, or `OFFLOAD_HISTORIES`.
pub fn cases(everyday: u32) -> u32 {
    let asked = std::env::var("OFFLOAD_HISTORIES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(everyday)
}
