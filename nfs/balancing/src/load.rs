//! The load metric: util+ of HNLB, section IV.
//!
//! util = time spent on packets / time; util+ = util * (1 + np / (nb * B)) / 2, for np packets in nb bursts of at most B. The burst factor lies between
//! 1/2 and 1, so util+ is 0 without traffic and 1 where every burst is full and no time is idle; between the two it is a fit, not a law.
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
            let result = util_plus(busy, elapsed * workers.max(1) as u64, packets, bursts);
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

/// Computes util+: `busy` nanoseconds out of `available`, in which `bursts` brought `packets`.
#[must_use]
pub fn util_plus(busy: u64, available: u64, packets: u64, bursts: u64) -> f64 {
    if bursts == 0 || available == 0 {
        return 0.0;
    }
    let util = (busy as f64 / available as f64).min(1.0);
    let fullness = packets as f64 / (bursts as f64 * Batch::MAX as f64);
    util * f64::midpoint(1.0, fullness.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn util_plus_is_zero_when_idle_and_one_at_full_load() {
        assert!(util_plus(0, 100, 0, 0).abs() < 1e-9);
        assert!((util_plus(100, 100, 640, 10) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn single_packets_give_half_the_util_plus_of_full_bursts() {
        let single = util_plus(100, 100, 10, 10);
        assert!((single - (1.0 + 1.0 / 64.0) / 2.0).abs() < 1e-9);
        // More packets in the same time raise util+.
        assert!(util_plus(50, 100, 320, 10) < util_plus(50, 100, 640, 10));
    }
}
