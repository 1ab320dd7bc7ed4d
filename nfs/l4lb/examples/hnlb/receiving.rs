//! HNLB's receiving loop (Algorithm 1) over simulated time: it polls its queues in turn, and a turn takes as long as was measured for its burst.

use nf_balancing::load::{feasible_burst, util_plus};
use serde_json::{json, Value};

/// The largest burst that the loop takes from a queue.
pub const BURST: usize = 32;
/// The frames that a queue holds.
const RING: u64 = 4096;
/// The time of a poll that finds nothing, in ns.
const EMPTY: f64 = 10.0;
const DURATION: f64 = 20e6;
/// Packets that the paper's generator, DPDK-Pktgen, sends in a row.
const TRAIN: u32 = 32;
/// The rate of the wire over the highest rate of the loop: in the paper, 14.88 million packets/s of 64 bytes at 10 Gb/s over 13 million.
const WIRE: f64 = 14.88 / 13.0;

/// The times at which packets arrive, in queues chosen at random.
#[derive(Clone, Copy)]
enum Arrivals {
    /// In trains at the rate of the wire, which begin at random times.
    Trains,
    /// Each for itself.
    Random,
}

/// Marsaglia's xorshift: numbers in [0, 1).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A sequence of packets at a load.
struct Generator {
    arrivals: Arrivals,
    load: f64,
    /// Nanoseconds between two packets of a train.
    gap: f64,
    sent: u32,
    train: f64,
    next: f64,
}

impl Generator {
    fn advance(&mut self, random: &mut Random) {
        match self.arrivals {
            Arrivals::Random => self.next -= (1.0 - random.unit()).ln() / self.load,
            Arrivals::Trains => {
                self.sent += 1;
                self.next += self.gap;
                if self.sent % TRAIN == 0 {
                    self.train -= (1.0 - random.unit()).ln() * f64::from(TRAIN) / self.load;
                    self.next = self.next.max(self.train);
                }
            }
        }
    }
}

/// A loop: its queues, and the nanoseconds of a turn by the size of its burst.
pub struct Loop {
    pub queues: usize,
    pub turn_ns: Vec<(usize, f64)>,
}

/// The counts of the loop at a load.
struct Run {
    util_plus: f64,
    has_lost: bool,
}

impl Loop {
    fn turn_ns(&self, burst: usize) -> f64 {
        let at = self.turn_ns.partition_point(|(size, _)| *size < burst);
        let (size, nanos) = self.turn_ns[at.min(self.turn_ns.len() - 1)];
        let Some((before, nanos_before)) = at.checked_sub(1).map(|at| self.turn_ns[at]) else {
            return nanos;
        };
        let part = (burst - before) as f64 / (size - before) as f64;
        nanos_before + part * (nanos - nanos_before)
    }

    /// Runs at this load, in packets per ns.
    fn run(&self, load: f64, arrivals: Arrivals) -> Run {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let full = BURST as f64 / self.turn_ns(BURST);
        let mut generator = Generator {
            arrivals,
            load,
            gap: 1.0 / (full * WIRE),
            sent: 0,
            train: 0.0,
            next: if load > 0.0 { 0.0 } else { f64::INFINITY },
        };
        let mut waiting = vec![0_u64; self.queues];
        let (mut now, mut busy) = (0.0, 0.0);
        let (mut bursts, mut packets) = (0_u64, 0_u64);
        let mut has_lost = false;
        let mut queue = 0;
        while now < DURATION {
            while generator.next <= now {
                let to = (random.unit() * self.queues as f64) as usize;
                match waiting[to] {
                    RING => has_lost = true,
                    _ => waiting[to] += 1,
                }
                generator.advance(&mut random);
            }
            let burst = waiting[queue].min(BURST as u64);
            if burst == 0 {
                now += EMPTY;
            } else {
                waiting[queue] -= burst;
                let turn = self.turn_ns(burst as usize);
                (now, busy) = (now + turn, busy + turn);
                (bursts, packets) = (bursts + 1, packets + burst);
            }
            queue = (queue + 1) % self.queues;
        }
        let feasible = feasible_burst(BURST, self.queues);
        Run {
            util_plus: util_plus(busy as u64, now as u64, packets, bursts, feasible),
            has_lost,
        }
    }

    /// Returns the highest load without loss, in packets per ns.
    fn most(&self, arrivals: Arrivals) -> f64 {
        let full = BURST as f64 / self.turn_ns(BURST);
        let (mut without, mut with) = (full * 0.5, full * 1.5);
        for _ in 0..12 {
            let middle = f64::midpoint(without, with);
            match self.run(middle, arrivals).has_lost {
                true => with = middle,
                false => without = middle,
            }
        }
        without
    }

    /// Returns util+ over the load, from none to the highest without loss, and the share of its variance that a line explains.
    pub fn curve(&self) -> Value {
        let (mpps, util, explained) = self.measure(Arrivals::Trains);
        let (_, _, explained_at_random) = self.measure(Arrivals::Random);
        json!({"mpps": mpps, "util_plus": util, "r2": explained, "r2_random": explained_at_random, "turn_ns": self.turn_ns})
    }

    fn measure(&self, arrivals: Arrivals) -> (Vec<f64>, Vec<f64>, f64) {
        let most = self.most(arrivals);
        let loads: Vec<f64> = (0..=20).map(|step| most * f64::from(step) / 20.0).collect();
        let util = loads.iter().map(|load| self.run(*load, arrivals).util_plus);
        let util: Vec<f64> = util.collect();
        let mpps = loads.iter().map(|load| load * 1000.0).collect();
        let explained = r2(&loads, &util);
        (mpps, util, explained)
    }
}

/// Returns the coefficient of determination of the regression line.
fn r2(xs: &[f64], ys: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (x0, y0) = (mean(xs), mean(ys));
    let sum = |one: &[f64], a: f64, other: &[f64], b: f64| -> f64 {
        one.iter().zip(other).map(|(x, y)| (x - a) * (y - b)).sum()
    };
    sum(xs, x0, ys, y0).powi(2) / (sum(xs, x0, xs, x0) * sum(ys, y0, ys, y0))
}
