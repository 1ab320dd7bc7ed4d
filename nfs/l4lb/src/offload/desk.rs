//! The decisions about rules, and the exchange with the table.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use nf_balancing::{cells::Worker, health};
use nf_offload::{
    Direction, Driver, Event, FlowKey, Ledger, Limits, Live, Outcome, Promoter, Refused, Rewrites,
    Table, TargetId,
};
use nf_packet::MacAddress;
use nf_runtime::Context;
use nf_tables::{Class, Entry};

use super::{
    memory::{Memory, Shared, Station},
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
/// The time until a table that cannot be used is opened again.
const RETRY: u64 = 500 * MILLISECOND;
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

/// Counts since the table was opened first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub installs: u64,
    pub removals: u64,
    pub refused: [u64; Refused::ALL.len()],
    pub packets: u64,
    pub bytes: u64,
    /// Of the packets in the last second.
    pub share: f64,
}

/// The ledger, the promoter and the driver.
pub struct Desk {
    memory: Arc<Memory>,
    driver: Option<Box<dyn Driver + Send>>,
    /// The reason for the missing driver.
    why: Option<String>,
    is_replaced: bool,
    opened: u64,
    ledger: Ledger<Shared>,
    /// Exists while the table is in use.
    promoter: Option<Promoter>,
    capacity: u32,
    /// The rewrites of a table in use.
    rewrites: Rewrites,
    /// The numbers of the targets of answers.
    answers: HashMap<Station, usize>,
    written: BTreeSet<u16>,
    swept: u64,
    measured: (u64, u64, u64),
    totals: Totals,
}

impl Desk {
    pub fn new(memory: Arc<Memory>) -> Self {
        let epoch = memory.writer().epoch;
        Self {
            ledger: Ledger::open(Shared(Arc::clone(&memory)), epoch),
            driver: None,
            why: None,
            is_replaced: false,
            opened: 0,
            promoter: None,
            capacity: 0,
            rewrites: Rewrites::default(),
            answers: memory.stations(),
            written: BTreeSet::new(),
            swept: 0,
            measured: (0, 0, 0),
            totals: Totals::default(),
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
        if self.driver.is_none() && !self.open(around.now(), table) {
            samples.want(0);
            return;
        }
        let limits = limits(&around.snapshot.config.offload);
        self.exchange(around, limits, pins);
        let Some(mut promoter) = self.promoter.take() else {
            return;
        };
        promoter.set_limits(limits);
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
        let rewrites = self.rewrites;
        let record = |flow: &FlowKey| {
            let (entry, _) = around.record(flow, rewrites)?;
            Some((entry.value, targets::id_of(entry.value)))
        };
        let now = Duration::from_nanos(around.now());
        // The flows are pinned before the table gets the requests.
        for (flow, backend) in promoter.tick(now, util_plus, &mut self.ledger, record) {
            pins.add(&flow, backend);
        }
        self.promoter = Some(promoter);
        self.submit();
    }

    /// Leaves the table; its rules stay.
    pub fn leave(&mut self) {
        self.lose("the instance is being migrated".to_owned(), 0);
    }

    fn open(&mut self, now: u64, table: &mut dyn Table) -> bool {
        if self.is_replaced || now < self.opened + RETRY {
            return false;
        }
        self.opened = now;
        match table.open(self.memory.writer()) {
            Ok(driver) => {
                self.driver = Some(driver);
                true
            }
            Err(unavailable) => {
                self.why = Some(unavailable.why);
                self.is_replaced = unavailable.is_replaced;
                false
            }
        }
    }

    fn lose(&mut self, why: String, now: u64) {
        self.driver = None;
        self.promoter = None;
        self.why = Some(why);
        self.opened = now;
    }

    /// Handles the table's events; takes the table over once it tells its rules.
    fn exchange(&mut self, around: &Surroundings<'_>, limits: Limits, pins: &Pins) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        let mut events = Vec::new();
        driver.set_idle(limits.idle);
        let polled = driver.poll(&mut events);
        if self.promoter.is_none() {
            if let Some((listing, table)) = driver.list().zip(driver.capabilities()) {
                self.ledger.reconcile(&listing);
                self.promoter = Some(Promoter::new(limits, &table));
                (self.capacity, self.rewrites) = (table.flows, table.rewrites);
                self.why = None;
            }
        }
        let now = Duration::from_nanos(around.now());
        for event in events {
            if let Event::Installed(_) = event {
                self.totals.installs += 1;
            }
            if let Some(outcome) = self.ledger.handle(event) {
                self.heed(&outcome, now, pins);
            }
        }
        if let Err(unavailable) = polled {
            self.is_replaced = unavailable.is_replaced;
            self.lose(unavailable.why, around.now());
        }
    }

    fn heed(&mut self, outcome: &Outcome, now: Duration, pins: &Pins) {
        if let Some(promoter) = &mut self.promoter {
            promoter.note(outcome, now);
        }
        match outcome {
            Outcome::Used(_) => {}
            Outcome::Free(flow) => {
                self.totals.removals += 1;
                pins.remove(flow);
            }
            Outcome::Refused(flow, why) => {
                if let Some(at) = Refused::ALL.iter().position(|known| known == why) {
                    self.totals.refused[at] += 1;
                }
                pins.remove(flow);
            }
            Outcome::Reset => {
                pins.clear();
                self.written.clear();
            }
            Outcome::Replaced => self.is_replaced = true,
        }
    }

    fn submit(&mut self) {
        if let Some(driver) = &mut self.driver {
            let taken = driver.submit(self.ledger.requests());
            self.ledger.taken(taken);
        }
    }

    /// Compares rules with records: removes those whose connection has ended, and gives the answers of the others a rule.
    fn sweep(&mut self, around: &Surroundings<'_>, pins: &Pins) {
        let live: Vec<Live> = self.ledger.live().collect();
        for live in live {
            let backend = around.snapshot.backend_at(live.backend);
            let requests = backend.map(|backend| {
                let vip = &around.snapshot.vips[backend.vip];
                targets::requests_of(&live.flow, live.direction, vip)
            });
            let record = requests.and_then(|requests| around.record(&requests, self.rewrites));
            let record = record.filter(|(entry, _)| entry.value == live.backend);
            match (requests.zip(record), live.direction) {
                (None, _) => self.ledger.remove(&live.flow),
                (Some((requests, (_, backend))), Direction::ToBackend) => {
                    self.carry_answers(around, &requests, live.backend, backend, pins);
                }
                (Some((requests, (_, backend))), Direction::ToClient) => {
                    let wanted = self.answer_target(around, &requests, backend);
                    let is_alone = self.ledger.backend_of(&requests).is_none();
                    if is_alone || wanted != Some(live.target) {
                        self.ledger.remove(&live.flow);
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
        if mode != Mode::Nat || self.rewrites == Rewrites::NONE {
            return;
        }
        let answers = targets::answers_to(requests, backend);
        if self.ledger.backend_of(&answers).is_none() {
            let Some(target) = self.answer_target(around, requests, backend) else {
                return;
            };
            let direction = Direction::ToClient;
            if !self.ledger.install(answers, number, target, direction) {
                return;
            }
            pins.add(&answers, number);
        }
        self.ledger.pair(*requests, answers);
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
        self.ledger.put_target(id, target);
        Some(id)
    }

    /// Returns a number for a new target of answers. None: all are in use.
    fn number(&mut self, key: Station) -> Option<usize> {
        let is_free = |number| !self.ledger.uses(answer_id(number));
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
            if let Some(target) = targets::to_backend(around.snapshot, backend, own, self.rewrites)
            {
                self.ledger.put_target(targets::id_of(number), target);
                written.insert(number);
            }
        }
        for gone in self.written.difference(&written) {
            self.ledger.drop_target(targets::id_of(*gone));
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
        self.totals.share = match since {
            0 => 0.0,
            _ => carried as f64 / all.max(1) as f64,
        };
        (self.totals.packets, self.totals.bytes) = (packets, bytes);
        self.measured = (around.now(), packets, processed);
    }

    /// Returns the state's name, and the reason if the table is not in use.
    pub fn state(&self) -> (&'static str, Option<&str>) {
        let state = match (self.is_replaced, &self.promoter) {
            (true, _) => "refused",
            (false, Some(_)) => "connected",
            (false, None) => "waiting",
        };
        (state, self.why.as_deref())
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn flows(&self) -> usize {
        self.ledger.live().count()
    }

    pub fn targets(&self) -> usize {
        self.written.len() + self.answers.len()
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
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
