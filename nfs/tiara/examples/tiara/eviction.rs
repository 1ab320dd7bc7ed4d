//! Eviction under Zipf's law, and a SYN flood. The table is as full as with ten million flows in 16M x 2, at a fraction of the size.

use std::collections::HashMap;

use nf_tables::Ipv4Flow;
use nf_tiara::{Completed, Hashing, Operation, Outcome, Shape};
use serde_json::{json, Value};

use crate::bench::{
    decision, engine, flow, mix, round, smux, table, OneEngine, Smux, Table, FLOWS,
};

/// Which flows the load balancer offers to the engine, and how.
#[derive(Clone, Copy, PartialEq)]
struct Policy {
    evicts: bool,
    /// Only flows that have sent more than a SYN.
    established_only: bool,
}

/// A NIC, an engine, and a load balancer that offers the flows whose packets come to it.
struct System {
    policy: Policy,
    table: Table,
    engine: OneEngine,
    smux: Smux<u32>,
    /// The periods in which a flow's packets came to the load balancer, like [`nf_tiara::Usage`], and the newest of them.
    slow: HashMap<u32, (u8, u32)>,
    period: u32,
    groups: u32,
    next_group: u32,
    evicted: u64,
    /// Insertions that had no credit.
    no_credit: u64,
}

impl System {
    fn new(policy: Policy, scale: u32) -> Self {
        let shape = Shape::new((16 << 20) / scale, 2, Hashing::Chained).unwrap();
        let table = table(shape);
        let mut engine = engine(&table, 0, 1);
        if policy.evicts {
            engine = engine.with_eviction();
        }
        Self {
            policy,
            smux: smux(&mut engine, shape, 0, 1),
            groups: engine.slots().end / 64,
            engine,
            table,
            slow: HashMap::new(),
            period: 0,
            next_group: 0,
            evicted: 0,
            no_credit: 0,
        }
    }

    /// Processes packets, a bulk at a time: a flow's number, and whether the packet is a SYN. Returns which were hits.
    fn process(&mut self, numbers: &[(u32, bool)]) -> Vec<bool> {
        let keys: Vec<Ipv4Flow> = numbers.iter().map(|(number, _)| flow(*number)).collect();
        let mut found = vec![None; keys.len()];
        self.table.lookup_bulk(&keys, &mut found);
        for ((number, is_syn), found) in numbers.iter().zip(&found) {
            match found {
                Some(found) => {
                    self.table.mark(found.slot);
                }
                None if *is_syn && self.policy.established_only => {}
                None => self.offer(*number),
            }
        }
        while self.engine.poll() > 0 {}
        let evicted = &mut self.evicted;
        self.smux
            .poll(&mut |completed: Completed<Ipv4Flow, u32>| {
                *evicted += u64::from(matches!(completed.outcome, Outcome::Evicted(_)));
            })
            .unwrap();
        found.iter().map(Option::is_some).collect()
    }

    /// Offers a flow once in a period.
    fn offer(&mut self, number: u32) {
        let (usage, newest) = self.slow.entry(number).or_insert((0, u32::MAX));
        if *newest == self.period {
            return;
        }
        let passed = self.period.wrapping_sub(*newest).min(8);
        let used = (u16::from(*usage) >> passed) as u8 | 1 << 7;
        let operation = Operation::Insert {
            key: flow(number),
            decision: decision(number),
            evict: self.policy.evicts.then_some(used),
        };
        if self.smux.submit(operation, number).is_ok() {
            (*usage, *newest) = (used, self.period);
        } else {
            self.no_credit += 1;
        }
    }

    /// Ends the periods of a share of the slots; the load balancer's period ends with that of the last one.
    fn pass(&mut self, share: f64) {
        let groups = (f64::from(self.groups) * share).ceil() as u32;
        for _ in 0..groups {
            self.engine.end_period(self.next_group);
            self.next_group += 1;
            if self.next_group == self.groups {
                self.next_group = 0;
                self.period += 1;
            }
        }
    }
}

/// Draws from Zipf's law with exponent 1.
fn zipf(random: u64, flows: u32) -> u32 {
    let uniform = (random >> 11) as f64 / (1_u64 << 53) as f64;
    // Rank r has the share of ln(r + 1) - ln(r).
    let rank = (uniform * f64::from(flows + 1).ln()).exp() as u32 - 1;
    // The numbers of flows are random keys already.
    rank.min(flows - 1)
}

fn share_of(hits: &[bool]) -> f64 {
    hits.iter().filter(|hit| **hit).count() as f64 / hits.len() as f64
}

const BULK: usize = 512;

/// Measures the share of packets that hit, with and without eviction. All flows have been offloaded in an order that has nothing to do with their packets.
/// A flow has a packet in a period, on average.
pub fn zipf_hits(quick: bool) -> Value {
    let (warm, measured, scale) = if quick { (5, 3, 16) } else { (24, 8, 1) };
    let flows = FLOWS / scale;
    let share = BULK as f64 / f64::from(flows);
    let run = |evicts| {
        let mut system = System::new(
            Policy {
                evicts,
                established_only: false,
            },
            scale,
        );
        // Any odd factor that 5 does not divide gives a permutation.
        let shuffled = |number: u32| (u64::from(number) * 0x9e37_79b1 % u64::from(flows)) as u32;
        for first in (0..flows).step_by(BULK) {
            let bulk: Vec<_> = (first..first + BULK as u32)
                .map(|number| (shuffled(number), false))
                .collect();
            system.process(&bulk);
        }
        system.pass(1.0);
        let (mut hits, mut series, mut count) = (Vec::new(), Vec::new(), 0_u64);
        for period in 0..warm + measured {
            let mut of_period = Vec::new();
            for _ in 0..flows as usize / BULK {
                let mut packet = || {
                    count += 1;
                    (zipf(mix(count), flows), false)
                };
                let bulk: Vec<(u32, bool)> = (0..BULK).map(|_| packet()).collect();
                of_period.extend(system.process(&bulk));
                system.pass(share);
            }
            series.push(round(share_of(&of_period), 5));
            if period >= warm {
                hits.extend(of_period);
            }
        }
        (share_of(&hits), series, system.evicted)
    };
    let (with, series, evicted) = run(true);
    let (without, series_without, _) = run(false);
    json!({
        "hit_share": round(with, 5), "hit_share_without": round(without, 5), "evicted": evicted,
        "series": series, "series_without": series_without,
    })
}

/// Measures the hits of established flows, alone and while nine of ten packets are SYNs of a flood, by policy.
pub fn flood(quick: bool) -> Value {
    let (periods, scale) = if quick { (5, 256) } else { (12, 64) };
    let flows = FLOWS / scale;
    let run = |attack: bool, policy: Policy| {
        let mut system = System::new(policy, scale);
        let (mut hits, mut count) = (Vec::new(), 0_u64);
        // Each period, a twentieth of the flows end, and others begin with a SYN.
        for period in 0..periods {
            let first = period * flows / 20;
            for bulk in 0..flows as usize / BULK {
                let packets = packets((first, flows), bulk, period == 0, attack, &mut count);
                let found = system.process(&packets);
                if period > 0 {
                    let own = packets.iter().zip(found);
                    let own = own.filter(|((number, is_syn), _)| !is_syn && *number < ATTACKERS);
                    hits.extend(own.map(|(_, hit)| hit));
                }
                system.pass(BULK as f64 / f64::from(flows));
            }
        }
        (share_of(&hits), system.no_credit)
    };
    let policy = |evicts, established_only| Policy {
        evicts,
        established_only,
    };
    let mut rows = Vec::new();
    for (name, policy) in [
        ("established flows only, eviction", policy(true, true)),
        ("established flows only", policy(false, true)),
        ("every flow, eviction", policy(true, false)),
        ("every flow (the paper)", policy(false, false)),
    ] {
        let ((alone, _), (flooded, no_credit)) = (run(false, policy), run(true, policy));
        rows.push(json!({
            "policy": name, "alone": round(alone, 5), "flooded": round(flooded, 5),
            "lost_pct": round((alone - flooded) * 100.0, 3), "without_credit": no_credit,
        }));
    }
    json!(rows)
}

/// Numbers of the flood's flows begin here.
const ATTACKERS: u32 = 1 << 31;

fn packets(
    (first, flows): (u32, u32),
    bulk: usize,
    begins: bool,
    attack: bool,
    count: &mut u64,
) -> Vec<(u32, bool)> {
    let mut packets = Vec::with_capacity(10 * BULK);
    for index in 0..BULK {
        *count += 1;
        let random = mix(*count);
        let position = (bulk * BULK + index) as u32;
        // The flows of the last twentieth are new in this period.
        let is_new = begins || position >= flows / 20 * 19;
        if is_new {
            packets.push((first + position, true));
        }
        packets.push((first + position, false));
        packets.push((first + (random % u64::from(position + 1)) as u32, false));
        if attack {
            let attackers = u64::from(u32::MAX - ATTACKERS);
            let sent = if is_new { 27 } else { 18 };
            let syn = |each: u64| (ATTACKERS + (mix(random ^ each) % attackers) as u32, true);
            packets.extend((0..sent).map(syn));
        }
    }
    packets
}
