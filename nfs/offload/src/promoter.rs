//! Decides which flows get a rule, and which lose theirs.
//!
//! Rules are for times of load: the promoter begins when util+ (HNLB, section IV) reaches [`Limits::begin`], the heaviest flows first, and stops when it
//! falls to [`Limits::stop`]. A rule stays until its flow is idle, or until another flow is [`HEAVIER`] times as heavy, beyond chance, and the table is full:
//! so a rule that pays is not removed because the load has fallen, which it caused, and two flows of similar weight do not take turns.

use std::{collections::HashMap, time::Duration};

use crate::{
    Capabilities, Counts, Direction, FlowKey, Heavy, Ledger, Outcome, Refused, Rows, TargetId,
};

/// A flow replaces another one that is this many times lighter.
const HEAVIER: u64 = 2;
/// The time for which a flow that the table refused is not asked for again.
const REST: Duration = Duration::from_secs(30);
/// Flows that are watched: the least, the most, and for each one that the table can carry. Most samples are of light flows, which take the counters
/// from each other.
const WATCHED: usize = 1 << 12;
const MOST_WATCHED: usize = 1 << 17;
const WATCHED_PER_ENTRY: usize = 16;
/// Windows after which counts are halved. The lightest of thousands of flows have few samples in a window; more of them tell a heavier flow from chance.
/// This and `CERTAIN` are a compromise between following a shift of the traffic and exchanging flows for nothing, measured by `bench/hnlb`.
const HALF_LIFE: u32 = 4;
/// The least difference between two counts, in standard deviations, that is not taken for chance.
const CERTAIN: f64 = 1.8;

/// The limits of a promoter.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// util+ at which promotion begins, and at which it stops: 0 to 1.
    pub begin: f64,
    pub stop: f64,
    /// The least samples of a flow within a window that make it heavy.
    pub samples: u64,
    /// The number of packets per sample.
    pub sampling: u64,
    /// The time over which rates are compared.
    pub window: Duration,
    /// The time after which a rule without packets is removed.
    pub idle: Duration,
}

/// A flow with a rule, as the promoter sees it.
#[derive(Clone, Copy, Debug)]
struct Carried {
    packets: u64,
    /// Samples in this window, where the table counts nothing.
    samples: u64,
    /// Packets in the last windows, counted and halved as [`Heavy`] does.
    rate: u64,
    used: Duration,
}

/// The heavy flows, and the times at which they may be asked for.
#[derive(Debug)]
pub struct Promoter {
    limits: Limits,
    /// The table's most flows, and the number that it has room for: fewer after it was full, then one more per window.
    most: usize,
    room: usize,
    counts: Counts,
    installs_per_s: u64,
    heavy: Heavy,
    is_pressed: bool,
    /// The end of the current window.
    window_ends: Duration,
    /// Windows until counts are halved, and the number of windows that they cover.
    until_decay: u32,
    covered: f64,
    /// Installs that may be asked for until the next second.
    left: u64,
    refill: Duration,
    carried: HashMap<FlowKey, Carried>,
    resting: HashMap<FlowKey, Duration>,
}

impl Promoter {
    #[must_use]
    pub fn new(limits: Limits, table: &Capabilities) -> Self {
        let watched = (table.flows as usize).saturating_mul(WATCHED_PER_ENTRY);
        let watched = watched.clamp(WATCHED, MOST_WATCHED);
        Self {
            limits,
            most: table.flows as usize,
            room: table.flows as usize,
            counts: table.counts,
            installs_per_s: table.installs_per_s.into(),
            heavy: Heavy::new(watched),
            is_pressed: false,
            window_ends: Duration::ZERO,
            until_decay: HALF_LIFE,
            covered: 0.0,
            left: 0,
            refill: Duration::ZERO,
            carried: HashMap::new(),
            resting: HashMap::new(),
        }
    }

    /// Changes the limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Counts a sampled packet that the function has processed.
    pub fn sample(&mut self, flow: FlowKey) {
        match self.carried.get_mut(&flow) {
            // Its packets come to the function, too.
            Some(carried) if self.counts == Counts::None => carried.samples += 1,
            _ => self.heavy.sample(flow),
        }
    }

    /// Notes what the ledger has learnt.
    pub fn note(&mut self, outcome: &Outcome, now: Duration) {
        match outcome {
            Outcome::Used(flow) => {
                if let Some(carried) = self.carried.get_mut(flow) {
                    carried.used = now;
                }
            }
            Outcome::Free(flow) => drop(self.carried.remove(flow)),
            Outcome::Refused(flow, why) => {
                self.carried.remove(flow);
                match why {
                    Refused::Full => self.room = self.carried.len(),
                    Refused::Rate => self.left = 0,
                    _ => {}
                }
                self.resting.insert(*flow, now + REST);
            }
            Outcome::Reset => self.carried.clear(),
            Outcome::Replaced => {}
        }
    }

    /// Removes the rules of idle connections, and asks for rules for heavy ones; their answers are the function's affair. `record`: the backend and target
    /// of a flow that the function knows and that may be carried. Returns the flows asked for.
    pub fn tick<R: Rows>(
        &mut self,
        now: Duration,
        util_plus: f64,
        ledger: &mut Ledger<R>,
        record: impl Fn(&FlowKey) -> Option<(u16, TargetId)>,
    ) -> Vec<(FlowKey, u16)> {
        self.is_pressed =
            util_plus >= self.limits.begin || (self.is_pressed && util_plus > self.limits.stop);
        if now >= self.refill {
            (self.left, self.refill) = (self.installs_per_s, now + Duration::from_secs(1));
        }
        if now < self.window_ends {
            return Vec::new();
        }
        self.window_ends = now + self.limits.window;
        self.room = (self.room + 1).min(self.most);
        self.covered += 1.0;
        self.measure(now, ledger);
        let mut asked = Vec::new();
        if self.is_pressed {
            self.promote(now, ledger, record, &mut asked);
        }
        self.heavy.begin_window();
        self.until_decay -= 1;
        if self.until_decay == 0 {
            self.decay();
        }
        self.resting.retain(|_, until| *until > now);
        asked
    }

    fn decay(&mut self) {
        self.until_decay = HALF_LIFE;
        self.covered /= 2.0;
        self.heavy.decay();
        for carried in self.carried.values_mut() {
            carried.rate /= 2;
        }
    }

    /// Notes the rates of flows with a rule, and removes the rules of idle ones.
    fn measure<R: Rows>(&mut self, now: Duration, ledger: &mut Ledger<R>) {
        let requests = ledger
            .live()
            .filter(|live| live.direction == Direction::ToBackend);
        for flow in requests.map(|live| live.flow) {
            let packets = ledger.packets_of(&flow);
            // An earlier life may have asked for the rule.
            let new = Carried {
                packets,
                samples: 0,
                rate: 0,
                used: now,
            };
            let carried = self.carried.entry(flow).or_insert(new);
            let seen = std::mem::take(&mut carried.samples) * self.limits.sampling;
            let more = packets - carried.packets.min(packets) + seen;
            (carried.packets, carried.rate) = (packets, carried.rate + more);
            if more > 0 {
                carried.used = now;
            }
        }
        if self.counts == Counts::Idle {
            return;
        }
        let idle = self.limits.idle;
        for (flow, carried) in &self.carried {
            if now.saturating_sub(carried.used) >= idle {
                ledger.remove(flow);
            }
        }
    }

    fn promote<R: Rows>(
        &mut self,
        now: Duration,
        ledger: &mut Ledger<R>,
        record: impl Fn(&FlowKey) -> Option<(u16, TargetId)>,
        asked: &mut Vec<(FlowKey, u16)>,
    ) {
        let mut lightest: Vec<(u64, FlowKey)> = self
            .carried
            .iter()
            .map(|(flow, carried)| (carried.rate, *flow))
            .collect();
        lightest.sort_unstable_by(|one, other| other.cmp(one));
        let steady = (self.limits.samples as f64 * self.covered).ceil() as u64;
        let heavy = self.heavy.active(steady, self.limits.samples);
        for (flow, samples) in heavy {
            if self.left == 0 {
                return;
            }
            let rests = self.resting.get(&flow).is_some_and(|until| *until > now);
            if rests || ledger.backend_of(&flow).is_some() {
                continue;
            }
            let Some((backend, target)) = record(&flow) else {
                continue;
            };
            if self.carried.len() >= self.room {
                // Its place is free when the removal is effective; the flow is still heavy then, or need not be carried.
                let rate = samples * self.limits.sampling;
                // Such a table tells idle flows from others, not light ones from heavy ones.
                let weighs = self.counts != Counts::Idle;
                match lightest.last().filter(|_| weighs) {
                    Some((least, lighter)) if self.is_heavier(rate, *least) => {
                        ledger.remove(lighter);
                        lightest.pop();
                    }
                    _ => return,
                }
            } else if ledger.install(flow, backend, target, Direction::ToBackend) {
                self.left -= 1;
                asked.push((flow, backend));
                let carried = Carried {
                    packets: 0,
                    samples: 0,
                    rate: samples * self.limits.sampling,
                    used: now,
                };
                self.carried.insert(flow, carried);
            }
        }
    }

    /// Tells whether one number of packets is so much more than another that their flows should change places.
    fn is_heavier(&self, packets: u64, than: u64) -> bool {
        let sampling = self.limits.sampling.max(1) as f64;
        let [more, less] = [packets, than].map(|packets| packets as f64 / sampling);
        than * HEAVIER <= packets && more - less >= CERTAIN * (more + less).sqrt()
    }
}
