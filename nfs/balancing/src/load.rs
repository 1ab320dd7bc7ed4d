//! The load metric: util+ of HNLB, section IV.
//!
//! util = time spent on packets / time; util+ = util * min(1, (1 + np / (nb * B)) / 2), for np packets in nb bursts, of which B is the largest mean that
//! a loop can have without losing packets. The burst factor lies between 1/2 and 1, so util+ is 0 without traffic and 1 where bursts are full and no time
//! is idle; between the two it is a fit, not a law.
//! The time spent covers a worker's turns that brought packets, receiving and sending included; each turn is counted with the burst after it.

use nf_runtime::{state::StateBuilder, Batch, Refusal};

use crate::cells::{Gauges, Stripes, Worker};

/// Columns of the workers' counters.
const BUSY: usize = 0;
const BURSTS: usize = 1;
const PACKETS: usize = 2;
const COLUMNS: usize = 4;

/// Words of the window: its start, the sums at its start, and the result of the last whole window.
const SINCE: usize = 0;
const SUMS: usize = 1;
const RESULT: usize = 4;
const WORDS: usize = 8;

/// The length of a window.
const WINDOW: u64 = 1_000_000_000;

/// The load of one instance: time used out of time available.
pub struct Load {
    sums: Stripes,
    window: Gauges,
}

impl Load {
    /// # Errors
    /// Those of any region.
    pub fn declare(state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self {
            sums: Stripes::declare(state, "load", 1, COLUMNS)?,
            window: Gauges::declare(state, "load-window", WORDS)?,
        })
    }

    /// Counts a burst of packets; `nanos` is the time that the burst before it took.
    #[inline]
    pub fn spent(&self, worker: Worker, nanos: u64, packets: usize) {
        self.sums
            .add_all(worker, 0, BUSY, [nanos, 1, packets as u64]);
    }

    /// Closes the window if it is over.
    pub fn tick(&self, now: u64, workers: usize) {
        let since = self.window.get(SINCE);
        let elapsed = now.saturating_sub(since);
        if since != 0 && elapsed < WINDOW {
            return;
        }
        let sums = [BUSY, BURSTS, PACKETS].map(|column| self.sums.sum(0, column));
        if since != 0 {
            let [busy, bursts, packets] =
                [0, 1, 2].map(|each| sums[each].wrapping_sub(self.window.get(SUMS + each)));
            let available = elapsed * workers.max(1) as u64;
            // A worker's batch has the packets of all its queues.
            let feasible = feasible_burst(Batch::MAX, 1);
            let result = util_plus(busy, available, packets, bursts, feasible);
            self.window.set(RESULT, result.to_bits());
        }
        self.window.set(SINCE, now);
        for (each, sum) in sums.into_iter().enumerate() {
            self.window.set(SUMS + each, sum);
        }
    }

    /// Returns util+ of the last whole window.
    #[must_use]
    pub fn util_plus(&self) -> f64 {
        f64::from_bits(self.window.get(RESULT))
    }
}

/// Returns B for a loop that takes bursts of at most `largest` packets from each of its queues. With several queues, full bursts mean that packets of
/// other queues are lost, and half of them are feasible: HNLB has 32 for one queue and 16 for several.
#[must_use]
pub fn feasible_burst(largest: usize, queues: usize) -> f64 {
    match queues {
        0 | 1 => largest as f64,
        _ => largest as f64 / 2.0,
    }
}

/// Computes util+: `busy` nanoseconds out of `available`, in which `bursts` brought `packets`. `feasible`: see [`feasible_burst`].
#[must_use]
pub fn util_plus(busy: u64, available: u64, packets: u64, bursts: u64, feasible: f64) -> f64 {
    if bursts == 0 || available == 0 {
        return 0.0;
    }
    let util = (busy as f64 / available as f64).min(1.0);
    let fullness = packets as f64 / (bursts as f64 * feasible);
    util * f64::midpoint(1.0, fullness).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: f64 = 32.0;
    const SEVERAL: f64 = 16.0;

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn the_feasible_burst_of_several_queues_is_half_of_that_of_one() {
        assert!(close(feasible_burst(32, 1), ONE));
        assert!(close(feasible_burst(32, 2), SEVERAL));
        assert!(close(feasible_burst(32, 10), SEVERAL));
    }

    #[test]
    fn util_plus_is_zero_when_idle_and_one_at_full_load() {
        for feasible in [ONE, SEVERAL] {
            assert!(close(util_plus(0, 100, 0, 0, feasible), 0.0));
            let packets = 10 * feasible as u64;
            assert!(close(util_plus(100, 100, packets, 10, feasible), 1.0));
            assert!(close(util_plus(50, 100, packets, 10, feasible), 0.5));
        }
    }

    #[test]
    fn util_plus_of_bursts_beyond_the_feasible_ones_is_clipped() {
        assert!(close(util_plus(100, 100, 320, 10, SEVERAL), 1.0));
        assert!(close(util_plus(200, 100, 320, 10, SEVERAL), 1.0));
    }

    #[test]
    fn single_packets_give_half_the_util_plus_of_full_bursts() {
        let single = util_plus(100, 100, 10, 10, ONE);
        assert!(close(single, (1.0 + 1.0 / 32.0) / 2.0));
        // More packets in the same time raise util+.
        assert!(util_plus(50, 100, 160, 10, ONE) < util_plus(50, 100, 320, 10, ONE));
    }
}
