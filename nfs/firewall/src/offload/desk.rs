//! The decisions about rules of the switch, and the exchange with the table.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use nf_offload::{
    open_ports, Direction, Exchange, FlowKey, Ledger, Limits, Live as Acting, Outcome, Table,
    Target,
};
use nf_runtime::{state::LedgerMemory, Refusal};
use serde_json::Value;

use super::{
    carry::{Carry, Deciding},
    connection_of, counters_of, flow_of, Carried, BACKENDS, DENIED, ETHERNET,
};
use crate::{config, live::Live, state::State};

/// The time between two comparisons of rules with records.
const SWEEP: Duration = Duration::from_millis(100);
/// The time over which rates are compared.
const WINDOW: Duration = Duration::from_millis(500);
/// The table tells counts about once a second, and packets that it carries lately are not told yet.
const LATE: Duration = Duration::from_secs(2);
/// The longest time that a new configuration waits for rules that act otherwise. oneswitchd takes up to 2 seconds.
const PATIENCE: Duration = Duration::from_secs(4);
const SECOND: Duration = Duration::from_secs(1);

/// The parts of the firewall that its packets change, too. `look` holds them for one step.
pub trait Surroundings {
    fn look<T>(&self, step: impl FnOnce(&Deciding<'_>, &mut Carried) -> T) -> T;
}

/// The ledger, the promoter and the driver.
pub struct Desk {
    memory: LedgerMemory,
    exchange: Exchange<LedgerMemory>,
    now: Duration,
    swept: Duration,
    /// When packets were counted last, how many rules had carried by then, and how many rules of the firewall had counted.
    measured: Option<(Duration, u64, u64)>,
    limits: Limits,
}

impl Desk {
    pub fn new(memory: &LedgerMemory) -> Self {
        let epoch = memory.writer().epoch;
        Self {
            exchange: Exchange::new(Ledger::open(memory.clone(), epoch)),
            memory: memory.clone(),
            now: Duration::ZERO,
            swept: Duration::ZERO,
            measured: None,
            limits: limits(&config::Offload::default()),
        }
    }

    /// Does what is due.
    pub fn turn(
        &mut self,
        now: Duration,
        around: &impl Surroundings,
        policy: &config::Offload,
        table: &mut dyn Table,
    ) {
        self.now = now;
        self.limits = limits(policy);
        let (ports, counted) = around.look(|deciding, carried| {
            carried.alone_since = None;
            (deciding.ports, counted(deciding))
        });
        self.measure(counted);
        let writer = self.memory.writer();
        let is_open = self.exchange.open(now, || open_ports(table, writer, ports));
        if is_open {
            self.exchange(around);
        }
        if !self.is_able() {
            around.look(|_, carried| carried.every = 0);
            return;
        }
        self.put_targets(ports);
        if now >= self.swept + SWEEP {
            self.swept = now;
            self.sweep(around);
        }
        self.promote(around, policy.sampling);
        self.exchange.submit();
    }

    /// Tells whether the table is in use and can do what the firewall needs.
    fn is_able(&mut self) -> bool {
        let Some(table) = self
            .exchange
            .table()
            .filter(|_| self.exchange.promoter.is_some())
        else {
            return false;
        };
        let is_able = table.rewrites.pass && table.rewrites.deny && table.matches.leaves_ends;
        if !is_able {
            self.exchange
                .say("this table cannot let packets pass unchanged, and drop them");
        }
        is_able
    }

    /// Leaves the table; its rules stay.
    pub fn leave(&mut self) {
        self.exchange.leave(self.now);
        self.exchange.say("the instance is being migrated");
    }

    /// Handles the table's events.
    fn exchange(&mut self, around: &impl Surroundings) {
        let outcomes = self.exchange.poll(self.now, self.limits);
        if outcomes.is_empty() {
            return;
        }
        let now = self.now.as_nanos() as u64;
        around.look(|deciding, carried| {
            for outcome in outcomes {
                match outcome {
                    Outcome::Used(flow) => {
                        let flows = &deciding.state.flows;
                        if let Some(slot) = slot_of(deciding.state, &flow) {
                            let mut hot = flows.hot(slot);
                            hot.seen = hot.seen.max(now);
                            flows.put_hot(slot, &hot);
                        }
                    }
                    Outcome::Free(flow) | Outcome::Refused(flow, _) => {
                        carried.flows.remove(&flow);
                    }
                    Outcome::Reset => carried.flows.clear(),
                    Outcome::Replaced => {}
                }
            }
        });
    }

    fn put_targets(&mut self, ports: usize) {
        for ingress in 0..ports {
            let port = ((ingress + 1) % ports) as u16;
            for (is_denied, target) in [(false, Target::Pass { port }), (true, Target::Deny)] {
                let carry = Carry { is_denied, row: 0 };
                self.exchange
                    .ledger
                    .put_target(carry.target(ingress, ports), target);
            }
        }
    }

    /// Compares rules with records: removes those whose connection has ended or is treated otherwise, and gives the answers of the others a rule.
    fn sweep(&mut self, around: &impl Surroundings) {
        let acting: Vec<Acting> = self.exchange.ledger.live().collect();
        // Packets do not wait for all of them.
        for part in acting.chunks(256) {
            around.look(|deciding, carried| {
                for flow in part {
                    self.compare(deciding, carried, flow);
                }
            });
        }
    }

    fn compare(&mut self, deciding: &Deciding<'_>, carried: &mut Carried, acting: &Acting) {
        let ledger = &mut self.exchange.ledger;
        let (key, sender) = connection_of(&acting.flow);
        let slot = slot_of(deciding.state, &acting.flow);
        let carry = slot.and_then(|slot| deciding.carry(slot));
        let (Some(slot), Some(carry)) = (slot, carry) else {
            return ledger.remove(&acting.flow);
        };
        let hot = deciding.state.flows.hot(slot);
        let lifetime = deciding.live.lifetimes[usize::from(hot.connection & 3)];
        let silent = self.now.saturating_sub(Duration::from_nanos(hot.seen));
        let is_over = silent > Duration::from_nanos(lifetime) + LATE;
        let requests = flow_of(&key, hot.client);
        let ingress = |sender| match sender == hot.client {
            true => usize::from(hot.port) % deciding.ports,
            false => (usize::from(hot.port) + 1) % deciding.ports,
        };
        let target = carry.target(ingress(sender), deciding.ports);
        let is_answer = acting.flow != requests;
        let is_alone = is_answer && ledger.backend_of(&requests).is_none();
        if is_over
            || is_alone
            || carry.backend() != acting.backend
            || target != acting.target
            || is_answer != (acting.direction == Direction::ToClient)
        {
            return ledger.remove(&acting.flow);
        }
        if is_answer {
            return;
        }
        let other = 1 - hot.client.min(1);
        let answers = flow_of(&key, other);
        if ledger.backend_of(&answers).is_none() {
            let target = carry.target(ingress(other), deciding.ports);
            let direction = Direction::ToClient;
            if !ledger.install(answers, carry.backend(), target, direction) {
                return;
            }
            carried.flows.insert(answers, carry);
        }
        ledger.pair(requests, answers);
    }

    fn promote(&mut self, around: &impl Surroundings, sampling: u32) {
        let Some(mut promoter) = self.exchange.promoter.take() else {
            return;
        };
        let ledger = &mut self.exchange.ledger;
        let now = self.now;
        around.look(|deciding, carried| {
            carried.every = sampling;
            for flow in std::mem::take(&mut carried.samples) {
                promoter.sample(flow);
            }
            let record = |flow: &FlowKey| {
                let slot = slot_of(deciding.state, flow)?;
                let hot = deciding.state.flows.hot(slot);
                let carry = deciding.carry(slot)?;
                let (_, sender) = connection_of(flow);
                let ingress = usize::from(hot.port) % deciding.ports;
                (sender == hot.client)
                    .then(|| (carry.backend(), carry.target(ingress, deciding.ports)))
            };
            // Where there is a table, every heavy connection gets a rule: there is nothing that a rule does not do as well.
            for (flow, backend) in promoter.tick(now, 1.0, ledger, record) {
                carried.flows.insert(flow, Carry::of_backend(backend));
            }
        });
        self.exchange.promoter = Some(promoter);
    }

    /// Removes the rules of connections that a new configuration treats otherwise, and waits until no packet can leave by them.
    ///
    /// # Errors
    /// If the switches do not confirm it in time: the new configuration must not be in force then.
    pub fn withdraw(&mut self, around: &impl Surroundings, new: &Live) -> Result<(), Refusal> {
        let mut leaving: HashSet<FlowKey> = around.look(|deciding, carried| {
            let flows = carried.flows.iter();
            let stays = |flow: &FlowKey, carry: Carry| {
                let slot = slot_of(deciding.state, flow);
                slot.is_some_and(|slot| deciding.stays(slot, carry, new))
            };
            let leaving = flows.filter(|(flow, carry)| !stays(flow, **carry));
            leaving.map(|(flow, _)| *flow).collect()
        });
        let (began, started) = (self.now, Instant::now());
        for flow in &leaving {
            self.exchange.ledger.remove(flow);
        }
        loop {
            around.look(|_, carried| leaving.retain(|flow| carried.flows.contains_key(flow)));
            if leaving.is_empty() {
                return Ok(());
            }
            let is_lost = !self.exchange.is_open();
            if is_lost || started.elapsed() > PATIENCE {
                return Err(self.cannot_withdraw(leaving.len(), is_lost));
            }
            self.exchange.submit();
            std::thread::sleep(Duration::from_millis(2));
            self.now = began + started.elapsed();
            self.exchange(around);
        }
    }

    fn cannot_withdraw(&self, count: usize, is_lost: bool) -> Refusal {
        let (_, why) = self.exchange.state();
        let why = match is_lost {
            true => why.unwrap_or("the table is not connected").to_owned(),
            false => format!("they were not removed within {} s", PATIENCE.as_secs()),
        };
        Refusal::new(
            "offload",
            format!("rules of the switch still treat {count} flows as the old configuration does, which stays in force: {why}; try again"),
        )
    }

    /// Computes the share of packets that rules carry, once a second. `processed`: the packets that the firewall has counted for its rules.
    fn measure(&mut self, processed: u64) {
        if self.measured.is_some_and(|(at, ..)| self.now < at + SECOND) {
            return;
        }
        let rows = (0..DENIED).flat_map(counters_of);
        let carried = rows.map(|counter| self.memory.carried(counter));
        let [packets, bytes] = carried.fold([0; 2], |sum, more| {
            [
                sum[0] + more[0],
                sum[1] + more[1] - (more[0] * ETHERNET).min(more[1]),
            ]
        });
        let totals = &mut self.exchange.totals;
        if let Some((_, before, processed_before)) = self.measured {
            let more = packets.saturating_sub(before);
            let all = more + processed.saturating_sub(processed_before);
            totals.share = more as f64 / all.max(1) as f64;
        }
        (totals.packets, totals.bytes) = (packets, bytes);
        self.measured = Some((self.now, packets, processed));
    }

    pub fn status(&self, ports: usize) -> Value {
        self.exchange.status(2 * ports)
    }

    /// Returns the number of flows with a rule, and counts.
    pub fn report(&self) -> (usize, nf_offload::Totals) {
        (self.exchange.ledger.live().count(), self.exchange.totals)
    }

    /// Tells whether the instance has, or had, a table.
    pub fn is_used(&self) -> bool {
        self.now > Duration::ZERO
    }
}

const _: () = assert!(BACKENDS <= 1 << 12);

/// Returns the slot of a flow's connection.
fn slot_of(state: &State, flow: &FlowKey) -> Option<u32> {
    let (key, _) = connection_of(flow);
    state.flows.find(&key, state.flows.hash(&key))
}

/// Returns the packets that the firewall has counted for its rules.
fn counted(deciding: &Deciding<'_>) -> u64 {
    let rules = 0..deciding.live.rules.rules.len();
    let rows = rules.map(|index| deciding.live.row(Some(index)));
    let rows = rows.chain([deciding.live.row(None)]);
    rows.map(|row| deciding.state.rows.get(row).packets).sum()
}

fn limits(policy: &config::Offload) -> Limits {
    let samples =
        policy.heavy_packets_per_s * WINDOW.as_secs_f64() / f64::from(policy.sampling.max(1));
    Limits {
        begin: 0.0,
        stop: 0.0,
        samples: samples.ceil().max(1.0) as u64,
        sampling: u64::from(policy.sampling.max(1)),
        window: WINDOW,
        idle: Duration::from_secs(policy.idle_s.max(1).into()),
    }
}
