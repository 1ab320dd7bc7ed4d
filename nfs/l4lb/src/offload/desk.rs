//! The decisions about rules, and the exchange with the table.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use nf_balancing::{cells::Worker, health};
use nf_offload::{
    Direction, Exchange, FlowKey, Ledger, Limits, Live, Outcome, Rewrites, Table, TargetId, Totals,
};
use nf_packet::MacAddress;
use nf_runtime::{state::LedgerMemory, Context};
use nf_tables::{Class, Entry};
use serde_json::Value;

use super::{
    memory::{Memory, Station},
    pins::{tuple_of, Pins},
    samples::{Marked, Samples},
    targets::{self, FIRST_ANSWER},
};
use crate::{
    config::{self, Mode, WhenDown},
    flow::AnyFlow,
    records::{NoListener, RecordTables, Records},
    snapshot::{Backend, Snapshot},
    state::{traffic, State},
};

const MILLISECOND: u64 = 1_000_000;
/// The time between two comparisons of rules with records.
const SWEEP: u64 = 100 * MILLISECOND;
/// The time over which rates are compared.
const WINDOW: Duration = Duration::from_millis(500);
const SECOND: u64 = 1000 * MILLISECOND;

/// The inputs of the decisions.
pub struct Surroundings<'a> {
    pub tables: &'a RecordTables,
    pub state: &'a State,
    pub snapshot: &'a Snapshot,
    pub context: &'a Context<'a>,
}

impl Surroundings<'_> {
    fn now(&self) -> u64 {
        self.context.now()
    }

    fn own_mac(&self) -> MacAddress {
        MacAddress(self.context.mac(0))
    }

    /// Returns the record of a connection, renewed, and its backend, if a rule of this table may carry it.
    fn record(&self, requests: &FlowKey, table: Rewrites) -> Option<(Entry, &Backend)> {
        let flow = AnyFlow::of_tuple(&tuple_of(requests))?;
        let worker = Worker::of(self.context);
        let records = Records::new(
            self.tables,
            self.state,
            self.snapshot,
            worker,
            self.now(),
            NoListener,
        );
        let entry = records.renewed(&flow)?;
        let backend = records.backend_of_any(&flow, entry.value)?;
        let vip = &self.snapshot.vips[backend.vip];
        let is_carried = matches!(entry.class, Class::Established | Class::Datagram)
            && !(backend.health == health::DOWN && vip.when_down == WhenDown::Move)
            && u32::from(entry.value) < FIRST_ANSWER
            && targets::is_fit(self.snapshot, vip, table);
        is_carried.then_some((entry, backend))
    }
}

/// The ledger, the promoter and the driver.
pub struct Desk {
    memory: Arc<Memory>,
    exchange: Exchange<LedgerMemory>,
    /// The numbers of the targets of answers.
    answers: HashMap<Station, usize>,
    written: BTreeSet<u16>,
    swept: u64,
    measured: (u64, u64, u64),
    now: Duration,
}

impl Desk {
    pub fn new(memory: Arc<Memory>) -> Self {
        let ledger = memory.ledger.clone();
        let epoch = ledger.writer().epoch;
        Self {
            exchange: Exchange::new(Ledger::open(ledger, epoch)),
            answers: memory.stations(),
            written: BTreeSet::new(),
            swept: 0,
            measured: (0, 0, 0),
            now: Duration::ZERO,
            memory,
        }
    }

    /// Does what is due.
    pub fn turn(
        &mut self,
        around: &Surroundings<'_>,
        table: &mut dyn Table,
        pins: &Pins,
        samples: &Samples,
        marked: &Marked,
    ) {
        self.measure(around, marked.get());
        self.now = Duration::from_nanos(around.now());
        let writer = self.memory.ledger.writer();
        let open = || table.open(writer, usize::from(targets::PORT));
        if !self.exchange.open(self.now, open) {
            samples.want(0);
            return;
        }
        for outcome in self
            .exchange
            .poll(self.now, limits(&around.snapshot.config.offload))
        {
            self.heed(&outcome, pins);
        }
        let Some(mut promoter) = self.exchange.promoter.take() else {
            return;
        };
        samples.want(around.snapshot.config.offload.sampling);
        for flow in samples.take() {
            promoter.sample(flow);
        }
        if around.now() >= self.swept + SWEEP {
            self.swept = around.now();
            self.sweep(around, pins);
            self.write_targets(around);
        }
        let util_plus = around.state.load.util_plus();
        let rewrites = self.rewrites();
        let record = |flow: &FlowKey| {
            let (entry, _) = around.record(flow, rewrites)?;
            Some((entry.value, targets::id_of(entry.value)))
        };
        let ledger = &mut self.exchange.ledger;
        // The flows are pinned before the table gets the requests.
        for (flow, backend) in promoter.tick(self.now, util_plus, ledger, record) {
            pins.add(&flow, backend);
        }
        self.exchange.promoter = Some(promoter);
        self.exchange.submit();
    }

    /// Leaves the table; its rules stay.
    pub fn leave(&mut self) {
        self.exchange.leave(Duration::ZERO);
        self.exchange.say("the instance is being migrated");
    }

    /// Returns the rewrites of the table in use.
    fn rewrites(&self) -> Rewrites {
        let table = self.exchange.table();
        table.map(|table| table.rewrites).unwrap_or_default()
    }

    fn heed(&mut self, outcome: &Outcome, pins: &Pins) {
        match outcome {
            Outcome::Used(_) | Outcome::Replaced => {}
            Outcome::Free(flow) | Outcome::Refused(flow, _) => pins.remove(flow),
            Outcome::Reset => {
                pins.clear();
                self.written.clear();
            }
        }
    }

    /// Compares rules with records: removes those whose connection has ended, and gives the answers of the others a rule.
    fn sweep(&mut self, around: &Surroundings<'_>, pins: &Pins) {
        let live: Vec<Live> = self.exchange.ledger.live().collect();
        for live in live {
            let backend = around.snapshot.backend_at(live.backend);
            let requests = backend.map(|backend| {
                let vip = &around.snapshot.vips[backend.vip];
                targets::requests_of(&live.flow, live.direction, vip)
            });
            let record = requests.and_then(|requests| around.record(&requests, self.rewrites()));
            let record = record.filter(|(entry, _)| entry.value == live.backend);
            match (requests.zip(record), live.direction) {
                (None, _) => self.exchange.ledger.remove(&live.flow),
                (Some((requests, (_, backend))), Direction::ToBackend) => {
                    self.carry_answers(around, &requests, live.backend, backend, pins);
                }
                (Some((requests, (_, backend))), Direction::ToClient) => {
                    let wanted = self.answer_target(around, &requests, backend);
                    let is_alone = self.exchange.ledger.backend_of(&requests).is_none();
                    if is_alone || wanted != Some(live.target) {
                        self.exchange.ledger.remove(&live.flow);
                    }
                }
            }
        }
    }

    fn carry_answers(
        &mut self,
        around: &Surroundings<'_>,
        requests: &FlowKey,
        number: u16,
        backend: &Backend,
        pins: &Pins,
    ) {
        // Other modes' backends answer the client directly; of marks, requests have more use.
        let mode = around.snapshot.vips[backend.vip].mode;
        if mode != Mode::Nat || self.rewrites() == Rewrites::NONE {
            return;
        }
        let answers = targets::answers_to(requests, backend);
        if self.exchange.ledger.backend_of(&answers).is_none() {
            let Some(target) = self.answer_target(around, requests, backend) else {
                return;
            };
            let direction = Direction::ToClient;
            if !self
                .exchange
                .ledger
                .install(answers, number, target, direction)
            {
                return;
            }
            pins.add(&answers, number);
        }
        self.exchange.ledger.pair(*requests, answers);
    }

    /// Returns the target of a connection's answers; it writes a new one. None: the client's station is unknown.
    fn answer_target(
        &mut self,
        around: &Surroundings<'_>,
        requests: &FlowKey,
        backend: &Backend,
    ) -> Option<TargetId> {
        let client = tuple_of(requests).source.ip();
        let (network, neighbours) = (&around.snapshot.network, &around.state.neighbours);
        let station = network.known_station(neighbours, client, around.now())?;
        let vip = &around.snapshot.vips[backend.vip];
        let key = Station::new(vip.row, station);
        let number = match self.answers.get(&key) {
            Some(number) => *number,
            None => self.number(key)?,
        };
        let id = answer_id(number);
        let target = targets::to_client(vip, station, around.own_mac());
        self.exchange.ledger.put_target(id, target);
        Some(id)
    }

    /// Returns a number for a new target of answers. None: all are in use.
    fn number(&mut self, key: Station) -> Option<usize> {
        let is_free = |number| !self.exchange.ledger.uses(answer_id(number));
        let number = self.memory.add_station(key, is_free)?;
        self.answers.retain(|_, other| *other != number);
        self.answers.insert(key, number);
        Some(number)
    }

    /// Writes the targets of all backends that rules can lead to, and drops those of others with their rules.
    fn write_targets(&mut self, around: &Surroundings<'_>) {
        let own = around.own_mac();
        let mut written = BTreeSet::new();
        for (number, backend) in around.snapshot.in_use() {
            if u32::from(number) >= FIRST_ANSWER {
                continue;
            }
            if let Some(target) =
                targets::to_backend(around.snapshot, backend, own, self.rewrites())
            {
                self.exchange
                    .ledger
                    .put_target(targets::id_of(number), target);
                written.insert(number);
            }
        }
        for gone in self.written.difference(&written) {
            self.exchange.ledger.drop_target(targets::id_of(*gone));
        }
        self.written = written;
    }

    /// Computes the share of packets that rules carry or mark, once a second. `marked`: the packets and bytes that the function has sent by their mark.
    fn measure(&mut self, around: &Surroundings<'_>, marked: [u64; 2]) {
        let (since, carried_before, processed_before) = self.measured;
        if around.now() < since + SECOND {
            return;
        }
        let rows = around.state.traffic_row_count();
        let directions = [Direction::ToBackend, Direction::ToClient];
        let [mut packets, mut bytes] = marked;
        for row in 0..rows {
            for direction in directions {
                let [more, more_bytes] = self.memory.carried(row, direction);
                (packets, bytes) = (packets + more, bytes + more_bytes);
            }
        }
        let columns = [traffic::PACKETS, traffic::ANSWERS];
        let processed = columns.map(|column| {
            (0..rows)
                .map(|row| around.state.traffic.sum(row, column))
                .sum::<u64>()
        });
        // The function has processed the marked ones.
        let processed = processed.iter().sum::<u64>().saturating_sub(marked[0]);
        let carried = packets.saturating_sub(carried_before);
        let all = carried + processed.saturating_sub(processed_before);
        self.exchange.totals.share = match since {
            0 => 0.0,
            _ => carried as f64 / all.max(1) as f64,
        };
        (self.exchange.totals.packets, self.exchange.totals.bytes) = (packets, bytes);
        self.measured = (around.now(), packets, processed);
    }

    /// Returns the status, as users see it.
    pub fn status(&self) -> Value {
        self.exchange
            .status(self.written.len() + self.answers.len())
    }

    /// Returns the number of flows with a rule, and counts.
    pub fn report(&self) -> (usize, Totals) {
        (self.exchange.ledger.live().count(), self.exchange.totals)
    }
}

fn answer_id(number: usize) -> TargetId {
    TargetId(FIRST_ANSWER + number as u32)
}

fn limits(policy: &config::Offload) -> Limits {
    let samples = policy.heavy_packets_per_s * WINDOW.as_secs_f64() / f64::from(policy.sampling);
    Limits {
        begin: policy.begin,
        stop: policy.stop,
        samples: samples.ceil().max(1.0) as u64,
        sampling: policy.sampling.into(),
        window: WINDOW,
        idle: Duration::from_nanos(policy.idle.nanos()),
    }
}
