//! The heavy flows of a Zipf distribution in the matches of a card: the share of packets that carry a mark, before and after other flows become the
//! heavy ones. Run by `bench/hnlb`; prints JSON.
//!
//! Time is simulated. Each packet is sampled with the load balancer's probability, so only samples are drawn; the share is computed from the flows'
//! probabilities. Promoter, ledger and driver are the real ones; the card answers at once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod card;
mod rows;

use std::time::Duration;

use bytemuck::Zeroable;
use card::Card;
use nf_flow_director::{FlowDirector, Worker};
use nf_offload::{Driver, FlowKey, Ledger, Limits, Promoter, Table, Target, TargetId, Writer};
use rows::Memory;
use serde_json::json;

const FLOWS: usize = 1_000_000;
const ENTRIES: u32 = 8000;
const PACKETS_PER_S: u64 = 1_000_000;
const SAMPLING: u64 = 8;
/// The time between two exchanges of the runtime.
const TURN: Duration = Duration::from_millis(20);
const WINDOW: Duration = Duration::from_millis(500);
/// The least rate of a heavy flow: half of that of the lightest among the heaviest.
const HEAVY: f64 = 4.0;
/// Flows of this rank and below exchange their weights with those from here on.
const HALF: usize = FLOWS / 2;
const TARGET: TargetId = TargetId(0);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Zipf's distribution with exponent 1 over ranks 0, 1, ...
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(ranks: usize) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self {
            sums: sums.collect(),
        }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let at = random.unit() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum <= at)
    }

    fn weight(&self, rank: usize) -> f64 {
        1.0 / ((rank + 1) as f64 * self.sums[self.sums.len() - 1])
    }

    /// Returns the share of the heaviest `count`.
    fn best(&self, count: usize) -> f64 {
        self.sums[count - 1] / self.sums[self.sums.len() - 1]
    }
}

fn flow(number: usize) -> FlowKey {
    let mut flow = FlowKey::zeroed();
    flow.source[8..].copy_from_slice(&(number as u64).to_be_bytes());
    flow.protocol = 6;
    flow
}

fn number(flow: &FlowKey) -> usize {
    u64::from_be_bytes(*flow.source.last_chunk().unwrap()) as usize
}

/// A function whose flows have the ranks of Zipf's distribution, shifted by a number.
struct Function {
    zipf: Zipf,
    random: Random,
    shift: usize,
    ledger: Ledger<Memory>,
    promoter: Promoter,
    driver: Box<dyn Driver + Send>,
    worker: Worker,
    _table: FlowDirector,
    now: Duration,
    installs: u64,
}

impl Function {
    fn new() -> Self {
        let (mut table, mut worker) = FlowDirector::new(Box::new(Card::new(ENTRIES)));
        let writer = Writer {
            instance: 1,
            epoch: 1,
        };
        let mut driver = table.open(writer, 0).unwrap();
        while worker.turn() {}
        let mut ledger = Ledger::open(Memory::new(2 * ENTRIES as usize), 1);
        ledger.reconcile(&driver.list().unwrap());
        ledger.put_target(TARGET, Target::MARK);
        let limits = Limits {
            begin: 0.0,
            stop: 0.0,
            samples: (HEAVY * WINDOW.as_secs_f64() / SAMPLING as f64).ceil() as u64,
            sampling: SAMPLING,
            window: WINDOW,
            idle: Duration::from_secs(10),
        };
        let promoter = Promoter::new(limits, &driver.capabilities().unwrap());
        Self {
            zipf: Zipf::new(FLOWS),
            random: Random(1),
            shift: 0,
            ledger,
            promoter,
            driver,
            worker,
            _table: table,
            now: Duration::from_secs(1),
            installs: 0,
        }
    }

    /// Lets the time of one exchange pass.
    fn turn(&mut self) {
        let samples = (PACKETS_PER_S / SAMPLING) as f64 * TURN.as_secs_f64();
        for _ in 0..samples as u64 {
            let rank = self.zipf.draw(&mut self.random);
            self.promoter.sample(flow((rank + self.shift) % FLOWS));
        }
        self.now += TURN;
        let mut events = Vec::new();
        self.driver.poll(&mut events).unwrap();
        for event in events {
            if let Some(outcome) = self.ledger.handle(event) {
                self.promoter.note(&outcome, self.now);
            }
        }
        let asked = self
            .promoter
            .tick(self.now, 1.0, &mut self.ledger, |_| Some((0, TARGET)));
        self.installs += asked.len() as u64;
        let taken = self.driver.submit(self.ledger.requests());
        self.ledger.taken(taken);
        // The card handles at most its rate.
        let most = self.driver.capabilities().unwrap().installs_per_s as f64 * TURN.as_secs_f64();
        for _ in 0..=most as u64 {
            self.worker.turn();
        }
    }

    /// Returns the share of packets that carry a mark, out of the best possible.
    fn of_best(&self) -> f64 {
        let rank = |number: usize| (number + FLOWS - self.shift) % FLOWS;
        let live = self.ledger.live();
        let share: f64 = live
            .map(|live| self.zipf.weight(rank(number(&live.flow))))
            .sum();
        share / self.zipf.best(ENTRIES as usize)
    }
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (before, after) = if quick { (20, 12) } else { (40, 20) };
    let mut function = Function::new();
    let per_second = (1.0 / TURN.as_secs_f64()) as u64;
    let (mut seconds, mut of_best) = (Vec::new(), Vec::new());
    let mut churn = 0.0;
    for second in 0..before + after {
        if second == before {
            function.shift = HALF;
        }
        let installs = function.installs;
        for turn in 0..per_second {
            function.turn();
            if turn % (per_second / 5) == 0 {
                seconds.push(second as f64 + (turn as f64 + 1.0) / per_second as f64);
                of_best.push(function.of_best());
            }
        }
        // The last five seconds before the shift.
        if (before - 5..before).contains(&second) {
            churn += (function.installs - installs) as f64 / f64::from(ENTRIES) * 100.0 / 5.0;
        }
    }
    let at = |limit: f64| {
        seconds
            .iter()
            .position(|second| *second >= limit)
            .unwrap_or(seconds.len() - 1)
    };
    println!(
        "{}",
        json!({
            "hit_share_of_best": of_best[at(before as f64 + 10.0)],
            "hit_share_stationary": of_best[at(before as f64) - 1],
            "best_possible": function.zipf.best(ENTRIES as usize),
            "churn_pct_per_s": churn,
            "shift": {"seconds": seconds, "of_best": of_best, "shift_s": [before]},
        })
    );
}
